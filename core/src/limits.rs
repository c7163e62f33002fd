//! Every bound of the engine, in one place, with its default and its reason.

/// What one frame may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Longest line a peer may send, in bytes without its end.
    pub frame_bytes_max: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { frame_bytes_max: 16 * 1024 * 1024 }
    }
}
