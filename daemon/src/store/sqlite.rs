//! The store on a disk: SQLite with a write-ahead log, synced at every commit, held by one
//! connection alone.
//!
//! `tasks.db` and `tasks.db-wal` belong together; `reserve` is room kept for a full disk. A file
//! that is there and cannot be read is never replaced: opening it fails. Files that are removed
//! while they are open are noticed, and made again from what the open ones still have.

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
/// For trying out whether there is room.
const PROBE_FILE: &str = "probe";

/// Pages of the log at which it is copied into the database: 4 MiB.
const LOG_PAGES: usize = 1000;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Bytes the log's file is cut back to when it is begun anew.
const LOG_BYTES_KEPT: i64 = 8 * 1024 * 1024;
/// How long the log's file is made before it is used, and cut to when nobody uses it: what it has
/// when it is copied. A sync takes twice as long where the file has become longer.
const LOG_BYTES: u64 = (32 + LOG_PAGES * (24 + PAGE_BYTES)) as u64;
/// Zeros are written so many at a time.
const ZEROS: usize = 64 * 1024;
/// So much must be free on the disk, besides the reserve, for anything new to be begun.
const NEW_BYTES: u64 = 256 * 1024;
/// Free pages that are not worth giving back to the file system.
const FREE_PAGES_KEPT: i64 = 256;
/// Pages given back in one step.
const FREE_PAGES_A_STEP: i64 = 256;
/// A database up to this size is checked as a whole when it is opened; it takes some ms for each
/// MiB. A larger one is checked record by record.
const CHECKED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Tasks in a directory of their own.
#[derive(Debug)]
pub struct Sqlite {
    place: Place,
    connection: Option<Connection>,
    reserve: Reserve,
    /// How long the log is, as SQLite tells it at each commit.
    log_pages: Arc<AtomicUsize>,
    /// Something was written since it was last tidied.
    is_used: bool,
}

impl Sqlite {
    /// Opens the store in `dir`, which must be there and belong to this process alone; makes it if
    /// the directory has none. `reserve_bytes` are kept free for what is owed when the disk is
    /// full.
    ///
    /// # Errors
    /// [`StoreError`]; with [`StoreError::Unusable`] the files are as they were.
    pub fn open(dir: &Path, reserve_bytes: u64) -> Result<Self, StoreError> {
        Self::open_at(Place::new(dir.to_owned(), None), reserve_bytes)
    }

    /// As [`Sqlite::open`], in a directory of `state`, which is taken again when it is removed.
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

    /// Makes the log's file as long as it becomes anyway; what is behind its frames is not read. No
    /// room for that is no failure.
    fn lengthen_log(&self) {
        let Ok(file) = OpenOptions::new().write(true).open(self.place.log_path()) else { return };
        let Ok(found) = file.metadata() else { return };
        let zeros = [0; ZEROS];
        let mut end = found.len();
        while end < LOG_BYTES {
            let part = usize::try_from(LOG_BYTES - end).unwrap_or(ZEROS).min(ZEROS);
            if file.write_all_at(&zeros[..part], end).is_err() {
                // What room there is is for tasks.
                let _ = file.set_len(found.len());
                return;
            }
            end += part as u64;
        }
        // Else the first task would wait for it.
        let _ = file.sync_data();
    }

    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection.as_mut().ok_or_else(|| StoreError::Broken("it is not open".into()))
    }

    fn file_bytes(&self, name: &str) -> Option<u64> {
        fs::metadata(self.place.dir().join(name)).map(|found| found.len()).ok()
    }

    /// What an error means; a handle that cannot be trusted any more is closed.
    fn judged(&mut self, error: &rusqlite::Error) -> StoreError {
        let judged = judge(self.place.dir(), error);
        match judged {
            StoreError::Full | StoreError::Refused(_) => {}
            StoreError::Broken(_) | StoreError::Unusable(_) | StoreError::Lost(_) => {
                self.connection = None;
            }
        }
        judged
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
                    StoreWrite::Probe => {}
                }
            }
            drop(rows);
            Ok(transaction.commit()?)
        };
        self.is_used = true;
        match transact(self.connection()?) {
            Ok(()) => Ok(()),
            Err(rows::Unwritten::Refused(why)) => Err(StoreError::Refused(why)),
            Err(rows::Unwritten::Sqlite(error)) => Err(self.judged(&error)),
        }
    }

    /// Copies the log into the database. No room for that is no failure: the log has it all.
    fn shorten_log(&mut self, mode: &str) -> Result<(), StoreError> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        match self.connection()?.query_row(&sql, [], |row| row.get::<_, i64>(0)) {
            Ok(_) => {
                self.log_pages.store(0, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let why = self.judged(&error);
                if why == StoreError::Full { Ok(()) } else { Err(why) }
            }
        }
    }

    /// Gives some free pages back to the file system; true when there are more.
    fn shrink(&mut self) -> Result<bool, StoreError> {
        let shrink = |connection: &Connection| -> rusqlite::Result<bool> {
            let count = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
            let (free, all): (i64, i64) = (count("freelist_count")?, count("page_count")?);
            if free <= FREE_PAGES_KEPT.max(all / 4) {
                return Ok(false);
            }
            let sql = format!("PRAGMA incremental_vacuum({FREE_PAGES_A_STEP})");
            let mut statement = connection.prepare(&sql)?;
            // Each row is one page; it stops with whoever stops asking.
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(true)
        };
        match shrink(self.connection()?) {
            Ok(is_more) => Ok(is_more),
            Err(error) => Err(self.judged(&error)),
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
            Err(rows::Unread::Sqlite(error)) => Err(self.judged(&error)),
        }
    }

    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError> {
        match due {
            // The log has room of its own; that is for what was begun.
            Due::New if !self.reserve.hold() || !self.reserve.has_beside(NEW_BYTES) => {
                return Err(StoreError::Full);
            }
            Due::New => self.write(writes)?,
            Due::Owed => match self.write(writes) {
                Err(StoreError::Full) => {
                    // The log is not cut: its room is ours, and is written over next.
                    self.reserve.release();
                    let done = self.shorten_log("PASSIVE").and_then(|()| self.write(writes));
                    self.reserve.hold();
                    done?;
                }
                other => other?,
            },
        }
        // DUR-01: what is in files that the next process does not find is not kept.
        self.verified()
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        let file = self.place.database_path();
        match rows::outcome(self.connection()?, key).optional() {
            Ok(None) => Ok(None),
            // One result that cannot be given is no reason to give none at all.
            Ok(Some(kept)) => kept.map_err(|what| {
                StoreError::Refused(format!("task {} in {}: {what}", key.task, file.display()))
            }),
            Err(error) => Err(self.judged(&error)),
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
            // The last moment in which there is something to make the files of. Why they cannot be
            // made was said when they were found missing.
            let _ = self.reopen();
        }
        // A database in one piece is easier to look at; what fails now is done at the next start.
        let _ = self.shorten_log("TRUNCATE");
    }
}

