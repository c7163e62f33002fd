//! Bytes that wait to be sent to one peer, cut into spans, one for each frame.
//!
//! A span says which request its frame belongs to and whether the frame can be recalled when that
//! request is cancelled (MOD-04). A transport with one byte stream sends the
//! [pending](SendQueue::pending) bytes; one with a stream for each request takes whole
//! [frames](SendQueue::frames_of) by their request.
//!
//! ```text
//!             sent        begun        whole     gone      whole
//!   bytes  ░░░░░░░░░░░|░░░░░▓▓▓▓▓▓▓|▓▓▓▓▓▓▓▓▓▓|░░░░░░░|▓▓▓▓▓▓▓▓▓▓▓▓▓|
//!                           ▲ start            ▲ a recalled or taken frame: skipped
//!                           └──── pending() ───┘
//! ```

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem;

use crate::collections::lazy_box::IsEmpty;
use crate::ids::{RequestId, RequestState};
use crate::policy::account::{Account, Charge};
use crate::tasks::durable::RecordKey;
use crate::time::Instant;

/// Capacity in bytes of a new buffer: that of a small answer, which is written in many pieces.
const FIRST: usize = 128;
/// Capacity in bytes that an empty queue keeps: a typical answer needs no allocation, and a quiet
/// connection holds no more.
const KEPT: usize = 256;
/// Capacity in bytes that a queue keeps after it sent [`BUSY`] frames or more at once.
const KEPT_BUSY: usize = 32 * 1024;
/// Number of frames sent at once that makes a connection busy: its next answers are likely as many.
const BUSY: u32 = 8;
/// Capacity in spans that an empty queue keeps.
const SPANS_KEPT: usize = 1;
/// Capacity in spans that a busy queue keeps.
const SPANS_KEPT_BUSY: usize = 64;
/// Number of sent bytes from which the rest is moved to the front before a frame is appended, once
/// they are half of the buffer.
const MOVED_FROM: usize = 64 * 1024;

/// A name that only the reader of a frame learns. A frame that is never sent makes it unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    /// Task of a call; its id appears in one frame and possibly in later ones (TSK-08).
    Task(RecordKey),
    /// Call that waits for its retry.
    Call(RequestState),
}

/// Request and handle of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag<'a> {
    /// Request of the peer that the frame answers or belongs to.
    pub(crate) request: Option<&'a RequestId>,
    /// Whether the cancel of that request recalls the frame (MOD-04).
    pub(crate) recall: bool,
    /// Name that only the reader of the frame learns.
    pub(crate) handle: Option<Handle>,
}

impl<'a> Tag<'a> {
    /// Tag of a frame without a request.
    pub(crate) const NONE: Self = Self { request: None, recall: false, handle: None };

    /// Tag of a frame of this request that is never recalled.
    pub(crate) const fn of(request: Option<&'a RequestId>) -> Self {
        Self { request, recall: false, handle: None }
    }
}

/// One frame of the queue.
#[derive(Debug)]
struct FrameSpan {
    /// Number of the frame, increasing.
    number: u64,
    /// Unsent bytes, including the line end.
    len: usize,
    request: Option<RequestId>,
    /// Boxed, because few frames have one.
    handle: Option<Box<Handle>>,
    state: SpanState,
}

/// State of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanState {
    /// No byte was sent.
    Whole,
    /// Some bytes were sent: the rest must follow, because half a line would be garbage.
    Begun,
    /// Recalled or taken: its bytes are skipped.
    Gone,
}

/// Numbers of the frames that the cancel of one request recalls: usually its answer alone.
#[derive(Debug)]
struct Recallable {
    first: u64,
    others: Vec<u64>,
}

/// A space in place of a line break, which in valid JSON is always white space.
pub(crate) const fn without_break(byte: u8) -> u8 {
    match byte {
        b'\n' | b'\r' => b' ',
        other => other,
    }
}

