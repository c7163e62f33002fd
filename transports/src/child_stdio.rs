//! Standard input and output of a child process that speaks JSON-RPC, as one transport.
//!
//! Programs print more than messages on standard output: banners, logs, colours. A line that
//! cannot be a JSON-RPC message by its first characters is removed from the stream and counted, so
//! that a [`Link`](crate::Link) sees messages only. Reading stops with the link's budget and
//! writing with a full pipe, so the backpressure of both directions reaches the child.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};

use crate::system::LOSS;
use crate::transport::{Peer, Readiness, Transport};

/// Skipped lines of which the start is kept.
pub const SKIPPED_LINES_KEPT: usize = 8;
/// Bytes kept of such a line.
pub const SKIPPED_LINE_BYTES: usize = 200;
/// White space at the start of a line that may precede a message; a line with more is skipped.
const INDENT_BYTES_MAX: usize = 64;
/// Bytes that are read at once: twice those of a pipe, so that a read of a full one is short and
/// tells that nothing is left. The child fills its pipe again while they are checked, and few are
/// left to check at the end of a long message.
const READ_BYTES_MAX: usize = 128 * 1024;

/// The lines of a child's standard output that were no messages, shared with views.
#[derive(Debug, Clone, Default)]
pub struct SkippedLines(Arc<Mutex<Skipped>>);

#[derive(Debug, Default)]
struct Skipped {
    count: u64,
    first: Vec<Vec<u8>>,
}

impl SkippedLines {
    fn skipped(&self) -> MutexGuard<'_, Skipped> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of lines so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.skipped().count
    }

    /// The start of each of the first lines. Invalid UTF-8 and control characters are replaced.
    #[must_use]
    pub fn first(&self) -> Vec<String> {
        let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let line = |bytes: &Vec<u8>| {
            String::from_utf8_lossy(bytes).trim_end().chars().map(shown).collect()
        };
        self.skipped().first.iter().map(line).collect()
    }

    fn begin(&self) {
        let mut skipped = self.skipped();
        skipped.count += 1;
        if skipped.first.len() < SKIPPED_LINES_KEPT {
            skipped.first.push(Vec::new());
        }
    }

    fn extend(&self, bytes: &[u8]) {
        let mut skipped = self.skipped();
        let is_kept = usize::try_from(skipped.count).is_ok_and(|n| n <= SKIPPED_LINES_KEPT);
        if let (true, Some(line)) = (is_kept, skipped.first.last_mut()) {
            let room = SKIPPED_LINE_BYTES - line.len();
            line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
    }
}

/// Byte order mark, which some writers put before each line.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Removes lines that are no JSON-RPC messages from a stream, and byte order marks at the start of
/// lines.
///
/// A message starts with `{"`, a batch with `[{`, with white space anywhere between. So a log line
/// such as `[info] ready` or `{ port: 1 }` is none.
#[derive(Debug, Default)]
struct LineFilter {
    line: Line,
    /// Start of a line that does not tell yet whether it is a message.
    held: Vec<u8>,
    skipped: SkippedLines,
}

/// Part of a line that the stream is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Line {
    /// White space only so far.
    #[default]
    Start,
    /// After this bracket, and white space.
    Opened(u8),
    Message,
    Skipped,
}

impl LineFilter {
    /// Removes the lines to skip from `piece`, and appends the rest to `out`.
    fn filter(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while let Some(first) = piece.first() {
            match self.line {
                Line::Message | Line::Skipped => {
                    let end = memchr::memchr(b'\n', piece).map_or(piece.len(), |end| end + 1);
                    let (line, rest) = piece.split_at(end);
                    self.pass(line, out);
                    if line.ends_with(b"\n") {
                        self.line = Line::Start;
                    }
                    piece = rest;
                }
                Line::Start | Line::Opened(_) => {
                    self.classify(*first, out);
                    piece = piece.split_at(1).1;
                }
            }
        }
    }

    fn pass(&self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.line {
            Line::Skipped => self.skipped.extend(bytes),
            Line::Start | Line::Opened(_) | Line::Message => out.extend_from_slice(bytes),
        }
    }

