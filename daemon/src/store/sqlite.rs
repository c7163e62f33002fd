//! The store on disk: SQLite with a write-ahead log, synced at every commit, in exclusive locking
//! mode.
//!
//! `tasks.db` and `tasks.db-wal` belong together; `reserve` is space for a full disk. An existing
//! file that cannot be read is never replaced: opening it fails. Files that are removed while open
//! are detected and written again from the open descriptors.

mod repair;

use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, ffi};

use super::contract::{Due, Store, StoreError};
use super::directory::StateDir;
use super::place::{FILE, LOG_FILE, Place};
use super::reserve::{self, Reserve};
use super::{rows, schema};
use ceased_core::tasks::durable::{RecordKey, StoreWrite, TaskOutcome, TaskRecord};
/// A database that is being made.
const NEW_FILE: &str = "tasks.db.new";
/// The reserve.
const RESERVE_FILE: &str = "reserve";
/// Temporary file that tests whether there is room.
const PROBE_FILE: &str = "probe";

/// Size of the log in pages at which it is checkpointed: 4 MiB.
const LOG_PAGES: usize = 1000;
/// Bytes per page.
const PAGE_BYTES: usize = 4096;
/// Size in bytes to which SQLite truncates the log when restarting it.
const LOG_BYTES_KEPT: i64 = 8 * 1024 * 1024;
/// Size to which the log is extended before use and truncated when idle: its size at a checkpoint.
/// A sync takes twice as long if the file has grown.
const LOG_BYTES: u64 = (32 + LOG_PAGES * (24 + PAGE_BYTES)) as u64;
/// Buffer size for writing zeros.
const ZEROS: usize = 64 * 1024;
/// Free space required beside the reserve before anything new is started.
const NEW_BYTES: u64 = 256 * 1024;
/// Free pages kept in the database instead of being returned to the file system.
const FREE_PAGES_KEPT: i64 = 256;
/// Pages returned per maintenance step.
const FREE_PAGES_A_STEP: i64 = 256;
/// Size up to which a database is checked as a whole when it is opened, at a few ms per MiB. A
/// larger one is checked record by record.
const CHECKED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Tasks in a directory of their own.
#[derive(Debug)]
pub struct Sqlite {
    place: Place,
    connection: Option<Connection>,
    reserve: Reserve,
    /// Length of the log in pages, as SQLite reports it at each commit.
    log_pages: Arc<AtomicUsize>,
    /// Set by a write, cleared by maintenance.
    is_used: bool,
}

impl Sqlite {
    /// Opens the store in `dir`, which must exist and belong to this process alone; creates the
    /// database if there is none. `reserve_bytes` are kept free for finishing started tasks when
    /// the disk is full.
    ///
    /// # Errors
    /// [`StoreError`]; with [`StoreError::Unusable`] the files are unchanged.
    pub fn open(dir: &Path, reserve_bytes: u64) -> Result<Self, StoreError> {
        Self::open_at(Place::new(dir.to_owned(), None), reserve_bytes)
    }

    /// As [`Sqlite::open`], in a directory of `state`, which is created again after a removal.
    pub(super) fn open_in(
        state: Arc<StateDir>,
        dir: &Path,
        reserve_bytes: u64,
    ) -> Result<Self, StoreError> {
        Self::open_at(Place::new(dir.to_owned(), Some(state)), reserve_bytes)
    }

    fn open_at(place: Place, reserve_bytes: u64) -> Result<Self, StoreError> {
        let log_pages = Arc::default();
        let connection = Some(connect(place.dir(), &log_pages)?);
        let reserve = open_reserve(place.dir(), reserve_bytes)?;
        let mut store = Self { place, connection, reserve, log_pages, is_used: false };
        store.lengthen_log();
        store.place.note();
        Ok(store)
    }