/// Bytes to send to one peer, in order.
///
/// The engine appends frames, the host takes bytes from the front. An emptied queue keeps a buffer
/// of at most 512 bytes, or at most 32 KiB after many frames; a larger buffer is freed.
#[derive(Debug, Default)]
pub struct SendQueue {
    bytes: Vec<u8>,
    /// Bytes at the front that were sent or are gone.
    start: usize,
    /// The frames in `bytes` behind `start`; the first one is not gone.
    spans: VecDeque<FrameSpan>,
    /// Bytes of the spans that are gone.
    gone: usize,
    /// Number of the next frame.
    next: u64,
    /// Frames written since the queue was empty.
    frames: u32,
    /// Whether an urgent frame was written ahead of others since the queue was empty.
    is_unsorted: bool,
    /// Frames that can be recalled, by request; some of them may have been sent.
    recallable: BTreeMap<RequestId, Recallable>,
    /// Total of sent bytes; shows whether the peer reads.
    taken: u64,
    /// Time at which the queue exceeded its mark, and `taken` at that time.
    over_mark: (Instant, u64),
    /// Unsent bytes, charged to the identity of the peer.
    charge: Charge,
}

impl SendQueue {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            spans: VecDeque::new(),
            gone: 0,
            next: 0,
            frames: 0,
            is_unsorted: false,
            recallable: BTreeMap::new(),
            taken: 0,
            over_mark: (Instant::ZERO, 0),
            charge: Charge::NONE,
        }
    }

    /// Bytes to send next: up to the first frame that is gone, else all. Empty exactly when the
    /// queue is empty.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        if self.gone == 0 {
            return rest;
        }
        let live = self.spans.iter().take_while(|span| span.state != SpanState::Gone);
        rest.get(..live.map(|span| span.len).sum()).unwrap_or_default()
    }

    /// Number of unsent bytes of all frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start - self.gone
    }

    /// True when everything was sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All unsent bytes, in runs: the first one is [pending](SendQueue::pending); frames that are
    /// gone lie between two runs.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.start;
        let mut spans = self.spans.iter().peekable();
        core::iter::from_fn(move || {
            while let Some(gone) = spans.next_if(|span| span.state == SpanState::Gone) {
                at += gone.len;
            }
            let start = at;
            while let Some(live) = spans.next_if(|span| span.state != SpanState::Gone) {
                at += live.len;
            }
            self.bytes.get(start..at).filter(|run| !run.is_empty())
        })
    }

    /// Marks the first `count` bytes of the [runs](SendQueue::runs) as sent.
    ///
    /// # Panics
    ///
    /// If `count` exceeds the unsent bytes: the host has lost track of the stream.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "sent more than was pending");
        self.taken = self.taken.wrapping_add(count as u64);
        if count == self.len() {
            return self.clear();
        }
        let mut left = count;
        while let Some(span) = self.spans.front_mut().filter(|_| left > 0) {
            if span.state != SpanState::Gone && span.len > left {
                self.start += left;
                span.len -= left;
                span.state = SpanState::Begun;
                break;
            }
            self.start += span.len;
            match span.state {
                SpanState::Whole | SpanState::Begun => left -= span.len,
                SpanState::Gone => self.gone -= span.len,
            }
            self.spans.pop_front();
        }
        self.skip_gone();
        self.charge.set(self.len());
    }

    /// Moves the unsent bytes to the front, before more are appended.
    fn move_to_front(&mut self) {
        if self.start >= MOVED_FROM && self.start * 2 >= self.bytes.len() {
            // The move of the rest is paid for by the bytes already sent.
            self.bytes.drain(..self.start);
            self.start = 0;
            self.forget_sent();
        }
    }

    /// Drops everything; for a peer that is gone.
    pub fn clear(&mut self) {
        self.start = 0;
        self.gone = 0;
        self.charge.set(0);
        let is_busy = self.frames >= BUSY;
        self.frames = 0;
        self.is_unsorted = false;
        self.spans.clear();
        if self.spans.capacity() > if is_busy { SPANS_KEPT_BUSY } else { SPANS_KEPT } {
            self.spans = VecDeque::new();
        }
        // Clearing a map has a cost even when the map is empty.
        if !self.recallable.is_empty() {
            self.recallable.clear();
        }
        if self.bytes.capacity() > if is_busy { KEPT_BUSY } else { KEPT } {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }

    /// Frees the buffers of an empty queue, whose host keeps no frames for a slow peer in it.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.clear();
            (self.bytes, self.spans) = (Vec::new(), VecDeque::new());
        }
    }

    /// Appends one frame with an existing text, one JSON value; for hosts that send messages
    /// without an engine.
    pub fn line(&mut self, text: &[u8]) {
        self.frame(Tag::NONE, |bytes| bytes.extend_from_slice(text));
    }

    /// Whole unsent frames of this request of the peer, or of no request, in order and without line
    /// ends. For transports with a stream for each request.
    pub fn frames_of<'a>(
        &'a self,
        request: Option<&'a RequestId>,
    ) -> impl Iterator<Item = &'a [u8]> {
        self.frames().filter_map(move |(of, text)| (of == request).then_some(text))
    }

    /// All whole unsent frames in order, without line ends, each with its request of the peer.
    pub fn frames(&self) -> impl Iterator<Item = (Option<&RequestId>, &[u8])> {
        self.numbered().map(|(_, request, text)| (request, text))
    }

    /// Removes the first `count` frames of [`SendQueue::frames_of`], which were sent on a stream of
    /// their own. Returns the number removed, at most `count`.
    pub fn take_frames_of(&mut self, request: Option<&RequestId>, count: usize) -> usize {
        let (mut taken, mut bytes) = (0, 0);
        for span in &mut self.spans {
            if taken == count {
                break;
            }
            if span.state == SpanState::Whole && span.request.as_ref() == request {
                span.state = SpanState::Gone;
                span.handle = None;
                bytes += span.len;
                taken += 1;
            }
        }
        self.taken = self.taken.wrapping_add(bytes as u64);
        self.note_gone(bytes);
        taken
    }

    /// Unsent frames from this number on, without line ends; for recorders. Frames are numbered
    /// from 0 when written.
    pub fn frames_from(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        let new = self.numbered().filter(move |(of, ..)| *of >= number);
        new.map(|(.., text)| text)
    }

    /// Number of frames ever written.
    #[must_use]
    pub const fn frames_written(&self) -> u64 {
        self.next
    }

    /// Whole frames with their numbers and requests.
    fn numbered(&self) -> impl Iterator<Item = (u64, Option<&RequestId>, &[u8])> {
        let mut at = self.start;
        self.spans.iter().filter_map(move |span| {
            let end = at + span.len;
            let start = mem::replace(&mut at, end);
            let text = self.bytes.get(start..end.saturating_sub(1))?;
            let is_whole = span.state == SpanState::Whole;
            is_whole.then_some((span.number, span.request.as_ref(), text))
        })
    }
}

