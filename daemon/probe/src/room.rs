//! A bound on the bytes that one subject may send: a probe keeps each message.

/// Bytes that a JSON value takes in memory, and that are counted for it: many short ones take far
/// more than their text.
const VALUE_BYTES: usize = 128;

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

    /// Takes the memory of a JSON text beyond its bytes, before it is parsed; false if that is too
    /// much.
    pub(crate) fn take_values(&mut self, text: &[u8]) -> bool {
        // Each value but the first of a text follows one of these; some stand in strings.
        let commas = memchr::memchr_iter(b',', text).count();
        let values = memchr::memchr2_iter(b'{', b'[', text).count() + commas + 1;
        self.take((values * VALUE_BYTES).saturating_sub(text.len()))
    }

    /// The fact that there were too many, for evidence.
    pub(crate) fn flood(&self) -> Option<String> {
        let text = || {
            format!(
                "has written more than {} bytes, of which each JSON value counts {VALUE_BYTES}",
                self.max
            )
        };
        self.left.is_none().then(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_take_more_room_than_their_text() {
        let mut room = Room::new(10_000);
        assert!(room.take_values(br#"{"text": "one, two"}"#));
        assert_eq!(room.left, Some(10_000 - 3 * 128 + 20));
        assert!(room.take_values(&[b'x'; 5000]) && room.flood().is_none());
        assert!(!room.take_values("[0,0,0,0,0,0,0,0,0,0]".repeat(20).as_bytes()));
        assert!(room.flood().is_some_and(|it| it.contains("10000 bytes")));
        assert!(!room.take(0), "it stays full");
    }
}
