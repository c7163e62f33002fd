//! Tokens of the poll, and times of the loop.

use std::time::Duration;

use mio::Token;

/// Connections start here; below are the waker, the signals and the listeners.
pub(crate) const FIRST_CONN: u64 = 1024;
pub(crate) const WAKER: Token = Token(0);
pub(crate) const SIGNALS: Token = Token(1);
pub(crate) const FIRST_LISTENER: usize = 2;

/// The part of a shutdown's time that is kept for the steps after the end of its jobs, at most.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long accepting rests when the system has no room for another peer.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Peers accepted in one turn at most, so that those already here are not kept waiting.
pub(crate) const ACCEPTS_MAX: usize = 64;
/// How often a TCP peer that has closed its side is asked whether it is still there.
pub(crate) const PROBE: Duration = Duration::from_secs(1);
/// How long the last words of a closed connection may take to leave, and those of all at the end
/// while no peer takes any.
pub(crate) const LAST_FLUSH: Duration = Duration::from_secs(1);
/// How long processes may take to go after SIGKILL, at the very end.
pub(crate) const LAST_KILL: Duration = Duration::from_secs(5);
/// Time limit for the last writes of the store, at the very end.
pub(crate) const LAST_WRITES: Duration = Duration::from_secs(10);
