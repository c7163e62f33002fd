//! Every interleaving: the engine against a naive model of its peers' view, exhaustively
//! over short histories and at random over long ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ceased_core::event::{AfterInput, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::rpc::error::ErrorObject;
use ceased_core::tool::StopStep;
use ceased_simulator::model::{End, Model, Policy, Seen};
use ceased_simulator::rng::Rng;
use ceased_simulator::tools;
use ceased_simulator::trace::{Input, Trace, hash};
use ceased_simulator::world::{NEWEST, Rigged, World, result_of};
use serde_json::{Value, json};

/// One thing that happens. Numbers are taken modulo the existing things, so that any part of a
/// history is a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Call(usize, usize, bool),
    Create(usize, usize, bool),
    Wait(usize, usize, usize),
    Cancel(usize, usize),
    CancelTask(usize, usize),
    Done(usize, End),
    Progress(usize, u32),
    Close(usize),
    Advance(u64),
    Turn,
}

/// A number and a string that look alike: two ids.
const IDS: [&str; 2] = ["1", "\"1\""];
const MILLI: u64 = 1_000_000;

fn policy(seed: u64) -> Policy {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).expect("short");
    Policy {
        running_max: if seed.is_multiple_of(3) { 1 } else { 3 },
        ttl: 1000 * MILLI,
        max_ttl: 3000 * MILLI,
        late_result: 500 * MILLI,
        may_finish: seed.is_multiple_of(2),
        abandon_after: nanos(tools::ABANDON_AFTER),
        kill_grace: nanos(tools::KILL_GRACE),
        kill_again: 1000 * MILLI,
    }
}

fn settings(policy: &Policy) -> (Limits, TaskPolicy) {
    let limits = Limits { running_max: policy.running_max, ..Limits::default() };
    let tasks = TaskPolicy {
        default_ttl: Duration::from_nanos(policy.ttl),
        max_ttl: Duration::from_nanos(policy.max_ttl),
        late_result: Duration::from_nanos(policy.late_result),
        on_ttl: if policy.may_finish { OnTtl::Finish } else { OnTtl::Stop },
        page_size: 3,
        ..TaskPolicy::default()
    };
    (limits, tasks)
}

/// The engine and the model, side by side.
struct Pair {
    world: World,
    model: Model,
    conns: [ConnId; 2],
    observer: ConnId,
    /// The ids of the tasks, in the order of creation.
    tasks: Vec<String>,
    /// The jobs started, with their numbers in the model.
    jobs: Vec<(JobId, usize)>,
    stops: usize,
    asked: usize,
    /// Whether the observer looks after every step.
    watched: bool,
}

impl Pair {
    fn new(policy: Policy, strict: bool) -> Self {
        let (limits, tasks) = settings(&policy);
        let mut world = World::with(limits, tasks);
        world.strict = strict;
        let mut model = Model::new(policy);
        let conns = [world.open(), world.open()];
        conns.iter().for_each(|conn| model.connect(conn.get()));
        let observer = world.open();
        let (tasks, jobs) = (Vec::new(), Vec::new());
        Self { world, model, conns, observer, tasks, jobs, stops: 0, asked: 0, watched: strict }
    }

    /// Does one thing on both sides and compares; false if there was nothing to do it to.
    fn step(&mut self, op: Op) -> bool {
        let happened = self.act(op);
        let (expected, seen) = (self.model.seen(), self.seen());
        assert_eq!(seen, expected, "left is the engine, right is the model, after {op:?}");
        // RPC-03: a request that waits in the engine waits in the model.
        assert_eq!(self.world.sizes().requests, self.model.unanswered(), "after {op:?}");
        let jobs = self.model.running().len() + self.model.queued();
        assert_eq!(self.world.sizes().jobs, jobs, "after {op:?}");
        if self.watched {
            self.look();
        }
        happened
    }