/// Methods for the engine.
impl SendQueue {
    /// Charges unsent bytes to this account.
    pub(crate) fn charge_to(&mut self, account: &Account) {
        self.charge.assign(account);
    }

    /// Bytes that are charged.
    pub(crate) const fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Records that the queue is under its mark.
    pub(crate) const fn note_under_mark(&mut self, now: Instant) {
        self.over_mark = (now, self.taken);
    }

    /// Time since when the queue exceeds its mark, and whether the peer has read since. An empty
    /// queue counts as read.
    pub(crate) fn over_mark(&self) -> (Instant, bool) {
        let (since, taken) = self.over_mark;
        (since, self.taken != taken || self.is_empty())
    }

    /// Appends one frame: `write` appends the text, this function the line end.
    ///
    /// Raw JSON of other origin may contain line breaks; they become spaces, because otherwise one
    /// frame would become two.
    pub(crate) fn frame(&mut self, tag: Tag<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        self.move_to_front();
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(FIRST);
        }
        let start = self.bytes.len();
        write(&mut self.bytes);
        let frame = self.bytes.get_mut(start..).unwrap_or_default();
        if memchr::memchr2(b'\n', b'\r', frame).is_some() {
            frame.iter_mut().for_each(|byte| *byte = without_break(*byte));
        }
        self.end_frame(start, tag);
    }

    /// Ends the frame whose text stands in the buffer from `start` on.
    fn end_frame(&mut self, start: usize, tag: Tag<'_>) {
        self.bytes.push(b'\n');
        self.frames = self.frames.saturating_add(1);
        let number = self.next;
        self.next += 1;
        if self.spans.capacity() == 0 {
            // Most queues never hold two frames at once.
            self.spans.reserve_exact(1);
        }
        let Tag { request, recall, handle } = tag;
        let handle = handle.map(Box::new);
        let (len, state) = (self.bytes.len() - start, SpanState::Whole);
        self.spans.push_back(FrameSpan { number, len, request: request.cloned(), handle, state });
        if let Some(request) = request.filter(|_| recall) {
            self.note_recallable(request, number);
        }
        self.charge.set(self.len());
    }

    /// Removes one frame, of which no byte was sent; false if it was sent in part or is gone.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let whole = |span: &&mut FrameSpan| span.number == number && span.state == SpanState::Whole;
        let Some(span) = self.spans.iter_mut().find(whole) else { return false };
        span.state = SpanState::Gone;
        let len = span.len;
        self.note_gone(len);
        true
    }

    /// Writes one frame ahead of every frame that was not begun.
    pub(crate) fn urgent_frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let begun = self.spans.front().filter(|span| span.state == SpanState::Begun);
        let (place, at) = begun.map_or((0, self.start), |span| (1, self.start + span.len));
        let end = self.bytes.len();
        self.frame(Tag::NONE, write);
        if place + 1 >= self.spans.len() {
            return;
        }
        let len = self.bytes.len() - end;
        if let Some(moved) = self.bytes.get_mut(at..) {
            moved.rotate_right(len);
        }
        if let Some(span) = self.spans.pop_back() {
            self.spans.insert(place, span);
        }
        self.is_unsorted = true;
    }

    fn note_recallable(&mut self, request: &RequestId, number: u64) {
        match self.recallable.get_mut(request) {
            Some(numbers) => numbers.others.push(number),
            None => {
                let numbers = Recallable { first: number, others: Vec::new() };
                self.recallable.insert(request.clone(), numbers);
            }
        }
    }

    /// Handles that become unusable if the unsent bytes are dropped.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let handles = self.spans.iter().filter_map(|span| span.handle.as_deref());
        handles.copied().collect()
    }

    /// Recalls every frame of a request of which no byte was sent (MOD-04), and returns the handles
    /// that become unusable.
    ///
    /// The bytes stay in the buffer and are skipped. Once the gone bytes exceed the rest, the rest
    /// is compacted: many small recalls cost no more time and memory than the recalled bytes.
    pub(crate) fn recall(&mut self, request: &RequestId) -> Vec<Handle> {
        let Some(Recallable { first, others }) = self.recallable.remove(request) else {
            return Vec::new();
        };
        let (mut handles, mut bytes) = (Vec::new(), 0);
        for number in core::iter::once(first).chain(others) {
            let span = match self.is_unsorted {
                true => self.spans.iter_mut().find(|span| span.number == number),
                false => {
                    let found = self.spans.binary_search_by_key(&number, |span| span.number);
                    found.ok().and_then(|at| self.spans.get_mut(at))
                }
            };
            if let Some(span) = span.filter(|span| span.state == SpanState::Whole) {
                span.state = SpanState::Gone;
                bytes += span.len;
                handles.extend(span.handle.take().map(|handle| *handle));
            }
        }
        self.note_gone(bytes);
        handles
    }

    /// Adds bytes of gone spans.
    fn note_gone(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.is_empty() {
            return self.clear();
        }
        self.skip_gone();
        if self.gone > self.len() {
            self.compact();
        }
        self.charge.set(self.len());
    }

    /// Skips gone spans at the front.
    fn skip_gone(&mut self) {
        while let Some(span) = self.spans.front().filter(|span| span.state == SpanState::Gone) {
            self.start += span.len;
            self.gone -= span.len;
            self.spans.pop_front();
        }
    }

    /// Compacts the buffer: moves unsent bytes to the front and drops gone spans.
    fn compact(&mut self) {
        let (mut from, mut to) = (self.start, 0);
        for span in &self.spans {
            if span.state != SpanState::Gone {
                self.bytes.copy_within(from..from + span.len, to);
                to += span.len;
            }
            from += span.len;
        }
        self.bytes.truncate(to);
        self.spans.retain(|span| span.state != SpanState::Gone);
        (self.start, self.gone) = (0, 0);
        self.forget_sent();
    }

    /// Forgets recallable frames that were sent.
    fn forget_sent(&mut self) {
        let first = self.spans.iter().map(|span| span.number).min().unwrap_or(self.next);
        self.recallable.retain(|_, numbers| {
            numbers.others.retain(|number| *number >= first);
            if numbers.first >= first {
                return true;
            }
            let has_others = !numbers.others.is_empty();
            if has_others {
                numbers.first = numbers.others.remove(0);
            }
            has_others
        });
    }
}

