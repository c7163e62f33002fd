//! The thread that writes the audit log.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ceased_core::time::Wall;
use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;

use super::queue::{Batch, Shared, at, count};
use super::record::Happening;
use crate::start_error::StartError;

/// Time that records gather after a write: waking the thread for each record costs more than
/// writing it.
const GATHER: Duration = Duration::from_millis(1);
/// Buffer capacity kept between bursts.
const ROOM_KEPT: usize = 256 * 1024;
/// Only the owner may read the audit log.
const MODE: u32 = 0o600;

/// Error text for a pipe or a device.
const NO_FILE: &str = "not a regular file";

/// The file that records are appended to.
pub(super) struct Sink {
    path: PathBuf,
    file: File,
}

impl Sink {
    pub(super) fn file(path: PathBuf) -> Result<Self, StartError> {
        match open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(StartError::Audit { path, error }),
        }
    }
}

/// Opens a file for appending. Creates it with mode 0600; corrects a wider mode and logs that.
fn open(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: opening a FIFO must not wait for a reader.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file =
        OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other(NO_FILE));
    }
    if found.permissions().mode() & 0o177 != 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
        tracing::warn!(path = %path.display(), "the audit log was accessible to other users; changed its mode to 0600");
    }
    Ok(file)
}

/// Checks that [`Sink::file`] would succeed, without creating or changing anything.
pub(super) fn probe(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Err(Errno::ISDIR.into()),
        Ok(found) if found.is_symlink() => Err(Errno::LOOP.into()),
        Ok(found) if !found.is_file() => Err(io::Error::other(NO_FILE)),
        Ok(_) => Ok(access(path, Access::WRITE_OK)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = path.parent().unwrap_or(Path::new("/"));
            Ok(access(dir, Access::WRITE_OK | Access::EXEC_OK)?)
        }
        Err(error) => Err(error),
    }
}

/// State of the writer thread.
pub(super) struct Writer {
    sink: Sink,
    shared: Arc<Shared>,
    /// Drops already recorded in the file.
    told: u64,
    /// The last write was partial, so the file does not end with a newline.
    torn: bool,
    failing: bool,
}

impl Writer {
    pub(super) fn new(sink: Sink, shared: Arc<Shared>) -> Self {
        Self { sink, shared, told: 0, torn: false, failing: false }
    }

    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        let mut batch = Batch::default();
        while self.shared.take(&mut batch) {
            if let Some(end) = batch.reopen.take() {
                let rest = batch.lines.split_off(end.min(batch.lines.len()));
                self.write(&mut batch.lines);
                self.reopen();
                batch.lines = rest;
            }
            self.write(&mut batch.lines);
            // Free the memory of a burst.
            batch.lines.shrink_to(ROOM_KEPT);
            if !self.shared.is_closed() {
                thread::sleep(GATHER);
            }
        }
    }

    fn reopen(&mut self) {
        let Sink { path, file } = &mut self.sink;
        match open(path) {
            Ok(new) => {
                *file = new;
                self.torn = false;
                tracing::info!(path = %path.display(), "reopened the audit log");
            }
            Err(error) => {
                let error = at(path, &error);
                tracing::error!(%error, "cannot reopen the audit log; the old file stays in use");
            }
        }
    }

    /// Writes whole lines and empties the buffer.
    fn write(&mut self, lines: &mut Vec<u8>) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let lost = dropped - self.told;
        if lost > 0 {
            tracing::warn!(
                count = lost,
                "audit records were dropped: the audit log is written too slowly"
            );
        }
        self.append(lines, lost);
        lines.clear();
    }

    /// Appends with a single write, so that lines stay whole beside other writers; first the number
    /// of lost records.
    fn append(&mut self, lines: &mut Vec<u8>, lost: u64) {
        let Sink { path, file } = &mut self.sink;
        let records = count(lines);
        if lost > 0 {
            lines.splice(0..0, dropped_record(lost));
        }
        if lines.is_empty() {
            return;
        }
        if self.torn {
            lines.insert(0, b'\n');
        }
        match write_all(file, lines) {
            Ok(()) => {
                self.told += lost;
                self.torn = false;
                if std::mem::take(&mut self.failing) {
                    tracing::warn!(path = %path.display(), "the audit log is writable again");
                }
            }
            Err((written, error)) => {
                let whole = lines.get(..written).unwrap_or_default();
                let whole_before = u64::from(self.torn) + u64::from(lost > 0);
                let kept = count(whole).saturating_sub(whole_before);
                if count(whole) >= whole_before {
                    self.told += lost;
                }
                self.torn = whole.last().map_or(self.torn, |byte| *byte != b'\n');
                let dropped = records.saturating_sub(kept);
                self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    let error = at(path, &error);
                    tracing::error!(%error, "cannot write the audit log; records are dropped and counted");
                }
            }
        }
    }
}