fn open_reserve(dir: &Path, bytes: u64) -> Result<Reserve, StoreError> {
    let path = dir.join(RESERVE_FILE);
    Reserve::open(&path, bytes).map_err(|error| failed(&path, &error))
}

/// A connection to the database in `dir`, which is made if there is none; it notes how long its log
/// is.
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
    let mut connection = open(&path).map_err(|error| judge(dir, &error))?;
    let format = schema::format(&connection).map_err(|error| judge(dir, &error))?;
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
        Err(error) => Err(judge(dir, &error)),
    }
}

/// Content of the store of a directory.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) tasks: usize,
    pub(super) ended: usize,
    pub(super) bytes: u64,
    pub(super) problems: Vec<String>,
}

/// Reads all of the store in `dir` and changes nothing.
pub(super) fn inspect(dir: &Path) -> Result<Contents, StoreError> {
    let path = dir.join(FILE);
    let length = fs::metadata(&path).map_err(|error| failed(&path, &error))?.len();
    if length == 0 {
        return Err(StoreError::damaged(format!("{} is damaged: it is empty", path.display())));
    }
    let connection = open(&path).map_err(|error| judge(dir, &error))?;
    let format = schema::format(&connection).map_err(|error| judge(dir, &error))?;
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
    checked.map_err(|error| judge(dir, &error))?;
    let (mut tasks, mut ended) = (0, 0);
    let read = rows::all(&connection, usize::MAX, &mut |record| {
        tasks += 1;
        ended += usize::from(record.status.is_terminal());
    });
    (contents.tasks, contents.ended) = (tasks, ended);
    match read {
        Ok(()) => {}
        Err(rows::Unread::Damaged(what)) => contents.problems.push(note(&what)),
        Err(rows::Unread::Sqlite(error)) => return Err(judge(dir, &error)),
    }
    Ok(contents)
}

/// Opens a database that is there and sets it up for this connection.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    // A damaged store stays as it is: closing changes nothing.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Alone: without memory shared with others, whose pages could go missing under us.
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

/// Makes an empty database under another name, so that one under its own name is always whole.
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
    fill().map_err(|error| judge(dir, &error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(at(&new))?;
    fs::rename(&new, dir.join(FILE)).map_err(at(&new))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

/// Makes an empty [`NEW_FILE`] for its owner alone, in the place of one that was never finished.
fn new_file(dir: &Path) -> Result<PathBuf, StoreError> {
    let new = dir.join(NEW_FILE);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&new, &error)),
        Ok(()) | Err(_) => {}
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    made.map(|_| new.clone()).map_err(|error| failed(&new, &error))
}

/// What an error of SQLite means for a store in `dir`.
fn judge(dir: &Path, error: &rusqlite::Error) -> StoreError {
    let what = format!("{}: {error}", dir.join(FILE).display());
    let Some(found) = error.sqlite_error() else { return StoreError::Refused(what) };
    let is = |codes: &[ffi::ErrorCode]| codes.contains(&found.code);
    if [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC].contains(&found.extended_code) {
        StoreError::Lost(what)
    } else if is(&[ffi::ErrorCode::DiskFull])
        // A used-up quota is no full disk to SQLite.
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

/// The system did not let us at a file.
fn failed(path: &Path, error: &io::Error) -> StoreError {
    if reserve::is_no_room(error) {
        return StoreError::Full;
    }
    StoreError::Broken(format!("{}: {error}", path.display()))
}
