//! Bounds of one HTTP connection.

/// Bounds of one HTTP connection, in bytes unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes of a request line and its headers; beyond it the answer is 431.
    pub head_bytes: usize,
    /// Number of headers, at most 128; beyond it the answer is 431.
    pub headers: usize,
    /// Bytes of a request body; beyond it the answer is 413.
    pub body_bytes: usize,
    /// Bytes of later requests that are kept while a response is written. Beyond it the
    /// connection [wants no input](super::HttpConnection::wants_input).
    pub pipelined_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            // Browsers send below 8 KiB; servers commonly accept 8 to 16 KiB.
            head_bytes: 16 * 1024,
            headers: 100,
            body_bytes: 16 * 1024 * 1024,
            pipelined_bytes: 64 * 1024,
        }
    }
}