    /// Extends the file of the log to its eventual size; SQLite ignores the bytes behind the last
    /// frame. Lack of room is not an error.
    fn lengthen_log(&self) {
        let Ok(file) = OpenOptions::new().write(true).open(self.place.log_path()) else { return };
        let Ok(found) = file.metadata() else { return };
        let zeros = [0; ZEROS];
        let mut end = found.len();
        while end < LOG_BYTES {
            let part = usize::try_from(LOG_BYTES - end).unwrap_or(ZEROS).min(ZEROS);
            if file.write_all_at(&zeros[..part], end).is_err() {
                // Leave the remaining room to the tasks.
                let _ = file.set_len(found.len());
                return;
            }
            end += part as u64;
        }
        // Sync now, so that the first task does not wait for it.
        let _ = file.sync_data();
    }

    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection
            .as_mut()
            .ok_or_else(|| StoreError::Broken("the database is not open".into()))
    }

    fn file_bytes(&self, name: &str) -> Option<u64> {
        fs::metadata(self.place.dir().join(name)).map(|found| found.len()).ok()
    }

    /// Classifies an error; closes a connection that can no longer be trusted.
    fn classified(&mut self, error: &rusqlite::Error) -> StoreError {
        let classified = classify(self.place.dir(), error);
        match classified {
            StoreError::Full | StoreError::Refused(_) => {}
            StoreError::Broken(_) | StoreError::Unusable(_) | StoreError::Lost(_) => {
                self.connection = None;
            }
        }
        classified
    }

    fn write(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        let transact = |connection: &mut Connection| -> Result<(), rows::Unwritten> {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut rows = rows::Writer::new(&transaction)?;
            for write in writes {
                match write {
                    StoreWrite::New(record) | StoreWrite::Put(record) => rows.put(record)?,
                    StoreWrite::Delete(key) => rows.delete(*key)?,
                    // The last three are for a table that several engines share.
                    StoreWrite::Probe
                    | StoreWrite::Cancel(_)
                    | StoreWrite::Watch(_)
                    | StoreWrite::Unwatch(_)
                    | StoreWrite::Change(_)
                    | StoreWrite::Input { .. }
                    | StoreWrite::Taken(_)
                    | StoreWrite::Receipt { .. }
                    | StoreWrite::Claim { .. }
                    | StoreWrite::Keyed(..)
                    | StoreWrite::Retire => {}
                }
            }
            drop(rows);
            Ok(transaction.commit()?)
        };
        self.is_used = true;
        match transact(self.connection()?) {
            Ok(()) => Ok(()),
            Err(rows::Unwritten::Refused(why)) => Err(StoreError::Refused(why)),
            Err(rows::Unwritten::Sqlite(error)) => Err(self.classified(&error)),
        }
    }

    /// Checkpoints the log. Lack of room is not an error: the log has all the data.
    fn shorten_log(&mut self, mode: &str) -> Result<(), StoreError> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        match self.connection()?.query_row(&sql, [], |row| row.get::<_, i64>(0)) {
            Ok(_) => {
                self.log_pages.store(0, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let why = self.classified(&error);
                if why == StoreError::Full { Ok(()) } else { Err(why) }
            }
        }
    }

    /// Returns some free pages to the file system; true if there are more.
    fn shrink(&mut self) -> Result<bool, StoreError> {
        let shrink = |connection: &Connection| -> rusqlite::Result<bool> {
            let count = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
            let (free, all): (i64, i64) = (count("freelist_count")?, count("page_count")?);
            if free <= FREE_PAGES_KEPT.max(all / 4) {
                return Ok(false);
            }
            let sql = format!("PRAGMA incremental_vacuum({FREE_PAGES_A_STEP})");
            let mut statement = connection.prepare(&sql)?;
            // Each row frees one page; stepping stops when the caller stops reading rows.
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(true)
        };
        match shrink(self.connection()?) {
            Ok(is_more) => Ok(is_more),
            Err(error) => Err(self.classified(&error)),
        }
    }
}

