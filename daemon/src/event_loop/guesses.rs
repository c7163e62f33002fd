//! Wrong tokens by party, and the delay of the answer to the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::time::Instant;

use super::origin::Party;

/// Wrong tokens of a party answered without delay: a person may mistype one.
const AT_ONCE: u32 = 5;
/// Delay of the first answer after these; doubled for each further one.
const FIRST: Duration = Duration::from_millis(50);
/// Maximum delay: other peers behind the same address wait as long for their answers.
const LONGEST: Duration = Duration::from_secs(1);
/// Time after its last wrong token at which a party is forgotten.
const MEMORY: Duration = Duration::from_secs(60);
/// Maximum number of remembered parties; further ones evict those with the oldest guess.
const PARTIES_MAX: usize = 1024;

/// Recent wrong tokens.
#[derive(Debug, Default)]
pub(super) struct Guesses(BTreeMap<Party, Guessed>);

#[derive(Debug)]
struct Guessed {
    count: u32,
    last: Instant,
}

impl Guesses {
    /// Counts a wrong token; returns the delay of its answer.
    pub(super) fn note(&mut self, now: Instant, party: Party) -> Duration {
        if !self.0.contains_key(&party) && self.0.len() >= PARTIES_MAX {
            self.make_room(now);
        }
        let guessed = self.0.entry(party).or_insert(Guessed { count: 0, last: now });
        if now - guessed.last >= MEMORY {
            guessed.count = 0;
        }
        guessed.last = now;
        guessed.count = guessed.count.saturating_add(1);
        match guessed.count.checked_sub(AT_ONCE + 1) {
            Some(late) => (FIRST * 2_u32.saturating_pow(late.min(16))).min(LONGEST),
            None => Duration::ZERO,
        }
    }

    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, guessed| now - guessed.last < MEMORY);
        if self.0.len() >= PARTIES_MAX
            && let Some((oldest, _)) = self.0.iter().min_by_key(|(_, guessed)| guessed.last)
        {
            let oldest = oldest.clone();
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use ceased_core::identity::Identity;

    use super::*;

    fn party(user: u32) -> Party {
        Party::Identity(Identity::User(user))
    }

    #[test]
    fn delay_grows_with_each_guess() {
        let mut guesses = Guesses::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let millis: Vec<u128> =
            (0..12).map(|second| guesses.note(at(second), party(1)).as_millis()).collect();
        assert_eq!(millis, [0, 0, 0, 0, 0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(guesses.note(at(12), party(2)), Duration::ZERO, "by party");
        assert_eq!(guesses.note(at(70), party(1)), LONGEST, "each guess is remembered");
        assert_eq!(guesses.note(at(130), party(1)), Duration::ZERO, "and forgotten in the end");
    }

    #[test]
    fn number_of_parties_is_bounded() {
        let mut guesses = Guesses::default();
        (0..5000).for_each(|user| _ = guesses.note(Instant::from_nanos(user.into()), party(user)));
        assert_eq!(guesses.0.len(), PARTIES_MAX);
        assert!(guesses.0.contains_key(&party(4999)) && !guesses.0.contains_key(&party(0)));
    }
}
