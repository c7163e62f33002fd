//! Shares of one identity: the rate of its task requests (TSK-37), its
//! share of the queue (TSK-36).

use super::Oracle;
use super::requests::Asked;
use crate::sim::mark::Mark;

const SECOND: u64 = 1_000_000_000;

/// A bucket of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Nanoseconds until it is full again.
    missing: u64,
    /// When that was so.
    at: u64,
}

impl Oracle {
    /// Whether a request of this method counts.
    pub(super) fn is_rated(method: &str) -> bool {
        ["tasks/get", "tasks/result", "tasks/list", "tasks/update"].contains(&method)
    }

    /// TSK-37: counts a task request; refuses it when it is one too many.
    pub(super) fn is_too_often(&mut self, asked: &Asked) -> bool {
        let Some(rate) = self.settings.limits.task_ops_per_second else { return false };
        let one = SECOND / u64::from(rate.get());
        let now = self.now;
        let who = self.conns[&asked.conn].identity.clone();
        let bucket = self.buckets.entry(who).or_insert(Bucket { missing: 0, at: now });
        let missing = bucket.missing.saturating_sub(now - bucket.at) + one;
        if missing > SECOND {
            let millis = (missing - SECOND).div_ceil(1_000_000);
            self.mark(Mark::TooOften);
            self.answer(asked, &format!("E -31003 task_ops_per_second {millis}ms"));
            return true;
        }
        *bucket = Bucket { missing, at: now };
        false
    }

    /// TSK-36: refuses one call more of an identity that has filled its share of the queue.
    pub(super) fn is_past_share(&mut self, asked: &Asked) -> bool {
        let limits = &self.settings.limits;
        let owner = &self.conns[&asked.conn].identity;
        let waiting = self.jobs.iter().filter(|job| !job.runs() && job.owner == *owner).count();
        let running = self.jobs.iter().filter(|job| job.works()).count();
        let own_room = limits.running_per_identity_max.saturating_sub(self.running_of(owner));
        let can_start = limits.running_max.saturating_sub(running).min(own_room);
        let past = waiting >= limits.queued_per_identity_max.saturating_add(can_start);
        if past {
            self.mark(Mark::ShareUsedUp);
            self.answer(asked, "E -31003 queue_per_identity");
        }
        past
    }
}
