//! A fake transport, and a link over it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::Frame;
use ceased_transports::{Flow, Link, Lost, Peer, Readiness, Transport};
use mio::{Poll, Registry, Token};

/// xorshift64*: small, seeded, good enough to mix faults.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(mixed).expect("31 bits") % bound
    }
}

/// The state of the fake, shared with the test.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) rng: Rng,
    pub(crate) arrived: VecDeque<u8>,
    pub(crate) ended: bool,
    pub(crate) read_fails: Option<ErrorKind>,
    pub(crate) sent: Vec<u8>,
    pub(crate) room: usize,
    pub(crate) awaits_room: bool,
    pub(crate) write_fails: Option<ErrorKind>,
    pub(crate) write_takes_nothing: bool,
    /// One call in so many is interrupted; 0 for none, never every one.
    pub(crate) interrupts: usize,
    /// Gives any part of the arrived bytes, as a terminal does.
    pub(crate) piecewise: bool,
    /// Says that a short write has filled it, even if there is room.
    pub(crate) short_write_fills: bool,
    /// Whether the last write took a part, and room was not awaited since.
    pub(crate) was_short: bool,
    pub(crate) writes: usize,
    pub(crate) reads: usize,
    pub(crate) finished: bool,
    pub(crate) news: Readiness,
}

impl Wire {
    pub(crate) fn interrupted(&mut self) -> bool {
        self.interrupts > 0 && self.rng.below(self.interrupts) == 0
    }

    pub(crate) fn arrive(&mut self, bytes: &[u8]) {
        self.arrived.extend(bytes);
        self.news.readable = true;
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.news.read_closed = true;
    }

    pub(crate) fn make_room(&mut self, bytes: usize) {
        self.room += bytes;
        self.news.writable |= self.awaits_room && self.room > 0;
    }
}

#[derive(Debug)]
pub(crate) struct Fake(Arc<Mutex<Wire>>);

impl Transport for Fake {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        assert!(!buf.is_empty(), "an empty read would look like the end");
        let mut wire = lock(&self.0);
        wire.reads += 1;
        if wire.interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        if wire.arrived.is_empty() {
            return match (wire.read_fails, wire.ended) {
                (Some(kind), _) => Err(kind.into()),
                (None, true) => Ok(0),
                (None, false) => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let mut count = wire.arrived.len().min(buf.len());
        if wire.piecewise {
            count = 1 + wire.rng.below(count);
        }
        for (byte, arrived) in buf.iter_mut().zip(wire.arrived.drain(..count)) {
            *byte = arrived;
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(!bytes.is_empty());
        let mut wire = lock(&self.0);
        wire.writes += 1;
        if wire.interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        if let Some(kind) = wire.write_fails {
            return Err(kind.into());
        }
        if wire.write_takes_nothing {
            return Ok(0);
        }
        let most = wire.room.min(bytes.len());
        if most == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = 1 + wire.rng.below(most);
        wire.room -= count;
        wire.was_short = count < bytes.len();
        wire.sent.extend(bytes.iter().take(count));
        Ok(count)
    }

    fn register(&mut self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn await_room(&mut self, _: &Registry, _: Token, awaited: bool) -> io::Result<()> {
        let mut wire = lock(&self.0);
        let is_anew = std::mem::take(&mut wire.was_short) && wire.short_write_fills;
        let is_new = wire.awaits_room != awaited || (awaited && is_anew);
        assert!(is_new, "it is said once");
        wire.awaits_room = awaited;
        wire.news.writable |= awaited && wire.room > 0;
        Ok(())
    }

    fn deregister(&mut self, _: &Registry) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        lock(&self.0).finished = true;
        Ok(())
    }

    fn peer(&self) -> &Peer {
        &Peer::Stdio { uid: 7 }
    }

    fn short_read_drains(&self) -> bool {
        !lock(&self.0).piecewise
    }

    fn short_write_fills(&self) -> bool {
        lock(&self.0).short_write_fills
    }
}

pub(crate) fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().expect("no test panics with the lock")
}

pub(crate) struct Rig {
    pub(crate) poll: Poll,
    pub(crate) link: Link,
    pub(crate) wire: Arc<Mutex<Wire>>,
    pub(crate) frames: Vec<String>,
    pub(crate) scratch: Vec<u8>,
}

impl Rig {
    pub(crate) fn new(seed: u64) -> Self {
        let wire = Arc::new(Mutex::new(Wire {
            rng: Rng::new(seed),
            arrived: VecDeque::new(),
            ended: false,
            read_fails: None,
            sent: vec![],
            room: 1 << 20,
            awaits_room: false,
            write_fails: None,
            write_takes_nothing: false,
            interrupts: 0,
            piecewise: false,
            short_write_fills: false,
            was_short: false,
            writes: 0,
            reads: 0,
            finished: false,
            news: Readiness::default(),
        }));
        let limits = FrameLimits { frame_bytes_max: 1 << 20 };
        let link = Link::new(Box::new(Fake(Arc::clone(&wire))), limits);
        let poll = Poll::new().expect("a poll");
        Self { poll, link, wire, frames: vec![], scratch: vec![0; 64] }
    }

    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    /// The events of the next `poll`.
    pub(crate) fn announce(&mut self) {
        let news = std::mem::take(&mut self.wire().news);
        self.link.note(news);
    }

    pub(crate) fn receive(&mut self, budget: usize) -> Result<Flow, Lost> {
        let frames = &mut self.frames;
        self.link.receive(&mut self.scratch, budget, &mut |frame: Frame<'_>| {
            frames.push(match frame {
                Frame::Line(line) => String::from_utf8_lossy(line).into_owned(),
                Frame::TooLong(_) | Frame::NotJsonRpc(_) => format!("{frame:?}"),
            });
        })
    }

    pub(crate) fn reads(&mut self) -> usize {
        std::mem::take(&mut self.wire().reads)
    }
}
