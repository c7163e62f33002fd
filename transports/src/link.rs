//! A transport with the state that an edge-triggered loop must keep about it.

use std::fmt;
use std::io::{self, ErrorKind};

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::{Frame, Inbox};
use ceased_core::rpc::send_queue::SendQueue;
use ceased_core::time::Instant;
use mio::event::Event;
use mio::{Registry, Token};

use crate::clock::Since;
use crate::error::Lost;
use crate::transport::{Peer, Readiness, Transport};

/// A good size, in bytes, for the scratch buffer that all links share: the buffer of a socket, so
/// that a long message is read in few pieces. Only the part that was read into takes memory.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// Bytes taken at most from a peer that is known to be gone. More than a system's buffers hold by
/// default; a bound, because the writer of a standard input may live on after the reader of our
/// standard output has gone.
pub const LAST_WORDS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How [`Link::receive`] ended.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// All input that had arrived was taken; an event announces further input.
    Drained,
    /// The budget ran out and something may be left. No event will say so: call again.
    More,
    /// The peer will send no more, and may still read our answers. Returned once.
    Finished,
}

/// Output of a connection: bytes that are sent from the front.
pub trait Output {
    /// Bytes to send next; empty exactly when there is no output.
    fn pending(&self) -> &[u8];
    /// Notes that the first `count` of the pending bytes were sent.
    fn advance(&mut self, count: usize);
    /// Drops everything; for a peer that is gone.
    fn clear(&mut self);
}

impl Output for SendQueue {
    fn pending(&self) -> &[u8] {
        self.pending()
    }

    fn advance(&mut self, count: usize) {
        self.advance(count);
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// How [`Link::send`] ended.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The queue is empty.
    Everything,
    /// The system takes no more; an event announces when it does.
    Blocked,
    /// The peer is gone, and the queue was cleared. Call [`Link::receive`]: it hands over the
    /// frames that the peer sent before it went, then returns the loss.
    Lost,
}

/// One connection: a transport, the frame that has begun, and its known readiness.
///
/// An idle link owns no buffer, and rarely used fields are in a box of their own.
pub struct Link {
    transport: Box<dyn Transport>,
    /// Its name among events.
    token: Token,
    inbox: Inbox,
    reading: Reading,
    readable: bool,
    writable: bool,
    /// Events say when there is room to write.
    awaits_room: bool,
    /// The end of the stream is in sight, so a short read is not the last one.
    to_the_end: bool,
    /// We have said that we will write no more; a hang-up is no loss then.
    finished: bool,
    blocked: bool,
    frames: u64,
    bytes_received: u64,
    bytes_sent: u64,
    trouble: Option<Box<Trouble>>,
}

/// State of a link whose peer is gone or slow.
#[derive(Debug)]
struct Trouble {
    lost: Option<Lost>,
    /// Bytes that are still taken of a peer that is gone.
    last_words: usize,
    stall: Since,
    slow_frame: Since,
}

impl Default for Trouble {
    fn default() -> Self {
        Self {
            lost: None,
            last_words: LAST_WORDS_BYTES_MAX,
            stall: Since::default(),
            slow_frame: Since::default(),
        }
    }
}

impl Trouble {
    fn is_over(&self) -> bool {
        self.lost.is_none() && self.stall.is_nothing() && self.slow_frame.is_nothing()
    }
}

/// State of the peer's half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Open,
    /// Its end was read.
    Ended,
    /// Its end was read and told.
    Told,
}

impl Link {
    /// A link over `transport` whose frames are limited by `frames`.
    ///
    /// It takes for granted that there is something to read and room to write until it has tried,
    /// so it may be used before its first event.
    #[must_use]
    pub fn new(transport: Box<dyn Transport>, frames: FrameLimits) -> Self {
        Self {
            transport,
            token: Token(0),
            inbox: Inbox::new(frames),
            reading: Reading::Open,
            readable: true,
            writable: true,
            awaits_room: false,
            to_the_end: false,
            finished: false,
            blocked: false,
            frames: 0,
            bytes_received: 0,
            bytes_sent: 0,
            trouble: None,
        }
    }

    /// Takes frames of another length from now on, such as once the peer has authenticated.
    pub const fn set_frame_limits(&mut self, frames: FrameLimits) {
        self.inbox.set_limits(frames);
    }

