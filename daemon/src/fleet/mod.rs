//! The table of tasks that several daemons share, from the daemon's side (FLT-01 to FLT-06).
//!
//! [`FleetStore`] is in the place of a store: it carries out the engine's writes, and renews the lease.
//! [`Reader`] answers the engine's questions on a connection of its own and looks for changes by others.

mod inspect;
mod lease;
mod names;
mod options;
mod reader;
mod records;
mod shared;
mod status;
mod store;

pub(crate) use inspect::inspect;
pub(crate) use options::{FleetOptions, FleetSettings};
pub(crate) use reader::Reader;
pub(crate) use store::FleetStore;
