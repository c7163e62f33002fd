//! Comparing: the engine's actions for one event, against the oracle's.

use std::collections::BTreeMap;

use ceased_core::acp::protocol::Speaker;
use ceased_core::action::{Action, AuditEvent};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::outgoing::call::{Answer, Caller};
use ceased_core::reason::CloseReason;
use ceased_core::stats::Sizes;

use serde_json::Value;
use serde_json::value::RawValue;

use super::dialects;
use super::heard::{self, Names};
use super::judge::Judge;
use super::link::{Calls, Questions};
use super::mark::Mark;
use super::oracle::{Expected, Oracle};
use crate::schema::{self, Asked};
use crate::trace::Input;

/// Adds one byte to a count and a sum (FNV-1a).
pub(super) fn sum((count, hash): &mut (u64, u64), byte: u8) {
    *count += 1;
    *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
}

/// The lines the engine wrote just now, by connection; also holds flushes against them and adds
/// everything to the sum of the run (E1, E6).
pub(super) fn fresh(
    judge: &mut Judge,
    before: &[(u64, usize)],
    actions: &[Action],
) -> BTreeMap<u64, Vec<String>> {
    let mut digest = (0, judge.hash);
    format!("{actions:?}").bytes().for_each(|byte| sum(&mut digest, byte));
    let mut lines = BTreeMap::new();
    let given_up = lost(actions);
    for (conn, link) in &mut judge.links {
        let Some(queue) = judge.engine.send_queue(ConnId::new(*conn)) else { continue };
        let waited = before.iter().find(|(at, _)| at == conn).map_or(0, |(_, len)| *len);
        if given_up.iter().any(|(of, _)| of == conn) {
            // The engine has dropped its output for this peer.
            assert!(queue.is_empty(), "c{conn} keeps bytes nobody will send");
            let lost: Vec<String> = link.unsent.texts().collect();
            link.lost.extend(lost);
            link.unsent.clear();
            continue;
        }
        let unsent: Vec<u8> = queue.runs().flatten().copied().collect();
        let fresh = unsent.get(waited.min(queue.len())..).unwrap_or_default();
        fresh.iter().for_each(|byte| sum(&mut digest, *byte));
        (queue.len() as u64).to_le_bytes().iter().for_each(|byte| sum(&mut digest, *byte));
        if judge.oracle.is_none() {
            continue;
        }
        let kept = link.unsent.len();
        assert!(queue.len() >= kept, "c{conn} lost what was written for it (MOD-04)");
        let fresh = unsent.get(kept..).unwrap_or_default();
        let flushes =
            actions.iter().filter(|a| matches!(a, Action::Flush { conn: to } if to.get() == *conn));
        let wanted = usize::from(kept == 0 && !fresh.is_empty());
        assert_eq!(flushes.count(), wanted, "flushes of c{conn}");
        if !fresh.is_empty() {
            link.unsent.push(fresh);
            let text = std::str::from_utf8(fresh).expect("what is sent is UTF-8");
            let text = text.strip_suffix('\n').expect("what is sent ends with a line end");
            lines.insert(*conn, text.split('\n').map(str::to_owned).collect());
        }
    }
    judge.hash = digest.1;
    lines
}

/// Name of a task during the comparison of one event.
struct Book<'a> {
    conn: u64,
    names: &'a mut BTreeMap<String, u64>,
    oracle: &'a mut Oracle,
    expected: &'a Expected,
    cursor: &'a mut Option<String>,
    calls: &'a mut Calls,
    questions: &'a mut Questions,
}

