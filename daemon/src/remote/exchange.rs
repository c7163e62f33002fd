//! One HTTP connection with the exchange on it.

use ceased_core::time::Instant;
use ceased_transports::http::client::{ClientLimits, HttpClient};

use super::bearer::TokenNumber;
use super::message::{Kind, Outgoing};

/// Number of a connection of an instance.
pub(crate) type SlotId = u64;

/// Exchange of a request and its response.
#[derive(Debug)]
pub(super) enum Exchange {
    /// A message is posted.
    Post { message: Outgoing, redirects: u8 },
    /// The stream for messages of the server that belong to no request, in HTTP+SSE for all.
    Listen,
    /// The rest of the stream of this call is asked for.
    Resume { call: u64 },
    /// The session is ended.
    Delete,
}

impl Exchange {
    /// The call whose response this is.
    pub(super) const fn call(&self) -> Option<u64> {
        match self {
            Self::Post { message: Outgoing { kind: Kind::Call { id, .. }, .. }, .. } => Some(*id),
            Self::Resume { call } => Some(*call),
            Self::Post { .. } | Self::Listen | Self::Delete => None,
        }
    }

    /// Headers that repeat arguments of its call.
    pub(super) fn parameters(&self) -> &[(String, String)] {
        match self {
            Self::Post { message, .. } => {
                message.described.as_ref().map_or(&[], |described| &described.parameters)
            }
            Self::Listen | Self::Resume { .. } | Self::Delete => &[],
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) client: HttpClient,
    /// `None` between two exchanges.
    pub(super) exchange: Option<Exchange>,
    /// The call whose response this is.
    pub(super) call: Option<u64>,
    /// Whether its request has no session.
    pub(super) is_modern: bool,
    pub(super) is_initialize: bool,
    /// The token of the request; 0 for none.
    pub(super) token: TokenNumber,
    /// Whether it was connected once.
    pub(super) is_connected: bool,
    /// Time of the last byte, of the start of the exchange, or of its end.
    pub(super) since: Instant,
    /// Whether a byte of the request was sent.
    pub(super) has_sent: bool,
    /// Whether the head of the response was looked at.
    pub(super) has_head: bool,
    /// Whether the answer to the call has arrived.
    pub(super) is_answered: bool,
    /// Whether the call was cancelled.
    pub(super) is_cancelled: bool,
    /// The body of a response that is an error.
    pub(super) body: Vec<u8>,
    /// Behind which event the stream can be resumed, and milliseconds until then.
    pub(super) last_id: Option<String>,
    pub(super) retry: Option<u64>,
}

impl Slot {
    pub(super) const fn new(limits: ClientLimits, now: Instant) -> Self {
        Self {
            client: HttpClient::new(limits),
            exchange: None,
            call: None,
            is_modern: false,
            is_initialize: false,
            token: 0,
            is_connected: false,
            since: now,
            has_sent: false,
            has_head: false,
            is_answered: false,
            is_cancelled: false,
            body: Vec::new(),
            last_id: None,
            retry: None,
        }
    }

    /// Prepares the next exchange.
    pub(super) fn begin(&mut self, exchange: Exchange, now: Instant) {
        self.call = exchange.call();
        (self.is_modern, self.is_initialize) = match &exchange {
            Exchange::Post { message, .. } => {
                let kind = message.kind;
                (message.described.is_some(), kind.is_initialize())
            }
            Exchange::Listen | Exchange::Resume { .. } | Exchange::Delete => (false, false),
        };
        self.exchange = Some(exchange);
        self.since = now;
        (self.has_sent, self.has_head) = (false, false);
        (self.is_answered, self.is_cancelled) = (false, false);
        (self.last_id, self.retry) = (None, None);
        self.body = Vec::new();
    }

    /// Whether the whole request was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.has_sent && self.client.pending().is_empty()
    }

    /// The status of the response; 0 without a head.
    pub(super) fn status(&self) -> u16 {
        self.client.head().map_or(0, |head| head.status)
    }
}
