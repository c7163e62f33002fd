//! Requests of clients that wait for upstreams to tell of themselves.

use alloc::boxed::Box;

use crate::upstream::list::LISTS;

/// A request that waits for upstreams to tell of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AwaitedAnswer {
    /// `initialize`, which cannot be cancelled (CAN-04).
    Initialize,
    /// `server/discover`
    Discover,
    /// The list at this position of [`LISTS`].
    List(usize),
    /// `subscriptions/listen` to resources of servers that have declared nothing yet: its params.
    Listen(Box<str>),
}

impl AwaitedAnswer {
    /// The method of the request, for a log.
    pub(crate) const fn method(&self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Discover => "server/discover",
            Self::List(at) => LISTS[*at].method,
            Self::Listen(_) => "subscriptions/listen",
        }
    }
}
