//! The lease of this node, as the connection that writes sees it.

use std::time::{Duration, Instant};

/// Time between two looks for nodes whose lease is over.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// Time between two words to the daemon about a renewal.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Times of batches. Every batch counts from before it was sent: the table may have carried it out then.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Beginning of the last batch that was carried out, while this node is a member.
    renewed: Option<Instant>,
    /// The table has answered without a break since then.
    answers_since: Option<Instant>,
    /// Beginning of the last batch that the daemon was told of.
    told: Option<Instant>,
    /// The next look for nodes whose lease is over.
    next_reap: Option<Instant>,
}

impl Lease {
    /// A batch that was sent then was carried out; whether the daemon has to be told. An older deadline is a
    /// shorter one: not every batch of a busy node is told.
    pub(super) fn renew(&mut self, sent: Instant) -> bool {
        self.renewed = Some(sent);
        let is_told = self.told.is_some_and(|told| sent < told + TELL_EVERY);
        if !is_told {
            self.told = Some(sent);
        }
        !is_told
    }

    /// The table answers, after it did not.
    pub(super) fn begin_to_hear(&mut self, at: Instant) {
        self.answers_since.get_or_insert(at);
    }

    /// The table did not answer.
    pub(super) const fn note_outage(&mut self) {
        self.answers_since = None;
    }

    /// This node is no member any more.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether this node is a member.
    pub(super) const fn is_member(&self) -> bool {
        self.renewed.is_some()
    }

    /// Whether a batch is due so that the lease goes on.
    pub(super) fn is_due(&self, now: Instant, every: Duration) -> bool {
        self.renewed.is_none_or(|renewed| renewed + every <= now)
    }

    /// Whether to look for tasks whose node is no member any more.
    pub(super) fn may_reap(&mut self, now: Instant) -> bool {
        let reaps = self.is_member() && self.next_reap.is_none_or(|next| next <= now);
        if reaps {
            self.next_reap = Some(now + REAP_EVERY);
        }
        reaps
    }

    /// Whether a node is lost whose lease is over. After an outage all nodes renew first: none is lost for it
    /// (FLT-04).
    pub(super) fn may_bury(&self, now: Instant, lease: Duration) -> bool {
        self.answers_since.is_some_and(|since| since + lease <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    /// FLT-04: a node ends no other one before the table has answered it for a whole lease.
    #[test]
    fn no_node_is_lost_for_an_outage() {
        let (start, mut lease) = (Instant::now(), Lease::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!lease.may_bury(at(100), LEASE));
        lease.begin_to_hear(at(100));
        lease.begin_to_hear(at(105));
        assert!(!lease.may_bury(at(109), LEASE));
        assert!(lease.may_bury(at(110), LEASE));
        lease.note_outage();
        assert!(!lease.may_bury(at(130), LEASE));
        lease.begin_to_hear(at(130));
        assert!(!lease.may_bury(at(139), LEASE));
        assert!(lease.may_bury(at(140), LEASE));
        lease.end();
        assert!(!lease.is_member() && !lease.may_bury(at(200), LEASE));
    }

    /// A member looks for tasks of nodes that are no members once a second, from its start on.
    #[test]
    fn tasks_without_a_node_are_looked_for_at_once() {
        let (start, mut lease) = (Instant::now(), Lease::default());
        assert!(!lease.may_reap(start), "it is no member");
        lease.renew(start);
        assert!(lease.may_reap(start) && !lease.may_reap(start));
        assert!(lease.may_reap(start + REAP_EVERY));
    }

    /// A busy node tells its daemon of a renewal twice a second at most, and of the first one at once.
    #[test]
    fn renewals_are_told_seldom() {
        let (start, mut lease) = (Instant::now(), Lease::default());
        let at = |millis| start + Duration::from_millis(millis);
        assert!(lease.is_due(at(0), LEASE) && !lease.is_member());
        let told: Vec<bool> = [0, 1, 499, 500, 999, 1000].map(|ms| lease.renew(at(ms))).into();
        assert_eq!(told, [true, false, false, true, false, true]);
        assert!(lease.is_member() && !lease.is_due(at(10_999), LEASE));
        assert!(lease.is_due(at(11_000), LEASE));
    }
}
