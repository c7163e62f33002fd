//! Wrong tokens by party, and the delay of the answer to the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::time::Instant;

use super::party::Party;

/// Wrong tokens of a party answered without delay: a person may mistype one.
const UNDELAYED: u32 = 5;
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
pub(crate) struct WrongTokens(BTreeMap<Party, Count>);

#[derive(Debug)]
struct Count {
    tokens: u32,
    last: Instant,
}

impl WrongTokens {
    /// Counts a wrong token; returns the delay of its answer.
    pub(crate) fn note(&mut self, now: Instant, party: Party) -> Duration {
        if !self.0.contains_key(&party) && self.0.len() >= PARTIES_MAX {
            self.make_room(now);
        }
        let count = self.0.entry(party).or_insert(Count { tokens: 0, last: now });
        if now - count.last >= MEMORY {
            count.tokens = 0;
        }
        count.last = now;
        count.tokens = count.tokens.saturating_add(1);
        match count.tokens.checked_sub(UNDELAYED + 1) {
            Some(late) => (FIRST * 2_u32.saturating_pow(late.min(16))).min(LONGEST),
            None => Duration::ZERO,
        }
    }

    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, count| now - count.last < MEMORY);
        if self.0.len() >= PARTIES_MAX
            && let Some((oldest, _)) = self.0.iter().min_by_key(|(_, count)| count.last)
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
        let mut wrong = WrongTokens::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let millis: Vec<u128> =
            (0..12).map(|second| wrong.note(at(second), party(1)).as_millis()).collect();
        assert_eq!(millis, [0, 0, 0, 0, 0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(wrong.note(at(12), party(2)), Duration::ZERO, "by party");
        assert_eq!(wrong.note(at(70), party(1)), LONGEST, "each guess is remembered");
        assert_eq!(wrong.note(at(130), party(1)), Duration::ZERO, "and forgotten in the end");
    }

    #[test]
    fn number_of_parties_is_bounded() {
        let mut wrong = WrongTokens::default();
        (0..5000).for_each(|user| _ = wrong.note(Instant::from_nanos(user.into()), party(user)));
        assert_eq!(wrong.0.len(), PARTIES_MAX);
        assert!(wrong.0.contains_key(&party(4999)) && !wrong.0.contains_key(&party(0)));
    }
}