    /// Asks for events under `token`.
    ///
    /// # Errors
    /// See [`Transport::register`].
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        (self.token, self.awaits_room) = (token, false);
        self.transport.register(registry, token)
    }

    /// Takes `register` back; to be called before a link is dropped.
    ///
    /// # Errors
    /// See [`Transport::deregister`].
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.transport.deregister(registry)
    }

    /// Records an event of this link. Does no reading or writing.
    pub fn on_event(&mut self, event: &Event) {
        self.note(self.transport.readiness(event));
    }

    /// Records readiness; `on_event` does it with a real event.
    pub fn note(&mut self, news: Readiness) {
        let end_in_sight = news.read_closed || news.peer_gone;
        self.readable |= news.readable || end_in_sight;
        self.writable |= news.writable;
        self.to_the_end |= end_in_sight;
        if news.peer_gone && !self.finished && !self.is_lost() {
            self.note_lost(Lost::Vanished(None));
        }
        if self.reading != Reading::Open {
            self.readable = false;
        }
    }

    /// Reads at most `budget` bytes through `scratch` and hands every frame they complete to
    /// `sink`, in order. One system call in the usual case.
    ///
    /// # Errors
    /// [`Lost`] when the peer is gone or the transport failed, after everything the peer had said
    /// was handed over. The link is of no use then; drop it.
    ///
    /// # Panics
    /// When `scratch` is empty: nothing read would then look like the end.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        budget: usize,
        sink: &mut dyn FnMut(Frame<'_>),
    ) -> Result<Flow, Lost> {
        let mut feed = |inbox: &mut Inbox, frames: &mut u64, piece: &[u8]| {
            inbox.feed(piece, &mut |frame| {
                *frames += 1;
                sink(frame);
            });
        };
        let flow = self.read_on(scratch, budget, &mut feed)?;
        if flow == Flow::Finished {
            let frames = &mut self.frames;
            self.inbox.finish(&mut |frame| {
                *frames += 1;
                sink(frame);
            });
        }
        Ok(flow)
    }

    /// As [`Link::receive`], for a stream that has no frames: hands over the bytes as they came.
    ///
    /// # Errors
    /// As [`Link::receive`].
    ///
    /// # Panics
    /// As [`Link::receive`].
    pub fn receive_bytes(
        &mut self,
        scratch: &mut [u8],
        budget: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Flow, Lost> {
        self.read_on(scratch, budget, &mut |_, _, piece| sink(piece))
    }

    fn read_on(
        &mut self,
        scratch: &mut [u8],
        budget: usize,
        feed: &mut dyn FnMut(&mut Inbox, &mut u64, &[u8]),
    ) -> Result<Flow, Lost> {
        assert!(!scratch.is_empty(), "a link reads through a buffer");
        let mut left = budget;
        while self.readable {
            if left == 0 {
                return Ok(Flow::More);
            }
            let room = scratch.len().min(left);
            let count = self.read_once(scratch.get_mut(..room).unwrap_or_default());
            let piece = scratch.get(..count).unwrap_or_default();
            if !piece.is_empty() {
                feed(&mut self.inbox, &mut self.frames, piece);
            }
            left -= count;
        }
        if let Some(lost) = self.trouble.as_mut().and_then(|trouble| trouble.lost.as_mut()) {
            return Err(std::mem::replace(lost, Lost::Vanished(None)));
        }
        if self.reading == Reading::Ended {
            self.reading = Reading::Told;
            return Ok(Flow::Finished);
        }
        Ok(Flow::Drained)
    }

    /// One read into `buf`, which is not empty; the bytes it brought.
    fn read_once(&mut self, buf: &mut [u8]) -> usize {
        match self.transport.read(buf) {
            Ok(0) => {
                self.readable = false;
                self.reading = Reading::Ended;
                0
            }
            Ok(count) => {
                assert!(count <= buf.len(), "a read fits its buffer");
                self.bytes_received += count as u64;
                let short = count < buf.len() && self.transport.short_read_drains();
                self.readable = (!short || self.to_the_end) && self.may_say(count);
                count
            }
            Err(error) => {
                self.readable = error.kind() == ErrorKind::Interrupted;
                if !is_passing(&error) && matches!(self.lost(), None | Some(Lost::Vanished(None))) {
                    self.note_lost(Lost::from_io("read from", error));
                }
                0
            }
        }
    }

    /// Writes the content of `queue` until it is empty or the system takes no more; then an event,
    /// for which `registry` is asked, says when it does. The link is to be registered there.
    pub fn send(&mut self, queue: &mut dyn Output, registry: &Registry) -> Sent {
        while !self.is_lost() && self.writable && !queue.pending().is_empty() {
            let bytes = queue.pending();
            match self.transport.write(bytes) {
                Ok(0) => self.lose(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    if count < bytes.len() && self.transport.short_write_fills() {
                        (self.writable, self.awaits_room) = (false, false);
                    }
                    queue.advance(count);
                    self.bytes_sent += count as u64;
                }
                Err(error) if is_passing(&error) => {
                    self.writable = error.kind() == ErrorKind::Interrupted;
                }
                Err(error) => self.lose(error),
            }
        }
        self.blocked = !queue.pending().is_empty();
        self.await_room(registry);
        if self.is_lost() {
            self.blocked = false;
            queue.clear();
            return Sent::Lost;
        }
        if self.blocked { Sent::Blocked } else { Sent::Everything }
    }

    /// Whether the transport holds bytes that it has accepted, such as during a handshake.
    #[must_use]
    pub fn holds_output(&self) -> bool {
        self.transport.holds_output()
    }

    /// Has events say when there is room, exactly while that is waited for.
    fn await_room(&mut self, registry: &Registry) {
        if self.is_lost() || self.awaits_room == self.blocked {
            return;
        }
        match self.transport.await_room(registry, self.token, self.blocked) {
            Ok(()) => self.awaits_room = self.blocked,
            Err(error) => self.lose(error),
        }
    }

    /// Has the next [`Link::send`] try, although no event announced room: sockets announce it
    /// only when most of their buffer was taken.
    pub const fn try_again(&mut self) {
        self.writable = true;
    }

    /// Half-closes: nothing more will be sent, and the peer reads the end after the sent bytes. Its
    /// further frames can be received, so closing does not make it lose our last answers.
    ///
    /// # Errors
    /// See [`Transport::finish`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.finished = true;
        self.transport.finish()
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.transport.peer()
    }

    /// True when the last [`Link::send`] ended in [`Sent::Blocked`].
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// True when the peer has said that it sends no more.
    #[must_use]
    pub fn is_read_finished(&self) -> bool {
        self.reading != Reading::Open
    }

    /// Time since which the peer has taken no byte of its output; `None` without output. Knows only
    /// the moments at which it was called: call it after a send that blocked, and when the time is
    /// up.
    pub fn stalled_since(&mut self, now: Instant) -> Option<Instant> {
        let waits = self.blocked.then_some(self.bytes_sent);
        self.look(|trouble| &mut trouble.stall, waits, now)
    }

    /// Since when the peer has been busy with one and the same frame; `None` between frames. Ask
    /// after a receive, and when the time is up.
    pub fn mid_frame_since(&mut self, now: Instant) -> Option<Instant> {
        let begun = self.inbox.is_partial().then_some(self.frames);
        self.look(|trouble| &mut trouble.slow_frame, begun, now)
    }

    /// Bytes held of a frame that has begun and not ended.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.inbox.partial_bytes()
    }

    /// Bytes received in the life of the link.
    #[must_use]
    pub const fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// Bytes sent in the life of the link.
    #[must_use]
    pub const fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Frames handed over in the life of the link.
    #[must_use]
    pub const fn frames_received(&self) -> u64 {
        self.frames
    }

    /// Writing failed: earlier frames of the peer are still read, if possible.
    fn lose(&mut self, error: io::Error) {
        self.note(Readiness { read_closed: true, ..Readiness::default() });
        self.note_lost(Lost::from_io("write to", error));
    }

    fn note_lost(&mut self, lost: Lost) {
        self.trouble.get_or_insert_default().lost = Some(lost);
    }

    fn lost(&self) -> Option<&Lost> {
        self.trouble.as_ref()?.lost.as_ref()
    }

    fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// Notes so many bytes of a peer; whether it may say more, should it be gone.
    fn may_say(&mut self, count: usize) -> bool {
        let Some(trouble) = &mut self.trouble else { return true };
        if trouble.lost.is_some() {
            trouble.last_words = trouble.last_words.saturating_sub(count);
        }
        trouble.last_words > 0
    }

    /// Since when that has been going on; see [`Since::look`].
    fn look(
        &mut self,
        of: impl FnOnce(&mut Trouble) -> &mut Since,
        thing: Option<u64>,
        now: Instant,
    ) -> Option<Instant> {
        if thing.is_none() && self.trouble.is_none() {
            return None;
        }
        let trouble = self.trouble.get_or_insert_default();
        let since = of(trouble).look(thing, now);
        if trouble.is_over() {
            self.trouble = None;
        }
        since
    }
}

/// True for errors that are no failure. A system call that does not block is interrupted once for
/// each signal, so trying again ends.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("transport", &self.transport)
            .field("reading", &self.reading)
            .field("readable", &self.readable)
            .field("writable", &self.writable)
            .field("lost", &self.lost())
            .field("bytes_received", &self.bytes_received)
            .field("bytes_sent", &self.bytes_sent)
            .finish_non_exhaustive()
    }
}