    fn act(&mut self, op: Op) -> bool {
        match op {
            Op::Call(at, id, command) => {
                self.model.call(self.conns[at].get(), IDS[id], command);
                self.call(at, id, command, false);
            }
            Op::Create(at, id, command) => {
                self.model.create(self.conns[at].get(), IDS[id], command);
                self.call(at, id, command, true);
            }
            Op::Wait(at, id, task) => {
                let Some(task) = self.task(task) else { return false };
                self.model.wait(self.conns[at].get(), IDS[id], task);
                self.request(at, IDS[id], "tasks/result", &json!({"taskId": self.tasks[task]}));
            }
            Op::Cancel(at, id) => {
                self.model.cancel(self.conns[at].get(), IDS[id]);
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
                    IDS[id]
                );
                self.world.frame(self.conns[at], &line);
            }
            Op::CancelTask(at, task) => {
                let Some(task) = self.task(task) else { return false };
                self.asked += 1;
                let id = format!("\"c{}\"", self.asked);
                self.model.cancel_task(self.conns[at].get(), &id, task);
                self.request(at, &id, "tasks/cancel", &json!({"taskId": self.tasks[task]}));
            }
            Op::Done(job, end) => {
                let Some((id, number)) = self.running(job) else { return false };
                self.model.done(number, end);
                self.world.running.remove(&id);
                self.world.feed(Input::Done(id, outcome(number, end)));
            }
            Op::Progress(job, to) => {
                let Some((id, number)) = self.running(job) else { return false };
                self.model.progress(number, to);
                self.world.progress(id, f64::from(to));
            }
            Op::Close(at) => {
                self.model.close(self.conns[at].get());
                self.world.lose(self.conns[at]);
                self.conns[at] = self.world.open();
                self.model.connect(self.conns[at].get());
                // Initializing is a turn of its own.
                self.model.turn();
            }
            Op::Advance(millis) => {
                self.model.advance(millis * MILLI);
                self.world.advance(Duration::from_millis(millis));
            }
            Op::Turn => {
                let waits = self.model.queued() > 0;
                self.model.turn();
                self.world.feed(Input::Turn);
                return waits;
            }
        }
        true
    }

    fn task(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.model.tasks())
    }

    fn running(&self, number: usize) -> Option<(JobId, usize)> {
        let running = self.model.running();
        let number = *running.get(number.checked_rem(running.len())?)?;
        self.jobs.iter().find(|(_, job)| *job == number).copied()
    }

    fn call(&mut self, at: usize, id: usize, command: bool, as_task: bool) {
        // A number for the job, unless the id is in flight: then there is none.
        let number = self.model.jobs().saturating_sub(1);
        let mut params = json!({
            "name": if command { "build" } else { "sleep" },
            "arguments": {"number": number}, "_meta": {"progressToken": number},
        });
        if as_task {
            params["task"] = json!({});
        }
        self.request(at, IDS[id], "tools/call", &params);
    }

    fn request(&mut self, at: usize, id: &str, method: &str, params: &Value) {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.world.frame(self.conns[at], &line);
    }

    /// The engine's actions since the last call.
    fn seen(&mut self) -> Seen {
        let mut seen = Seen::default();
        for job in self.world.started[self.jobs.len()..].iter().copied() {
            let arguments = &self.world.running[&job].arguments;
            let arguments: Value = serde_json::from_str(arguments).expect("they were JSON");
            let number = arguments["number"].as_u64().expect("they name the job");
            let number = usize::try_from(number).expect("a small number");
            self.jobs.push((job, number));
            seen.started.push(number);
        }
        for (job, step, _) in &self.world.stops[self.stops..] {
            let (_, number) = self.jobs.iter().find(|(id, _)| id == job).expect("it was started");
            let step = match step {
                StopStep::Tell => "Tell",
                StopStep::Flag => "Flag",
                StopStep::Terminate => "Terminate",
                StopStep::Kill => "Kill",
                StopStep::Abandon => "Abandon",
            };
            seen.stops.push((*number, step));
        }
        self.stops = self.world.stops.len();
        for conn in self.conns {
            let messages = self.world.rest(conn);
            let told = messages.iter().map(|message| self.summary(message)).collect();
            seen.told.insert(conn.get(), told);
        }
        seen.sorted()
    }

    fn number_of(&mut self, task: &Value) -> String {
        let id = task.as_str().expect("a task id is a text");
        let known = self.tasks.iter().position(|known| known == id);
        let number = known.unwrap_or_else(|| {
            self.tasks.push(id.to_owned());
            self.tasks.len() - 1
        });
        format!("#{number}")
    }

    fn summary(&mut self, message: &Value) -> String {
        let params = &message["params"];
        let id = &message["id"];
        let result = &message["result"];
        let mut related = |of: &Value| {
            let task = of.pointer("/_meta/io.modelcontextprotocol~1related-task/taskId").cloned();
            task.map(|task| format!(" {}", self.number_of(&task))).unwrap_or_default()
        };
        if message["method"] == "notifications/progress" {
            let progress = params["progress"].as_f64().expect("progress is a number");
            return format!("P {} {progress}{}", params["progressToken"], related(params));
        }
        if message["method"] == "notifications/tasks/status" {
            let status = params["status"].as_str().expect("a task has a status").to_owned();
            return format!("S {} {status}", self.number_of(&params["taskId"]));
        }
        if let Some(code) = message.pointer("/error/code") {
            return format!("{id}:E {code}");
        }
        if let Some(text) = result.pointer("/content/0/text").and_then(Value::as_str) {
            return format!("{id}:R {text}{}", related(result));
        }
        let (kind, task) = match result.get("task") {
            Some(task) => ("T", task),
            None => ("C", result),
        };
        let status = task["status"].as_str().expect("a task has a status").to_owned();
        format!("{id}:{kind} {} {status}", self.number_of(&task["taskId"]))
    }

    /// TSK-21, TSK-26: an onlooker of the same identity sees the tasks as the model does, through
    /// get and through list.
    fn look(&mut self) {
        let mut listed = Vec::new();
        let mut params = json!({});
        loop {
            let mut page = self.world.ask_in_passing(self.observer, "tasks/list", params);
            let page = page["result"].take();
            listed.extend(page["tasks"].as_array().expect("a list").iter().cloned());
            let Some(cursor) = page.get("nextCursor") else { break };
            params = json!({"cursor": cursor});
        }
        let mut got = Vec::new();
        for (number, id) in self.tasks.clone().iter().enumerate() {
            let params = json!({"taskId": id});
            let answer = self.world.ask_in_passing(self.observer, "tasks/get", params);
            let status = answer.pointer("/result/status").and_then(Value::as_str);
            assert_eq!(status, self.model.status(number), "the status of #{number}");
            let mut task = answer["result"].clone();
            // How far the work of one task is, no list says.
            task.as_object_mut().map(|members| members.remove("_meta"));
            got.extend(task.is_object().then_some(task));
        }
        assert_eq!(listed, got, "list shows what get sees");
    }

    /// RPC-03, CAN-07: when every job has ended every request has been answered, and when every
    /// connection is gone and every ttl is over nothing is left.
    fn finish(mut self) {
        for _ in 0..1000 {
            if self.model.running().is_empty() && self.model.queued() == 0 {
                break;
            }
            self.step(Op::Turn);
            self.step(Op::Done(0, End::Stopped));
        }
        assert_eq!(self.world.sizes().jobs, 0);
        self.step(Op::Advance(60_000));
        assert_eq!(self.world.sizes().requests, 0, "everybody was answered");
        for conn in self.conns.into_iter().chain([self.observer]) {
            self.world.lose(conn);
        }
        assert_eq!(self.world.sizes(), ceased_core::stats::Sizes::default());
        assert_eq!(self.world.due_in(), None);
    }
}