impl Names for Book<'_> {
    fn task(&self, id: &str) -> String {
        self.names.get(id).map_or_else(|| format!("?{id}"), |nonce| format!("#{nonce}"))
    }

    /// The number of a new task is the one the oracle gives it; its id must be new (TSK-08).
    fn created(&mut self, token: &str, id: &str) -> String {
        let Some(nonce) = self.number_after(token, &["T #", "task #"]) else {
            return format!("?{id}");
        };
        // An old id is remembered nowhere, and no honest generator repeats it; a key gives
        // the same task again.
        let before = self.names.insert(id.to_owned(), nonce).filter(|before| *before != nonce);
        let lives = self.oracle.tasks.iter().any(|task| Some(task.nonce) == before);
        assert!(!lives, "{id} is given twice (TSK-08)");
        self.oracle.name(nonce, id);
        format!("#{nonce}")
    }

    fn cursor(&mut self, cursor: &str, last: &str) {
        *self.cursor = Some(cursor.to_owned());
        let last = self.names.get(last).copied();
        self.oracle.remember_cursor(self.conn, cursor, last);
    }

    fn asked(&mut self, text: &str, wire: u64) {
        if let Some(key) = self.oracle.heard_ask(self.conn, text, wire) {
            self.calls.heard(self.conn, key, wire);
            self.questions.push(key, text);
        }
    }

    fn call(&self, wire: u64) -> String {
        self.calls.name(self.conn, wire)
    }

    fn parked(&mut self, token: &str, state: &str) -> String {
        let Some(nonce) = self.number_after(token, &["input_required #"]) else {
            return format!("?{state}");
        };
        self.calls.park(nonce, state);
        self.questions.park(nonce);
        self.oracle.heard_state(nonce, state);
        format!("#{nonce}")
    }
}

impl Book<'_> {
    /// The oracle's number of the task in this answer.
    fn number_after(&self, token: &str, starts: &[&str]) -> Option<u64> {
        let told = self.expected.told.get(&self.conn).into_iter().flatten();
        let rest = |text: &String| {
            let said = text.strip_prefix(token)?.strip_prefix(':')?;
            let rest = starts.iter().find_map(|start| said.strip_prefix(start))?;
            rest.split(' ').next()?.parse().ok()
        };
        told.filter_map(rest).next()
    }
}

/// Asks the oracle and compares everything a peer and a host can see.
pub(super) fn compare(
    judge: &mut Judge,
    input: &Input,
    before: &[(u64, usize)],
    actions: &[Action],
    lines: &BTreeMap<u64, Vec<String>>,
) {
    let oracle = judge.oracle.as_mut().expect("only with an oracle");
    let (named, about) = renamed(input, &judge.nonces, oracle);
    let unsent = before.iter().find(|(at, _)| Some(*at) == about).map_or(0, |(_, len)| *len);
    let (at, wall) = (judge.now.at.as_nanos(), judge.now.wall.as_millis());
    let named = named.as_ref().unwrap_or(input);
    let lost = lost(actions);
    let flooded = lost.iter().filter(|(_, why)| *why == CloseReason::Flooded);
    let given_up: Vec<u64> = flooded.map(|(conn, _)| *conn).collect();
    let spare = (!given_up.is_empty()).then(|| oracle.clone());
    let mut expected = oracle.input(at, wall, named, unsent);
    if matches!(input, Input::TooLong(..)) {
        oracle.marks.insert(Mark::Overlong);
    }
    for conn in &given_up {
        flood(oracle, *conn, &mut expected, before);
    }
    if let Some(mut other) = spare {
        // The reason of dropping a peer may be the first action of an event or the last.
        given_up.iter().for_each(|conn| other.give_up(*conn));
        let mut second = other.input(at, wall, named, unsent);
        second.orders.extend(given_up.iter().map(|conn| format!("close c{conn} Flooded")));
        let done = orders(actions, &judge.nonces);
        let sizes = judge.engine.sizes();
        let fits = |oracle: &Oracle, expected: &Expected| {
            oracle.sizes() == counts(sizes) && sorted(&expected.orders) == sorted(&done)
        };
        if !fits(oracle, &expected) && fits(&other, &second) {
            (*oracle, expected) = (other, second);
        }
    }
    name_detached(&mut judge.names, oracle, &expected, actions);
    let mut heard = BTreeMap::new();
    for (conn, lines) in lines {
        let link = judge.links.get_mut(conn).expect("it is linked");
        let (names, cursor) = (&mut judge.names, &mut link.cursor);
        let (calls, questions) = (&mut judge.calls, &mut link.questions);
        let mut book =
            Book { conn: *conn, names, oracle, expected: &expected, cursor, calls, questions };
        let said: Vec<String> =
            lines.iter().map(|line| heard::summarise(line, &mut book)).collect();
        link.unsent.mark(&said, expected.recallable.get(conn).map_or(&[], Vec::as_slice));
        heard.insert(*conn, said);
    }
    // Messages to a peer that was given up in the same event cannot be known.
    lost.iter().for_each(|(conn, _)| {
        let _ = (expected.told.remove(conn), heard.remove(conn));
    });
    assert_same(input, expected, heard, orders(actions, &judge.nonces));
    let oracle = judge.oracle.as_ref().expect("only with an oracle");
    let sizes = judge.engine.sizes();
    assert_eq!(counts(sizes), oracle.sizes(), "connections, requests, jobs, tasks after {input:?}");
    let deadline = judge.engine.deadline().map(|(at, _)| at.as_nanos());
    assert_eq!(deadline, oracle.deadline(), "the deadline after {input:?}");
    bounds(judge, input);
    validate(judge, lines);
}

