//! Bounded capture of an output stream: head, tail, and the number of bytes cut between.

pub(crate) mod last_line;
mod marks;
pub mod plain_text;
pub(crate) mod progress;

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::output::last_line::ReadProgress;
use crate::output::marks::Marks;

/// Bytes in which the last line is searched.
const LAST_LINE_BYTES: usize = 4 * 1024;

/// Treatment of a command's output.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// Destination of the output, readable during and after the run. Its limit applies to each
    /// stream.
    pub kept: SharedOutput,
    /// Redirects standard error into the pipe of standard output, which keeps the order of both.
    pub merged: bool,
    /// The last line is reported as [`Report::Line`](crate::Report::Line).
    pub lines: bool,
    /// Reads progress from lines of output.
    pub progress: Option<Arc<dyn ReadProgress>>,
    /// Gets standard error as it comes, besides `kept`.
    pub copy: Option<Arc<dyn TakeOutput>>,
}

/// Takes a copy of a command's output.
pub trait TakeOutput: Send + Sync + fmt::Debug {
    /// Takes bytes as they were read. Called by the thread that supervises every command, so that it
    /// must not block.
    fn take(&self, bytes: &[u8]);
}

impl OutputOptions {
    /// Keeps this many bytes of each stream, without other features.
    #[must_use]
    pub fn kept(bytes_max: usize) -> Self {
        Self { kept: SharedOutput::new(bytes_max), ..Self::default() }
    }
}

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, and standard error if they are merged.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The output of one command, which its supervisor writes and others read.
#[derive(Debug, Clone)]
pub struct SharedOutput(Arc<Mutex<Streams>>);

/// Both streams of a command.
#[derive(Debug)]
struct Streams {
    stdout: Capture,
    stderr: Capture,
    /// The stream that was written last.
    latest: Stream,
}

impl Streams {
    const fn of(&self, stream: Stream) -> &Capture {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

impl Default for SharedOutput {
    fn default() -> Self {
        Self::new(0)
    }
}

impl SharedOutput {
    /// Keeps at most this many bytes of each stream.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let (stdout, stderr) = (Capture::new(bytes_max), Capture::new(bytes_max));
        Self(Arc::new(Mutex::new(Streams { stdout, stderr, latest: Stream::Stdout })))
    }

    /// Output that was printed already, for tests.
    #[must_use]
    pub fn holding(bytes: &[u8]) -> Self {
        let output = Self::new(2 * bytes.len());
        output.push(Stream::Stdout, bytes);
        output
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut streams = self.streams();
        streams.latest = stream;
        let of = match stream {
            Stream::Stdout => &mut streams.stdout,
            Stream::Stderr => &mut streams.stderr,
        };
        let place = of.total();
        of.marks.note(Instant::now(), place);
        of.push(bytes);
    }

    /// The captured part of a stream so far.
    #[must_use]
    pub fn captured(&self, stream: Stream) -> Captured {
        self.streams().of(stream).captured()
    }

    /// The place in a stream of the first byte that was printed since a time, as far as known: bytes
    /// that were printed shortly before it may be included.
    #[must_use]
    pub fn since(&self, stream: Stream, time: Instant) -> u64 {
        let streams = self.streams();
        let of = streams.of(stream);
        of.marks.since(time, of.total())
    }

    /// The last line so far that is not empty, without escape sequences, of the stream that was
    /// written last; `None` without one. At most `chars_max` characters.
    #[must_use]
    pub fn last_line(&self, chars_max: usize) -> Option<String> {
        let end = {
            let streams = self.streams();
            streams.of(streams.latest).end(LAST_LINE_BYTES)
        };
        let text = plain_text::plain_text(&end);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.chars().take(chars_max).collect())
    }

    /// Number of kept bytes of both streams.
    #[must_use]
    pub fn len(&self) -> usize {
        let streams = self.streams();
        [&streams.stdout, &streams.stderr]
            .map(|stream| stream.head.len() + stream.tail.len())
            .iter()
            .sum()
    }

    /// Whether no output is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Captures a stream of any length in bounded memory.
#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    head_max: usize,
    tail: Vec<u8>,
    tail_max: usize,
    /// Index of the oldest byte in the ring buffer `tail`, once it is full.
    oldest: usize,
    cut: u64,
    /// Times of places.
    marks: Marks,
}

