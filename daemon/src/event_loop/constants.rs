//! Tokens of the poll, and times of the loop.

use std::time::Duration;

use mio::Token;

/// Connections start here; below are the waker, the signals and the listeners.
pub(super) const FIRST_CONN: u64 = 1024;
pub(super) const WAKER: Token = Token(0);
pub(super) const SIGNALS: Token = Token(1);
pub(super) const FIRST_LISTENER: usize = 2;

/// At most this much of a shutdown's time is kept for what comes after the end of its jobs.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long accepting rests when the system has no room for another peer.
pub(super) const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Peers accepted in one turn at most, so that those already here are not kept waiting.
pub(super) const ACCEPTS_MAX: usize = 64;
/// How often a TCP peer that has closed its side is asked whether it is still there.
pub(super) const PROBE: Duration = Duration::from_secs(1);
/// How long the last words of a closed connection may take to leave, and those of all at the end
/// while nobody takes any.
pub(super) const LAST_FLUSH: Duration = Duration::from_secs(1);
/// How long processes may take to go after SIGKILL, at the very end.
pub(super) const LAST_KILL: Duration = Duration::from_secs(5);
/// How long the store may take to write what it was told, at the very end.
pub(super) const LAST_WRITES: Duration = Duration::from_secs(10);