impl IsEmpty for SendQueue {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty_value(&self) -> bool {
        self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    /// A queue with one recallable frame for each text, of the request that its digit names.
    fn queue_of(frames: &[&str]) -> SendQueue {
        let mut queue = SendQueue::new();
        for frame in frames {
            put(&mut queue, &request(frame), frame.as_bytes());
        }
        queue
    }

    fn request(frame: &str) -> RequestId {
        RequestId::parse(&frame[1..2]).unwrap()
    }

    fn put(queue: &mut SendQueue, request: &RequestId, text: &[u8]) {
        let tag = Tag { request: Some(request), recall: true, handle: None };
        queue.frame(tag, |bytes| bytes.extend_from_slice(text));
    }

    /// All bytes that a host sends of a queue, run by run and at once.
    fn sent_of(mut queue: SendQueue) -> Vec<u8> {
        let all = queue.runs().flatten().copied().collect::<Vec<u8>>();
        let mut sent = Vec::new();
        while !queue.is_empty() {
            let run = queue.pending().len();
            assert!(run > 0, "unsent bytes can be sent");
            sent.extend_from_slice(queue.pending());
            queue.advance(run);
        }
        assert!(queue.pending().is_empty() && queue.runs().next().is_none());
        assert_eq!(sent, all);
        sent
    }