impl Capture {
    /// Keeps at most `bytes_max` bytes, half of them from the start and half from the end.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let tail_max = bytes_max / 2;
        let head_max = bytes_max - tail_max;
        let (head, tail, marks) = (Vec::new(), Vec::new(), Marks::default());
        Self { head, head_max, tail, tail_max, oldest: 0, cut: 0, marks }
    }

    /// Bytes of the stream so far.
    fn total(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.cut
    }

    /// Appends bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.head_max - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        // Bytes that would be overwritten at once are only counted.
        let skipped = rest.len().saturating_sub(self.tail_max);
        self.cut += skipped as u64;
        let (_, mut rest) = rest.split_at(skipped);
        let room = self.tail_max - self.tail.len();
        if room > 0 {
            let (first, later) = rest.split_at(room.min(rest.len()));
            self.tail.extend_from_slice(first);
            rest = later;
        }
        while !rest.is_empty() {
            let run = rest.len().min(self.tail_max - self.oldest);
            let (now, later) = rest.split_at(run);
            if let Some(old) = self.tail.get_mut(self.oldest..self.oldest + run) {
                old.copy_from_slice(now);
            }
            self.oldest = (self.oldest + run) % self.tail_max;
            self.cut += run as u64;
            rest = later;
        }
    }

    /// At most this many of the last bytes.
    fn end(&self, max: usize) -> Vec<u8> {
        let (later, earlier) = self.tail.split_at(self.oldest);
        let mut end = Vec::new();
        // From the last part to the first one, until there are enough.
        for part in [later, earlier, &self.head] {
            // Bytes were cut between head and tail, so that they make no line.
            if self.cut > 0 && !end.is_empty() && std::ptr::eq(part, &*self.head) {
                break;
            }
            let room = max - end.len();
            let (_, kept) = part.split_at(part.len().saturating_sub(room));
            end.splice(0..0, kept.iter().copied());
        }
        end
    }

    /// The captured part so far.
    fn captured(&self) -> Captured {
        let mut tail = self.tail.clone();
        tail.rotate_left(self.oldest);
        Captured { head: self.head.clone(), tail, cut: self.cut }
    }
}

/// Captured part of an output stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    head: Vec<u8>,
    tail: Vec<u8>,
    cut: u64,
}

impl Captured {
    /// The first bytes; all bytes if they fit the first half of the bound.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last bytes after [`Captured::head`].
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Head and tail without the characters that the cut went through.
    #[must_use]
    pub fn whole_characters(&self) -> (&[u8], &[u8]) {
        match self.cut {
            0 => (&self.head, &self.tail),
            _ => (whole_at_end(&self.head), whole_at_start(&self.tail)),
        }
    }

    /// Bytes without the last character when that is incomplete.
    #[must_use]
    pub fn whole_at_end(bytes: &[u8]) -> &[u8] {
        whole_at_end(bytes)
    }

    /// How many bytes were cut between head and tail.
    #[must_use]
    pub const fn cut(&self) -> u64 {
        self.cut
    }

    /// Total number of bytes of the stream.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.head.len() as u64 + self.cut + self.tail.len() as u64
    }

    /// At most `max` bytes from an offset in the stream on, and the offset of the first one, which
    /// is larger if bytes are cut.
    #[must_use]
    pub fn from(&self, place: u64, max: usize) -> (u64, &[u8]) {
        let head = self.head.len() as u64;
        let tail = head + self.cut;
        let (start, part): (u64, &[u8]) =
            if place < head { (0, &self.head) } else { (tail, &self.tail) };
        let place = place.max(start).min(self.total());
        let skipped = usize::try_from(place - start).unwrap_or(usize::MAX).min(part.len());
        let rest = part.split_at(skipped).1;
        (place, rest.split_at(rest.len().min(max)).0)
    }

    /// The output as text: invalid UTF-8 is replaced, and a cut is marked by a line such as `[…
    /// 12345 bytes cut …]`.
    #[must_use]
    pub fn text(&self) -> String {
        if self.cut == 0 {
            return String::from_utf8_lossy(&[self.head(), self.tail()].concat()).into_owned();
        }
        // Characters split by the cut are removed whole.
        let head = whole_at_end(&self.head);
        let tail = whole_at_start(&self.tail);
        let torn = (self.head.len() - head.len() + self.tail.len() - tail.len()) as u64;
        let mut text = String::from_utf8_lossy(head).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[… {} bytes cut …]", self.cut + torn);
        text.push_str(&String::from_utf8_lossy(tail));
        text
    }
}

