//! Rates: how often an identity may do something (TSK-37).
//!
//! A token bucket that is full after one second, kept as one moment: when it would be full again.
//! An identity that has been quiet for a second may do a second's worth at once, then its rate.

use alloc::collections::BTreeMap;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::identity::Identity;
use crate::time::Instant;

/// Content of a full bucket, as the time that it takes to fill.
const BURST: Duration = Duration::from_secs(1);
/// Buckets that are kept before full ones are looked for and forgotten.
const SWEEP_FROM: usize = 64;

/// The buckets of all identities with a recent action.
#[derive(Debug)]
pub(crate) struct Rates {
    full_at: BTreeMap<Identity, Instant>,
    /// How many there may be until full ones are forgotten.
    sweep_at: usize,
}

impl Default for Rates {
    fn default() -> Self {
        Self { full_at: BTreeMap::new(), sweep_at: SWEEP_FROM }
    }
}

impl Rates {
    /// Takes one operation of `per_second` out of an identity's bucket.
    ///
    /// # Errors
    /// How long to wait until there is one; nothing was taken.
    pub(crate) fn take(
        &mut self,
        identity: &Identity,
        per_second: NonZeroU32,
        now: Instant,
    ) -> Result<(), Duration> {
        let one = BURST / per_second.get();
        let bucket = self.full_at.get_mut(identity);
        let full_at = bucket.as_deref().map_or(now, |at| (*at).max(now)) + one;
        // A slower rate after a reload may leave more missing than there was room for.
        match (full_at - now).checked_sub(BURST.max(one)) {
            Some(wait) if !wait.is_zero() => return Err(wait),
            Some(_) | None => {}
        }
        if let Some(bucket) = bucket {
            *bucket = full_at;
            return Ok(());
        }
        if self.full_at.len() >= self.sweep_at {
            self.full_at.retain(|_, at| *at > now);
            self.sweep_at = (self.full_at.len() * 2).max(SWEEP_FROM);
        }
        self.full_at.insert(identity.clone(), full_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn rate(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).expect("not zero")
    }

    /// TSK-37: a second's worth at once, then one at a time, and the wait is exact.
    #[test]
    fn bucket_empties_and_fills() {
        let (mut rates, who) = (Rates::default(), Identity::User(1));
        for _ in 0..10 {
            assert_eq!(rates.take(&who, rate(10), at(5)), Ok(()));
        }
        let wait = Duration::from_millis(100);
        assert_eq!(rates.take(&who, rate(10), at(5)), Err(wait));
        assert_eq!(rates.take(&who, rate(10), at(65)), Err(Duration::from_millis(40)));
        assert_eq!(rates.take(&who, rate(10), at(105)), Ok(()));
        assert_eq!(rates.take(&who, rate(10), at(105)), Err(wait));
        assert_eq!(rates.take(&Identity::User(2), rate(10), at(105)), Ok(()));
        for _ in 0..10 {
            assert_eq!(rates.take(&who, rate(10), at(9000)), Ok(()));
        }
        assert!(rates.take(&who, rate(10), at(9000)).is_err());
        // One a second is one, not none.
        let slow = Identity::User(3);
        assert_eq!(rates.take(&slow, rate(1), at(9000)), Ok(()));
        assert_eq!(rates.take(&slow, rate(1), at(9000)), Err(Duration::from_secs(1)));
    }

    /// TSK-37: buckets of idle identities are removed.
    #[test]
    fn buckets_are_bounded() {
        let mut rates = Rates::default();
        for user in 0..100_000 {
            assert_eq!(rates.take(&Identity::User(user), rate(1000), at(u64::from(user))), Ok(()));
        }
        assert!(rates.full_at.len() <= SWEEP_FROM, "{}", rates.full_at.len());
    }
}
