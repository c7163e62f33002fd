//! Frames out of bytes and bytes out of frames: one JSON text a line, UTF-8, LF at the end.
//!
//! No byte is looked at twice for a line end, and a whole frame that arrives in one piece is
//! never copied.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::collections::lazy_box::IsEmpty;
use crate::ids::RequestId;
use crate::limits::FrameLimits;
use crate::rpc::recall::{Gaps, Handle, Marks, Stretch};
use crate::time::Instant;

/// One piece of the bytes of a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// One line without its end; never empty, never longer than the limit.
    Line(&'a [u8]),
    /// A line longer than the limit. Reported once, when the limit is passed; the rest of the line
    /// is skipped and the stream stays usable.
    TooLong,
    /// The very first byte that is not white space starts no JSON-RPC message: a browser, a TLS
    /// client, a human. Nothing after it is looked at. Holds what the first piece had to say.
    NotJsonRpc(&'a [u8]),
}

/// The byte order mark, which some writers put before their first message.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes of one peer, cut into frames. Holds only the start of a frame whose end has not come.
#[derive(Debug)]
pub struct Inbox {
    partial: Vec<u8>,
    frame_bytes_max: usize,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing but white space so far, and of a byte order mark this many bytes.
    Fresh { mark: u8 },
    /// Cutting lines.
    Lines,
    /// Inside a line that is too long, up to its end.
    Skipping,
    /// The peer does not speak JSON-RPC.
    NotJsonRpc,
}

impl Inbox {
    /// An empty inbox that takes frames of up to `limits.frame_bytes_max` bytes.
    #[must_use]
    pub const fn new(limits: FrameLimits) -> Self {
        Self {
            partial: Vec::new(),
            frame_bytes_max: limits.frame_bytes_max,
            stage: Stage::Fresh { mark: 0 },
        }
    }

    /// Takes frames of another length from now on.
    pub const fn set_limits(&mut self, limits: FrameLimits) {
        self.frame_bytes_max = limits.frame_bytes_max;
    }

    /// True while a frame has begun and not ended.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty() || self.stage == Stage::Skipping
    }

    /// Bytes held of a frame that has begun and not ended.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Takes the next piece of the stream and hands every frame it completes to `sink`, in order.
    pub fn feed(&mut self, mut piece: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
        if let Stage::Fresh { mark } = self.stage {
            let Some(rest) = self.begin(piece, mark) else { return };
            piece = rest;
            if self.stage == Stage::NotJsonRpc {
                let line = piece.split(|b| *b == b'\n').next().unwrap_or_default();
                sink(Frame::NotJsonRpc(line));
            }
        }
        if self.stage == Stage::NotJsonRpc {
            return;
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            self.line(piece.get(start..end).unwrap_or_default(), sink);
            start = end + 1;
        }
        self.rest(piece.get(start..).unwrap_or_default(), sink);
    }

    /// Skips white space and one byte order mark, of which `mark` bytes have come, before the first
    /// message. `None` while there is nothing else.
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

    /// The peer has stopped sending: hands out a last line that lacks its end.
    ///
    /// A JSON-RPC message is an object, which is never complete when cut short, so a cut message
    /// can only be refused as garbled, never be taken for another one.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Frame<'_>)) {
        let last = core::mem::take(&mut self.partial);
        emit(&last, sink);
    }

    /// The piece up to a line end.
    fn line(&mut self, tail: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
        if self.stage == Stage::Skipping {
            self.stage = Stage::Lines;
            return;
        }
        if self.partial.len() + tail.len() > self.frame_bytes_max {
            sink(Frame::TooLong);
        } else if self.partial.is_empty() {
            emit(tail, sink);
            return;
        } else {
            self.partial.extend_from_slice(tail);
            emit(&self.partial, sink);
        }
        // An idle connection keeps no buffer.
        self.partial = Vec::new();
    }

    /// The piece after the last line end.
    fn rest(&mut self, tail: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
        if self.stage == Stage::Skipping || tail.is_empty() {
            return;
        }
        if self.partial.len() + tail.len() > self.frame_bytes_max {
            self.partial = Vec::new();
            self.stage = Stage::Skipping;
            sink(Frame::TooLong);
        } else {
            self.partial.extend_from_slice(tail);
        }
    }
}

/// Hands one line on, trimmed; blank lines are nothing.
fn emit(line: &[u8], sink: &mut dyn FnMut(Frame<'_>)) {
    let line = line.trim_ascii();
    if !line.is_empty() {
        sink(Frame::Line(line));
    }
}

/// Bytes of room that an empty outbox keeps for the next frame: an answer of the usual size needs no
/// allocation, and a connection that says something now and then holds no more than this.
const KEPT: usize = 512;
/// Bytes of room that an outbox keeps after it has sent [`BUSY`] frames or more at once.
const KEPT_BUSY: usize = 32 * 1024;
/// Frames sent at once from which on a connection counts as busy: its next answers are as many.
const BUSY: u32 = 8;

/// Bytes to send to one peer, in order.
///
/// The engine writes frames at the end, the host takes bytes from the front. When everything was
/// sent, a buffer of at most 512 bytes is kept for the next frame, and one of at most 32 KiB if it
/// held many frames; a larger one is freed.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// Frames written since it was empty.
    frames: u32,
    /// Bytes sent in all; tells a peer that reads from one that does not.
    taken: u64,
    /// Frames that are taken back when their request is cancelled before they are sent (MOD-04).
    marks: Marks,
    /// Frames that were taken back and are still among the bytes.
    gaps: Gaps,
    /// Since when too much has waited for the peer, and what it had taken then.
    over_mark: (Instant, u64),
}

