//! The transport below a session: lines over descriptors, or exchanges over HTTP.

use std::time::Instant;

use super::http::Http;
use super::pipe::{Pipe, Received};

/// A connection with a subject.
#[derive(Debug)]
pub(crate) enum Channel {
    /// Lines over a pair of pipes, or over a Unix socket.
    Lines(Pipe),
    /// Streamable HTTP.
    Http(Box<Http>),
}

impl Channel {
    /// Sends lines; meanwhile reads if `reads`. Returns the rest that was not taken in time.
    pub(crate) fn send<'b>(&mut self, lines: &'b [u8], until: Instant, reads: bool) -> &'b [u8] {
        match self {
            Self::Lines(pipe) => pipe.send(lines, until, reads),
            Self::Http(http) => http.send(lines, until),
        }
    }

    /// The next message, until then.
    pub(crate) fn receive(&mut self, until: Instant) -> Received {
        match self {
            Self::Lines(pipe) => pipe.receive(until),
            Self::Http(http) => http.receive(until),
        }
    }

    /// Texts that are no message.
    pub(crate) fn garbage(&self) -> &[String] {
        match self {
            Self::Lines(pipe) => &pipe.garbage,
            Self::Http(http) => &http.garbage,
        }
    }

    /// A fact that may be the reason for a missing message.
    pub(crate) fn trouble(&self) -> Option<String> {
        let broken = match self {
            Self::Lines(_) => None,
            Self::Http(http) => http.broken.clone(),
        };
        let no_message = |text: &String| format!("no message: {text:?}");
        broken.or_else(|| self.garbage().first().map(no_message))
    }

    /// Whether a message is there that was not taken yet.
    pub(crate) fn has_ready(&self) -> bool {
        match self {
            Self::Lines(pipe) => pipe.has_ready(),
            Self::Http(http) => http.has_ready(),
        }
    }

    /// The fact that the peer has written too much, if it has.
    pub(crate) fn flood(&self) -> Option<String> {
        match self {
            Self::Lines(pipe) => pipe.flood(),
            Self::Http(http) => http.flood(),
        }
    }

    /// The reason for which nothing could be sent, if the transport knows one.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Self::Lines(_) => None,
            Self::Http(http) => http.failure.as_deref(),
        }
    }

    /// Whether the peer refuses the credentials.
    pub(crate) fn is_denied(&self) -> bool {
        match self {
            Self::Lines(_) => false,
            Self::Http(http) => http.is_denied,
        }
    }

    /// Closes the direction to the peer; over HTTP there is no such direction.
    pub(crate) fn close_output(&mut self) {
        if let Self::Lines(pipe) = self {
            pipe.close_output();
        }
    }

    /// Closes everything, as the kernel does when it kills a client.
    pub(crate) fn close(&mut self) {
        match self {
            Self::Lines(pipe) => pipe.close(),
            Self::Http(http) => http.hang_up_all(),
        }
    }
}
