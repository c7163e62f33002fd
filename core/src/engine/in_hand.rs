//! Calls in hand: inline calls that nothing has happened to yet.
//!
//! The host runs them in a moment, and mostly nothing happens before they have ended but that more
//! of them come. So they wait in a list of their own, and go into the tables, where a cancel, a
//! second request with their id and the end of their connection find them, only when something else
//! happens first (CAN-08).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Engine;
use super::call::Admitted;
use super::result::into_answer;
use crate::action::Action;
use crate::claim::Terms;
use crate::connection::{Ending, Pending, Reply, Work};
use crate::dialect::AfterCancel;
use crate::event::{Identity, Outcome};
use crate::id::{ConnId, JobId, RequestId};
use crate::job::{Job, Purpose};
use crate::time::Instant;
use crate::tool::Tool;

/// Calls that room is kept for.
const KEPT: usize = 256;

/// Plain calls that the host was told to run and that are in no table, in the order of their jobs.
#[derive(Debug, Default)]
pub(super) struct InHand {
    calls: VecDeque<Call>,
    /// The connections that have some, in their order.
    conns: Vec<InHandOf>,
}

/// The calls in hand of one connection.
#[derive(Debug)]
struct InHandOf {
    conn: ConnId,
    count: usize,
    /// The greatest of their ids.
    newest: u32,
}

#[derive(Debug)]
struct Call {
    job: JobId,
    reply: Reply,
    tool: Arc<Tool>,
    terms: Terms,
    progress_token: Option<Box<str>>,
    since: Instant,
}

/// A number that somebody may have counted to.
fn counted(id: &RequestId) -> Option<u32> {
    match id {
        RequestId::Number(number) => u32::try_from(*number).ok(),
        RequestId::Text(_) | RequestId::Null => None,
    }
}

impl InHand {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    fn find(&self, conn: ConnId) -> Result<usize, usize> {
        self.conns.binary_search_by_key(&conn, |its| its.conn)
    }

    fn its(&self, conn: ConnId) -> Option<&InHandOf> {
        self.find(conn).ok().and_then(|at| self.conns.get(at))
    }

    /// How many a connection has.
    pub(super) fn of(&self, conn: ConnId) -> usize {
        self.its(conn).map_or(0, |its| its.count)
    }

    /// Whether an id is another than those of its connection, as those are that somebody counts.
    fn precede(&self, conn: ConnId, id: &RequestId) -> bool {
        self.its(conn).is_none_or(|its| counted(id).is_some_and(|number| its.newest < number))
    }

    fn push(&mut self, call: Call) {
        let conn = call.reply.conn;
        let at = self.find(conn).unwrap_or_else(|at| {
            self.conns.insert(at, InHandOf { conn, count: 0, newest: 0 });
            at
        });
        if let Some(its) = self.conns.get_mut(at) {
            its.count += 1;
            // One that nobody counts is there first, and every number is another than it.
            its.newest = counted(&call.reply.id).unwrap_or_default();
        }
        self.calls.push_back(call);
    }

    /// Whether this is the one that is there longest.
    pub(super) fn is_next(&self, job: JobId) -> bool {
        self.calls.front().is_some_and(|call| call.job == job)
    }

    /// The connection of each call, for tests.
    pub(super) fn of_conns(&self) -> impl Iterator<Item = ConnId> {
        self.calls.iter().map(|call| call.reply.conn)
    }

    /// The connection of a call.
    pub(super) fn conn_of(&self, job: JobId) -> Option<ConnId> {
        let at = self.calls.binary_search_by_key(&job, |call| call.job).ok()?;
        self.calls.get(at).map(|call| call.reply.conn)
    }

    fn pop(&mut self) -> Option<Call> {
        let call = self.calls.pop_front()?;
        if let Ok(at) = self.find(call.reply.conn)
            && let Some(its) = self.conns.get_mut(at)
        {
            its.count -= 1;
            if its.count == 0 {
                self.conns.remove(at);
            }
        }
        // Room for a burst is given back.
        if self.calls.is_empty() {
            self.calls.shrink_to(KEPT);
            self.conns.shrink_to(KEPT);
        }
        Some(call)
    }
}

