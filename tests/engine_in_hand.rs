//! Inline calls that nothing happens to before they have ended are in no table. Nobody can tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::event::Identity;
use ceased_core::id::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::message::code;
use ceased_core::settings::Settings;
use ceased_core::time::Instant;
use ceased_core::tool::{Catalog, OnDisconnect, TaskSupport, Tool};
use ceased_tests::tools::{TIMEOUT, tool};
use ceased_tests::trace::Input;
use ceased_tests::world::{NEWEST, Rigged, World, result_of};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The revision whose cancels take back what is not sent.
const MODERN: &str = "2026-07-28";

fn world(inflight_max: usize, share: usize) -> World {
    let inline = |name: &str| Tool { inline: true, ..tool(name) };
    let tools = [
        inline("inline"),
        Tool { timeout: Some(TIMEOUT), ..inline("timed") },
        Tool { on_disconnect: OnDisconnect::Detach, ..inline("detached") },
        Tool { task_support: TaskSupport::Optional, ..inline("either") },
        tool("echo"),
        Tool { timeout: Some(TIMEOUT), ..tool("slow") },
        Tool { timeout: Some(TIMEOUT / 2), ..tool("less slow") },
    ];
    let settings = Settings {
        limits: Limits {
            running_max: 3,
            queued_max: 100,
            queued_per_identity_max: share,
            inflight_max,
            ..Limits::default()
        },
        tasks: TaskPolicy::default(),
        catalog: Catalog::new(tools).expect("good tools"),
        ..Settings::default()
    };
    World::made_of(Arc::new(settings), Rigged::default())
}

