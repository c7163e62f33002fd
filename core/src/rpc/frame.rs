//! Frame decoder: one JSON text a line, UTF-8, LF at the end.
//!
//! The search for a line end looks at each byte once; a whole frame that arrives in one piece is
//! never copied, and a long one that arrives in several is handed over in the buffer that they were
//! gathered in.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::limits::FrameLimits;
pub use crate::rpc::long_line::LongLine;
use crate::rpc::long_line::Taken;

/// Decoded piece of a peer's byte stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// One line without its end; never empty, never longer than the limit.
    Line(&'a [u8]),
    /// A line longer than the limit. Reported once, when the limit is passed; the rest of the line
    /// is skipped and the stream stays usable.
    TooLong,
    /// The first byte that is not white space starts no JSON-RPC message: an HTTP request, a TLS
    /// handshake, typed text. The decoder ignores all later bytes. Holds the rest of the first
    /// piece.
    NotJsonRpc(&'a [u8]),
}

/// Receiver of the frames of a stream. A closure that takes frames is one.
pub trait Sink {
    /// The next frame.
    fn frame(&mut self, frame: Frame<'_>);

    /// The next frame, a long line in a buffer of its own, with white space around it: for a
    /// receiver that keeps the line without a copy.
    fn long_line(&mut self, line: LongLine) {
        self.frame(Frame::Line(line.get().as_bytes()));
    }
}

impl<F: FnMut(Frame<'_>)> Sink for F {
    fn frame(&mut self, frame: Frame<'_>) {
        self(frame);
    }
}

/// Length in bytes of the first piece from which a line counts as long.
const LONG: usize = 16 * 1024;

/// Byte order mark, which some writers put before their first message.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Decoder of one peer's bytes. Buffers only the start of an incomplete frame.
#[derive(Debug)]
pub struct Inbox {
    partial: Vec<u8>,
    frame_bytes_max: usize,
    stage: Stage,
    /// An incomplete frame that is long; `partial` is empty then.
    long: Option<Box<LongLine>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Only white space so far, and `mark` bytes of a byte order mark.
    Fresh { mark: u8 },
    /// Cutting lines.
    Lines,
    /// Inside a too long line, up to its end.
    Skipping,
    /// The peer does not speak JSON-RPC.
    NotJsonRpc,
}

impl Inbox {
    /// Creates a decoder for frames of up to `limits.frame_bytes_max` bytes.
    #[must_use]
    pub const fn new(limits: FrameLimits) -> Self {
        Self {
            partial: Vec::new(),
            frame_bytes_max: limits.frame_bytes_max,
            stage: Stage::Fresh { mark: 0 },
            long: None,
        }
    }

    /// Changes the limits for the following frames.
    pub const fn set_limits(&mut self, limits: FrameLimits) {
        self.frame_bytes_max = limits.frame_bytes_max;
    }

    /// True while an incomplete frame is buffered.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial_bytes() > 0 || self.stage == Stage::Skipping
    }

    /// Buffered bytes of an incomplete frame.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.partial.len() + self.long.as_ref().map_or(0, |long| long.len())
    }

    /// Takes the next piece of the stream and passes every frame that it completes to `sink`, in
    /// order.
    pub fn feed(&mut self, piece: &[u8], mut sink: &mut dyn FnMut(Frame<'_>)) {
        self.feed_into(piece, &mut sink);
    }

    /// As [`Inbox::feed`], for a receiver that keeps long lines.
    pub fn feed_into(&mut self, mut piece: &[u8], sink: &mut dyn Sink) {
        if let Stage::Fresh { mark } = self.stage {
            let Some(rest) = self.begin(piece, mark) else { return };
            piece = rest;
            if self.stage == Stage::NotJsonRpc {
                let line = piece.split(|b| *b == b'\n').next().unwrap_or_default();
                sink.frame(Frame::NotJsonRpc(line));
            }
        }
        if self.stage == Stage::NotJsonRpc {
            return;
        }
        if let Some(long) = self.long.take() {
            let Some(rest) = self.long(long, piece, sink) else { return };
            piece = rest;
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            self.line(piece.get(start..end).unwrap_or_default(), sink);
            start = end + 1;
        }
        self.rest(piece.get(start..).unwrap_or_default(), sink);
    }

    /// Skips white space and one byte order mark before the first message; `mark` bytes of the mark
    /// have come. `None` until another byte comes.
    fn begin<'a>(&mut self, piece: &'a [u8], mark: u8) -> Option<&'a [u8]> {
        let mut next = usize::from(mark);
        for (at, byte) in piece.iter().enumerate() {
            let within = (1..MARK.len()).contains(&next);
            match byte {
                byte if MARK.get(next) == Some(byte) => next += 1,
                b' ' | b'\t' | b'\r' | b'\n' if !within => {}
                b'{' | b'[' if !within => {
                    self.stage = Stage::Lines;
                    return piece.get(at..);
                }
                _ => {
                    self.stage = Stage::NotJsonRpc;
                    return piece.get(at..);
                }
            }
        }
        self.stage = Stage::Fresh { mark: u8::try_from(next).unwrap_or_default() };
        None
    }

    /// Ends the stream: emits a last line without a line end.
    ///
    /// A JSON-RPC message is an object, which is invalid when cut short: the peer gets a parse
    /// error, and the cut message is never mistaken for another one.
    pub fn finish(&mut self, mut sink: &mut dyn FnMut(Frame<'_>)) {
        let last = match self.long.take() {
            Some(long) => long.into_bytes(),
            None => core::mem::take(&mut self.partial),
        };
        emit(&last, &mut sink);
    }

    /// Handles a piece of a long line; returns the rest, which belongs to no long line.
    fn long<'a>(
        &mut self,
        mut long: Box<LongLine>,
        piece: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Option<&'a [u8]> {
        let room = self.frame_bytes_max.saturating_sub(long.len());
        match long.take(piece, room) {
            Taken::All => {
                self.long = Some(long);
                None
            }
            Taken::Last(count) => {
                if !long.get().is_empty() {
                    sink.long_line(*long);
                }
                piece.get(count..)
            }
            Taken::TooLong => {
                self.stage = Stage::Skipping;
                sink.frame(Frame::TooLong);
                Some(piece)
            }
            Taken::NotText => {
                self.partial = long.into_bytes();
                Some(piece)
            }
        }
    }

    /// Handles the piece up to a line end.
    fn line(&mut self, tail: &[u8], sink: &mut dyn Sink) {
        if self.stage == Stage::Skipping {
            self.stage = Stage::Lines;
            return;
        }
        if self.partial.is_empty() && tail.len() <= self.frame_bytes_max {
            return emit(tail, sink);
        }
        // An idle connection keeps no buffer.
        let mut line = core::mem::take(&mut self.partial);
        if line.len() + tail.len() > self.frame_bytes_max {
            return sink.frame(Frame::TooLong);
        }
        line.extend_from_slice(tail);
        emit(&line, sink);
    }

    /// Handles the piece after the last line end.
    fn rest(&mut self, tail: &[u8], sink: &mut dyn Sink) {
        if self.stage == Stage::Skipping || tail.is_empty() {
            return;
        }
        if self.partial.len() + tail.len() > self.frame_bytes_max {
            self.partial = Vec::new();
            self.stage = Stage::Skipping;
            return sink.frame(Frame::TooLong);
        }
        if self.partial.is_empty() && tail.len() >= LONG {
            let mut long = Box::new(LongLine::new(tail.len()));
            if matches!(long.take(tail, tail.len()), Taken::All) {
                self.long = Some(long);
                return;
            }
        }
        self.partial.extend_from_slice(tail);
    }
}