fn outcome(number: usize, end: End) -> Outcome {
    let said = |text: String, failed: bool| {
        result_of(&json!({"content": [{"type": "text", "text": text}], "isError": failed}))
    };
    match end {
        End::Good => said(number.to_string(), false),
        End::Bad => said(format!("!{number}"), true),
        End::Error => Outcome::Error(ErrorObject::new(-32000, "boom")),
        End::Stopped => Outcome::Stopped,
    }
}

/// CAN-11: every history of `alphabet` up to `depth` steps, each to its end. A step that finds
/// nothing to do is not followed further: the history without it is another one.
fn exhaust(alphabet: &[Op], depth: usize, policy: Policy) -> usize {
    let mut histories = 0;
    let mut open: Vec<Vec<Op>> = vec![vec![]];
    while let Some(history) = open.pop() {
        let mut pair = Pair::new(policy, false);
        let mut useful = true;
        for op in &history {
            useful = pair.step(*op);
        }
        if !useful {
            continue;
        }
        histories += 1;
        pair.look();
        pair.finish();
        if history.len() < depth {
            open.extend(alphabet.iter().map(|op| [&history[..], &[*op]].concat()));
        }
    }
    histories
}

/// How many steps more than usual: `CEASED_DEEPER`, for a night.
fn deeper() -> usize {
    std::env::var("CEASED_DEEPER").ok().and_then(|depth| depth.parse().ok()).unwrap_or(0)
}

