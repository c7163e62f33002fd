//! Contract of a store: the trait, and its errors.

use std::fmt;

use ceased_core::tasks::durable::{RecordKey, StoreWrite, TaskOutcome, TaskRecord};

/// Where tasks are kept. Used by one thread at a time.
pub trait Store: Send {
    /// Reads every record. Outcomes of more than `resident` bytes stay where they are, and their
    /// records say so.
    ///
    /// # Errors
    /// [`StoreError`]; records handed to `each` before are of no use then.
    fn restore(
        &mut self,
        resident: usize,
        each: &mut dyn FnMut(TaskRecord),
    ) -> Result<(), StoreError>;

    /// Carries out all of these writes, in order, or none; on return they are on disk.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Full`] and [`StoreError::Refused`] nothing of the batch
    /// is in the store; after the others that is unknown.
    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError>;

    /// Outcome of a task; `None` without a record of this key, or without an outcome.
    ///
    /// # Errors
    /// [`StoreError`].
    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError>;

    /// A small step of maintenance; for idle times.
    /// True when there is more to do.
    ///
    /// # Errors
    /// [`StoreError`].
    fn tidy(&mut self) -> Result<bool, StoreError>;

    /// Whether it has to be [tidied](Store::tidy) soon although there is something else to do.
    fn needs_tidying(&self) -> bool {
        false
    }

    /// Bytes on the disk; `None` where there is none or that cannot be told.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Checks, without a write, that the next process will find the written records; for a look now
    /// and then while there is nothing to write.
    ///
    /// # Errors
    /// [`StoreError::Broken`] when the files were removed, renamed or replaced.
    fn verify(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Has it take writes again, after [`StoreError::Broken`]: with the records on disk, or with
    /// those that it still has where its files are gone.
    ///
    /// # Errors
    /// [`StoreError`].
    fn reopen(&mut self) -> Result<(), StoreError>;
}

/// Whether a batch may use the room that is kept in reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It may not: it begins something new, and no peer was told of it yet.
    New,
    /// It may: it ends something that was begun, or gives room back.
    Owed,
}

impl Due {
    /// Kind of a write. A task that no peer was told of is new, also when it is over already, and
    /// so would be one that is asked for.
    #[must_use]
    pub const fn of(write: &StoreWrite) -> Self {
        match write {
            StoreWrite::New(_) | StoreWrite::Probe => Self::New,
            StoreWrite::Put(_)
            | StoreWrite::Delete(_)
            | StoreWrite::Cancel(_)
            | StoreWrite::Watch(_)
            | StoreWrite::Unwatch(_)
            | StoreWrite::Change(_)
            | StoreWrite::Input { .. }
            | StoreWrite::Taken(_)
            | StoreWrite::Receipt { .. }
            | StoreWrite::Claim { .. }
            | StoreWrite::Keyed(..)
            | StoreWrite::Retire => Self::Owed,
        }
    }
}

/// Reason of a failed operation of a store. The texts are for people and name the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room. The store is as it was and goes on.
    Full,
    /// It cannot keep this, whatever the room. The store is as it was and goes on.
    Refused(String),
    /// The system failed it. It has to be [reopened](Store::reopen).
    Broken(String),
    /// The records it reads differ from the written ones, or its format is newer. It must not be
    /// used, and must not be replaced silently.
    Unusable(Unusable),
    /// The system cannot tell whether the written records are on disk, and asking again does not
    /// help: the kernel has dropped the pages it could not write. Only a new process can be
    /// trusted.
    Lost(String),
}

/// A store that is there and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// It is damaged; the text says where and how.
    Damaged(String),
    /// It has a newer format than this version knows; the text says so.
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
    /// The store is damaged in this way.
    pub(super) fn damaged(what: impl Into<String>) -> Self {
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
