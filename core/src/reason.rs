//! Reasons: why a job is stopped, and why a connection is closed.

/// Why a job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The cancel notification of the dialect, or `tasks/cancel`.
    Requested,
    /// The peer of a plain call is gone.
    Disconnected,
    /// The tool's timeout.
    TimedOut,
    /// The task's ttl, with `on_ttl = "stop"`, or `max_ttl`.
    Expired,
    /// The input that it asked for did not come in time (MOD-07).
    Unanswered,
    /// Its first process exited and left others behind.
    LeftBehind,
    /// The host, for a peer that asked by a method of its own
    /// ([`Cause`](crate::acp::protocol::HostStopReason)).
    Feature,
    /// The host, for a limit of its own.
    Limit,
    /// The host, for a reason of its own.
    Host,
    /// The store did not take its task.
    Unstored,
    /// The table that several engines share was out of reach for too long (FLT-04).
    Lapsed,
    /// The daemon shuts down.
    Shutdown,
}

impl StopReason {
    /// Whether a job that is stopped for this may still give its answer as if it were not.
    pub(crate) const fn is_no_cancel(self) -> bool {
        match self {
            Self::LeftBehind | Self::Feature => true,
            Self::Requested
            | Self::Disconnected
            | Self::TimedOut
            | Self::Expired
            | Self::Shutdown
            | Self::Unanswered
            | Self::Unstored
            | Self::Lapsed
            | Self::Limit
            | Self::Host => false,
        }
    }

    /// A word for logs and views.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Disconnected => "disconnected",
            Self::TimedOut => "timed out",
            Self::Expired => "ttl expired",
            Self::Unanswered => "unanswered",
            Self::LeftBehind => "left behind",
            Self::Unstored => "not stored",
            Self::Lapsed => "lease over",
            Self::Feature => "feature",
            Self::Limit => "limit",
            Self::Host => "host",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed its side and everything it asked for is answered. Flush first.
    Finished,
    /// The peer closed its side, and the time for answers is over. The requests that are left get no
    /// answer: a client that has closed its connection, and not only its sending side, may fail on
    /// one. Flush first.
    Unanswered,
    /// The first bytes were no JSON-RPC. The content of the send queue may still be sent.
    Alien,
    /// There are too many connections already.
    TooMany,
    /// A new connection of the same operator needs its place, and it was idle for longest.
    Displaced,
    /// The peer let too much pile up unread.
    Flooded,
    /// The peer read nothing for too long.
    Stalled,
    /// The server did not answer `initialize` with a session; its answer was reported.
    NoSession,
}

impl CloseReason {
    /// Whether the content of the send queue is still worth sending.
    #[must_use]
    pub const fn flushes(self) -> bool {
        match self {
            Self::Finished
            | Self::Unanswered
            | Self::Alien
            | Self::TooMany
            | Self::Displaced
            | Self::NoSession => true,
            Self::Flooded | Self::Stalled => false,
        }
    }
}
