//! The state of questions to the table that several engines share.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::collections::timer_queue::Armed;
use crate::ids::{ConnId, RequestId, TaskId};
use crate::outbox::requests::Asked;
use crate::tasks::shared::LookupId;
use crate::tasks::task::Page;

/// Questions to the table, and the tasks that are here because requests wait for them.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    last: u64,
    /// Requests that wait, by the number of their question.
    open: BTreeMap<LookupId, (ConnId, RequestId)>,
    /// Tasks of the request that is being answered: they stay until then.
    pub(super) held: BTreeSet<TaskId>,
    /// Page of the table for the request that is being answered.
    pub(super) page: Option<Page>,
    /// Tasks that go when no request waits for them any more, and whether each is watched.
    pub(super) awaited: BTreeMap<TaskId, bool>,
    /// End of the membership.
    pub(super) lease: Option<Armed>,
}

impl Lookups {
    /// Takes out the request that waits for a question.
    pub(super) fn take(&mut self, lookup: LookupId) -> Option<(ConnId, RequestId)> {
        self.open.remove(&lookup)
    }

    /// Takes out the page for the request that is being answered.
    pub(crate) const fn take_page(&mut self) -> Option<Page> {
        self.page.take()
    }

    /// A request waits for the answer to its question, for tests.
    ///
    /// # Panics
    /// When its question is not open.
    pub(crate) fn check(&self, asked: &Asked, conn: ConnId, request: &RequestId) {
        let of = self.open.get(&asked.lookup);
        assert!(
            of.is_some_and(|of| (of.0, &of.1) == (conn, request)),
            "{request} waits for no answer"
        );
    }

    /// Whether the timer of the membership is armed.
    pub(crate) const fn is_armed(&self) -> bool {
        self.lease.is_some()
    }

    /// The number of a question for this request.
    pub(super) fn number(&mut self, of: (ConnId, RequestId)) -> LookupId {
        self.last += 1;
        let id = LookupId::new(self.last);
        self.open.insert(id, of);
        id
    }
}
