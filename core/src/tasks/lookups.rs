//! The state of questions to the table that several engines share.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::action::Action;
use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{ConnId, RequestId, TaskId};
use crate::outbox::Outbox;
use crate::outbox::requests::{LookupRequest, Reply, RequestWork, Settled, TaskMethod};
use crate::rpc::params::Params;
use crate::server::keyed_calls::KeyedCalls;
use crate::tasks::durable::{ClaimedKey, Seq, StoreWrite};
use crate::tasks::shared::{Lookup, LookupId, Wanted};
use crate::tasks::task::{TaskPage, Tasks};

/// A request that has waited for the table: a subscription whose records are here, or a call whose key was
/// granted.
pub(crate) struct Resumed {
    pub(crate) reply: Reply,
    pub(crate) method: TaskMethod,
    pub(crate) params: Box<str>,
    /// Key of a call.
    pub(crate) granted: Option<ClaimedKey>,
}

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
    /// Requests that wait for an idempotency key, by the write that claims it.
    claims: BTreeMap<Seq, (LookupId, ClaimedKey)>,
    /// A request is being answered with the records that it needs.
    pub(super) is_answering: bool,
    /// End of the membership.
    pub(super) lease: Option<Armed>,
}

impl TaskLookups {
    /// Asks the table for the records that a request needs, which waits for them.
    pub(crate) fn ask(
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

    /// Takes out the request that waits for a question; `None` where it was cancelled, or its connection is
    /// gone.
    pub(crate) fn take_request(
        &mut self,
        outbox: &mut Outbox,
        lookup: LookupId,
    ) -> Option<(Reply, LookupRequest)> {
        let (conn, request) = self.take(lookup)?;
        let connection = outbox.connection_mut(conn)?;
        let Some(RequestWork::Lookup(asked)) = connection.requests.work(&request) else {
            return None;
        };
        let asked = LookupRequest::clone(asked);
        Some((connection.requests.settle(&request, Settled::Lookup(lookup))?, asked))
    }

    /// Lets a call wait for the key that it gives, which is claimed.
    pub(crate) fn claim(
        &mut self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        reply: Reply,
        params: &str,
        (owner, key, wish): (Identity, Box<str>, Box<str>),
    ) {
        if let Some(error) = tasks.no_creation() {
            return outbox.fail(reply, &error);
        }
        if outbox.is_full(reply.conn) {
            return outbox.refuse_inflight(reply);
        }
        let Some(connection) = outbox.connection_mut(reply.conn) else { return };
        let lookup = self.number((reply.conn, reply.id.clone()));
        let asked = LookupRequest { lookup, method: TaskMethod::Call, params: Some(params.into()) };
        connection.requests.open(reply, RequestWork::Lookup(Box::new(asked)));
        let claim = tasks.writes_mut().number(None);
        let key = ClaimedKey { owner, key, claim };
        self.claims.insert(claim, (lookup, key.clone()));
        let write = Box::new(StoreWrite::Claim { key, wish });
        outbox.push(Action::Store { seq: claim, write });
    }

    /// Takes out the request that waits for this claim, and its key.
    pub(crate) fn take_claim(&mut self, seq: Seq) -> Option<(LookupId, ClaimedKey)> {
        self.claims.remove(&seq)
    }

    /// Tells the table something that is no record; again after an outage of it.
    pub(crate) fn tell(&mut self, outbox: &mut Outbox, tasks: &mut Tasks, write: StoreWrite) {
        let seq = tasks.writes_mut().number(None);
        self.telling.insert(seq, write.clone());
        outbox.push(Action::Store { seq, write: Box::new(write) });
    }

    /// Tells the table of the keys whose calls have come further, and of the news of tasks.
    pub(crate) fn tell_news(
        &mut self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        keyed: &mut KeyedCalls,
    ) {
        for (key, change) in keyed.take_news() {
            self.tell(outbox, tasks, StoreWrite::Keyed(key, change));
        }
        for write in tasks.take_news() {
            self.tell(outbox, tasks, write);
        }
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
            | StoreWrite::Receipt { .. }
            | StoreWrite::Claim { .. }
            | StoreWrite::Keyed(..)
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
