//! Patterns no honest client shows, noticed by counting (TSK-41).

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::identity::Identity;
use crate::time::Instant;

/// Identities that are watched at once. There are as many as users and tokens; a host that makes
/// up more of them loses the count of the one watched longest.
const IDENTITIES_MAX: usize = 1024;

/// Something an honest client does now and then, and an attacker or a broken one all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AbusePattern {
    /// Naming tasks that do not exist or belong to another identity: ids are being tried out.
    UnknownTasks,
    /// Asking for a task again before its `pollInterval` has passed.
    FastPolls,
}

impl AbusePattern {
    /// A word for logs and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTasks => "unknown_tasks",
            Self::FastPolls => "fast_polls",
        }
    }
}

/// How often is too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct SuspicionPolicy {
    /// How long is counted before the count begins anew.
    pub window: Duration,
    /// [`AbusePattern::UnknownTasks`] of one identity within the window that raise a warning; 0:
    /// none does.
    pub unknown_tasks: u32,
    /// [`AbusePattern::FastPolls`] of one identity within the window that raise a warning; 0: none
    /// does.
    pub fast_polls: u32,
}

impl Default for SuspicionPolicy {
    fn default() -> Self {
        Self { window: Duration::from_secs(60), unknown_tasks: 20, fast_polls: 120 }
    }
}

impl SuspicionPolicy {
    /// How many of these within the window raise a warning; 0: no number does.
    #[must_use]
    pub const fn threshold(&self, pattern: AbusePattern) -> u32 {
        match pattern {
            AbusePattern::UnknownTasks => self.unknown_tasks,
            AbusePattern::FastPolls => self.fast_polls,
        }
    }
}

/// Counts of each identity within its window.
#[derive(Debug, Default)]
pub(crate) struct AbuseDetector(BTreeMap<Identity, Window>);

#[derive(Debug)]
struct Window {
    since: Instant,
    unknown_tasks: u32,
    fast_polls: u32,
}

impl AbuseDetector {
    /// Counts one; true when the count has just become too many.
    pub(crate) fn count(
        &mut self,
        identity: &Identity,
        pattern: AbusePattern,
        now: Instant,
        policy: &SuspicionPolicy,
    ) -> bool {
        if !self.0.contains_key(identity) {
            self.make_room(now, policy.window);
        }
        let fresh = || Window { since: now, unknown_tasks: 0, fast_polls: 0 };
        let window = self.0.entry(identity.clone()).or_insert_with(fresh);
        if now - window.since >= policy.window {
            *window = fresh();
        }
        let count = match pattern {
            AbusePattern::UnknownTasks => &mut window.unknown_tasks,
            AbusePattern::FastPolls => &mut window.fast_polls,
        };
        *count = count.saturating_add(1);
        // Only the one that reaches it: a warning a window, however long the burst.
        *count == policy.threshold(pattern)
    }

    fn make_room(&mut self, now: Instant, window: Duration) {
        if self.0.len() < IDENTITIES_MAX {
            return;
        }
        self.0.retain(|_, watched| now - watched.since < window);
        if self.0.len() >= IDENTITIES_MAX
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, watched)| watched.since).map(|(id, _)| id.clone())
        {
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// TSK-41: one warning a window and identity, however long the burst.
    #[test]
    fn burst_warns_once() {
        let policy = SuspicionPolicy { unknown_tasks: 3, fast_polls: 0, ..Default::default() };
        let mut watch = AbuseDetector::default();
        let mut count = |who: u32, seconds| {
            watch.count(&Identity::User(who), AbusePattern::UnknownTasks, at(seconds), &policy)
        };
        let burst: alloc::vec::Vec<bool> = (0..10).map(|second| count(1, second)).collect();
        assert_eq!(burst.iter().filter(|warned| **warned).count(), 1);
        assert!(burst[2] && !count(2, 10), "by identity");
        assert!(!count(1, 60) && !count(1, 61) && count(1, 62), "and by window");
        assert!(
            !watch.count(&Identity::User(1), AbusePattern::FastPolls, at(63), &policy),
            "0: off"
        );
    }

    /// However many identities a host makes up, the state is bounded.
    #[test]
    fn many_identities_are_bounded() {
        let (policy, mut watch) = (SuspicionPolicy::default(), AbuseDetector::default());
        for who in 0..3000 {
            watch.count(&Identity::User(who), AbusePattern::FastPolls, at(1), &policy);
            assert!(watch.0.len() <= IDENTITIES_MAX);
        }
    }
}