impl Outbox {
    /// An empty outbox.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
            frames: 0,
            taken: 0,
            marks: Marks::new(),
            gaps: Gaps::new(),
            over_mark: (Instant::ZERO, 0),
        }
    }

    /// Bytes to send next.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        assert!(self.gaps.is_empty(), "what was taken back is gone before anybody looks");
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Bytes not sent yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent - self.gaps.bytes()
    }

    /// Not too much waits for the peer so far.
    pub(crate) const fn note_under_mark(&mut self, now: Instant) {
        self.over_mark = (now, self.taken);
    }

    /// Since when too much has waited for the peer, and whether it has taken some of it since.
    /// Where nothing waits it has taken all.
    pub(crate) fn over_mark(&self) -> (Instant, bool) {
        let (since, taken) = self.over_mark;
        (since, self.taken != taken || self.is_empty())
    }

    /// True when everything was sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that the first `count` pending bytes were sent.
    ///
    /// # Panics
    /// When `count` is more than was pending: the host would have lost track of the stream.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "sent more than was pending");
        self.close_gaps();
        self.sent += count;
        self.taken = self.taken.wrapping_add(count as u64);
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent >= 64 * 1024 && self.sent * 2 >= self.bytes.len() {
            // The front half is dead: moving the rest is paid for by the bytes already sent.
            self.bytes.drain(..self.sent);
            self.marks.forget_front(self.sent);
            self.sent = 0;
        }
    }

    /// Forgets everything; for a peer that is gone.
    pub fn clear(&mut self) {
        self.sent = 0;
        self.marks.clear();
        self.gaps = Gaps::new();
        let kept = if self.frames < BUSY { KEPT } else { KEPT_BUSY };
        self.frames = 0;
        if self.bytes.capacity() > kept {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }

    /// Writes one frame whose text, one JSON value, exists already; for hosts that have something
    /// to say without an engine.
    pub fn line(&mut self, text: &[u8]) {
        self.frame(|bytes| bytes.extend_from_slice(text));
    }

    /// Writes one frame: `write` appends the text, the line end is added here.
    ///
    /// Raw JSON taken from elsewhere may hold line breaks, which in valid JSON can only be white
    /// space; they become spaces, or one frame would become two.
    pub(crate) fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let frame = self.bytes.get_mut(start..).unwrap_or_default();
        if memchr::memchr2(b'\n', b'\r', frame).is_some() {
            for byte in frame {
                if matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
        self.bytes.push(b'\n');
        self.frames = self.frames.saturating_add(1);
    }

    /// Writes one frame that [`Outbox::recall`] takes back if nothing of it was sent; `handle` is
    /// what only its reader can name.
    pub(crate) fn frame_for(
        &mut self,
        request: &RequestId,
        handle: Option<Handle>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bytes.len();
        self.frame(write);
        let handle = handle.map(Box::new);
        self.marks.note(request, Stretch { range: start..self.bytes.len(), handle });
    }

    /// What nobody can name if what is pending is never sent.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.marks.handles_behind(self.sent)
    }

    /// Takes back every frame written for a request of which no byte was sent (MOD-04), and says
    /// what nobody can name now. A frame that was begun is finished: half a line would be garbage.
    ///
    /// To close a gap moves all that lies behind it. So they are closed together, before somebody
    /// looks or when they take more room than what is left: a peer that takes back much, a little
    /// at a time, costs no more than what it takes back.
    pub(crate) fn recall(&mut self, request: &RequestId) -> Vec<Handle> {
        let mut frames = self.marks.take(request);
        frames.retain(|frame| frame.range.start >= self.sent);
        if frames.is_empty() {
            return Vec::new();
        }
        frames.iter().for_each(|frame| self.gaps.add(frame.range.clone()));
        if self.is_empty() {
            self.clear();
        } else if self.gaps.bytes() > self.len() {
            self.close_gaps();
        }
        frames.into_iter().filter_map(|frame| Some(*frame.handle?)).collect()
    }

    /// Moves what was not taken back together.
    pub(crate) fn close_gaps(&mut self) {
        if self.gaps.is_empty() {
            return;
        }
        let gaps = core::mem::replace(&mut self.gaps, Gaps::new()).into_sorted();
        let mut end = gaps.first().map_or(self.bytes.len(), |first| first.start);
        for (position, gap) in gaps.iter().enumerate() {
            let next = gaps.get(position + 1).map_or(self.bytes.len(), |next| next.start);
            self.bytes.copy_within(gap.end..next, end);
            end += next - gap.end;
        }
        self.bytes.truncate(end);
        self.marks.close_gaps(&gaps);
    }
}

