//! A connection as the loop sees it.

use super::auth::TokenHandshake;
use super::read_scheduler;
use crate::token_file::Token;
use ceased_core::rpc::send_queue::SendQueue;
use ceased_core::time::Instant;
use ceased_transports::Link;
use std::sync::Arc;

/// A connection as the loop sees it.
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) stage: Stage,
    /// When it closes its input, the server's work is done.
    pub(super) sole: bool,
    /// The engine wants it closed once its outbox is empty.
    pub(super) closing: bool,
    /// The audit log has a record of it, and gets one of its end.
    pub(super) on_record: bool,
    /// Hardly any has one.
    pub(super) backlog: Option<Box<Backlog>>,
    /// Where it stands among those that have something left to read.
    pub(super) place: read_scheduler::Cost,
}

/// How far a connection is.
pub(super) enum Stage {
    /// It has to say who it is.
    Authenticating(Box<TokenHandshake>),
    /// The engine knows it; by which token, if by one.
    Open(Option<Arc<Token>>),
    /// It presented a wrong token; the answer is held back, so that guessing is slow.
    Held(Box<Held>),
    /// It was turned away and is given until then to hear why.
    Rejected(Instant),
}

/// An answer that is held back.
pub(super) struct Held {
    pub(super) until: Instant,
    pub(super) answer: Vec<u8>,
}

impl Stage {
    /// When a stranger has to be through, or gone.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Authenticating(gate) => Some(gate.until),
            Self::Open(_) => None,
            Self::Held(held) => Some(held.until),
            Self::Rejected(until) => Some(*until),
        }
    }
}

/// What a peer has still to take, as far as the loop has to do with it.
pub(super) enum Backlog {
    /// Bytes for it from before the engine knows it.
    Greeting(SendQueue),
    /// The engine was told that it does not take what it is sent, when it had taken this many
    /// bytes in all.
    Blocked(u64),
}

impl Peer {
    /// Has something said to it before the engine has a say.
    pub(super) fn greet(&mut self, answer: &[u8]) {
        let mut greeting = SendQueue::new();
        greeting.line(answer);
        self.backlog = Some(Box::new(Backlog::Greeting(greeting)));
    }
}

/// Why a peer is sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// The engine has something to say where nothing waited to be sent.
    First,
    /// There may be room for more of what waits, or it is the last.
    More,
}
