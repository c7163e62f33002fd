//! The guard: a process between the daemon and one command, that outlives the daemon just long
//! enough to end the command and everything it started.
//!
//! It is a child subreaper: a descendant that loses its parent, whatever session or group it moved
//! to, becomes the guard's own child and cannot get out of its sight. It holds the other end of a
//! socket of the daemon's; when that ends, the daemon is dead and the guard kills what it guards.
//! It runs in one thread, decides nothing, and blocks all signals, so that only SIGKILL ends it.

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
