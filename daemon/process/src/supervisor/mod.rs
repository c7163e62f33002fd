//! The supervisor: one thread that starts, watches and ends every command of a program.

mod activity;
mod child_exits;
mod direct;
mod event_loop;
mod guarded;
mod handle;
mod job;
mod keeper;
mod mailbox;
mod orphans;
mod part;
mod pipes;
pub(crate) mod report;
mod shared;
mod spares;
mod strays;
mod uid_lookup;
pub(crate) mod usage;

pub use handle::Supervisor;
pub use mailbox::SupervisorGone;
pub use orphans::Orphans;