/// CAN-11, CAN-08, RPC-03: one connection, one id: a plain call and its cancel in every order
/// with the start, the progress, the end and the loss of the connection.
#[test]
fn every_short_history_of_a_call() {
    let alphabet = [
        Op::Call(0, 0, false),
        Op::Cancel(0, 0),
        Op::Turn,
        Op::Progress(0, 1),
        Op::Done(0, End::Good),
        Op::Close(0),
        Op::Advance(5000),
    ];
    let histories = exhaust(&alphabet, 6 + deeper(), policy(1));
    assert!(histories > 9_000, "{histories} histories");
}

/// CAN-11, CAN-05, CAN-15, TSK-26: one connection, one id: a task, its waiter, both cancels, its
/// end and its ttl in every order.
#[test]
fn every_short_history_of_a_task() {
    let alphabet = [
        Op::Create(0, 0, true),
        Op::Wait(0, 0, 0),
        Op::Cancel(0, 0),
        Op::CancelTask(0, 0),
        Op::Turn,
        Op::Progress(0, 1),
        Op::Done(0, End::Bad),
        Op::Close(0),
        Op::Advance(1000),
    ];
    for seed in [1, 2] {
        let histories = exhaust(&alphabet, 5 + deeper(), policy(seed));
        assert!(histories > 5_000, "{histories} histories");
    }
}

/// CAN-11, CAN-02, RPC-02: two connections, two ids, one job at a time.
#[test]
fn every_short_history_of_two_peers() {
    let mut alphabet = vec![Op::Turn, Op::Done(0, End::Error), Op::Close(0)];
    for (at, id) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        alphabet.extend([Op::Call(at, id, true), Op::Cancel(at, id)]);
    }
    let histories = exhaust(&alphabet, 4 + deeper(), policy(3));
    assert!(histories > 5_000, "{histories} histories");
}

fn random_op(rng: &mut Rng, weights: &[usize; 10]) -> Op {
    let (at, id, number) = (rng.below(2), rng.below(2), rng.below(8));
    let command = rng.once_in(2);
    let mut left = rng.below(weights.iter().sum());
    let mut kind = 0;
    while left >= weights[kind] {
        left -= weights[kind];
        kind += 1;
    }
    match kind {
        0 => Op::Call(at, id, command),
        1 => Op::Create(at, id, command),
        2 => Op::Wait(at, id, number),
        3 => Op::Cancel(at, id),
        4 => Op::CancelTask(at, number),
        5 => Op::Done(number, *rng.pick(&[End::Good, End::Bad, End::Error, End::Stopped])),
        6 => Op::Progress(number, u32::try_from(rng.below(6)).expect("small")),
        7 => Op::Close(at),
        8 => Op::Advance(*rng.pick(&[1, 250, 499, 500, 1000, 2000])),
        _ => Op::Turn,
    }
}