/// Removes an incomplete character at the end.
fn whole_at_end(bytes: &[u8]) -> &[u8] {
    for back in 1..=bytes.len().min(3) {
        let (before, last) = bytes.split_at(bytes.len() - back);
        match last.first() {
            Some(0xc0..=0xdf) if back < 2 => return before,
            Some(0xe0..=0xef) if back < 3 => return before,
            Some(0xf0..=0xf7) if back < 4 => return before,
            Some(0x80..=0xbf) => {}
            Some(_) | None => return bytes,
        }
    }
    bytes
}

/// Removes an incomplete character at the start.
fn whole_at_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count();
    bytes.split_at(rest).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(bytes_max: usize, chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(bytes_max);
        for chunk in chunks {
            capture.push(chunk);
        }
        capture.captured()
    }

    #[test]
    fn output_within_the_bound_is_not_cut() {
        let captured = capture(8, &[b"ab", b"", b"cdef", b"gh"]);
        assert_eq!((captured.cut(), captured.text().as_str()), (0, "abcdefgh"));
    }

    /// The kept bytes do not depend on how the stream is chunked.
    #[test]
    fn head_and_tail_do_not_depend_on_the_chunks() {
        let all: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for bytes_max in [0, 1, 2, 3, 7, 64, 999, 1000, 1001] {
            for size in [1, 2, 3, 5, 31, 32, 33, 64, 999, 1000] {
                let chunks: Vec<&[u8]> = all.chunks(size).collect();
                let captured = capture(bytes_max, &chunks);
                let kept = bytes_max.min(all.len());
                let tail = (bytes_max / 2).min(all.len() - (bytes_max - bytes_max / 2).min(1000));
                let head = kept - tail;
                assert_eq!(captured.head(), &all[..head], "{bytes_max} {size}");
                assert_eq!(captured.tail(), &all[1000 - tail..], "{bytes_max} {size}");
                assert_eq!(captured.cut(), (1000 - kept) as u64, "{bytes_max} {size}");
            }
        }
    }

    #[test]
    fn cut_is_marked_and_splits_no_character() {
        let captured = capture(6, &["aé€x€b".as_bytes()]);
        // Head "aé" without a split character; tail is the last byte of the second euro and "b".
        assert_eq!(captured.head(), "aé".as_bytes());
        assert_eq!(captured.tail(), &"€b".as_bytes()[1..]);
        assert_eq!(captured.text(), "aé\n[… 7 bytes cut …]\nb");
        let captured = capture(4, &["a€€b".as_bytes()]);
        assert_eq!(captured.text(), "a\n[… 6 bytes cut …]\nb");
    }

    /// A reader that continues from its last offset sees every kept byte once, and detects cuts.
    #[test]
    fn reader_follows_head_and_tail() {
        let captured = capture(6, &[b"abcdefghij"]);
        assert_eq!(
            (captured.head(), captured.tail(), captured.total()),
            (&b"abc"[..], &b"hij"[..], 10)
        );
        assert_eq!(captured.from(0, 2), (0, &b"ab"[..]));
        assert_eq!(captured.from(2, 9), (2, &b"c"[..]));
        assert_eq!(captured.from(3, 9), (7, &b"hij"[..]), "the middle is cut");
        assert_eq!(captured.from(8, 1), (8, &b"i"[..]));
        assert_eq!(captured.from(10, 9), (10, &b""[..]));
        assert_eq!(captured.from(99, 9), (10, &b""[..]));
        assert_eq!(capture(0, &[]).from(0, 9), (0, &b""[..]));
    }

    #[test]
    fn last_line_is_of_the_stream_written_last() {
        let output = SharedOutput::new(16);
        assert_eq!(output.last_line(9), None);
        output.push(Stream::Stdout, b"one\ntwo");
        assert_eq!(output.last_line(9).as_deref(), Some("two"));
        output.push(Stream::Stderr, b"\x1b[31merror\x1b[0m\n\n");
        assert_eq!(output.last_line(9).as_deref(), Some("error"));
        output.push(Stream::Stdout, b"");
        assert_eq!(output.last_line(2).as_deref(), Some("tw"));
        // The tail is a ring of eight bytes now, and does not join the head.
        output.push(Stream::Stdout, b"0123456789\nabc");
        assert_eq!(output.last_line(9).as_deref(), Some("abc"));
        output.push(Stream::Stdout, b"defghij");
        assert_eq!(output.last_line(99).as_deref(), Some("cdefghij"));
        assert_eq!(SharedOutput::new(0).last_line(9), None);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(capture(9, &[b"a\xffb"]).text(), "a\u{fffd}b");
    }
}
