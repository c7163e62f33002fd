//! The guard: a process between the daemon and one command that outlives a killed daemon and ends
//! the command and everything it started.
//!
//! It is a child subreaper: a descendant that loses its parent, whatever its session or group, is
//! reparented to the guard. It holds the other end of a socket of the daemon; end of file means
//! that the daemon is dead, and the guard kills the job. It is single-threaded, makes no decisions,
//! and blocks all signals, so that only SIGKILL ends it.

mod hook;
mod keep;
mod main;
mod namespace;
pub(crate) mod program;
pub(crate) mod protocol;
pub(crate) mod roster;

pub use hook::init;
pub use program::Program;
pub(crate) use program::Started;