/// The kinds of events of this run are drawn first: mixtures alone hide faults that need many of
/// one kind.
fn random_history(seed: u64, length: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut weights = [0; 10];
    for weight in &mut weights {
        *weight = *rng.pick(&[0, 1, 3, 10]);
    }
    weights[0] += 1;
    weights[9] += 2;
    (0..length).map(|_| random_op(&mut rng, &weights)).collect()
}

fn run(seed: u64, history: &[Op]) {
    let mut pair = Pair::new(policy(seed), true);
    for op in history {
        pair.step(*op);
    }
    pair.finish();
}

/// The shortest part of a history that still fails.
fn shrink(seed: u64, mut history: Vec<Op>) -> Vec<Op> {
    let fails = |history: &[Op]| catch_unwind(AssertUnwindSafe(|| run(seed, history))).is_err();
    let mut at = 0;
    while at < history.len() {
        let mut shorter = history.clone();
        shorter.remove(at);
        if fails(&shorter) {
            history = shorter;
            at = 0;
        } else {
            at += 1;
        }
    }
    history
}

fn seeds() -> u64 {
    std::env::var("CEASED_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400)
}

/// CAN-11, RPC-03, TSK-10, TSK-15, TSK-21, TSK-26: long histories at random. A seed that fails is
/// shortened before it is told. `CEASED_SEEDS` says how many.
#[test]
fn long_histories_at_random() {
    // It takes longer than the other tests together.
    let threads = 2;
    let check = |seed: u64| {
        let history = random_history(seed, 120);
        if catch_unwind(AssertUnwindSafe(|| run(seed, &history))).is_err() {
            let short = shrink(seed, history);
            panic!("seed {seed} fails, shortened to\n{short:#?}");
        }
    };
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || (first..seeds()).step_by(threads as usize).for_each(check));
        }
    });
}

/// Events without a model: garbage, batches, slow peers, reloads, shutdown.
fn disturb(world: &mut World, rng: &mut Rng, conns: &mut [ConnId; 2]) {
    let at = rng.below(2);
    let conn = conns[at];
    match rng.below(12) {
        0 => world.frame(conn, "{\"jsonrpc\":"),
        1 => world.frame(conn, r#"[{"jsonrpc":"2.0","id":5,"method":"ping"}]"#),
        2 => world.feed(Input::TooLong(conn, String::new())),
        3 => world.stop_reading(conn),
        4 => world.block(conn),
        5 => world.read_again(conn),
        6 => world.feed(Input::Finished(conn, AfterInput::AnswerWithin(Duration::from_secs(1)))),
        7 => {
            let limits = Limits { running_max: 1 + rng.below(4), ..Limits::default() };
            world.feed(Input::Configured(tools::settings(limits, TaskPolicy::default())));
        }
        8 => world.frame(conn, r#"{"jsonrpc":"2.0","id":"s","method":"ceased/status"}"#),
        9 => world.set_wall(rng.word() >> 20),
        10 if rng.once_in(40) => world.feed(Input::Drain(world.now().at + Duration::from_secs(2))),
        _ => {
            let identity = Identity::User(u32::try_from(rng.below(2)).expect("small"));
            conns[at] = world.connect(identity);
            let revision = rng.pick(&["2025-03-26", NEWEST]);
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"p","version":"1"}}}}}}"#
            );
            world.frame(conns[at], &line);
        }
    }
}

