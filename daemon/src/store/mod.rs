//! The store: keeps tasks beyond the lifetime of the process (DUR-01).
//!
//! A [`Store`] commits batches of writes atomically and reads records back. `Sqlite` keeps them on
//! disk, [`Memory`] in the process, and [`Faulty`] injects failures in front of another store. The
//! daemon runs the store on a thread of its own, which commits all queued writes as one batch and
//! reports its progress to the loop.
//!
//! A test sees how a program behaves whose disk fails:
//!
//! ```no_run
//! use ceased::Daemon;
//! use ceased::store::{Fault, Faults, Faulty, Memory};
//!
//! let faults = Faults::default();
//! let daemon = Daemon::new().store(Faulty::new(Memory::new(), faults.clone())).start()?;
//! // From now on no task can be created, and everything else goes on.
//! faults.set(Fault::Full);
//! let _peer = daemon.connect()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod backing;
pub(crate) mod contract;
pub(crate) mod directory;
mod faulty;
mod file_id;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod manifests;
mod memory;
pub(crate) mod open;
pub(crate) mod orders;
#[cfg(feature = "sqlite")]
mod place;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "only a file needs all of it"))]
pub(crate) mod record;
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
#[cfg(feature = "cli")]
pub(crate) use directory::check as check_state_dir;
pub use directory::{StateDir, StateDirError};

pub use faulty::{Fault, Faults, Faulty};
pub use memory::Memory;
pub use open::Damaged;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
