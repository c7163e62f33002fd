//! Recreates removed files of an open database from the open descriptors, which keep their content
//! (DUR-01).

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
use super::{NEW_FILE, Sqlite, classify, connect, failed, new_file};

/// Result of [`Sqlite::restore_files`].
enum Restored {
    /// No file was missing.
    Nothing,
    /// The files are new and must be opened.
    Files,
}

impl Sqlite {
    /// Checks that the next process will find the data.
    pub(super) fn verified(&self) -> Result<(), StoreError> {
        self.place.verify().map_err(StoreError::Broken)
    }

    /// Ensures a connection to files that the next process will find.
    pub(super) fn repair(&mut self) -> Result<(), StoreError> {
        match self.connection.take() {
            None => self.reconnect()?,
            Some(open) => match self.restore_files(&open) {
                Ok(Restored::Nothing) => self.connection = Some(open),
                Ok(Restored::Files) => {
                    // Its locks on a remaining database would keep the new connection out.
                    drop(open);
                    self.connection = Some(connect(self.place.dir(), &self.log_pages)?);
                }
                Err(error) => {
                    // The old connection still has all data.
                    self.connection = Some(open);
                    return Err(error);
                }
            },
        }
        Ok(())
    }

    /// Opens the files on disk after the connection was closed as untrusted.
    fn reconnect(&mut self) -> Result<(), StoreError> {
        let path = self.place.database_path();
        if self.place.database() == Lookup::Missing {
            // An empty replacement would hide the loss.
            let what = "was removed and its content can no longer be read: restart the daemon";
            return Err(StoreError::Broken(format!("{} {what}", path.display())));
        }
        self.connection = Some(connect(self.place.dir(), &self.log_pages)?);
        Ok(())
    }

    /// Writes missing files again from the open ones. A file that was replaced is left alone.
    fn restore_files(&self, open: &Connection) -> Result<Restored, StoreError> {
        let paths = [
            (self.place.database(), self.place.database_path()),
            (self.place.log(), self.place.log_path()),
        ];
        if let Some((_, path)) = paths.iter().find(|(found, _)| *found == Lookup::Other) {
            let path = path.display();
            return Err(StoreError::Broken(format!(
                "{path} was replaced by another file; move that away to have the tasks written \
                 again (mv {path} {path}.other), or restart the daemon to use the replacement"
            )));
        }
        let [(database, path), (log, log_path)] = &paths;
        match (database, log) {
            (Lookup::Same, Lookup::Same) => return Ok(Restored::Nothing),
            // After the checkpoint the database has the content of the log.
            (Lookup::Same, _) => copy_log(open, self.place.dir())?,
            (_, log) => {
                copy_database(open, self.place.dir())?;
                if *log == Lookup::Same {
                    // SQLite would take the file for the log of the new database.
                    fs::remove_file(log_path).map_err(|error| failed(log_path, &error))?;
                }
                let new = self.place.dir().join(NEW_FILE);
                put_in_place(&new, path).map_err(|error| failed(path, &error))?;
            }
        }
        tracing::warn!(file = %path.display(), "recreated a removed file from the open descriptors");
        Ok(Restored::Files)
    }
}

/// Checkpoints the whole log.
fn copy_log(open: &Connection, dir: &Path) -> Result<(), StoreError> {
    let busy = open.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match busy.map_err(|error| classify(dir, &error))? {
        0 => Ok(()),
        _ => Err(StoreError::Broken("the write-ahead log was removed while being read".into())),
    }
}

/// Copies the content of a connection into a new file, [`NEW_FILE`].
fn copy_database(open: &Connection, dir: &Path) -> Result<(), StoreError> {
    let new = new_file(dir)?;
    let name = ValueRef::Text(new.as_os_str().as_bytes());
    open.execute("VACUUM INTO ?1", [ToSqlOutput::Borrowed(name)])
        .map_err(|error| classify(dir, &error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(|error| failed(&new, &error))
}

/// Renames a new file to its final name, unless that exists.
fn put_in_place(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        // The file system does not support RENAME_NOREPLACE.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(new, path)?;
            fs::remove_file(new)?;
        }
        renamed => renamed?,
    }
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all())
}
