//! A listener that is open.

use ceased_core::time::Instant;
use ceased_transports::{Address, Listener};
use mio::Token;

use crate::access::Access;

/// A listener and when to try it again, if it needs that.
pub(super) struct BoundListener {
    pub(super) token: Token,
    pub(super) listener: Listener,
    pub(super) access: Access,
    /// When to call `accept` again: epoll is edge-triggered and will not repeat itself.
    pub(super) again: Option<Instant>,
    /// As it was asked for: with port 0 where the system chose.
    pub(super) place: Address,
    /// Group of the socket file; this process's group when not said.
    pub(super) group: Option<u32>,
    pub(super) owner: Owner,
    /// Why the socket file could not be made again when it was removed, as it was logged.
    pub(super) unrenewed: Option<String>,
}

impl BoundListener {
    /// Whether it has a socket file that others can remove, and that is this process's to renew.
    pub(super) fn has_file(&self) -> bool {
        self.owner == Owner::Us && matches!(self.place, Address::Unix { .. })
    }
}

/// Maker of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Us,
    /// The service manager, which goes on listening when we close our copy.
    Manager,
}
