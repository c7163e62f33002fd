//! A bound on the bytes that one subject may send: a probe keeps each message.

/// Bytes that may still be received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    max: u64,
    left: Option<u64>,
}

impl Room {
    pub(crate) const fn new(max: u64) -> Self {
        Self { max, left: Some(max) }
    }

    /// Takes bytes; false once they are too many.
    pub(crate) fn take(&mut self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.left = self.left.and_then(|left| left.checked_sub(count));
        self.left.is_some()
    }

    /// The fact that there were too many, for evidence.
    pub(crate) fn flood(&self) -> Option<String> {
        let text = || format!("has written more than {} bytes", self.max);
        self.left.is_none().then(text)
    }
}
