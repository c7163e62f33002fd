//! Since when one and the same thing has been going on, for a caller that owns the clock.

use ceased_core::time::Instant;

/// Remembers when a thing was first seen; a thing is told from the next one by its number.
#[derive(Debug, Default)]
pub(crate) struct Since(Option<(u64, Instant)>);

impl Since {
    /// Whether nothing is going on.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// Since when `thing` has been going on, as far as it was looked at; `None` when nothing is.
    pub(crate) fn look(&mut self, thing: Option<u64>, now: Instant) -> Option<Instant> {
        let thing = thing.map(|number| match self.0 {
            Some((seen, at)) if seen == number => (number, at),
            Some(_) | None => (number, now),
        });
        self.0 = thing;
        thing.map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_thing_starts_anew() {
        let at = Instant::from_nanos;
        let mut since = Since::default();
        assert_eq!(since.look(None, at(1)), None);
        assert_eq!(since.look(Some(0), at(2)), Some(at(2)));
        assert_eq!(since.look(Some(0), at(9)), Some(at(2)));
        assert_eq!(since.look(Some(5), at(10)), Some(at(10)));
        assert_eq!(since.look(None, at(11)), None);
        assert_eq!(since.look(Some(5), at(12)), Some(at(12)));
    }
}
