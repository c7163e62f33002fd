//! The files of an open database, as they were when it was opened.
//!
//! A database whose files were removed or renamed goes on working: the system keeps them until they
//! are closed, and the next process does not find them. So after each write the paths are compared
//! with the files that are open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::StateDir;
use super::file_id::{FileId, Lookup};

/// The database in the store's directory.
pub(super) const FILE: &str = "tasks.db";
/// The write-ahead log, as SQLite calls it.
pub(super) const LOG_FILE: &str = "tasks.db-wal";

/// The directory of a database and the identity of its files.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    /// Keeps other daemons out; `None` for a directory that the caller keeps for itself.
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

    /// Its directory.
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

    /// Notes the files of a database that was opened just now.
    pub(super) fn note(&mut self) {
        self.database = FileId::at(&self.database_path()).ok();
        self.log = FileId::at(&self.log_path()).ok();
    }

    /// Where the path of the database leads to.
    pub(super) fn database(&self) -> Lookup {
        look(self.database, &self.database_path())
    }

    /// Where the path of the log leads to.
    pub(super) fn log(&self) -> Lookup {
        look(self.log, &self.log_path())
    }

    /// Checks that the next process finds what was written, and that no other daemon writes here.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn verify(&self) -> Result<(), String> {
        let files = [(self.database(), self.database_path()), (self.log(), self.log_path())];
        let complaint = files.iter().find_map(|(found, path)| found.complaint(path));
        match complaint {
            Some(what) => Err(what),
            None => self.state.as_ref().map_or(Ok(()), |state| state.verify()),
        }
    }

    /// Makes the directories again that are missing, and takes their lock again.
    ///
    /// # Errors
    /// Why that is not possible, in words: usually that another daemon has it.
    pub(super) fn retake(&self) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        state.retake().and_then(|()| state.store()).map(drop).map_err(|error| error.to_string())
    }
}

/// Where a path leads to, of a file that was noted.
fn look(noted: Option<FileId>, path: &Path) -> Lookup {
    noted.map_or(Lookup::Same, |file| file.look_at(path))
}
