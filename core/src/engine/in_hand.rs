//! Calls in hand: inline calls that nothing has happened to yet.
//!
//! The host runs them in a moment, and mostly nothing happens before they have ended but that more
//! of them come. So they wait in a list of their own, and go into the tables, where a cancel, a
//! second request with their id and the end of their connection find them, only when something else
//! happens first (CAN-08).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

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
/// No more than may run.
#[derive(Debug, Default)]
pub(super) struct InHand(VecDeque<Call>);

#[derive(Debug)]
struct Call {
    job: JobId,
    reply: Reply,
    tool: Arc<Tool>,
    terms: Terms,
    progress_token: Option<Box<str>>,
    since: Instant,
}

/// The calls in hand of one connection.
#[derive(Debug, Default)]
pub(crate) struct InHandOf {
    count: u32,
    /// The greatest of their ids.
    newest: u32,
}

impl InHandOf {
    pub(crate) const fn count(&self) -> usize {
        self.count as usize
    }

    fn push(&mut self, id: &RequestId) {
        self.count += 1;
        // One that nobody counts is there first, and every number is another than it.
        self.newest = counted(id).unwrap_or_default();
    }

    /// Whether an id is another than theirs, as those are that somebody counts.
    fn precede(&self, id: &RequestId) -> bool {
        self.count == 0 || counted(id).is_some_and(|number| self.newest < number)
    }
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
        self.0.len()
    }

    /// Whether this is the one that is there longest.
    pub(super) fn is_next(&self, job: JobId) -> bool {
        self.0.front().is_some_and(|call| call.job == job)
    }

    /// The connection of a call.
    pub(super) fn conn_of(&self, job: JobId) -> Option<ConnId> {
        self.0.iter().find(|call| call.job == job).map(|call| call.reply.conn)
    }

    fn pop(&mut self) -> Option<Call> {
        let call = self.0.pop_front()?;
        // Room for a burst is given back.
        if self.0.is_empty() {
            self.0.shrink_to(KEPT);
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
        let Some(connection) = self.connections.get_mut(&reply.conn) else { return };
        let stays = tool.timeout.is_none()
            && !matches!(reply.dialect.after_cancel, AfterCancel::Answer { .. })
            && connection.ending == Ending::Open;
        let started = Arc::clone(&tool);
        let call = Call { job, reply, tool, terms, progress_token, since: self.now.at };
        if stays {
            connection.in_hand.push(&call.reply.id);
            self.in_hand.0.push_back(call);
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
        let Some(connection) = self.connections.get_mut(&call.reply.conn) else { return };
        connection.in_hand.count -= 1;
        if connection.ending == Ending::Open {
            self.running -= 1;
            return self.answer_with(call.reply, into_answer(outcome, None, None));
        }
        let (job, owner) = (call.job, connection.identity.clone());
        self.put_into_tables(call, owner);
        self.on_done(job, outcome);
    }

    /// Whether a request has nothing to do with any call in hand.
    pub(super) fn leaves_in_hand(&self, reply: &Reply, method: &str) -> bool {
        let connection = self.connections.get(&reply.conn);
        matches!(method, "tools/call" | "ping")
            && reply.batch.is_none()
            && connection.is_some_and(|connection| connection.in_hand.precede(&reply.id))
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
            let Some(connection) = self.connections.get_mut(&call.reply.conn) else { continue };
            connection.in_hand.count -= 1;
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
    for call in &engine.in_hand.0 {
        let (job, id) = (call.job, &call.reply.id);
        assert!(!engine.jobs.contains_key(&job), "{job} is in hand and in a table");
        let connection = engine.connections.get(&call.reply.conn);
        let connection = connection.expect("the connection of a call in hand is there");
        assert!(!connection.requests.contains_key(id), "{id} is in hand and in a table");
        let twice = |other: &&Call| other.reply.conn == call.reply.conn && other.reply.id == *id;
        assert_eq!(engine.in_hand.0.iter().filter(twice).count(), 1, "{id} is in hand twice");
    }
    for (conn, connection) in &engine.connections {
        let its = engine.in_hand.0.iter().filter(|call| call.reply.conn == *conn).count();
        assert_eq!(its, connection.in_hand.count(), "calls in hand are counted");
    }
}
