//! The last line that a command printed, and the progress that its lines show.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::output::plain_text::plain_text;
use crate::output::progress::Progress;

/// Longest line that is looked at, in bytes; of a longer one, its beginning.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Longest line that is reported, in characters.
const LINE_CHARS_MAX: usize = 200;
/// Time between two reports of a line: people read no faster.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads progress from a line of output.
pub trait ReadProgress: Send + Sync + fmt::Debug {
    /// How much is done, and of how much, if the line says so.
    fn read(&self, line: &str) -> Option<(f64, Option<f64>)>;
}

/// Lines of one output stream, cut at line ends and at carriage returns.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    /// The line is longer than what is kept of it.
    long: bool,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], mut found: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let ends = piece.ends_with(b"\n") || piece.ends_with(b"\r");
            let content = if ends { piece.split_at(piece.len() - 1).0 } else { piece };
            let room = LINE_BYTES_MAX - self.line.len();
            self.long |= content.len() > room;
            self.line.extend_from_slice(content.split_at(content.len().min(room)).0);
            if ends {
                found(&self.line);
                self.line.clear();
                self.long = false;
            }
        }
    }
}

/// Follows the lines of a command.
#[derive(Debug)]
pub(crate) struct LastLine {
    streams: [Lines; 2],
    /// Whether the last line is wanted.
    reports: bool,
    progress: Option<Arc<dyn ReadProgress>>,
    /// The last line that says anything, as it was printed, until it is reported.
    fresh: Option<Vec<u8>>,
    reported: Option<Instant>,
}

impl LastLine {
    pub(crate) fn new(reports: bool, progress: Option<Arc<dyn ReadProgress>>) -> Self {
        Self { streams: Default::default(), reports, progress, fresh: None, reported: None }
    }

    /// Takes the next bytes of a stream, the first or the second.
    pub(crate) fn push(&mut self, stream: usize, bytes: &[u8], told: &mut dyn FnMut(Progress)) {
        let Some(lines) = self.streams.get_mut(stream) else { return };
        let progress = self.progress.as_deref();
        if !self.reports && progress.is_none() {
            return;
        }
        // Without progress only the last line matters: of a flood, its end is enough.
        let skipped = match progress {
            None => bytes.len().saturating_sub(2 * LINE_BYTES_MAX),
            Some(_) => 0,
        };
        let mut last: Option<Vec<u8>> = None;
        lines.push(bytes.split_at(skipped).1, |line| {
            if let Some(progress) = progress
                && let Some((done, total)) = progress.read(&plain_text(line))
            {
                told(Progress { progress: done, total, message: None });
            }
            if says_something(line) {
                last = Some(line.to_vec());
            }
        });
        // A line without an end yet, such as a question, is the last one too.
        if says_something(&lines.line) {
            last = Some(lines.line.clone());
        }
        if self.reports && last.is_some() {
            self.fresh = last;
        }
    }

    /// The last line, when it is time to report it.
    pub(crate) fn take(&mut self, now: Instant) -> Option<String> {
        if self.reported.is_some_and(|at| now - at < PAUSE) {
            return None;
        }
        let line = shortened(plain_text(&self.fresh.take()?).trim());
        self.reported = Some(now);
        (!line.is_empty()).then_some(line)
    }

    /// Whether a line waits to be reported.
    pub(crate) const fn waits(&self) -> bool {
        self.fresh.is_some()
    }
}

fn says_something(line: &[u8]) -> bool {
    line.iter().any(u8::is_ascii_graphic) || !line.is_ascii()
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}…", line.split_at(at).0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Percent;

    impl ReadProgress for Percent {
        fn read(&self, line: &str) -> Option<(f64, Option<f64>)> {
            Some((line.strip_suffix('%')?.parse().ok()?, Some(100.0)))
        }
    }

    #[test]
    fn the_last_line_is_reported_once_a_second() {
        let mut last = LastLine::new(true, None);
        let now = Instant::now();
        last.push(0, b"one\ntwo\n\n  \n", &mut |_| {});
        assert_eq!(last.take(now).as_deref(), Some("two"));
        last.push(1, b"\x1b[31merror\x1b[0m: thr", &mut |_| {});
        assert_eq!(last.take(now), None, "too soon");
        assert!(last.waits());
        last.push(1, b"ee", &mut |_| {});
        assert_eq!(last.take(now + PAUSE).as_deref(), Some("error: three"));
        assert!(!last.waits());
        assert_eq!(last.take(now + 2 * PAUSE), None);
        let flood = "x".repeat(1 << 20) + "\nend of it";
        last.push(0, flood.as_bytes(), &mut |_| {});
        assert_eq!(last.take(now + 3 * PAUSE).as_deref(), Some("end of it"));
        last.push(0, "é".repeat(5000).as_bytes(), &mut |_| {});
        let long = last.take(now + 5 * PAUSE).expect("a line");
        assert_eq!(long.chars().count(), LINE_CHARS_MAX + 1);
    }

    #[test]
    fn progress_is_read_from_every_line() {
        let mut last = LastLine::new(false, Some(Arc::new(Percent)));
        let mut told = Vec::new();
        let mut take = |progress: Progress| told.push(progress.progress);
        last.push(0, b"1%\r2%\rx\n\x1b[1m3%\x1b[0m\n4", &mut take);
        last.push(1, b"50%\n", &mut take);
        last.push(0, b"%\n", &mut take);
        assert_eq!(told, [1.0, 2.0, 3.0, 50.0, 4.0]);
        assert!(!last.waits(), "the line is not wanted");
    }
}