/// Names a task that a call became because its peer is gone; the log alone tells of it.
fn name_detached(
    names: &mut BTreeMap<String, u64>,
    oracle: &mut Oracle,
    expected: &Expected,
    actions: &[Action],
) {
    if expected.detached.is_empty() {
        return;
    }
    let mut created = Vec::new();
    for action in actions {
        if let Action::Audit(AuditEvent::TaskCreated { task, .. }) = action {
            created.push(task.to_string());
        }
    }
    assert_eq!(created.len(), expected.detached.len(), "calls become tasks");
    for (id, nonce) in created.into_iter().zip(&expected.detached) {
        oracle.name(*nonce, &id);
        names.insert(id, *nonce);
    }
}

/// Peers that are closed without their output, with the reason.
fn lost(actions: &[Action]) -> Vec<(u64, CloseReason)> {
    let mut lost = Vec::new();
    for action in actions {
        if let Action::Close { conn, why } = action
            && !why.flushes()
        {
            lost.push((conn.get(), *why));
        }
    }
    lost
}

const fn counts(sizes: Sizes) -> (usize, usize, usize, usize) {
    (sizes.connections, sizes.requests, sizes.jobs, sizes.tasks)
}

fn sorted(orders: &[String]) -> Vec<&String> {
    let mut orders: Vec<&String> = orders.iter().collect();
    orders.sort();
    orders
}

/// The same input with jobs called by their numbers, and the connection it is about.
fn renamed(
    input: &Input,
    nonces: &BTreeMap<JobId, u64>,
    oracle: &Oracle,
) -> (Option<Input>, Option<u64>) {
    let name = |id: &JobId| JobId::new(nonces[id]);
    let of_job = |id: &JobId| oracle.reports_to(nonces[id]);
    match input {
        Input::Progress(id, to, total, message) => {
            (Some(Input::Progress(name(id), *to, *total, message.clone())), of_job(id))
        }
        Input::Output(id, line) => (Some(Input::Output(name(id), line.clone())), of_job(id)),
        Input::Log(id, level, data) => {
            (Some(Input::Log(name(id), *level, data.clone())), of_job(id))
        }
        Input::Lingering(id) => (Some(Input::Lingering(name(id))), of_job(id)),
        Input::Outlasted(id, outcome) => {
            (Some(Input::Outlasted(name(id), outcome.clone())), of_job(id))
        }
        Input::Done(id, outcome) => (Some(Input::Done(name(id), outcome.clone())), of_job(id)),
        Input::Opened(conn, ..)
        | Input::Frame(conn, _)
        | Input::TooLong(conn, _)
        | Input::NotJsonRpc(conn, _)
        | Input::Finished(conn, _)
        | Input::Closed(conn)
        | Input::Blocked(conn)
        | Input::Drained(conn)
        | Input::Taken(conn, _) => (None, Some(conn.get())),
        Input::Asked(id, call, conn, ask) => {
            (Some(Input::Asked(name(id), *call, *conn, ask.clone())), None)
        }
        Input::CancelCall(Caller::Job { job, ask }, reason) => {
            let caller = Caller::Job { job: name(job), ask: *ask };
            (Some(Input::CancelCall(caller, reason.clone())), None)
        }
        Input::Restored(_)
        | Input::Durable(_)
        | Input::Unstored(..)
        | Input::Shared(_)
        | Input::Retire
        | Input::StoreFailed(_)
        | Input::Loaded(..) => {
            unreachable!("the simulator has no store")
        }
        Input::Escalated(_)
        | Input::ResourceUpdated(_)
        | Input::Granted(..)
        | Input::OutputRead(..)
        | Input::HostStatusCollected(..)
        | Input::Upstream(_) => {
            unreachable!("the simulator has no resources, outputs and upstreams")
        }
        Input::OpenedAcp(conn, ..) => (None, Some(conn.get())),
        Input::CancelJob(id, cause) => (Some(Input::CancelJob(name(id), *cause)), None),
        Input::Notify(Speaker::Job(id), method, params) => {
            let from = Speaker::Job(name(id));
            (Some(Input::Notify(from, method.clone(), params.clone())), None)
        }
        Input::Notify(Speaker::Host(_), ..)
        | Input::Call(..)
        | Input::CancelCall(Caller::Host(_), _)
        | Input::Configured(_)
        | Input::Drain(_)
        | Input::Turn
        | Input::Tick => (None, None),
    }
}

