//! Logging: structured records on standard error, written by a thread of their own, so that a
//! standard error nobody reads holds up neither the loop nor the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::fs::OFlags;

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{fmt, reload};

use crate::config::Level;
use crate::stderr::Patient;
use crate::trust;

/// Records that may wait to be written; more are dropped and counted by the writer.
const WAITING_MAX: usize = 2048;

/// Writes what is left when dropped, as far as somebody reads it.
#[must_use]
pub struct Logging {
    // Ends its thread when it is dropped, and waits for that.
    _writer: WorkerGuard,
    set_level: SetLevel,
    stderr: Patient,
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.stderr.leave();
    }
}

/// Changes what is logged from now on.
pub(crate) type SetLevel = Arc<dyn Fn(Level) + Send + Sync>;

impl Logging {
    /// What changes the level; nothing does where the embedding program has its own subscriber.
    pub(crate) fn level_setter(&self) -> SetLevel {
        Arc::clone(&self.set_level)
    }
}

/// Bytes of a log file nobody looks after; it and the one before it are kept.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Standard error, where that is a file that nobody but us looks after: kept small.
#[derive(Debug)]
struct SmallFile {
    path: PathBuf,
    bytes: u64,
}

impl SmallFile {
    fn at(path: &Path) -> Self {
        let bytes = fs::metadata(path).map_or(0, |found| found.len());
        Self { path: path.to_owned(), bytes }
    }

    /// Begins a new file; the one there is keeps its end. Whatever else is said on standard error
    /// goes into the new one, too.
    fn renew(&mut self) -> io::Result<()> {
        match fs::rename(&self.path, previous(&self.path)) {
            // The file was removed, or could not be made the last time: a file without a
            // name would grow until the disk is full.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        rustix::stdio::dup2_stderr(create(&self.path)?)?;
        Ok(())
    }
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = io::stderr().write(bytes)?;
        self.bytes += written as u64;
        // Between two lines.
        if self.bytes >= FILE_BYTES_MAX && bytes.ends_with(b"\n") && written == bytes.len() {
            // What cannot be renamed goes on growing, and is tried again a file's length later.
            let _ = self.renew();
            self.bytes = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// What the file before this one is called.
fn previous(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Keeps the log of a daemon that has ended as the one before the next: its last words tell why it
/// ended. A file of another user stays where it is, for [`create`] to refuse.
///
/// # Errors
/// When the file cannot be renamed.
pub(crate) fn keep(path: &Path) -> io::Result<()> {
    trust::check_type(path)?;
    let found = match File::open(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    trust::check_file(&found, path)?;
    if found.metadata()?.len() == 0 {
        return Ok(());
    }
    fs::rename(path, previous(path))
}

/// An empty log file, for its owner alone. A file of another user, and what is no regular file, is
/// refused before anything of it is changed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    trust::check_type(path)?;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)?;
    trust::check_file(&file, path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Whether a thread can be made: where none can, because of a limit, [`start`] panics.
///
/// # Errors
/// When none can.
pub(crate) fn can_start() -> io::Result<()> {
    thread::Builder::new().spawn(|| ())?.join().map_err(|_| io::Error::other("a thread panicked"))
}

/// Starts logging what is `level` or worse: text for a terminal, one JSON object a line for
/// anything else. Does nothing when the embedding program has a subscriber already.
pub fn start(level: Level) -> Logging {
    let stderr = Patient::default();
    start_on(level, stderr.clone(), stderr)
}

/// As [`start`], where standard error is the file at `path`: it and the one before it are kept
/// small.
pub(crate) fn start_in(level: Level, path: &Path) -> Logging {
    start_on(level, SmallFile::at(path), Patient::default())
}

fn start_on(level: Level, sink: impl Write + Send + 'static, stderr: Patient) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_MAX)
        .thread_name("ceased-log")
        .finish(sink);
    let (level, handle) = reload::Layer::new(filter(level));
    let layer = fmt::layer()
        .with_writer(writer)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(level);
    // An error means that somebody subscribed before, and then it is theirs.
    let _ = if io::stderr().is_terminal() {
        tracing::subscriber::set_global_default(registry.with(layer))
    } else {
        tracing::subscriber::set_global_default(registry.with(layer.json().flatten_event(true)))
    };
    let set_level: SetLevel = Arc::new(move |level| drop(handle.reload(filter(level))));
    Logging { _writer: guard, set_level, stderr }
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}
