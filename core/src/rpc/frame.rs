//! Frame decoder: one JSON text a line, UTF-8, LF at the end.
//!
//! The search for a line end looks at each byte once; a whole frame that arrives in one piece is
//! never copied.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::limits::FrameLimits;

use crate::rpc::skeleton::Skeleton;

/// Decoded piece of a peer's byte stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// One line without its end; never empty, never longer than the limit.
    Line(&'a [u8]),
    /// A line longer than the limit, which is skipped; the stream stays usable. Reported once: when
    /// the limit is passed if the id has come, else at the end of the line, or when it is known to
    /// be no message. Holds the first level of the message with `{}` for long members; empty if
    /// there is no such message.
    TooLong(&'a str),
    /// The first byte that is not white space starts no JSON-RPC message: an HTTP request, a TLS
    /// handshake, typed text. The decoder ignores all later bytes. Holds the rest of the first
    /// piece.
    NotJsonRpc(&'a [u8]),
}

/// Length in bytes from which the buffer of a line grows by [`STEP`] at least: each doubling would copy
/// the line, and a page takes memory once it is written to.
const LARGE: usize = 64 * 1024;
const STEP: usize = 1 << 20;

/// Length of a line, in limits, within which its id is looked for.
const LOOKED_AT: usize = 64;

/// Byte order mark, which some writers put before their first message.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Decoder of one peer's bytes. Buffers only the start of an incomplete frame.
#[derive(Debug)]
pub struct Inbox {
    partial: Vec<u8>,
    frame_bytes_max: usize,
    stage: FrameStage,
    /// A line that is skipped and not reported yet.
    skipped: Option<Box<Skeleton>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameStage {
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
            stage: FrameStage::Fresh { mark: 0 },
            skipped: None,
        }
    }

    /// Changes the limits for the following frames.
    pub const fn set_limits(&mut self, limits: FrameLimits) {
        self.frame_bytes_max = limits.frame_bytes_max;
    }

    /// True while an incomplete frame is buffered.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial_bytes() > 0 || self.stage == FrameStage::Skipping
    }

    /// Buffered bytes of an incomplete frame.
    #[must_use]
    pub const fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Takes the next piece of the stream and passes every frame that it completes to `sink`, in
    /// order.
    pub fn feed(&mut self, mut piece: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
        if let FrameStage::Fresh { mark } = self.stage {
            let Some(rest) = self.begin(piece, mark) else { return };
            piece = rest;
            if self.stage == FrameStage::NotJsonRpc {
                let line = piece.split(|b| *b == b'\n').next().unwrap_or_default();
                sink(Frame::NotJsonRpc(line));
            }
        }
        if self.stage == FrameStage::NotJsonRpc {
            return;
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
                    self.stage = FrameStage::Lines;
                    return piece.get(at..);
                }
                _ => {
                    self.stage = FrameStage::NotJsonRpc;
                    return piece.get(at..);
                }
            }
        }
        self.stage = FrameStage::Fresh { mark: u8::try_from(next).unwrap_or_default() };
        None
    }

    /// Ends the stream: emits a last line without a line end.
    ///
    /// A JSON-RPC message is an object, which is invalid when cut short: the peer gets a parse
    /// error, and the cut message is never mistaken for another one.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Frame<'_>)) {
        if let Some(skipped) = self.skipped.take() {
            sink(Frame::TooLong(skipped.text()));
        }
        emit(&core::mem::take(&mut self.partial), sink);
    }

    /// Skips a line that begins with these pieces.
    fn skip(&mut self, pieces: &[&[u8]], sink: &mut dyn FnMut(Frame<'_>)) {
        self.stage = FrameStage::Skipping;
        let mut skeleton = Box::new(self.skeleton());
        pieces.iter().for_each(|piece| skeleton.read(piece));
        if skeleton.is_over() || skeleton.end_early() {
            return sink(Frame::TooLong(skeleton.text()));
        }
        self.skipped = Some(skeleton);
    }

    /// The skeleton of a line that is skipped.
    fn skeleton(&self) -> Skeleton {
        Skeleton::within(self.frame_bytes_max.saturating_mul(LOOKED_AT))
    }

    /// Handles the piece up to a line end.
    fn line(&mut self, tail: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
        if self.stage == FrameStage::Skipping {
            self.stage = FrameStage::Lines;
            if let Some(mut skeleton) = self.skipped.take() {
                skeleton.read(tail);
                sink(Frame::TooLong(skeleton.text()));
            }
            return;
        }
        if self.partial.is_empty() && tail.len() <= self.frame_bytes_max {
            return emit(tail, sink);
        }
        // An idle connection keeps no buffer.
        let mut line = core::mem::take(&mut self.partial);
        if line.len() + tail.len() > self.frame_bytes_max {
            let mut skeleton = self.skeleton();
            skeleton.read(&line);
            skeleton.read(tail);
            return sink(Frame::TooLong(skeleton.text()));
        }
        line.extend_from_slice(tail);
        emit(&line, sink);
    }

    /// Handles the piece after the last line end.
    fn rest(&mut self, tail: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
        if tail.is_empty() {
            return;
        }
        if self.stage == FrameStage::Skipping {
            if let Some(mut skeleton) = self.skipped.take() {
                skeleton.read(tail);
                if skeleton.is_over() {
                    return sink(Frame::TooLong(skeleton.text()));
                }
                self.skipped = Some(skeleton);
            }
            return;
        }
        if self.partial.len() + tail.len() > self.frame_bytes_max {
            let partial = core::mem::take(&mut self.partial);
            return self.skip(&[&partial, tail], sink);
        }
        let (length, max) = (self.partial.len(), self.frame_bytes_max);
        if length >= LARGE && self.partial.capacity() - length < tail.len() {
            self.partial.reserve_exact(STEP.min(max - length).max(tail.len()));
        }
        self.partial.extend_from_slice(tail);
    }
}