/// A peer was given up because too much waits for it: only right when it does.
fn flood(oracle: &mut Oracle, conn: u64, expected: &mut Expected, before: &[(u64, usize)]) {
    let waited = before.iter().find(|(at, _)| *at == conn).map_or(0, |(_, len)| *len);
    // The oracle counts no bytes; answers that wait for their batch count as well.
    let most = |text: &String| 1024 + 4096 * text.matches(", ").count();
    let said: usize = expected.told.get(&conn).map_or(0, |told| told.iter().map(most).sum());
    let collected = oracle.conns.get(&conn).map_or(0, |conn| conn.collected());
    let said = said + 4096 * collected;
    let max = oracle.settings().limits.write_buffer_bytes * 2;
    assert!(waited + said >= max, "c{conn} was given up with {waited} bytes of {max}");
    oracle.marks.insert(Mark::Flooded);
    oracle.give_up(conn);
    expected.orders.retain(|order| !order.starts_with(&format!("close c{conn} ")));
    expected.orders.push(format!("close c{conn} Flooded"));
}

fn orders(actions: &[Action], nonces: &BTreeMap<JobId, u64>) -> Vec<String> {
    let order = |action: &Action| match action {
        Action::Start { job, .. } => Some(format!("start #{}", nonces[job])),
        Action::Stop { job, step, why } => Some(format!("stop #{} {step:?} {why:?}", nonces[job])),
        Action::Close { conn, why } => Some(format!("close {conn} {why:?}")),
        Action::Exit => Some("exit".to_owned()),
        Action::Tell { caller, answer } => {
            Some(format!("tell {} {}", named(*caller, nonces), ending(answer)))
        }
        Action::TellProgress { caller, params } => {
            Some(format!("busy {} {}", named(*caller, nonces), params.get()))
        }
        Action::RefuseCancel { caller, refusal } => {
            Some(format!("keep {} {refusal:?}", named(*caller, nonces)))
        }
        Action::Notified { conn, method, params } => {
            let params = params.as_deref().map_or("-", RawValue::get);
            Some(format!("notified {conn} {method} {params}"))
        }
        Action::CollectHostStatus { .. }
        | Action::ReadOutput(_)
        | Action::Operate { .. }
        | Action::Store { .. }
        | Action::Load { .. }
        | Action::LookUp(_)
        | Action::Upstream(_) => Some(format!("{action:?}")),
        Action::Flush { .. } | Action::Audit(_) => None,
    };
    actions.iter().filter_map(order).collect()
}

/// Name of the maker of a call.
fn named(caller: Caller, nonces: &BTreeMap<JobId, u64>) -> String {
    match caller {
        Caller::Host(ask) => format!("h{}", ask.get()),
        Caller::Job { job, ask } => {
            let nonce = nonces.get(&job).map_or_else(|| "?".to_owned(), u64::to_string);
            format!("j{nonce}.{}", ask.get())
        }
    }
}

/// How a call ended.
fn ending(answer: &Answer) -> String {
    match answer {
        Answer::Result(result) => format!("R {}", result.get()),
        Answer::Error(error) => format!("E {}", error.get()),
        Answer::Unusable(_) => "unusable".to_owned(),
        Answer::Refused(refusal) => format!("refused {refusal:?}"),
        Answer::TimedOut => "timed out".to_owned(),
        Answer::Cancelled => "cancelled".to_owned(),
        Answer::Lost => "lost".to_owned(),
    }
}