/// Renders a `dropped` record.
fn dropped_record(count: u64) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    Happening::Dropped { count }.write(&mut line, &Wall::from_millis(millis).to_iso8601());
    line
}

/// Writes everything; on failure returns the number of bytes written and the error.
fn write_all(file: &mut File, mut bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let all = bytes.len();
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err((all - bytes.len(), io::ErrorKind::WriteZero.into())),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((all - bytes.len(), error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ceased_core::action::AuditEvent;
    use ceased_core::ids::JobId;

    use super::*;
    use crate::observability::audit::Audit;

    const FIRST: Wall = Wall::from_millis(0);

    fn record(text: &str) -> Happening {
        Happening::Noted(AuditEvent::Abandoned { job: JobId::new(1), tool: text.into() }, None)
    }

    fn line(text: &str) -> Vec<u8> {
        let mut line = Vec::new();
        record(text).write(&mut line, &FIRST.to_iso8601());
        line
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    /// CAN-12: each record is one line, whatever its content; only the owner may read the file.
    #[test]
    fn record_is_one_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.jsonl");
        let mut audit = Audit::start(Some(path.clone())).expect("it starts");
        for text in ["plain", "two\nlines\r\u{1b}[31m\u{0}", "\"quoted\""] {
            audit.record(FIRST, &record(text));
        }
        drop(audit);
        let text = std::fs::read_to_string(&path).expect("it is text");
        assert_eq!((text.lines().count(), text.ends_with('\n')), (3, true));
        assert!(!text.trim_end_matches('\n').contains(|c: char| c.is_control() && c != '\n'));
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect("a record is JSON");
            assert_eq!((&value["event"], &value["job"]), (&"abandon".into(), &1.into()));
            assert_eq!(value["time"], "1970-01-01T00:00:00.000Z");
        }
        assert_eq!(mode(&path), 0o600);
    }

    /// A mode that lets others read is corrected; a directory is rejected.
    #[test]
    fn file_is_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("open");
        std::fs::write(&path, "before\n").expect("a file");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        let mut audit = Audit::start(Some(path.clone())).expect("it starts");
        audit.record(FIRST, &record("after"));
        drop(audit);
        assert_eq!(mode(&path), 0o600);
        assert!(std::fs::read_to_string(&path).expect("text").starts_with("before\n{"));
        let error = Audit::start(Some(dir.path().to_owned())).map(drop).expect_err("a directory");
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    }

    /// A moved file keeps the earlier records; the new file gets the later ones.
    #[test]
    fn moved_file_is_reopened() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, moved) = (dir.path().join("audit"), dir.path().join("moved"));
        let mut audit = Audit::start(Some(path.clone())).expect("it starts");
        audit.record(FIRST, &record("before"));
        std::fs::rename(&path, &moved).expect("ours");
        audit.reopen();
        audit.record(FIRST, &record("after"));
        drop(audit);
        let text = |path: &Path| std::fs::read(path).expect("a file");
        assert_eq!((text(&moved), text(&path)), (line("before"), line("after")));
    }

    /// The queue is bounded: the excess is dropped and counted.
    #[test]
    fn slow_disk_drops_and_counts() {
        let shared = Shared::default();
        let (mut pushed, mut kept) = (0, Batch::default());
        while shared.dropped.load(Ordering::Relaxed) == 0 {
            shared.push(&mut line("waits").repeat(1000));
            pushed += 1000;
        }
        assert!(shared.take(&mut kept));
        assert_eq!(count(&kept.lines) + 1000, pushed);
        assert!(kept.lines.len() <= crate::observability::audit::queue::WAITING_BYTES_MAX);
    }

    /// A full disk: records are dropped and counted, and nothing blocks.
    #[test]
    fn full_disk_drops_and_counts() {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let shared = Arc::new(Shared::default());
        let sink = Sink { path: "/dev/full".into(), file: full };
        let mut writer = Writer::new(sink, Arc::clone(&shared));
        writer.write(&mut line("lost").repeat(3));
        assert_eq!((shared.dropped.load(Ordering::Relaxed), writer.failing), (3, true));
        // The disk has room again: the loss is recorded before the following records.
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit");
        writer.sink = Sink::file(path.clone()).expect("it can be opened");
        writer.write(&mut line("kept"));
        let text = std::fs::read_to_string(&path).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("\"event\":\"dropped\",\"count\":3"), "{text}");
        assert!(lines[1].contains("kept") && lines.len() == 2 && !writer.failing, "{text}");
    }
}