/// Emits one trimmed line; drops a blank one.
fn emit(line: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
    let line = line.trim_ascii();
    if !line.is_empty() {
        sink(Frame::Line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec;

    fn cut(pieces: &[&[u8]], max: usize) -> Vec<String> {
        let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
        let mut frames = vec![];
        for piece in pieces {
            inbox.feed(piece, &mut |frame| {
                frames.push(match frame {
                    Frame::Line(line) => String::from_utf8_lossy(line).to_string(),
                    Frame::TooLong(_) => "<overlong>".to_string(),
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

    #[test]
    fn endless_line_is_not_buffered_and_reported_once() {
        let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: 1024 });
        let first = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":""#;
        let last = br#"{"jsonrpc":"2.0","params":{"a":""#;
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#;
        let late = r#"{"jsonrpc":"2.0","params":{},"id":1,"method":"m"}"#;
        for (start, count, early, told) in
            [(&first[..], 10_000, true, text), (last, 50, false, late), (last, 10_000, true, "")]
        {
            let mut frames = vec![];
            inbox.feed(start, &mut |frame| panic!("{frame:?}"));
            for _ in 0..count {
                inbox.feed(&[b'x'; 1000], &mut |frame| frames.push(alloc::format!("{frame:?}")));
                assert!(inbox.partial.capacity() <= 4096);
            }
            assert_eq!(frames.len(), usize::from(early));
            let end = b"\"},\"id\":1,\"method\":\"m\"}\n{}\n";
            inbox.feed(end, &mut |frame| frames.push(alloc::format!("{frame:?}")));
            let frame = |frame: Frame<'_>| alloc::format!("{frame:?}");
            assert_eq!(frames, [frame(Frame::TooLong(told)), frame(Frame::Line(b"{}"))]);
        }
    }

    /// A long line that passes the limit later is read from its start.
    #[test]
    fn id_of_a_long_line_is_found_however_it_is_cut() {
        const LONG: usize = 16 * 1024;
        let params = "x".repeat(3 * LONG);
        let line = alloc::format!("{{\"params\":\"{params}\",\"id\":5,\"method\":\"m\"}}");
        for max in [1000, LONG + 1, 2 * LONG, line.len() - 1] {
            for size in [LONG / 2, LONG, 2 * LONG, line.len() + 1] {
                for end in ["\n", ""] {
                    let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
                    let mut frames = vec![];
                    let mut sink = |frame: Frame<'_>| frames.push(alloc::format!("{frame:?}"));
                    for piece in alloc::format!("{line}{end}").as_bytes().chunks(size) {
                        inbox.feed(piece, &mut sink);
                    }
                    inbox.finish(&mut sink);
                    let text = r#"{"params":{},"id":5,"method":"m"}"#;
                    let found = alloc::format!("{:?}", Frame::TooLong(text));
                    assert_eq!(frames, [found], "{max} {size}");
                }
            }
        }
    }

    #[test]
    fn http_request_is_recognised_by_its_first_byte() {
        assert_eq!(cut(&[b"P", b"OST / HTTP/1.1\r\n\r\n{}\n"], 99), ["<alien>"]);
    }

    /// RPC-01: one byte order mark is skipped before the first message and nowhere else.
    #[test]
    fn byte_order_mark_is_skipped() {
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
    fn last_line_without_line_end_is_emitted_at_the_end() {
        for (stream, max, last) in [
            (&b"{}\n{\"a\":1} "[..], 99, Some("{\"a\":1}")),
            (b"{}\n", 99, None),
            (b" \t", 99, None),
            (b"GET / HTTP/1.1", 99, None),
            (b"{}\n{\"long\":1", 5, Some("<overlong>")),
        ] {
            let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
            inbox.feed(stream, &mut |_| {});
            let mut frames = vec![];
            inbox.finish(&mut |frame| match frame {
                Frame::Line(line) => frames.push(String::from_utf8_lossy(line).to_string()),
                Frame::TooLong(_) => frames.push("<overlong>".to_string()),
                Frame::NotJsonRpc(_) => panic!("reported twice: {frame:?}"),
            });
            assert_eq!(frames.first().map(String::as_str), last);
            assert!(frames.len() <= 1 && inbox.partial.is_empty());
        }
    }
}