impl Engine {
    /// Has the host run an inline call at once. The caller has seen that its connection may have one.
    pub(super) fn run_at_once(&mut self, reply: Reply, owner: Identity, admitted: Admitted<'_>) {
        let job = self.next_job();
        let Admitted { tool, arguments, progress_token, terms, .. } = admitted;
        let progress_token = progress_token.map(|token| token.get().into());
        let Some(connection) = self.connections.get(&reply.conn) else { return };
        self.queue.begin(&owner);
        let stays = tool.timeout.is_none()
            && !matches!(reply.dialect.after_cancel, AfterCancel::Answer { .. })
            && connection.ending == Ending::Open;
        let started = Arc::clone(&tool);
        let call = Call { job, reply, tool, terms, progress_token, since: self.now.at };
        if stays {
            self.in_hand.push(call);
            self.count_start();
            self.out.push(Action::Start { job, tool: started, arguments, task: None });
        } else {
            self.put_into_tables(call, owner);
            self.run(job, arguments);
        }
    }

    /// The host says what came of a job.
    pub(super) fn on_ended(&mut self, job: JobId, outcome: Outcome) {
        if !self.in_hand.is_next(job) {
            self.put_down();
            return self.on_done(job, outcome);
        }
        let Some(call) = self.in_hand.pop() else { return };
        let Some(connection) = self.connections.get(&call.reply.conn) else { return };
        if connection.ending == Ending::Open {
            self.running -= 1;
            self.queue.end(&connection.identity);
            return self.answer_with(call.reply, into_answer(outcome, None, None));
        }
        let (job, owner) = (call.job, connection.identity.clone());
        self.put_into_tables(call, owner);
        self.on_done(job, outcome);
    }

    /// Whether a request has nothing to do with any call in hand.
    pub(super) fn leaves_in_hand(&self, reply: &Reply, method: &str) -> bool {
        matches!(method, "tools/call" | "ping")
            && reply.batch.is_none()
            && self.in_hand.precede(reply.conn, &reply.id)
    }

    /// Something happens that may have to do with calls in hand: they go where they can be found.
    #[inline]
    pub(super) fn put_down(&mut self) {
        if self.in_hand.len() > 0 {
            self.put_all_down();
        }
    }

    #[inline(never)]
    fn put_all_down(&mut self) {
        while let Some(call) = self.in_hand.pop() {
            // It is there: its end is something that happens.
            let Some(connection) = self.connections.get(&call.reply.conn) else { continue };
            let owner = connection.identity.clone();
            self.put_into_tables(call, owner);
        }
    }

    fn put_into_tables(&mut self, call: Call, owner: Identity) {
        let Call { job, reply, tool, terms, progress_token, since } = call;
        let (conn, request) = (reply.conn, reply.id.clone());
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.requests.insert(request.clone(), Pending { reply, work: Work::Job(job) });
        let job = Job::new(job, tool, owner, conn, terms, since);
        let mut job = Job { purpose: Purpose::Answer(request), ..job };
        job.progress.tell(progress_token);
        self.jobs.insert(job);
    }
}

/// Every agreement between the list, the tables and the connections.
///
/// # Panics
/// When one is broken.
pub(super) fn check(engine: &Engine) {
    for call in &engine.in_hand.calls {
        let (job, id) = (call.job, &call.reply.id);
        assert!(!engine.jobs.contains_key(&job), "{job} is in hand and in a table");
        let connection = engine.connections.get(&call.reply.conn);
        let connection = connection.expect("the connection of a call in hand is there");
        assert!(!connection.requests.contains_key(id), "{id} is in hand and in a table");
        let twice = |other: &&Call| other.reply.conn == call.reply.conn && other.reply.id == *id;
        assert_eq!(engine.in_hand.calls.iter().filter(twice).count(), 1, "{id} is in hand twice");
    }
    let conns = &engine.in_hand.conns;
    assert!(conns.is_sorted_by(|one, next| one.conn < next.conn), "in the order of connections");
    assert_eq!(conns.iter().map(|its| its.count).sum::<usize>(), engine.in_hand.len());
    for its in conns {
        let calls = engine.in_hand.calls.iter().filter(|call| call.reply.conn == its.conn);
        assert_eq!(calls.count(), its.count, "calls in hand are counted");
    }
}