impl Store for Sqlite {
    fn restore(
        &mut self,
        resident: usize,
        each: &mut dyn FnMut(TaskRecord),
    ) -> Result<(), StoreError> {
        let file = self.place.database_path();
        match rows::all(self.connection()?, resident, each) {
            Ok(()) => Ok(()),
            Err(rows::Unread::Damaged(what)) => {
                self.connection = None;
                Err(StoreError::damaged(format!("{} is damaged: {what}", file.display())))
            }
            Err(rows::Unread::Sqlite(error)) => Err(self.classified(&error)),
        }
    }

    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError> {
        match due {
            // The log has space of its own, which is kept for finishing started tasks.
            Due::New if !self.reserve.hold() || !self.reserve.has_beside(NEW_BYTES) => {
                return Err(StoreError::Full);
            }
            Due::New => self.write(writes)?,
            Due::Owed => match self.write(writes) {
                Err(StoreError::Full) => {
                    // Do not truncate the log: its space is reused by the next writes.
                    self.reserve.release();
                    let done = self.shorten_log("PASSIVE").and_then(|()| self.write(writes));
                    self.reserve.hold();
                    done?;
                }
                other => other?,
            },
        }
        // DUR-01: a write to files that the next process cannot find is not durable.
        self.verified()
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        let file = self.place.database_path();
        match rows::outcome(self.connection()?, key).optional() {
            Ok(None) => Ok(None),
            // One unreadable result must not fail the others.
            Ok(Some(kept)) => kept.map_err(|what| {
                StoreError::Refused(format!("task {} in {}: {what}", key.task, file.display()))
            }),
            Err(error) => Err(self.classified(&error)),
        }
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        let is_more = match self.shrink() {
            Err(StoreError::Full) => false,
            other => other?,
        };
        let has_room = self.reserve.hold();
        let rests = !mem::take(&mut self.is_used);
        let is_long = self.file_bytes(LOG_FILE).is_some_and(|bytes| bytes > LOG_BYTES);
        if rests && is_long && has_room {
            self.shorten_log("TRUNCATE")?;
            self.lengthen_log();
        } else {
            self.shorten_log("PASSIVE")?;
        }
        Ok(is_more || !rests && is_long)
    }

    fn needs_tidying(&self) -> bool {
        self.log_pages.load(Ordering::Relaxed) >= LOG_PAGES
    }

    fn bytes(&self) -> Option<u64> {
        let log = self.file_bytes(LOG_FILE).unwrap_or(0);
        self.file_bytes(FILE).map(|database| database + log)
    }

    fn verify(&mut self) -> Result<(), StoreError> {
        self.verified()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.place.retake().map_err(StoreError::Broken)?;
        self.repair()?;
        self.reserve = open_reserve(self.place.dir(), self.reserve.bytes())?;
        self.lengthen_log();
        self.place.note();
        Ok(())
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if self.verified().is_err() {
            // The last chance to write removed files again. The cause was logged when the removal
            // was detected.
            let _ = self.reopen();
        }
        // One file is easier to inspect; a failed checkpoint is repeated at the next start.
        let _ = self.shorten_log("TRUNCATE");
    }
}

fn open_reserve(dir: &Path, bytes: u64) -> Result<Reserve, StoreError> {
    let path = dir.join(RESERVE_FILE);
    Reserve::open(&path, bytes).map_err(|error| failed(&path, &error))
}