impl IsEmpty for Outbox {
    const NOTHING: &'static Self = &Self::new();

    fn is_nothing(&self) -> bool {
        self.is_empty()
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

    #[test]
    fn an_endless_line_costs_nothing_and_is_reported_once() {
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
    fn a_browser_is_recognised_by_its_first_byte() {
        assert_eq!(cut(&[b"P", b"OST / HTTP/1.1\r\n\r\n{}\n"], 99), ["<alien>"]);
    }

    /// RPC-01: a byte order mark is skipped, once, before the first message and nowhere else.
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
    fn a_last_line_without_its_end_is_handed_out_when_the_peer_stops() {
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
                Frame::TooLong | Frame::NotJsonRpc(_) => panic!("told twice: {frame:?}"),
            });
            assert_eq!(frames.first().map(String::as_str), last);
            assert!(frames.len() <= 1 && inbox.partial.is_empty());
        }
    }

    /// MOD-04: what is taken back is every frame of the request that was not begun, and nothing
    /// else, wherever the stream stands.
    #[test]
    fn frames_are_taken_back() {
        let frames = ["{1}", "{2}", "{1}", "{1}", "{3}", "{2}", "{1}"];
        let lengths = frames.len() * 4;
        for sent in 0..=lengths {
            for recalled in [[1, 2], [2, 1], [1, 1], [3, 9]] {
                let mut outbox = Outbox::new();
                for frame in frames {
                    let request = RequestId::parse(&frame[1..2]).unwrap();
                    outbox.frame_for(&request, None, |b| b.extend_from_slice(frame.as_bytes()));
                }
                outbox.advance(sent);
                for number in recalled {
                    outbox.recall(&RequestId::Number(number));
                }
                outbox.close_gaps();
                let begun = sent.div_ceil(4);
                let gone =
                    |frame: &str| recalled.iter().any(|n| frame == alloc::format!("{{{n}}}"));
                let stays = |at: usize, frame: &str| at < begun || !gone(frame);
                let left: String = (0_usize..)
                    .zip(frames)
                    .filter(|(at, frame)| stays(*at, frame))
                    .map(|(_, frame)| alloc::format!("{frame}\n"))
                    .collect();
                assert_eq!(outbox.pending(), &left.as_bytes()[sent..], "{sent} {recalled:?}");
            }
        }
    }

    /// MOD-04: marks survive the buffer being moved, and do not pile up.
    #[test]
    fn marks_follow_the_bytes() {
        let mut outbox = Outbox::new();
        let text = [b'x'; 1023];
        for number in 0..1000 {
            let request = RequestId::Number(number % 7);
            outbox.frame_for(&request, None, |bytes| bytes.extend_from_slice(&text));
            if number % 3 == 2 {
                outbox.advance(2048);
            }
            assert!(outbox.marks.len() <= outbox.bytes.len() / 1024, "marks of dead bytes");
        }
        let before = outbox.len();
        outbox.recall(&RequestId::Number(3));
        let taken = before - outbox.len();
        assert!(taken > 0 && taken.is_multiple_of(1024), "{taken}");
        for number in 0..7 {
            outbox.recall(&RequestId::Number(number));
        }
        assert!(outbox.is_empty() && outbox.marks.len() == 0);
    }

    /// MOD-04: whoever takes back much, one frame after the other, has what is left moved a few
    /// times, and what was taken back takes no more room than that.
    #[test]
    fn what_is_left_is_moved_seldom() {
        let (mut outbox, text) = (Outbox::new(), [b'x'; 99]);
        for number in 0..10_000 {
            let request = RequestId::Number(number);
            outbox.frame_for(&request, None, |bytes| bytes.extend_from_slice(&text));
        }
        let mut moves = 0;
        for number in 0..10_000 {
            let before = outbox.gaps.bytes();
            outbox.recall(&RequestId::Number(number));
            moves += usize::from(outbox.gaps.bytes() < before);
            assert_eq!(Ok(outbox.len()), usize::try_from((9_999 - number) * 100));
            assert!(outbox.bytes.len() <= outbox.len() * 2, "room for what was taken back");
        }
        assert!(outbox.is_empty() && moves <= 15, "{moves}");
    }

    #[test]
    fn a_frame_is_one_line_whatever_is_written_into_it() {
        let mut outbox = Outbox::new();
        outbox.frame(|bytes| bytes.extend_from_slice(b"{\n\r}"));
        assert_eq!(outbox.pending(), b"{  }\n");
        outbox.advance(2);
        assert_eq!(outbox.pending(), b" }\n");
        outbox.advance(3);
        assert!(outbox.is_empty());
        outbox.line(b"[\r\n]");
        assert_eq!(outbox.pending(), b"[  ]\n");
    }
}
