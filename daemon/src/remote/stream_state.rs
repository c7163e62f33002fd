//! State of streams that outlast a request.

use std::time::Duration;

use ceased_core::time::Instant;

/// Wait before a stream is asked for again, unless the server says another one.
const RETRY: Duration = Duration::from_millis(500);
/// Longest wait before that, whatever the server says.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// HTTP+SSE of 2024-11-05.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sse {
    /// Streamable HTTP is spoken.
    Off,
    /// It is spoken from the next message on.
    Wanted,
    /// The stream was asked for and has not told where to post.
    Awaited,
    /// Messages are posted there.
    At(String),
}

impl Sse {
    pub(super) fn is_on(&self) -> bool {
        *self != Self::Off
    }

    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Wanted | Self::Awaited)
    }

    /// The path to post to.
    pub(super) fn target<'a>(&'a self, streamable: &'a str) -> &'a str {
        match self {
            Self::At(target) => target,
            Self::Off | Self::Wanted | Self::Awaited => streamable,
        }
    }
}

/// The stream for messages of the server.
#[derive(Debug, Default)]
pub(super) struct Listen {
    /// When it is asked for.
    pub(super) due: Option<Instant>,
    pub(super) last_id: Option<String>,
    /// Attempts without an event.
    pub(super) attempts: u32,
    /// Whether it was refused without a good token, and is asked for again with another one.
    pub(super) is_repeated: bool,
}

/// The stream of a call that broke.
#[derive(Debug)]
pub(super) struct Resume {
    pub(super) call: u64,
    pub(super) last_id: String,
    /// When it is asked for; `None` while it is.
    pub(super) due: Option<Instant>,
    pub(super) attempts: u32,
    pub(super) is_cancelled: bool,
}

/// Wait before the next attempt: as the server says, or longer with each one.
pub(super) fn wait(retry: Option<u64>, attempts: u32) -> Duration {
    let said = retry.map(Duration::from_millis);
    let own = || RETRY.saturating_mul(1 << attempts.min(7));
    said.unwrap_or_else(own).min(RETRY_MAX)
}
