//! The subscription of the engine at a server without sessions: one open `subscriptions/listen`.
//!
//! ```text
//!   none ──open──► asked ──acknowledge──► granted ──other topics──► granted, another asked
//!                    │                       │                        │
//!                    └── end: refused        └── end: none again      └── acknowledge: the one
//!                                                                         before is cancelled
//! ```
//!
//! A subscription with other topics is acknowledged before the one that it replaces is cancelled, so
//! that no change between them is lost.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use crate::ids::{CallId, JobId};
use crate::outbox::requests::Topic;
use crate::time::Instant;

/// Method of a subscription.
pub(crate) const LISTEN: &str = "subscriptions/listen";

/// Shortest life of a subscription after which another one follows when a server ends it. One that
/// ends each at once would otherwise be asked without end.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// Topics of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Topics {
    /// Lists whose changes it is told of.
    pub(crate) lists: BTreeSet<Topic>,
    /// Resources whose updates it is told of, by the URIs of the server.
    pub(crate) uris: BTreeSet<Box<str>>,
}

impl Topics {
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.uris.is_empty()
    }
}

/// Subscriptions of the engine at one instance.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    newest: Option<OpenStream>,
    /// The acknowledged one that the newest replaces.
    before: Option<CallId>,
    /// The server has refused one, or ends each at once: none is opened any more.
    is_refused: bool,
    /// Lists that the server declares to tell of.
    pub(crate) lists: BTreeSet<Topic>,
    /// Relayed `resources/subscribe` that wait for the acknowledgement of their resource.
    pub(crate) waiting: BTreeMap<JobId, Box<str>>,
}

#[derive(Debug)]
struct OpenStream {
    call: CallId,
    topics: Topics,
    since: Instant,
    /// Resources that the server has granted; `None` before its acknowledgement.
    granted: Option<BTreeSet<Box<str>>>,
}

/// The next step towards the wanted topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenStep {
    /// Nothing: they are listened to, or an acknowledgement is awaited.
    None,
    /// Open a subscription.
    Open,
    /// Cancel the subscription, which has no topic any more.
    Cancel(CallId),
    /// The server has no subscriptions.
    Refused,
}

impl Subscription {
    pub(crate) fn step(&mut self, wanted: &Topics) -> ListenStep {
        match &self.newest {
            _ if self.is_refused => ListenStep::Refused,
            Some(open) if open.granted.is_none() || open.topics == *wanted => ListenStep::None,
            Some(open) if wanted.is_empty() => {
                let call = open.call;
                self.newest = None;
                ListenStep::Cancel(call)
            }
            None if wanted.is_empty() => ListenStep::None,
            Some(_) | None => ListenStep::Open,
        }
    }

    /// A subscription was sent; the one before is kept until it is acknowledged.
    pub(crate) fn open(&mut self, call: CallId, topics: Topics, now: Instant) {
        let newest = OpenStream { call, topics, since: now, granted: None };
        self.before = self.newest.replace(newest).map(|open| open.call);
    }

    /// The server acknowledges a subscription with these resources. Returns whether it was the
    /// newest one, and the one before, which is to be cancelled.
    pub(crate) fn acknowledge(
        &mut self,
        call: CallId,
        granted: BTreeSet<Box<str>>,
    ) -> Option<Option<CallId>> {
        let open = self.newest.as_mut().filter(|open| open.call == call)?;
        // A server may name any number of others.
        open.granted = Some(&granted & &open.topics.uris);
        Some(self.before.take())
    }

    /// Whether the server has granted a resource; `None` while that is open.
    pub(crate) fn has_granted(&self, own: &str) -> Option<bool> {
        if self.is_refused {
            return Some(false);
        }
        let open = self.newest.as_ref().filter(|open| open.topics.uris.contains(own))?;
        open.granted.as_ref().map(|granted| granted.contains(own))
    }

    /// The server ends a subscription. Returns whether it was the newest one.
    pub(crate) fn end(&mut self, call: CallId, now: Instant) -> bool {
        if self.before == Some(call) {
            self.before = None;
            return false;
        }
        let Some(open) = self.newest.take_if(|open| open.call == call) else { return false };
        self.is_refused = open.granted.is_none() || now < open.since + LIFE_MIN;
        true
    }

    /// Whether a request is one of the open subscriptions.
    pub(crate) fn has(&self, call: CallId) -> bool {
        self.before == Some(call) || self.newest.as_ref().is_some_and(|open| open.call == call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(uris: &[&str]) -> Topics {
        Topics { lists: BTreeSet::new(), uris: uris.iter().map(|uri| (*uri).into()).collect() }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn call(number: u64) -> CallId {
        CallId::new(number)
    }

    #[test]
    fn other_topics_replace_a_subscription_after_their_acknowledgement() {
        let mut subscription = Subscription::default();
        assert_eq!(subscription.step(&topics(&[])), ListenStep::None);
        assert_eq!(subscription.step(&topics(&["a"])), ListenStep::Open);
        subscription.open(call(1), topics(&["a"]), at(0));
        assert_eq!(subscription.step(&topics(&["a", "b"])), ListenStep::None, "it is awaited");
        assert_eq!(subscription.has_granted("a"), None);
        assert_eq!(subscription.acknowledge(call(1), topics(&["a", "x"]).uris), Some(None));
        assert_eq!(subscription.has_granted("a"), Some(true));
        let granted = subscription.newest.as_ref().and_then(|open| open.granted.as_ref());
        assert_eq!(granted, Some(&topics(&["a"]).uris), "only wanted resources are kept");
        assert_eq!(subscription.step(&topics(&["a", "b"])), ListenStep::Open);
        subscription.open(call(2), topics(&["a", "b"]), at(0));
        assert_eq!(subscription.acknowledge(call(1), BTreeSet::new()), None);
        assert!(!subscription.end(call(3), at(0)) && subscription.has(call(1)));
        assert_eq!(subscription.acknowledge(call(2), topics(&["a"]).uris), Some(Some(call(1))));
        assert_eq!(subscription.has_granted("b"), Some(false));
        assert_eq!(subscription.step(&topics(&[])), ListenStep::Cancel(call(2)));
        assert_eq!(subscription.step(&topics(&[])), ListenStep::None);
    }

    #[test]
    fn server_that_ends_each_subscription_is_asked_no_more() {
        for (acknowledged, ended, refused) in
            [(false, 5000, true), (true, 500, true), (true, 1000, false)]
        {
            let mut subscription = Subscription::default();
            subscription.open(call(1), topics(&["a"]), at(0));
            if acknowledged {
                subscription.acknowledge(call(1), topics(&["a"]).uris);
            }
            assert!(subscription.end(call(1), at(ended)));
            let step = if refused { ListenStep::Refused } else { ListenStep::Open };
            assert_eq!(subscription.step(&topics(&["a"])), step, "{acknowledged} {ended}");
        }
    }
}