    /// Takes the next byte of a line of which it is not known whether it is a message.
    fn classify(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held.push(byte);
        let is_marked = self.held.first() == MARK.first();
        if is_marked && MARK.starts_with(&self.held) {
            if self.held == MARK {
                self.held.clear();
            }
            return;
        }
        self.line = match (self.line, byte) {
            _ if is_marked => Line::Skipped,
            (Line::Start, b'\n') => {
                self.held.clear();
                return;
            }
            (line, b' ' | b'\t' | b'\r') if self.held.len() <= INDENT_BYTES_MAX => {
                self.line = line;
                return;
            }
            (Line::Start, b'{' | b'[') => {
                self.line = Line::Opened(byte);
                return;
            }
            (Line::Opened(b'{'), b'"') | (Line::Opened(b'['), b'{') => Line::Message,
            _ => Line::Skipped,
        };
        if self.line == Line::Skipped {
            self.skipped.begin();
        }
        let held = std::mem::take(&mut self.held);
        self.pass(&held, out);
        if byte == b'\n' {
            self.line = Line::Start;
        }
    }

    /// Whether the whole stream so far, and this piece, may be passed as it is.
    fn passes(&mut self, piece: &[u8]) -> bool {
        // Nearly every piece is inside a message, or is whole messages.
        if self.line == Line::Start && self.held.is_empty() && piece.starts_with(b"{\"") {
            self.line = Line::Message;
        }
        if self.line != Line::Message {
            return false;
        }
        let mut rest = piece;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            rest = rest.split_at(end + 1).1;
            match rest {
                [] => {
                    self.line = Line::Start;
                    return true;
                }
                [b'{', b'"', ..] => {}
                _ => return false,
            }
        }
        true
    }
}

/// The caller's ends of the pipes of a child: the read end of its standard output, and the write
/// end of its standard input.
#[derive(Debug)]
pub struct ChildStdio {
    from_child: File,
    /// `None` once nothing more is written: the child reads the end of file.
    to_child: Option<File>,
    filter: LineFilter,
    /// Filtered bytes that did not fit the buffer of a read.
    pending: Vec<u8>,
    /// Whether the last read of the pipe emptied it.
    is_drained: bool,
    peer: Peer,
    /// To take the registration back on drop.
    registry: Option<Registry>,
}

impl ChildStdio {
    /// A transport over two pipes, which are made non-blocking. `name` names the child in logs.
    ///
    /// # Errors
    ///
    /// The error of the system, if a descriptor cannot be made non-blocking.
    pub fn new(from_child: OwnedFd, to_child: OwnedFd, name: &str) -> io::Result<Self> {
        ioctl_fionbio(&from_child, true)?;
        ioctl_fionbio(&to_child, true)?;
        Ok(Self {
            from_child: from_child.into(),
            to_child: Some(to_child.into()),
            filter: LineFilter::default(),
            pending: Vec::new(),
            is_drained: false,
            peer: Peer::Child { name: name.into() },
            registry: None,
        })
    }

    /// The skipped lines of the child, for views; they grow while the transport is read.
    #[must_use]
    pub fn skipped(&self) -> SkippedLines {
        self.filter.skipped.clone()
    }

    fn take_pending(&mut self, buf: &mut [u8]) -> usize {
        let count = self.pending.len().min(buf.len());
        for (place, byte) in buf.iter_mut().zip(self.pending.drain(..count)) {
            *place = byte;
        }
        count
    }

    fn deregister_both(&self, registry: &Registry) -> io::Result<()> {
        let input = registry.deregister(&mut SourceFd(&self.from_child.as_raw_fd()));
        if let Some(output) = &self.to_child {
            registry.deregister(&mut SourceFd(&output.as_raw_fd()))?;
        }
        input
    }

    /// Whether no process reads standard input of the child any more.
    fn is_reader_gone(&self) -> bool {
        let Some(output) = &self.to_child else { return false };
        let mut fds = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let dead = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        poll(&mut fds, Some(&now)).is_ok() && fds.iter().any(|fd| fd.revents().intersects(dead))
    }
}