    /// MOD-04: a recall removes every frame of the request of which no byte was sent, and no other,
    /// at every position of the stream.
    #[test]
    fn recall_takes_the_frames_of_its_request() {
        let frames = ["{1}", "{2}", "{1}", "{1}", "{3}", "{2}", "{1}"];
        let lengths = frames.len() * 4;
        for sent in 0..=lengths {
            for recalled in [[1, 2], [2, 1], [1, 1], [3, 9]] {
                let mut queue = queue_of(&frames);
                queue.advance(sent);
                for number in recalled {
                    queue.recall(&RequestId::Number(number));
                }
                let begun = sent.div_ceil(4);
                let gone =
                    |frame: &str| recalled.iter().any(|n| frame == alloc::format!("{{{n}}}"));
                let stays = |at: usize, frame: &str| at < begun || !gone(frame);
                let left: String = (0_usize..)
                    .zip(frames)
                    .filter(|(at, frame)| stays(*at, frame))
                    .map(|(_, frame)| alloc::format!("{frame}\n"))
                    .collect();
                assert_eq!(queue.len(), left.len() - sent);
                assert_eq!(sent_of(queue), &left.as_bytes()[sent..], "{sent} {recalled:?}");
            }
        }
    }

    /// MOD-04: spans stay right when the buffer is compacted, and do not accumulate.
    #[test]
    fn spans_follow_the_bytes() {
        let mut queue = SendQueue::new();
        let text = [b'x'; 1023];
        let marks = |queue: &SendQueue| -> usize {
            queue.recallable.values().map(|numbers| 1 + numbers.others.len()).sum()
        };
        for number in 0..1000 {
            put(&mut queue, &RequestId::Number(number % 7), &text);
            if number % 3 == 2 {
                queue.advance(2048);
            }
            assert!(marks(&queue) <= queue.bytes.len() / 1024, "marks of dead bytes");
            assert_eq!(queue.spans.iter().map(|span| span.len).sum::<usize>(), queue.len());
        }
        let before = queue.len();
        queue.recall(&RequestId::Number(3));
        let taken = before - queue.len();
        assert!(taken > 0 && taken.is_multiple_of(1024), "{taken}");
        for number in 0..7 {
            queue.recall(&RequestId::Number(number));
        }
        assert!(queue.is_empty() && marks(&queue) == 0 && queue.spans.is_empty());
    }

    /// MOD-04: recalls one by one compact the buffer a few times only; recalled frames take no more
    /// memory than the rest.
    #[test]
    fn recalls_compact_seldom() {
        let (mut queue, text) = (SendQueue::new(), [b'x'; 99]);
        for number in 0..10_000 {
            put(&mut queue, &RequestId::Number(number), &text);
        }
        let mut moves = 0;
        // Odd ones first, so that none of them is at the front.
        let order = (0..10_000).filter(|n| n % 2 == 1).chain((0..10_000).filter(|n| n % 2 == 0));
        for (done, number) in order.enumerate() {
            let before = queue.bytes.len();
            queue.recall(&RequestId::Number(number));
            moves += usize::from(queue.bytes.len() < before);
            assert_eq!(queue.len(), (9_999 - done) * 100);
            assert!(queue.bytes.len() <= 64 * 1024 + queue.len() * 2 + queue.start, "room");
        }
        assert!(queue.is_empty() && moves <= 16, "{moves}");
    }