fn assert_same(
    input: &Input,
    expected: Expected,
    mut heard: BTreeMap<u64, Vec<String>>,
    mut done: Vec<String>,
) {
    let Expected { mut told, mut orders, .. } = expected;
    // Several things at once have no order but their own.
    if matches!(input, Input::Tick | Input::Drain(_)) {
        told.values_mut().chain(heard.values_mut()).for_each(|said| said.sort());
    }
    if matches!(input, Input::Turn) {
        // When in a turn a peer is given up is not for the oracle to know.
        let gives_up = |order: &String| order.starts_with("close ") && order.ends_with(" Flooded");
        orders.sort_by_key(gives_up);
        done.sort_by_key(gives_up);
    } else {
        orders.sort();
        done.sort();
    }
    let input = || {
        if let Input::Frame(conn, frame) = input {
            return format!("{conn} {}", String::from_utf8_lossy(frame));
        }
        format!("{input:?}")
    };
    assert!(heard == told, "after {}\n  must say {told:?}\n  but says {heard:?}", input());
    assert!(done == orders, "after {}\n  must do {orders:?}\n  but does {done:?}", input());
}

/// Bounded everything (E5): nothing may grow beyond the limits that ever held.
fn bounds(judge: &mut Judge, input: &Input) {
    let all = judge.limits();
    let queued = judge.engine.sizes().jobs - judge.running.len().min(judge.engine.sizes().jobs);
    assert!(queued <= all.running_max + all.queued_max, "{queued} jobs wait after {input:?}");
    // One answer may come on top of the mark; the largest is a page of tasks or the status.
    let max = all.write_buffer_bytes * 2 + 64 * 1024;
    for conn in judge.links.keys() {
        let len = judge.engine.send_queue(ConnId::new(*conn)).map_or(0, |queue| queue.len());
        assert!(len <= max, "{len} bytes wait for c{conn} after {input:?}");
    }
    let oracle = judge.oracle.as_ref().expect("only with an oracle");
    for user in [Identity::User(0), Identity::User(1), Identity::User(2), Identity::Anonymous] {
        let user = user.to_string();
        let live = oracle.tasks.iter().filter(|t| t.owner == user && !t.is_over()).count();
        assert!(live <= all.live_tasks_max, "{live} live tasks of {user} after {input:?}");
    }
}

/// Every so many-th message is held against the published schema of its revision.
fn validate(judge: &mut Judge, lines: &BTreeMap<u64, Vec<String>>) {
    if judge.validate == 0 || !schema::available() {
        return;
    }
    let oracle = judge.oracle.as_ref().expect("only with an oracle");
    for (conn, line) in lines.iter().flat_map(|(conn, lines)| lines.iter().map(move |l| (conn, l)))
    {
        judge.seen += 1;
        // Messages of a client, or without a session, have other schemas: the suites hold them
        // against those.
        let conn = oracle.conns.get(conn).filter(|conn| !conn.is_served());
        let rules = conn.and_then(|conn| conn.rules);
        let stateless = line.contains("serverInfo\":") || line.contains("/subscriptionId\":");
        let rules = rules.filter(|_| !stateless);
        let rules = rules.filter(|rules| **rules != dialects::ACP);
        if let Some(rules) = rules.filter(|_| judge.seen.is_multiple_of(judge.validate)) {
            validate_line(rules.revision, line);
        }
    }
}

/// Holds one line against the schema of its revision without its request: the kind of a
/// result follows from its members.
fn validate_line(revision: &str, line: &str) {
    let message: Value = serde_json::from_str(line).expect("a line is JSON");
    // The schemas know no batches as a whole; questions of jobs here have params of their own.
    let asks = message.get("id").is_some() && message.get("method").is_some();
    if message.is_array() || asks {
        return;
    }
    let result = &message["result"];
    let has = |member: &str| result.get(member).is_some();
    let (method, with_task) = match () {
        () if has("protocolVersion") => ("initialize", false),
        () if has("tools") => ("tools/list", false),
        () if has("counters") => ("ceased/status", false),
        () if has("task") => ("tools/call", true),
        () if has("tasks") => ("tasks/list", false),
        () if has("taskId") => ("tasks/get", false),
        () if has("content") => ("tools/call", false),
        () => ("ping", false),
    };
    let asked = Asked { method: method.to_owned(), with_task, claims: false, of_server: false };
    let checked = schema::check_message(revision, &message, Some(&asked));
    assert!(checked.is_ok(), "{line}: {checked:?}");
}