fn call(id: &Value, tool: &str, meta: &Value) -> Value {
    let params = json!({"name": tool, "arguments": {}, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn plain(id: impl Into<Value>) -> String {
    call(&id.into(), "inline", &json!({})).to_string()
}

fn cancel(id: &Value) -> Value {
    let params = json!({"requestId": id});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

fn ids(w: &mut World, conn: ConnId) -> Vec<Value> {
    w.rest(conn).into_iter().map(|mut answer| answer["id"].take()).collect()
}

/// Every job that runs ends, in order.
fn end_all(w: &mut World) {
    let jobs: Vec<JobId> = w.running.keys().copied().collect();
    jobs.into_iter().for_each(|job| end(w, job));
}

fn end(w: &mut World, job: JobId) {
    w.running.remove(&job);
    let said = json!({"content": [{"type": "text", "text": job.to_string()}]});
    w.feed(Input::Done(job, result_of(&said)));
}

/// RPC-03: they are answered in the order in which they end, a ping in between at once.
#[test]
fn many_are_answered() {
    let mut w = world(100, 100);
    let c = w.open();
    (1..=5).for_each(|id| w.frame(c, &plain(id)));
    w.frame(c, r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#);
    assert!(w.has_open_requests(c));
    assert_eq!((w.sizes().requests, w.sizes().jobs), (5, 5));
    assert_eq!(w.owner(w.last_started()), Some(&Identity::User(1000)));
    w.feed(Input::Turn);
    end_all(&mut w);
    assert_eq!(ids(&mut w, c), [6, 1, 2, 3, 4, 5]);
    assert!(!w.has_open_requests(c));
    assert_eq!((w.sizes().requests, w.sizes().jobs), (0, 0));
}

/// An inline call that has a time limit is told when that is over, like any other.
#[test]
fn a_time_limit_is_kept() {
    let mut w = world(100, 100);
    let c = w.open();
    w.frame(c, &call(&json!(1), "timed", &json!({})).to_string());
    assert_eq!((w.sizes().timers, w.due_in()), (1, Some(TIMEOUT)));
    w.advance(TIMEOUT);
    assert!(w.is_stopping(w.last_started()));
}

/// RPC-03: calls of worker threads have a turn to wait for, in their order, and a time limit.
#[test]
fn calls_of_worker_threads_wait_for_their_turn() {
    let mut w = world(100, 100);
    let c = w.open();
    for id in 1..=4 {
        w.frame(c, &call(&json!(id), "slow", &json!({})).to_string());
    }
    assert_eq!((w.sizes().requests, w.sizes().jobs, w.sizes().timers), (4, 4, 0));
    assert!(w.started.is_empty() && w.due_in().is_none());
    w.feed(Input::Turn);
    assert_eq!(w.started.len(), 3, "there is room for three");
    assert_eq!((w.sizes().timers, w.due_in()), (3, Some(TIMEOUT)));
    let first = w.started[0];
    end(&mut w, first);
    w.feed(Input::Turn);
    w.frame(c, &call(&json!(5), "slow", &json!({})).to_string());
    w.advance(TIMEOUT);
    let stopped: Vec<JobId> = w.stops.iter().map(|(job, ..)| *job).collect();
    assert_eq!(stopped, w.started[1..4], "their time is up together, as they were started");
    end_all(&mut w);
    w.feed(Input::Turn);
    end_all(&mut w);
    assert_eq!(ids(&mut w, c), [1, 2, 3, 4, 5]);
}

/// RPC-02: an id that is in flight is refused, whatever ids came since.
#[test]
fn an_id_in_flight_is_refused() {
    let large = json!(5_000_000_000_u64);
    let all = [vec![json!(1), json!(7)], vec![json!("text"), json!(1)], vec![json!(7), large]];
    for (ids_there, again) in all.iter().flat_map(|ids| ids.iter().map(move |id| (ids, id))) {
        let mut w = world(100, 100);
        w.strict = false;
        let c = w.open();
        ids_there.iter().for_each(|id| w.frame(c, &plain(id.clone())));
        assert_eq!(w.started.len(), 2);
        w.frame(c, &plain(again.clone()));
        assert_eq!(w.started.len(), 2, "{again} is taken");
        w.expect_error(c, again.clone(), code::INVALID_REQUEST);
        end_all(&mut w);
        assert_eq!(ids(&mut w, c), *ids_there);
    }
}

/// CAN-08, CAN-06: a cancel finds its call, and that alone.
#[test]
fn a_cancel_finds_its_call() {
    let mut w = world(100, 100);
    let c = w.open();
    (1..=3).for_each(|id| w.frame(c, &plain(id)));
    w.frame(c, &cancel(&json!(2)).to_string());
    let jobs = w.started.clone();
    assert_eq!(
        jobs.iter().map(|job| w.is_stopping(*job)).collect::<Vec<_>>(),
        [false, true, false]
    );
    end_all(&mut w);
    assert_eq!(ids(&mut w, c), [1, 3]);
    assert_eq!(w.sizes().jobs, 0);
}

/// TSK-36: calls in no table count like others.
#[test]
fn they_are_bounded() {
    let mut w = world(2, 100);
    let (c, other) = (w.open(), w.open());
    (1..=3).for_each(|id| w.frame(c, &plain(id)));
    w.expect_error(c, json!(3), code::LIMIT_REACHED);
    w.frame(other, &plain(1));
    w.frame(c, &call(&json!(4), "echo", &json!({})).to_string());
    w.expect_error(c, json!(4), code::LIMIT_REACHED);
    end_all(&mut w);
    assert_eq!((ids(&mut w, c), ids(&mut w, other)), (vec![json!(1), json!(2)], vec![json!(1)]));
    w.frame(c, &plain(5));
    end_all(&mut w);
    assert_eq!(ids(&mut w, c), [5]);
}

#[derive(Debug, Clone)]
enum Op {
    Call { conn: usize, id: Id, tool: usize, meta: usize },
    Batch { conn: usize, id: u8, cancels: bool },
    Ping(usize, Id),
    Cancel(usize, Id),
    List(usize, Id),
    End(usize),
    Fail(usize),
    Stop(usize),
    Progress(usize),
    Turn,
    Wait(u64),
    Finish(usize),
    Lose(usize),
    Drain,
}

#[derive(Debug, Clone, Copy)]
enum Id {
    /// As a client counts.
    Next,
    Number(u8),
    Text(u8),
}

/// What is called, some of it more often.
const TOOLS: [&str; 14] = [
    "inline",
    "inline",
    "inline",
    "timed",
    "detached",
    "either",
    "echo",
    "echo",
    "echo",
    "slow",
    "slow",
    "slow",
    "slow",
    "less slow",
];

fn ids_any() -> impl Strategy<Value = Id> {
    prop_oneof![6 => Just(Id::Next), 1 => (0..4_u8).prop_map(Id::Number), 1 => (0..3_u8).prop_map(Id::Text)]
}

fn ops() -> impl Strategy<Value = Op> {
    let (conn, which) = (0..3_usize, 0..4_usize);
    prop_oneof![
        16 => (conn.clone(), ids_any(), 0..TOOLS.len(), 0..8_usize)
            .prop_map(|(conn, id, tool, meta)| Op::Call { conn, id, tool, meta }),
        1 => (conn.clone(), 100..120_u8, any::<bool>())
            .prop_map(|(conn, id, cancels)| Op::Batch { conn, id, cancels }),
        2 => (conn.clone(), ids_any()).prop_map(|(conn, id)| Op::Ping(conn, id)),
        2 => (conn.clone(), ids_any()).prop_map(|(conn, id)| Op::Cancel(conn, id)),
        1 => (conn.clone(), ids_any()).prop_map(|(conn, id)| Op::List(conn, id)),
        8 => Just(Op::End(0)),
        2 => which.clone().prop_map(Op::End),
        1 => which.clone().prop_map(Op::Fail),
        1 => which.clone().prop_map(Op::Stop),
        1 => which.prop_map(Op::Progress),
        6 => Just(Op::Turn),
        1 => (1..40_u64).prop_map(Op::Wait),
        1 => conn.clone().prop_map(Op::Finish),
        1 => conn.prop_map(Op::Lose),
        1 => Just(Op::Drain),
    ]
}

/// A world with its clients, and what they count.
struct Half {
    world: World,
    conns: Vec<ConnId>,
    next: i64,
    finished: BTreeSet<usize>,
    drains: bool,
    /// Something else happens after everything.
    interrupts: bool,
}

impl Half {
    fn new(share: u8, interrupts: bool) -> Self {
        let mut world = world(6, usize::from(share));
        world.strict = false;
        let conns = [(1, "2025-03-26"), (1, NEWEST), (2, NEWEST)];
        let conns = conns.map(|(user, revision)| world.open_as(Identity::User(user), revision));
        let conns = conns.to_vec();
        world.transcript = Some(Vec::new());
        Self { world, conns, next: 1000, finished: BTreeSet::new(), drains: false, interrupts }
    }

    fn id(&mut self, id: Id) -> Value {
        match id {
            Id::Next => {
                self.next += 1;
                json!(self.next)
            }
            Id::Number(number) => json!(number),
            Id::Text(text) => json!(text.to_string()),
        }
    }

    fn say(&mut self, conn: usize, message: &Value) {
        let id = self.conns[conn];
        if self.world.is_open(id) && !self.finished.contains(&conn) {
            self.world.frame(id, &message.to_string());
        }
    }

    fn job(&self, which: usize) -> Option<JobId> {
        self.world.running.keys().nth(which).copied()
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Call { conn, id, tool, meta } => {
                let id = self.id(id);
                let meta = match meta {
                    0 => json!({"progressToken": id}),
                    1 => json!({"ceased/idempotencyKey": "key"}),
                    _ => json!({}),
                };
                let mut call = call(&id, TOOLS[tool], &meta);
                if conn == 2 {
                    call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] =
                        json!(MODERN);
                    call["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] =
                        json!({"name": "peer", "version": "1"});
                    call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                        json!({});
                }
                self.say(conn, &call);
            }
            Op::Batch { conn, id, cancels } => {
                let mut batch = vec![call(&json!(id), "inline", &json!({}))];
                batch.extend(cancels.then(|| cancel(&json!(id))));
                batch.push(call(&json!(id + 1), "inline", &json!({})));
                self.say(conn, &json!(batch));
            }
            Op::Ping(conn, id) => {
                let id = self.id(id);
                self.say(conn, &json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
            }
            Op::List(conn, id) => {
                let id = self.id(id);
                self.say(conn, &json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}));
            }
            Op::Cancel(conn, id) => {
                let id = match id {
                    Id::Next => json!(self.next),
                    other @ (Id::Number(_) | Id::Text(_)) => self.id(other),
                };
                self.say(conn, &cancel(&id));
            }
            Op::End(which) => self.job(which).into_iter().for_each(|job| end(&mut self.world, job)),
            Op::Fail(which) => {
                self.job(which).into_iter().for_each(|job| self.world.fail(job, -1, "boom"));
            }
            Op::Stop(which) => {
                self.job(which).into_iter().for_each(|job| self.world.stopped(job));
            }
            Op::Progress(which) => {
                self.job(which).into_iter().for_each(|job| self.world.progress(job, 1.0));
            }
            Op::Turn => self.world.feed(Input::Turn),
            Op::Wait(seconds) => self.world.advance(Duration::from_secs(seconds)),
            Op::Finish(conn) => {
                let id = self.conns[conn];
                if self.world.is_open(id) && self.finished.insert(conn) {
                    self.world.feed(Input::Finished(id, ceased_core::event::AfterInput::Answer));
                }
            }
            Op::Lose(conn) => {
                let id = self.conns[conn];
                if self.world.is_open(id) {
                    self.world.lose(id);
                }
            }
            Op::Drain => {
                if !std::mem::replace(&mut self.drains, true) {
                    self.world.feed(Input::Drain(Instant::ZERO + Duration::from_secs(3600)));
                }
            }
        }
        if self.interrupts {
            self.world.feed(Input::Tick);
        }
    }

    /// All that anybody can see.
    fn seen(&self) -> String {
        let w = &self.world;
        let open: Vec<bool> = self.conns.iter().map(|conn| w.has_open_requests(*conn)).collect();
        let jobs: Vec<String> = (w.running.keys())
            .map(|job| format!("{job} {:?} {}", w.owner(*job), w.is_stopping(*job)))
            .collect();
        let sizes = w.sizes();
        format!(
            "{:?} {open:?} {jobs:?} {sizes:?} {:?}",
            w.transcript.as_deref().map(<[_]>::len),
            w.counters()
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]

    /// CAN-11, RPC-02: whatever happens and however often it is interrupted, all that can be seen
    /// is the same.
    #[test]
    fn nobody_can_tell(share in 0..3_u8, ops in prop::collection::vec(ops(), 1..40)) {
        let (mut one, mut other) = (Half::new(share, false), Half::new(share, true));
        for op in &ops {
            one.step(op);
            other.step(op);
            prop_assert_eq!(one.seen(), other.seen(), "after {:?}", op);
        }
        prop_assert_eq!(one.world.transcript, other.world.transcript);
    }
}