impl Transport for ChildStdio {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.pending.is_empty() {
                return Ok(self.take_pending(buf));
            }
            let room = buf.len().min(READ_BYTES_MAX);
            let count = self.from_child.read(buf.get_mut(..room).unwrap_or_default())?;
            self.is_drained = count < room;
            if count == 0 {
                // A last line without its end is no message.
                self.filter.held.clear();
                return Ok(0);
            }
            let piece = buf.get(..count).unwrap_or_default();
            let before = self.filter.line;
            if self.filter.passes(piece) {
                return Ok(count);
            }
            self.filter.line = before;
            self.filter.filter(piece, &mut self.pending);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to_child {
            Some(file) => file.write(bytes),
            None => Err(Errno::PIPE.into()),
        }
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let ours = registry.try_clone()?;
        let input = self.from_child.as_raw_fd();
        registry.register(&mut SourceFd(&input), token, Interest::READABLE)?;
        if let Some(output) = &self.to_child {
            let source = &mut SourceFd(&output.as_raw_fd());
            if let Err(error) = registry.register(source, token, LOSS) {
                registry.deregister(&mut SourceFd(&input))?;
                return Err(error);
            }
        }
        self.registry = Some(ours);
        Ok(())
    }

    fn await_room(&mut self, registry: &Registry, token: Token, awaited: bool) -> io::Result<()> {
        let Some(output) = &self.to_child else { return Ok(()) };
        let interests = if awaited { Interest::WRITABLE } else { LOSS };
        registry.reregister(&mut SourceFd(&output.as_raw_fd()), token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.registry = None;
        self.deregister_both(registry)
    }

    fn finish(&mut self) -> io::Result<()> {
        if let (Some(registry), Some(output)) = (&self.registry, &self.to_child) {
            registry.deregister(&mut SourceFd(&output.as_raw_fd()))?;
        }
        self.to_child = None;
        Ok(())
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn readiness(&self, event: &Event) -> Readiness {
        let plain = Readiness::of(event);
        // Both pipes share a token, so that an event does not tell whose hang-up it is. A child
        // that closes its standard input alone may still answer.
        let peer_gone = plain.peer_gone && plain.read_closed && self.is_reader_gone();
        Readiness { peer_gone, readable: plain.readable || plain.read_closed, ..plain }
    }

    fn short_read_drains(&self) -> bool {
        // A read may give less than the pipe held: skipped lines take room.
        self.pending.is_empty() && self.is_drained
    }

    fn short_write_fills(&self) -> bool {
        true
    }
}

impl Drop for ChildStdio {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.take() {
            // Nothing can be done about a failure.
            let _ = self.deregister_both(&registry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"\x1b[32mServer\x1b[0m 1.0\r\n\n[info] ready\n{ port: 1 }\n{\n  \"a\": 1\n}\n\
        {\"id\":1}\r\n  [ {\"id\":2}]\n\xff\xfe bad\n{\"text\":\"x\\n\"}\nbye";
    const MESSAGES: &str = "{\"id\":1}\r\n  [ {\"id\":2}]\n{\"text\":\"x\\n\"}\n";

    #[test]
    fn lines_that_are_no_messages_are_removed_however_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let (mut filter, mut out) = (LineFilter::default(), Vec::new());
            for piece in STREAM.chunks(size) {
                let before = filter.line;
                if filter.passes(piece) {
                    out.extend_from_slice(piece);
                } else {
                    filter.line = before;
                    filter.filter(piece, &mut out);
                }
            }
            assert_eq!(String::from_utf8_lossy(&out), MESSAGES, "{size}");
            assert_eq!(filter.skipped.count(), 8, "{size}");
            let first = filter.skipped.first();
            assert_eq!(first.first().unwrap(), "\u{fffd}[32mServer\u{fffd}[0m 1.0");
            assert_eq!(first.get(6).unwrap(), "\u{fffd}\u{fffd} bad");
        }
    }

    /// A byte order mark at the start of any line is skipped; a part of one starts no message.
    #[test]
    fn byte_order_marks_are_removed_however_the_stream_is_cut() {
        let stream = b"\xef\xbb\xbf{\"a\":1}\n\xef\xbb\xbf {\"b\":2}\r\n\xef\xbb{\"c\":3}\n\
            \xef\xbb\xbf\n\xef {\"d\":4}\n\xef\xbb\xbfnoise\n\xef\n{\"e\":\"\xef\xbb\xbf\"}\n\
            \xef\xbb\xbf[{\"f\":6}]\n";
        let messages = "{\"a\":1}\n {\"b\":2}\r\n{\"e\":\"\u{feff}\"}\n[{\"f\":6}]\n";
        for size in 1..=stream.len() {
            let (mut filter, mut out) = (LineFilter::default(), Vec::new());
            for piece in stream.chunks(size) {
                let before = filter.line;
                if filter.passes(piece) {
                    out.extend_from_slice(piece);
                } else {
                    filter.line = before;
                    filter.filter(piece, &mut out);
                }
            }
            assert_eq!(String::from_utf8_lossy(&out), messages, "{size}");
            assert_eq!(filter.skipped.count(), 4, "{size}");
        }
    }

    #[test]
    fn kept_lines_are_bounded() {
        let (mut filter, mut out) = (LineFilter::default(), Vec::new());
        for _ in 0..100 {
            filter.filter(&[b'x'; 10_000], &mut out);
            filter.filter(b"\n", &mut out);
        }
        let first = filter.skipped.first();
        assert_eq!((out.len(), filter.skipped.count()), (0, 100));
        assert_eq!(first.len(), SKIPPED_LINES_KEPT);
        assert!(first.iter().all(|line| line.len() == SKIPPED_LINE_BYTES));
    }
}
