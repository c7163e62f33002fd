//! Logging: structured records on standard error, written by a dedicated thread, so that an
//! undrained standard error blocks neither the loop nor the shutdown.

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
use crate::stderr::BlockingStderr;
use crate::trust;

/// Records that may be queued; the writer drops and counts the excess.
const WAITING_MAX: usize = 2048;

/// Handle of the logger. Flushes queued records when dropped, as far as standard error is read.
#[must_use]
pub struct Logging {
    // Dropping it joins the writer thread.
    _writer: WorkerGuard,
    set_level: SetLevel,
    stderr: BlockingStderr,
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.stderr.stop_waiting();
    }
}

/// Function that changes the log level.
pub(crate) type SetLevel = Arc<dyn Fn(Level) + Send + Sync>;

impl Logging {
    /// Returns the function that changes the level; it does nothing if the embedding program has
    /// its own subscriber.
    pub(crate) fn level_setter(&self) -> SetLevel {
        Arc::clone(&self.set_level)
    }
}

/// Size limit of an unattended log file; the current and the previous file are kept.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Standard error redirected to an unattended file, which is rotated at [`FILE_BYTES_MAX`].
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

    /// Rotates: keeps the current file as `.1` and starts a new one. Redirects file descriptor 2,
    /// so that other writers to standard error use the new file too.
    fn renew(&mut self) -> io::Result<()> {
        match fs::rename(&self.path, previous(&self.path)) {
            // The file was removed, or the previous rotation failed: without a new file, an
            // unlinked one would grow until the disk is full.
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
        // Rotate only at the end of a line.
        if self.bytes >= FILE_BYTES_MAX && bytes.ends_with(b"\n") && written == bytes.len() {
            // If the rename fails the file keeps growing; retry after another FILE_BYTES_MAX bytes.
            let _ = self.renew();
            self.bytes = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Path of the previous log file.
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

/// Creates or truncates a log file of mode 0600. Rejects a file of another user and anything but a
/// regular file before changing it.
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

/// Checks that a thread can be created; [`start`] panics if a limit prevents that.
///
/// # Errors
/// The error of the failed thread creation.
pub(crate) fn can_start() -> io::Result<()> {
    thread::Builder::new().spawn(|| ())?.join().map_err(|_| io::Error::other("a thread panicked"))
}

/// Starts logging at `level`: text on a terminal, otherwise one JSON object a line. Does nothing if
/// the embedding program already has a subscriber.
pub fn start(level: Level) -> Logging {
    let stderr = BlockingStderr::default();
    start_on(level, stderr.clone(), stderr)
}

/// As [`start`], where standard error is the file at `path`, which is rotated.
pub(crate) fn start_in(level: Level, path: &Path) -> Logging {
    start_on(level, SmallFile::at(path), BlockingStderr::default())
}

fn start_on(level: Level, sink: impl Write + Send + 'static, stderr: BlockingStderr) -> Logging {
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
    // An error means that the embedding program has its own subscriber; keep that one.
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