    /// A transport with a stream for each request takes its frames and leaves the others.
    #[test]
    fn frames_are_taken_by_request() {
        let mut queue = queue_of(&["{1}", "{2}", "{1}"]);
        queue.line(b"{0}");
        put(&mut queue, &RequestId::Number(1), b"{1,2}");
        let (one, two) = (RequestId::Number(1), RequestId::Number(2));
        let texts = |queue: &SendQueue, request: Option<&RequestId>| -> Vec<String> {
            let text = |frame: &[u8]| String::from_utf8_lossy(frame).into_owned();
            queue.frames_of(request).map(text).collect()
        };
        assert_eq!(texts(&queue, Some(&one)), ["{1}", "{1}", "{1,2}"]);
        assert_eq!(texts(&queue, None), ["{0}"]);
        assert_eq!(queue.take_frames_of(Some(&one), 2), 2);
        assert_eq!(texts(&queue, Some(&one)), ["{1,2}"]);
        assert_eq!(queue.take_frames_of(None, 9), 1);
        assert_eq!(queue.recall(&two), vec![], "the frame has no handle");
        assert_eq!(sent_of(queue), b"{1,2}\n", "the rest is sent in order");
    }

    /// Sent bytes may span gone frames, as with a vectored write.
    #[test]
    fn advance_skips_recalled_frames() {
        for sent in 0..=12 {
            let mut queue = queue_of(&["{1}", "{2}", "{1}", "{3}"]);
            queue.recall(&RequestId::Number(2));
            queue.advance(sent);
            assert_eq!(queue.len(), 12 - sent);
            assert_eq!(sent_of(queue), &b"{1}\n{1}\n{3}\n"[sent..]);
        }
    }

    /// A frame of which bytes were sent stays in that byte stream.
    #[test]
    fn begun_frame_is_not_taken() {
        let mut queue = queue_of(&["{1}", "{1}"]);
        queue.advance(1);
        let one = RequestId::Number(1);
        assert_eq!(queue.frames_of(Some(&one)).count(), 1);
        assert_eq!(queue.take_frames_of(Some(&one), 9), 1);
        assert_eq!(sent_of(queue), b"1}\n");
    }

    /// An empty queue frees its buffers and goes on; another one keeps its frames.
    #[test]
    fn empty_queue_is_released() {
        let mut queue = queue_of(&["{1}", "{2}"]);
        queue.release();
        assert_eq!(queue.pending(), b"{1}\n{2}\n");
        queue.advance(8);
        queue.release();
        assert_eq!((queue.bytes.capacity(), queue.spans.capacity()), (0, 0));
        assert_eq!(queue.frames_written(), 2);
        put(&mut queue, &RequestId::Number(3), b"{3}");
        assert_eq!(sent_of(queue), b"{3}\n");
    }

    /// A recorder sees each frame once, also after earlier frames were sent or recalled.
    #[test]
    fn frames_are_numbered_as_they_are_written() {
        let mut queue = queue_of(&["{1}", "{2}"]);
        let seen = queue.frames_written();
        assert_eq!(queue.frames_from(0).count(), 2);
        queue.recall(&RequestId::Number(1));
        put(&mut queue, &RequestId::Number(3), b"{3}");
        assert_eq!(queue.frames_from(seen).collect::<Vec<_>>(), [b"{3}"]);
    }

    #[test]
    fn frame_is_one_line_for_any_text() {
        let mut queue = SendQueue::new();
        queue.frame(Tag::NONE, |bytes| bytes.extend_from_slice(b"{\n\r}"));
        assert_eq!(queue.pending(), b"{  }\n");
        queue.advance(2);
        assert_eq!(queue.pending(), b" }\n");
        queue.advance(3);
        assert!(queue.is_empty());
        queue.line(b"[\r\n]");
        assert_eq!(queue.pending(), b"[  ]\n");
    }
}