fn recorded(seed: u64) -> Trace {
    let (limits, tasks) = settings(&policy(seed));
    let limits = Limits { write_buffer_bytes: 2000, ..limits };
    let mut rng = Rng::new(seed);
    let mut world = World::made_of(tools::settings(limits, tasks), Rigged::default());
    world.strict = false;
    world.trace = Some(Trace::default());
    let mut conns = [world.open(), world.open()];
    let mut ids = Vec::new();
    for op in random_history(seed, 150) {
        if rng.once_in(4) {
            disturb(&mut world, &mut rng, &mut conns);
        }
        let running: Vec<JobId> = world.running.keys().copied().collect();
        let job = |number: usize| running.get(number % running.len().max(1)).copied();
        let line = match op {
            Op::Call(at, id, _) | Op::Create(at, id, _) => {
                let task = if matches!(op, Op::Create(..)) { r#","task":{}"# } else { "" };
                let meta = r#""_meta":{"progressToken":1}"#;
                let params = format!(r#"{{"name":"sleep"{task},{meta}}}"#);
                (at, format!(r#""id":{},"method":"tools/call","params":{params}"#, IDS[id]))
            }
            Op::Wait(at, id, number) => {
                let Some(task) = ids.get(number) else { continue };
                let params = json!({"taskId": task});
                (at, format!(r#""id":{},"method":"tasks/result","params":{params}"#, IDS[id]))
            }
            Op::Cancel(at, id) => {
                let params = format!(r#"{{"requestId":{}}}"#, IDS[id]);
                (at, format!(r#""method":"notifications/cancelled","params":{params}"#))
            }
            Op::CancelTask(at, number) => {
                let Some(task) = ids.get(number) else { continue };
                let params = json!({"taskId": task});
                (at, format!(r#""id":"c","method":"tasks/cancel","params":{params}"#))
            }
            Op::Done(number, end) => {
                if let Some(job) = job(number) {
                    world.running.remove(&job);
                    world.feed(Input::Done(job, outcome(number, end)));
                }
                continue;
            }
            Op::Progress(number, to) => {
                if let Some(job) = job(number) {
                    let message = Some("x".repeat(rng.below(300)));
                    world.feed(Input::Progress(job, f64::from(to), Some(6.0), message));
                }
                continue;
            }
            Op::Close(at) => {
                if world.is_open(conns[at]) {
                    world.lose(conns[at]);
                }
                continue;
            }
            Op::Advance(millis) => {
                world.advance(Duration::from_millis(millis));
                continue;
            }
            Op::Turn => {
                world.feed(Input::Turn);
                let tasks = world.running.values().filter_map(|running| running.task);
                ids.extend(tasks.map(|task| task.to_string()));
                continue;
            }
        };
        world.frame(conns[line.0], &format!(r#"{{"jsonrpc":"2.0",{}}}"#, line.1));
    }
    world.trace.take().expect("it was recorded")
}

/// DET-01: the events of a run, handed to a fresh engine, give the same actions and the same
/// bytes, also when they were written and read as JSON; the same seed gives the same run; another seed gives another.
#[test]
fn replay_is_identical() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..seeds() / 4 {
        let trace = recorded(seed);
        let (limits, tasks) = settings(&policy(seed));
        let limits = Limits { write_buffer_bytes: 2000, ..limits };
        let first = trace.replay(&tools::settings(limits, tasks), Rigged::default());
        let second =
            trace.through_json().replay(&tools::settings(limits, tasks), Rigged::default());
        let again = recorded(seed).replay(&tools::settings(limits, tasks), Rigged::default());
        for (left, right) in first.iter().zip(&second) {
            assert_eq!(left, right, "seed {seed}");
        }
        assert_eq!(hash(&first), hash(&second), "seed {seed}");
        assert_eq!(hash(&first), hash(&again), "seed {seed}");
        assert!(hashes.insert(hash(&first)), "seed {seed} is like another");
        assert!(first.len() > 150, "seed {seed} is short");
    }
}
