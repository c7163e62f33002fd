//! Identity of the files of an open database.
//!
//! A database whose files are removed or renamed keeps working: the kernel keeps the open files,
//! but the next process will not find them. After each write the paths are therefore compared with
//! the open files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::StateDir;
use super::file_id::{FileId, Lookup};

/// The database in the store's directory.
pub(super) const FILE: &str = "tasks.db";
/// The write-ahead log, as SQLite calls it.
pub(super) const LOG_FILE: &str = "tasks.db-wal";

/// Directory of a database and the identity of its files.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    /// Lock that excludes other daemons; `None` if the caller owns the directory.
    state: Option<Arc<StateDir>>,
    database: Option<FileId>,
    /// `None` until there is a log.
    log: Option<FileId>,
}

impl Place {
    /// The place of a database that is not open yet.
    pub(super) const fn new(dir: PathBuf, state: Option<Arc<StateDir>>) -> Self {
        Self { dir, state, database: None, log: None }
    }

    /// Directory of the database.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the database.
    pub(super) fn database_path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Path of the write-ahead log.
    pub(super) fn log_path(&self) -> PathBuf {
        self.dir.join(LOG_FILE)
    }

    /// Records the identity of the files of a newly opened database.
    pub(super) fn note(&mut self) {
        self.database = FileId::at(&self.database_path()).ok();
        self.log = FileId::at(&self.log_path()).ok();
    }

    /// State of the path of the database.
    pub(super) fn database(&self) -> Lookup {
        look(self.database, &self.database_path())
    }

    /// State of the path of the log.
    pub(super) fn log(&self) -> Lookup {
        look(self.log, &self.log_path())
    }

    /// Checks that the next process will find the data, and that no other daemon writes here.
    ///
    /// # Errors
    /// A description of the problem.
    pub(super) fn verify(&self) -> Result<(), String> {
        let files = [(self.database(), self.database_path()), (self.log(), self.log_path())];
        let complaint = files.iter().find_map(|(found, path)| found.complaint(path));
        match complaint {
            Some(what) => Err(what),
            None => self.state.as_ref().map_or(Ok(()), |state| state.verify()),
        }
    }

    /// Creates removed directories again and takes their lock again.
    ///
    /// # Errors
    /// A description of the problem: usually that another daemon holds the lock.
    pub(super) fn retake(&self) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        state.retake().and_then(|()| state.store()).map(drop).map_err(|error| error.to_string())
    }
}

/// Compares the file at a path with the recorded one.
fn look(noted: Option<FileId>, path: &Path) -> Lookup {
    noted.map_or(Lookup::Same, |file| file.look_at(path))
}