/// Emits one trimmed line; drops a blank one.
fn emit(line: &[u8], sink: &mut dyn Sink) {
    let line = line.trim_ascii();
    if !line.is_empty() {
        sink.frame(Frame::Line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::long_line::ROOM;
    use alloc::string::{String, ToString};
    use alloc::vec;

    fn cut(pieces: &[&[u8]], max: usize) -> Vec<String> {
        let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
        let mut frames = vec![];
        for piece in pieces {
            inbox.feed(piece, &mut |frame| {
                frames.push(match frame {
                    Frame::Line(line) => String::from_utf8_lossy(line).to_string(),
                    Frame::TooLong => "<overlong>".to_string(),
                    Frame::NotJsonRpc(_) => "<alien>".to_string(),
                });
            });
        }
        frames
    }

    #[test]
    fn any_cut_gives_the_same_frames() {
        let stream = b"\r\n {\"a\":1}\r\n\n[2]\n{\"long\":\"xxxxxxxxxxxxxxxx\"}\n{}\n";
        let whole = cut(&[stream], 12);
        assert_eq!(whole, ["{\"a\":1}", "[2]", "<overlong>", "{}"]);
        for a in 0..stream.len() {
            for b in a..stream.len() {
                let pieces = [&stream[..a], &stream[a..b], &stream[b..]];
                assert_eq!(cut(&pieces, 12), whole, "cut at {a} and {b}");
            }
        }
    }

    /// A long line keeps the limit and comes in the buffer that it was gathered in.
    #[test]
    fn a_long_line_is_handed_over_in_its_buffer() {
        #[derive(Default)]
        struct Kept(Vec<LongLine>, Vec<String>);
        impl Sink for Kept {
            fn frame(&mut self, frame: Frame<'_>) {
                self.1.push(alloc::format!("{frame:?}"));
            }

            fn long_line(&mut self, line: LongLine) {
                self.0.push(line);
            }
        }
        let long = alloc::format!("{{\"a\":\"{}\"}}", "x".repeat(3 * LONG));
        let blank = " ".repeat(3 * LONG);
        let stream = alloc::format!("{{}}\n{long}\r\n{blank}\n{long}\n{{}}");
        for (max, count) in [(long.len() + 1, 2), (long.len() - 1, 0)] {
            let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
            let mut kept = Kept::default();
            for piece in stream.as_bytes().chunks(2 * LONG) {
                inbox.feed_into(piece, &mut kept);
                assert!(inbox.partial_bytes() <= max);
            }
            let lines = kept.0.iter().map(LongLine::get);
            assert!(lines.eq(core::iter::repeat_n(long.as_str(), count)), "{max}");
            assert!(kept.0.iter().all(|line| line.text().starts_with(&" ".repeat(ROOM))));
            let seen = if count == 0 { 3 } else { 1 };
            assert!(kept.1.len() >= seen, "{:?}", kept.1);
            assert_eq!(inbox.partial_bytes(), 2);
        }
    }

    #[test]
    fn an_endless_line_is_not_buffered_and_reported_once() {
        let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: 1024 });
        let mut reported = 0;
        inbox.feed(b"{", &mut |_| {});
        for _ in 0..10_000 {
            inbox.feed(&[b'x'; 1000], &mut |frame| {
                assert_eq!(frame, Frame::TooLong);
                reported += 1;
            });
            assert!(inbox.partial.capacity() <= 4096);
        }
        assert_eq!(reported, 1);
        inbox.feed(b"\n{}\n", &mut |frame| assert_eq!(frame, Frame::Line(b"{}")));
    }

    #[test]
    fn an_http_request_is_recognised_by_its_first_byte() {
        assert_eq!(cut(&[b"P", b"OST / HTTP/1.1\r\n\r\n{}\n"], 99), ["<alien>"]);
    }

    /// RPC-01: one byte order mark is skipped before the first message and nowhere else.
    #[test]
    fn a_byte_order_mark_is_skipped() {
        let whole: &[u8] = b" \n\xef\xbb\xbf \n{}\n[]\n";
        for at in 0..whole.len() {
            let (start, rest) = whole.split_at(at);
            assert_eq!(cut(&[start, rest], 99), ["{}", "[]"], "cut at {at}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(cut(&bytes, 99), ["{}", "[]"]);
        for alien in [
            &b"\xef\xbb\xbf\xef\xbb\xbf{}\n"[..],
            b"\xef\xbb{}\n",
            b"\xef \xbb\xbf{}\n",
            b"\xef\xbb\xbfGET / HTTP/1.1\r\n",
            b"\xbb\xbf{}\n",
            b"\xff\xfe{\0}\0\n\0",
        ] {
            assert_eq!(cut(&[alien], 99), ["<alien>"], "{alien:?}");
        }
        let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: 9 });
        inbox.feed(b"\xef\xbb\xbf", &mut |frame| panic!("{frame:?}"));
        assert!(!inbox.is_partial());
        inbox.finish(&mut |frame| panic!("{frame:?}"));
    }

    #[test]
    fn a_last_line_without_line_end_is_emitted_at_the_end() {
        for (stream, max, last) in [
            (&b"{}\n{\"a\":1} "[..], 99, Some("{\"a\":1}")),
            (b"{}\n", 99, None),
            (b" \t", 99, None),
            (b"GET / HTTP/1.1", 99, None),
            (b"{}\n{\"long\":1}", 5, None),
        ] {
            let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
            inbox.feed(stream, &mut |_| {});
            let mut frames = vec![];
            inbox.finish(&mut |frame| match frame {
                Frame::Line(line) => frames.push(String::from_utf8_lossy(line).to_string()),
                Frame::TooLong | Frame::NotJsonRpc(_) => panic!("reported twice: {frame:?}"),
            });
            assert_eq!(frames.first().map(String::as_str), last);
            assert!(frames.len() <= 1 && inbox.partial.is_empty());
        }
    }
}
