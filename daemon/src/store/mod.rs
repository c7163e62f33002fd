//! The store: where tasks are kept so that they outlive the process (DUR-01).
//!
//! A [`Store`] carries out batches of writes, each whole or not at all, and reads back what it
//! has. `Sqlite` is the one for a disk, [`Memory`] forgets with the process, [`Faulty`] fails on
//! purpose in front of another. The daemon runs one on a thread of its own, which writes whatever
//! has been queued as one batch and then tells the loop how far it got.

pub(crate) mod contract;
pub(crate) mod directory;
mod faulty;
mod file_id;
pub(crate) mod health;
pub(crate) mod inspect;
mod memory;
pub(crate) mod open;
pub(crate) mod orders;
#[cfg(feature = "sqlite")]
mod place;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "only a file needs all of it"))]
mod record;
#[cfg(feature = "sqlite")]
mod reserve;
#[cfg(feature = "sqlite")]
mod rows;
#[cfg(feature = "sqlite")]
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;
pub(crate) mod thread;
mod worker;

/// The engine's types that a store deals in.
pub use ceased_core::tasks::durable;
pub use contract::{Due, Store, StoreError, Unusable};
pub use directory::{StateDir, StateDirError};

pub use faulty::{Fault, Faults, Faulty};
pub use memory::Memory;
pub use open::Damaged;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
