//! Calls that have ended, with their receipts: a bounded store for `ceased ps --all` and views.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ceased_core::action::RequestEnd;
use ceased_core::identity::Identity;
use serde_json::value::RawValue;

use super::audit::{CancelRecord, call_told};
use super::calls::CallRecord;

/// Calls in one answer at most, the latest.
const LISTED_MAX: usize = 500;

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct EndedCall {
    pub(crate) call: Arc<CallRecord>,
    /// Receipt of a call that was stopped.
    pub(crate) receipt: Option<Arc<CancelRecord>>,
    ended: Instant,
}

impl EndedCall {
    pub(crate) fn new(
        call: Arc<CallRecord>,
        receipt: Option<Arc<CancelRecord>>,
        ended: Instant,
    ) -> Self {
        Self { call, receipt, ended }
    }
}

/// A request that no job worked on, with its times on the clock of the system.
#[derive(Debug)]
pub(crate) struct EndedRequest<'a> {
    pub(crate) end: &'a RequestEnd,
    pub(crate) asked: Instant,
    pub(crate) stopped: Option<Instant>,
    pub(crate) ended: Instant,
    /// `pipe`, `unix` or `tcp`; empty once the connection is gone.
    pub(crate) transport: &'static str,
}

/// Takes calls that have ended elsewhere, such as to a collector of spans. Never blocks.
pub(crate) trait Export: Send {
    /// Takes a call, and the time of the order to stop it, if it was stopped.
    fn export(&self, ended: &EndedCall, stopped: Option<Instant>);

    /// Takes a request that no job worked on.
    fn export_request(&self, request: &EndedRequest<'_>);

    /// Number of calls that were dropped.
    fn dropped(&self) -> u64;
}

/// `log.ended_calls` and `log.ended_for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedLimits {
    pub(crate) count: usize,
    pub(crate) span: Duration,
}

impl Default for EndedLimits {
    fn default() -> Self {
        Self { count: 1000, span: Duration::from_secs(12 * 3600) }
    }
}

/// The latest calls that have ended, by identity: where there are too many, the oldest of the identity
/// with most of them is forgotten, so that one identity does not displace the calls of others.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls {
    limits: EndedLimits,
    calls: BTreeMap<Identity, VecDeque<EndedCall>>,
    count: usize,
}

impl EndedCalls {
    pub(crate) fn new(limits: EndedLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Keeps a call.
    pub(crate) fn push(&mut self, call: EndedCall) {
        if self.limits.count == 0 {
            return;
        }
        while self.count >= self.limits.count {
            let Some(most) = self.calls.values_mut().max_by_key(|calls| calls.len()) else { break };
            self.count -= usize::from(most.pop_front().is_some());
        }
        self.count += 1;
        match self.calls.get_mut(&call.call.identity) {
            Some(calls) => calls.push_back(call),
            None => {
                self.calls.retain(|_, calls| !calls.is_empty());
                self.calls.insert(call.call.identity.clone(), [call].into());
            }
        }
    }

    /// Forgets calls that were kept long enough.
    pub(crate) fn prune(&mut self) {
        let span = self.limits.span;
        self.calls.retain(|_, calls| {
            let is_over = |oldest: &EndedCall| oldest.ended.elapsed() > span;
            while calls.front().is_some_and(is_over) {
                calls.pop_front();
            }
            !calls.is_empty()
        });
        self.count = self.calls.values().map(VecDeque::len).sum();
    }

    /// The calls of a viewer, or of all for `None`, as JSON, newest first. Anonymous peers share an
    /// identity: they see none (TSK-40).
    pub(crate) fn told(
        &self,
        viewer: Option<&Identity>,
        shown: impl Fn(&CallRecord) -> Option<String>,
    ) -> Vec<Box<RawValue>> {
        let seen = |owner: &Identity| match viewer {
            None => true,
            Some(Identity::Anonymous) => false,
            Some(own @ (Identity::User(_) | Identity::Token(_) | Identity::Subject(_))) => {
                own == owner
            }
        };
        let seen = self.calls.iter().filter(|(owner, _)| seen(owner));
        let mut calls: Vec<&EndedCall> = seen.flat_map(|(_, calls)| calls).collect();
        calls.sort_unstable_by_key(|call| std::cmp::Reverse(call.ended));
        let tell = |of: &EndedCall| {
            let arguments = shown(&of.call);
            let ago = of.ended.elapsed();
            call_told(&of.call, of.receipt.as_deref(), arguments.as_deref(), Some(ago)).ok()
        };
        calls.into_iter().take(LISTED_MAX).filter_map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observability::calls::CallOutcome;
    use ceased_core::ids::JobId;

    fn call(owner: u32, job: u64) -> EndedCall {
        let call = CallRecord::example(Identity::User(owner), JobId::new(job));
        EndedCall::new(Arc::new(call), None, Instant::now())
    }

    fn jobs(calls: &EndedCalls, viewer: Option<u32>) -> Vec<u64> {
        let viewer = viewer.map(Identity::User);
        let told = calls.told(viewer.as_ref(), |_| None);
        let job = |raw: Box<RawValue>| {
            let call: serde_json::Value = serde_json::from_str(raw.get()).expect("JSON");
            assert_eq!(call["outcome"], CallOutcome::Ok.as_str());
            call["job"].as_u64().unwrap_or_default()
        };
        told.into_iter().map(job).collect()
    }

    #[test]
    fn one_identity_does_not_displace_the_calls_of_others() {
        let limits = EndedLimits { count: 4, span: Duration::from_secs(3600) };
        let mut calls = EndedCalls::new(limits);
        calls.push(call(1, 1));
        (2..100).for_each(|job| calls.push(call(2, job)));
        assert_eq!(jobs(&calls, None), [99, 98, 97, 1]);
        assert_eq!((jobs(&calls, Some(1)), jobs(&calls, Some(3))), (vec![1], vec![]));
        assert!(calls.told(Some(&Identity::Anonymous), |_| None).is_empty());
        calls.limits.span = Duration::ZERO;
        calls.prune();
        assert_eq!((jobs(&calls, None), calls.count), (vec![], 0));
    }

    #[test]
    fn limit_of_zero_keeps_none() {
        let mut calls = EndedCalls::new(EndedLimits { count: 0, ..EndedLimits::default() });
        calls.push(call(1, 1));
        assert!(jobs(&calls, None).is_empty());
    }
}
