//! The files of an open database, made again when they were removed: from what the system still
//! keeps of them, which is everything as long as they are open (DUR-01).

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::super::contract::StoreError;
use super::super::file_id::Lookup;
use super::{NEW_FILE, Sqlite, connect, failed, judge, new_file};

/// What [`Sqlite::restore_files`] has done.
enum Restored {
    /// No file was missing.
    Nothing,
    /// The files are new, and have to be opened.
    Files,
}

impl Sqlite {
    /// Checks that the next process will find what was written.
    pub(super) fn verified(&self) -> Result<(), StoreError> {
        self.place.verify().map_err(StoreError::Broken)
    }

    /// Has a connection to files that the next process finds.
    pub(super) fn repair(&mut self) -> Result<(), StoreError> {
        match self.connection.take() {
            None => self.reconnect()?,
            Some(open) => match self.restore_files(&open) {
                Ok(Restored::Nothing) => self.connection = Some(open),
                Ok(Restored::Files) => {
                    // Its locks on a database that stays would keep the new one out.
                    drop(open);
                    self.connection = Some(connect(self.place.dir(), &self.log_pages)?);
                }
                Err(error) => {
                    // It has all there is.
                    self.connection = Some(open);
                    return Err(error);
                }
            },
        }
        Ok(())
    }

    /// Opens what is on disk, where the connection could not be trusted any more.
    fn reconnect(&mut self) -> Result<(), StoreError> {
        let path = self.place.database_path();
        if self.place.database() == Lookup::Missing {
            // An empty one in its place would pass for all there ever was.
            let what = "was removed, and its content cannot be read any more: restart the daemon";
            return Err(StoreError::Broken(format!("{} {what}", path.display())));
        }
        self.connection = Some(connect(self.place.dir(), &self.log_pages)?);
        Ok(())
    }

    /// Makes the files again that are missing, from those that are open. A file that is another one
    /// is left alone.
    fn restore_files(&self, open: &Connection) -> Result<Restored, StoreError> {
        let paths = [
            (self.place.database(), self.place.database_path()),
            (self.place.log(), self.place.log_path()),
        ];
        if let Some((_, path)) = paths.iter().find(|(found, _)| *found == Lookup::Other) {
            let path = path.display();
            return Err(StoreError::Broken(format!(
                "{path} was replaced by another file; move that away, and the tasks are written \
                 anew (mv {path} {path}.other), or restart the daemon to use it"
            )));
        }
        let [(database, path), (log, log_path)] = &paths;
        match (database, log) {
            (Lookup::Same, Lookup::Same) => return Ok(Restored::Nothing),
            // What the log had is in the database then.
            (Lookup::Same, _) => copy_log(open, self.place.dir())?,
            (_, log) => {
                copy_database(open, self.place.dir())?;
                if *log == Lookup::Same {
                    // It would be taken for the log of the new one.
                    fs::remove_file(log_path).map_err(|error| failed(log_path, &error))?;
                }
                let new = self.place.dir().join(NEW_FILE);
                put_in_place(&new, path).map_err(|error| failed(path, &error))?;
            }
        }
        tracing::warn!(file = %path.display(), "made again from the files that are still open");
        Ok(Restored::Files)
    }
}

/// Copies all of the log into the database.
fn copy_log(open: &Connection, dir: &Path) -> Result<(), StoreError> {
    let busy = open.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match busy.map_err(|error| judge(dir, &error))? {
        0 => Ok(()),
        _ => Err(StoreError::Broken("the log was removed while it is read".into())),
    }
}

/// Writes everything that a connection has into a new file, [`NEW_FILE`].
fn copy_database(open: &Connection, dir: &Path) -> Result<(), StoreError> {
    let new = new_file(dir)?;
    let name = ValueRef::Text(new.as_os_str().as_bytes());
    open.execute("VACUUM INTO ?1", [ToSqlOutput::Borrowed(name)])
        .map_err(|error| judge(dir, &error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(|error| failed(&new, &error))
}

/// Gives a new file its name, which must not be another file's meanwhile.
fn put_in_place(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        // A file system that does not know how to.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(new, path)?;
            fs::remove_file(new)?;
        }
        renamed => renamed?,
    }
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all())
}