/// Opens the database in `dir`, or creates one; installs a hook that records the length of the log.
fn connect(dir: &Path, log_pages: &Arc<AtomicUsize>) -> Result<Connection, StoreError> {
    let path = dir.join(FILE);
    let shown = path.display().to_string();
    match fs::metadata(&path) {
        Ok(found) if found.len() == 0 => {
            return Err(StoreError::damaged(format!("{shown} is damaged: it is empty")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if dir.join(LOG_FILE).exists() {
                let what = format!("{shown} is missing, and its log {LOG_FILE} is not");
                return Err(StoreError::damaged(what));
            }
            make(dir)?;
        }
        Err(error) => return Err(failed(&path, &error)),
    }
    let mut connection = open(&path).map_err(|error| classify(dir, &error))?;
    let format = schema::format(&connection).map_err(|error| classify(dir, &error))?;
    let version = schema::readable(&format, &shown)?;
    let length = fs::metadata(&path).map_or(0, |found| found.len());
    let prepare = |connection: &mut Connection| -> rusqlite::Result<String> {
        let verdict = if length > CHECKED_BYTES_MAX {
            "ok".to_owned()
        } else {
            connection.pragma_query_value(None, "quick_check", |row| row.get(0))?
        };
        if verdict == "ok" {
            schema::migrate(connection, version)?;
        }
        let noted = Arc::clone(log_pages);
        connection.wal_hook(Some(move |_: &mut Wal, pages: c_int| {
            noted.store(usize::try_from(pages).unwrap_or(usize::MAX), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(verdict)
    };
    match prepare(&mut connection) {
        Ok(verdict) if verdict == "ok" => Ok(connection),
        Ok(verdict) => {
            let what = verdict.lines().last().unwrap_or_default();
            Err(StoreError::damaged(format!("{shown} is damaged: {what}")))
        }
        Err(error) => Err(classify(dir, &error)),
    }
}

/// Content of a store's directory.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) tasks: usize,
    pub(super) ended: usize,
    pub(super) bytes: u64,
    pub(super) problems: Vec<String>,
}

/// Reads the whole store in `dir` without changing anything.
pub(super) fn inspect(dir: &Path) -> Result<Contents, StoreError> {
    let path = dir.join(FILE);
    let length = fs::metadata(&path).map_err(|error| failed(&path, &error))?.len();
    if length == 0 {
        return Err(StoreError::damaged(format!("{} is damaged: it is empty", path.display())));
    }
    let connection = open(&path).map_err(|error| classify(dir, &error))?;
    let format = schema::format(&connection).map_err(|error| classify(dir, &error))?;
    schema::readable(&format, &path.display().to_string())?;
    let log = fs::metadata(dir.join(LOG_FILE)).map_or(0, |found| found.len());
    let mut contents = Contents { bytes: length + log, ..Contents::default() };
    let note = |what: &str| format!("{} is damaged: {what}", path.display());
    let checked = connection.pragma_query(None, "integrity_check", |row| {
        let line: String = row.get(0)?;
        if line != "ok" {
            contents.problems.push(note(&line));
        }
        Ok(())
    });
    checked.map_err(|error| classify(dir, &error))?;
    let (mut tasks, mut ended) = (0, 0);
    let read = rows::all(&connection, usize::MAX, &mut |record| {
        tasks += 1;
        ended += usize::from(record.status.is_terminal());
    });
    (contents.tasks, contents.ended) = (tasks, ended);
    match read {
        Ok(()) => {}
        Err(rows::Unread::Damaged(what)) => contents.problems.push(note(&what)),
        Err(rows::Unread::Sqlite(error)) => return Err(classify(dir, &error)),
    }
    Ok(contents)
}

/// Opens an existing database and configures the connection.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    // A damaged store is left unchanged: no checkpoint on close.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Exclusive mode uses no shared memory file, whose pages could be truncated by another process.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// Creates an empty database under a temporary name, so that a database under its final name is
/// always complete.
fn make(dir: &Path) -> Result<(), StoreError> {
    let new = new_file(dir)?;
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| failed(&path, &error)
    };
    let fill = || -> rusqlite::Result<()> {
        let mut connection = Connection::open_with_flags(&new, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.pragma_update(None, "page_size", PAGE_BYTES as i64)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        schema::migrate(&mut connection, 0)?;
        connection.close().map_err(|(_, error)| error)
    };
    fill().map_err(|error| classify(dir, &error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(at(&new))?;
    fs::rename(&new, dir.join(FILE)).map_err(at(&new))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

/// Creates an empty [`NEW_FILE`] of mode 0600, replacing an unfinished one.
fn new_file(dir: &Path) -> Result<PathBuf, StoreError> {
    let new = dir.join(NEW_FILE);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&new, &error)),
        Ok(()) | Err(_) => {}
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    made.map(|_| new.clone()).map_err(|error| failed(&new, &error))
}

/// Classifies an SQLite error of the store in `dir`.
fn classify(dir: &Path, error: &rusqlite::Error) -> StoreError {
    let what = format!("{}: {error}", dir.join(FILE).display());
    let Some(found) = error.sqlite_error() else { return StoreError::Refused(what) };
    let is = |codes: &[ffi::ErrorCode]| codes.contains(&found.code);
    if [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC].contains(&found.extended_code) {
        StoreError::Lost(what)
    } else if is(&[ffi::ErrorCode::DiskFull])
        // SQLite reports an exhausted quota as an I/O error.
        || is(&[ffi::ErrorCode::SystemIoFailure]) && reserve::is_full(&dir.join(PROBE_FILE))
    {
        StoreError::Full
    } else if is(&[ffi::ErrorCode::DatabaseCorrupt, ffi::ErrorCode::NotADatabase]) {
        StoreError::damaged(format!("{} is damaged: {error}", dir.join(FILE).display()))
    } else if is(&[
        ffi::ErrorCode::TooBig,
        ffi::ErrorCode::ConstraintViolation,
        ffi::ErrorCode::TypeMismatch,
    ]) {
        StoreError::Refused(what)
    } else {
        StoreError::Broken(what)
    }
}

/// A [`StoreError`] for a failed system call on a file.
fn failed(path: &Path, error: &io::Error) -> StoreError {
    if reserve::is_no_room(error) {
        return StoreError::Full;
    }
    StoreError::Broken(format!("{}: {error}", path.display()))
}
