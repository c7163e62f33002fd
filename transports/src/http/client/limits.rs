//! Bounds of the responses of a server.

/// Bounds of one response, in bytes unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Bytes of a head, with the interim responses before it, and of the trailers of a body.
    pub head_bytes: usize,
    /// Number of headers, at most 128.
    pub headers: usize,
    /// Bytes of a body that is no stream of events.
    pub body_bytes: usize,
    /// Bytes of one event: its data and the line that has begun.
    pub event_bytes: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            // Policies and cookies of proxies make heads of servers longer than those of clients.
            head_bytes: 64 * 1024,
            headers: 100,
            body_bytes: 16 * 1024 * 1024,
            event_bytes: 16 * 1024 * 1024,
        }
    }
}
