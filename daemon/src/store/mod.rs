//! The store: keeps tasks beyond the lifetime of the process (DUR-01).
//!
//! A [`Store`] commits batches of writes atomically and reads records back. `Sqlite` keeps them on
//! disk, [`Memory`] in the process, and [`Faulty`] injects failures in front of another store. The
//! daemon runs the store on a thread of its own, which commits all queued writes as one batch and
//! reports its progress to the loop.

pub(crate) mod directory;
mod faulty;
mod file_id;
pub(crate) mod health;
pub(crate) mod inspect;
mod memory;
pub(crate) mod open;
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

use std::fmt;

use ceased_core::tasks::durable::{RecordKey, StoreWrite, TaskRecord};

/// The engine's types that a store uses.
pub use ceased_core::tasks::durable;
pub use directory::{StateDir, StateDirError};

pub use faulty::{Fault, Faults, Faulty};
pub use memory::Memory;
pub use open::Damaged;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;

use durable::TaskOutcome;

/// Storage of tasks. Used by one thread at a time.
pub trait Store: Send {
    /// Reads every record. Outcomes larger than `resident` bytes stay in the store, and their
    /// records say so.
    ///
    /// # Errors
    /// [`StoreError`]; discard the records passed to `each` before.
    fn restore(
        &mut self,
        resident: usize,
        each: &mut dyn FnMut(TaskRecord),
    ) -> Result<(), StoreError>;

    /// Commits all of these writes, in order, or none; on return they are durable.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Full`] and [`StoreError::Refused`] nothing of the batch
    /// is in the store; after the others its state is unknown.
    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError>;

    /// Reads the outcome of a task; `None` if there is no record with this key or no outcome yet.
    ///
    /// # Errors
    /// [`StoreError`].
    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError>;

    /// Performs one small step of maintenance, when the store is idle. True if there is more to do.
    ///
    /// # Errors
    /// [`StoreError`].
    fn tidy(&mut self) -> Result<bool, StoreError>;

    /// Whether [maintenance](Store::tidy) is due soon, even if the store is not idle.
    fn needs_tidying(&self) -> bool {
        false
    }

    /// Size on disk; `None` if unknown or not on disk.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Checks, without a write, that the next process will find the data; called periodically while
    /// there are no writes.
    ///
    /// # Errors
    /// [`StoreError::Broken`] when the files were removed, renamed or replaced.
    fn verify(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes the store writable again after [`StoreError::Broken`]: from the files on disk, or from
    /// the open descriptors if the files were removed.
    ///
    /// # Errors
    /// [`StoreError`].
    fn reopen(&mut self) -> Result<(), StoreError>;
}

/// Whether a batch may use the reserved space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It may not: it starts something new that no client has been told of.
    New,
    /// It may: it finishes something that was started, or frees room.
    Owed,
}

impl Due {
    /// Classifies a write. A task not yet disclosed to a client is new, even if it has already
    /// ended.
    #[must_use]
    pub const fn of(write: &StoreWrite) -> Self {
        match write {
            StoreWrite::New(_) | StoreWrite::Probe => Self::New,
            StoreWrite::Put(_) | StoreWrite::Delete(_) => Self::Owed,
        }
    }
}

/// Why a store did not carry out an operation. The texts are for people and name the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// No room. The store is unchanged and usable.
    Full,
    /// The store cannot keep this record, whatever the room. The store is unchanged and usable.
    Refused(String),
    /// A system call failed. The store must be [reopened](Store::reopen).
    Broken(String),
    /// The data read is damaged, or its format is newer. The store must not be used, nor replaced
    /// without notice.
    Unusable(Unusable),
    /// It is unknown whether the written data is durable, and a retry does not help: after a failed
    /// fsync the kernel drops the dirty pages. Only a new process can read the true state.
    Lost(String),
}

/// An existing store that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// Damaged; the text names file and defect.
    Damaged(String),
    /// The format is newer than this version supports.
    TooNew(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(what) | Self::TooNew(what) => f.write_str(what),
        }
    }
}

impl StoreError {
    /// An error for a damaged store.
    fn damaged(what: impl Into<String>) -> Self {
        Self::Unusable(Unusable::Damaged(what.into()))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there is no room left for tasks"),
            Self::Refused(what) | Self::Broken(what) | Self::Lost(what) => f.write_str(what),
            Self::Unusable(what) => what.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}
