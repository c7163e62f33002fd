//! The state of questions to the table that several engines share.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::action::Action;
use crate::collections::timer_queue::Armed;
use crate::ids::{ConnId, RequestId, TaskId};
use crate::outbox::Outbox;
use crate::outbox::requests::{LookupRequest, Reply, RequestWork, TaskMethod};
use crate::rpc::params::Params;
use crate::tasks::durable::{Seq, StoreWrite};
use crate::tasks::shared::{Lookup, LookupId, Wanted};
use crate::tasks::task::TaskPage;

/// Questions to the table, and the tasks that are here because requests wait for them.
#[derive(Debug, Default)]
pub(crate) struct TaskLookups {
    last: u64,
    /// Requests that wait, by the number of their question.
    open: BTreeMap<LookupId, (ConnId, RequestId)>,
    /// Tasks of the request that is being answered: they stay until then.
    pub(super) held: BTreeSet<TaskId>,
    /// Page of the table for the request that is being answered.
    pub(super) page: Option<TaskPage>,
    /// Tasks that go when no request waits for them any more, and whether each is watched.
    pub(super) awaited: BTreeMap<TaskId, bool>,
    /// Requests that wait for a write.
    writes: BTreeMap<Seq, LookupId>,
    /// Writes on their way that are no records, and those that the table did not take.
    telling: BTreeMap<Seq, StoreWrite>,
    untold: Vec<StoreWrite>,
    /// A request is being answered with the records that it needs.
    pub(super) is_answering: bool,
    /// End of the membership.
    pub(super) lease: Option<Armed>,
}

impl TaskLookups {
    /// Asks the table for the records that a request needs, which waits for them.
    pub(super) fn ask(
        &mut self,
        outbox: &mut Outbox,
        reply: Reply,
        method: TaskMethod,
        params: Option<&Params<'_>>,
        wanted: Wanted,
    ) {
        if outbox.is_full(reply.conn) {
            return outbox.refuse_inflight(reply);
        }
        let Some(connection) = outbox.connection_mut(reply.conn) else { return };
        let lookup = self.number((reply.conn, reply.id.clone()));
        let viewer = connection.identity.clone();
        let params = params.map(|params| params.get().into());
        let asked = Box::new(LookupRequest { lookup, method, params });
        connection.requests.open(reply, RequestWork::Lookup(asked));
        outbox.push(Action::LookUp(Box::new(Lookup { id: lookup, viewer, wanted })));
    }

    /// Lets a subscription that names tasks wait for the table; hands every other one back.
    pub(crate) fn before_listening(
        &mut self,
        outbox: &mut Outbox,
        reply: Reply,
        named: Option<&BTreeSet<TaskId>>,
        params: Option<&Params<'_>>,
    ) -> Option<Reply> {
        let most = outbox.settings().limits.subscribed_tasks_max;
        let named = named.filter(|named| (1..=most).contains(&named.len()));
        let Some(named) = named.filter(|_| !self.is_answering) else { return Some(reply) };
        let wanted = Wanted::Tasks(named.iter().copied().collect());
        self.ask(outbox, reply, TaskMethod::Listen, params, wanted);
        None
    }

    /// Takes out the request that waits for a question.
    pub(super) fn take(&mut self, lookup: LookupId) -> Option<(ConnId, RequestId)> {
        self.open.remove(&lookup)
    }

    /// This write, which is no record, is on its way.
    pub(super) fn note_telling(&mut self, seq: Seq, write: StoreWrite) {
        self.telling.insert(seq, write);
    }

    /// The table has taken writes up to this one, or failed to take this one.
    pub(super) fn note_told(&mut self, upto: Seq, failed: bool) {
        if failed {
            self.untold.extend(self.telling.remove(&upto));
            return;
        }
        while let Some(first) = self.telling.first_entry().filter(|first| *first.key() <= upto) {
            first.remove();
        }
    }

    /// Takes out the writes that the table did not take and that still say how it is.
    pub(super) fn take_untold(&mut self) -> Vec<StoreWrite> {
        let mut untold = core::mem::take(&mut self.untold);
        untold.retain(|write| match write {
            StoreWrite::Watch(id) => self.awaited.get(id) == Some(&true),
            StoreWrite::Unwatch(id) => self.awaited.get(id) != Some(&true),
            StoreWrite::New(_)
            | StoreWrite::Put(_)
            | StoreWrite::Delete(_)
            | StoreWrite::Probe
            | StoreWrite::Cancel(_)
            | StoreWrite::Change(_)
            | StoreWrite::Input { .. }
            | StoreWrite::Taken(_)
            | StoreWrite::Retire => true,
        });
        untold
    }

    /// Tasks that the table was told to watch.
    pub(super) fn watched(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.awaited.iter().filter(|(_, watched)| **watched).map(|(id, _)| *id)
    }

    /// A request waits for this write.
    pub(super) fn await_write(&mut self, seq: Seq, lookup: LookupId) {
        self.writes.insert(seq, lookup);
    }

    /// Takes out the requests that wait for writes up to this one, or for this one alone.
    pub(super) fn written(&mut self, upto: Seq, alone: bool) -> Vec<LookupId> {
        if alone {
            return self.writes.remove(&upto).into_iter().collect();
        }
        let mut written = Vec::new();
        while let Some(first) = self.writes.first_entry().filter(|first| *first.key() <= upto) {
            written.push(first.remove());
        }
        written
    }

    /// Takes out the page for the request that is being answered.
    pub(crate) const fn take_page(&mut self) -> Option<TaskPage> {
        self.page.take()
    }

    /// A request waits for the answer to its question, for tests.
    ///
    /// # Panics
    /// When its question is not open.
    pub(crate) fn check(&self, asked: &LookupRequest, conn: ConnId, request: &RequestId) {
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
