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
use rustix::fs::OFlags;

use super::record::{Happening, Record};
use super::{Order, Shared, at};

/// Whole lines are written once they are this many bytes, or there are no more.
const BATCH_BYTES: usize = 64 * 1024;
/// How long records gather after some were written: waking the thread for each costs more than
/// writing it.
const GATHER: Duration = Duration::from_millis(1);
/// Records that the thread keeps room for.
const ROOM_KEPT: usize = 256;
/// Nobody but the owner may read who did what.
const MODE: u32 = 0o600;

/// Where records go.
pub(super) enum Sink {
    /// To the log, as texts.
    Log,
    /// Behind what is in a file.
    File { path: PathBuf, file: File },
}

impl Sink {
    pub(super) fn file(path: PathBuf) -> io::Result<Self> {
        let file = open(&path).map_err(|error| at(&path, &error))?;
        Ok(Self::File { path, file })
    }
}

/// Opens a file to append to. It is made with mode 0600; one that others can read or write is made
/// so, which says so.
fn open(path: &Path) -> io::Result<File> {
    // Without waiting for a reader, should it be a pipe.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file =
        OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.permissions().mode() & 0o177 != 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
        tracing::warn!(path = %path.display(), "the audit log was open to others: now it is 0600");
    }
    Ok(file)
}

/// What the thread owns.
pub(super) struct Writer {
    sink: Sink,
    shared: Arc<Shared>,
    /// How many of those the file has been told of.
    told: u64,
    batch: Vec<u8>,
    /// A moment and how it is written: many records have the same.
    stamp: (Wall, String),
    /// Records in the batch.
    batched: u64,
    /// The last write was cut short, so that the file does not end with a line.
    torn: bool,
    failing: bool,
}

impl Writer {
    pub(super) fn new(sink: Sink, shared: Arc<Shared>) -> Self {
        let (told, batched, torn, failing) = (0, 0, false, false);
        let first = Wall::from_millis(0);
        let stamp = (first, first.to_iso8601());
        Self { sink, shared, told, batch: Vec::new(), stamp, batched, torn, failing }
    }

    /// Writes until nobody sends any more.
    pub(super) fn run(mut self) {
        let mut orders = Vec::new();
        while self.shared.take(&mut orders) {
            for order in orders.drain(..) {
                self.take(order);
            }
            self.flush();
            // Room for a burst is given back.
            orders.shrink_to(ROOM_KEPT);
            if !self.shared.is_closed() {
                thread::sleep(GATHER);
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Write(record) => self.add(&record),
            Order::Reopen => {
                self.flush();
                self.reopen();
            }
        }
    }

    fn add(&mut self, record: &Record) {
        if self.stamp.0 != record.time {
            self.stamp = (record.time, record.time.to_iso8601());
        }
        record.write(&mut self.batch, &self.stamp.1);
        match self.sink {
            Sink::Log => {
                let line = String::from_utf8_lossy(self.batch.trim_ascii_end());
                tracing::info!(audit = %line);
                self.batch.clear();
            }
            Sink::File { .. } => {
                self.batched += 1;
                if self.batch.len() >= BATCH_BYTES {
                    self.flush();
                }
            }
        }
    }

    fn reopen(&mut self) {
        let Sink::File { path, file } = &mut self.sink else { return };
        match open(path) {
            Ok(new) => {
                *file = new;
                self.torn = false;
                tracing::info!(path = %path.display(), "the audit log was opened again");
            }
            Err(error) => {
                let error = at(path, &error);
                tracing::error!(%error, "not opened again; the old file stays in use");
            }
        }
    }

    /// Writes the batch: whole lines in one write to the end of the file, so that they stay whole
    /// beside those of others.
    fn flush(&mut self) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let tells = dropped > self.told;
        if tells {
            self.tell(dropped - self.told);
        }
        let Sink::File { path, file } = &mut self.sink else {
            self.told = dropped;
            return;
        };
        if self.batch.is_empty() {
            return;
        }
        if self.torn {
            self.batch.insert(0, b'\n');
        }
        match write_all(file, &self.batch) {
            Ok(()) => {
                self.told = dropped;
                self.torn = false;
                if std::mem::take(&mut self.failing) {
                    tracing::warn!(path = %path.display(), "the audit log can be written again");
                }
            }
            Err((written, error)) => {
                let whole = self.batch.get(..written).unwrap_or_default();
                let lines = whole.iter().filter(|byte| **byte == b'\n').count() as u64;
                let whole_before = u64::from(self.torn) + u64::from(tells);
                let kept = lines.saturating_sub(whole_before);
                if lines >= whole_before {
                    self.told = dropped;
                }
                self.torn = whole.last().map_or(self.torn, |byte| *byte != b'\n');
                let lost = self.batched.saturating_sub(kept);
                self.shared.dropped.fetch_add(lost, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    let error = at(path, &error);
                    tracing::error!(%error, "records are dropped and counted until it can be written");
                }
            }
        }
        self.batch.clear();
        self.batched = 0;
    }

    /// Puts word of lost records before those that follow.
    fn tell(&mut self, count: u64) {
        tracing::warn!(count, "audit records were dropped: the audit log does not keep up");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        let happening = Happening::Dropped { count };
        let time = Wall::from_millis(millis);
        if let Sink::File { .. } = self.sink {
            let mut line = Vec::new();
            Record { time, happening }.write(&mut line, &time.to_iso8601());
            self.batch.splice(0..0, line);
        }
    }
}

/// Writes everything, or says how much was written before it failed.
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
    use ceased_core::action::Note;
    use ceased_core::id::JobId;

    use super::*;
    use crate::audit::Audit;

    fn record(text: &str) -> Record {
        let happening = Happening::Noted(Note::Abandoned { job: JobId::new(1), tool: text.into() });
        Record { time: Wall::from_millis(0), happening }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    /// CAN-12: a line a record, whatever is in it; nobody else may read them.
    #[test]
    fn a_record_is_a_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::start(Some(path.clone())).expect("it starts");
        for text in ["plain", "two\nlines\r\u{1b}[31m\u{0}", "\"quoted\""] {
            audit.record(record(text));
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

    /// What others may read is closed to them; what is no file is refused.
    #[test]
    fn the_file_is_its_owners() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("open");
        std::fs::write(&path, "before\n").expect("a file");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        let audit = Audit::start(Some(path.clone())).expect("it starts");
        audit.record(record("after"));
        drop(audit);
        assert_eq!(mode(&path), 0o600);
        assert!(std::fs::read_to_string(&path).expect("text").starts_with("before\n{"));
        let error = Audit::start(Some(dir.path().to_owned())).map(drop).expect_err("a directory");
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    }

    /// A disk that is full: records are dropped and counted, and nothing waits.
    #[test]
    fn a_full_disk_drops_and_counts() {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let shared = Arc::new(Shared::default());
        let sink = Sink::File { path: "/dev/full".into(), file: full };
        let mut writer = Writer::new(sink, Arc::clone(&shared));
        for _ in 0..3 {
            writer.add(&record("lost"));
        }
        writer.flush();
        assert_eq!((shared.dropped.load(Ordering::Relaxed), writer.failing), (3, true));
        // It comes back: what was lost is said before what follows.
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit");
        writer.sink = Sink::file(path.clone()).expect("it can be opened");
        writer.add(&record("kept"));
        writer.flush();
        let text = std::fs::read_to_string(&path).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("\"event\":\"dropped\",\"count\":3"), "{text}");
        assert!(lines[1].contains("kept") && lines.len() == 2 && !writer.failing, "{text}");
    }
}
