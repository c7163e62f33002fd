//! Random walks of several engines around one table: nodes are killed, paused and cut off, answers of the
//! table come late, and every statement to a client stays true (FLT-01 to FLT-06).

mod node;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::ids::{JobId, TaskId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::Settings;
use serde_json::{Value, json};

use self::node::Node;
use self::table::Table;
use crate::modern::request;
use crate::rng::Rng;
use crate::tools;

const TERMINAL: [&str; 3] = ["completed", "failed", "cancelled"];

/// A request that waits for its answer, at one start of a node.
#[derive(Debug)]
struct Asked {
    task: Option<TaskId>,
    /// Its idempotency key.
    key: Option<String>,
    /// Commits of the table when it was sent.
    commits: usize,
}

/// Statements about one task, by all nodes.
#[derive(Debug, Default)]
struct Said {
    status: Option<String>,
    outcome: Option<Value>,
}

/// The number of things that happened, so that a tame walk is noticed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// Tasks that a client was told of.
    pub tasks: usize,
    /// Tasks that others have failed.
    pub reaped: usize,
    /// Ends that another node was quicker with.
    pub overtaken: usize,
    /// Statements about a task by a node that does not run it.
    pub elsewhere: usize,
    /// Calls that were answered with the task of an earlier one, by their key.
    pub repeated: usize,
    /// Sum over all statements, which is the same for the same seed.
    pub digest: u64,
}

struct Walk {
    rng: Rng,
    settings: Arc<Settings>,
    table: Table,
    nodes: Vec<Node>,
    asked: BTreeMap<String, (usize, Asked)>,
    said: BTreeMap<TaskId, Said>,
    /// Tasks that keys were told to name.
    named: BTreeMap<String, TaskId>,
    next: u64,
    walked: Walked,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let policy = TaskPolicy {
            durable: true,
            shared: true,
            store_retry: Duration::from_secs(1),
            default_ttl: Duration::from_secs(100_000),
            max_ttl: Duration::from_secs(100_000),
            page_size: 1000,
            ..TaskPolicy::default()
        };
        let limits = Limits { running_max: 64, ..Limits::default() };
        let settings = tools::settings(limits, policy);
        let count = 2 + rng.below(4);
        let mut table = Table::default();
        let nodes = (0..count).map(|number| Node::start(&settings, &mut table, number)).collect();
        Self {
            rng,
            settings,
            table,
            nodes,
            asked: BTreeMap::new(),
            said: BTreeMap::new(),
            named: BTreeMap::new(),
            next: 1,
            walked: Walked::default(),
        }
    }

    fn step(&mut self) {
        let at = self.rng.below(self.nodes.len());
        match self.rng.below(100) {
            0..12 => self.create(at),
            12..40 => self.ask(at),
            40..55 => {
                let most = 1 + self.rng.below(4);
                let late = self.rng.once_in(4);
                self.nodes[at].commit(&mut self.table, most, late);
            }
            55..72 => {
                let late = self.rng.once_in(4);
                self.nodes[at].answer(&self.table, late);
            }
            72..76 => self.nodes[at].deliver(),
            76..80 => self.nodes[at].look(&self.table),
            80..86 => self.end_work(at),
            86..89 => {
                let by = 1 + self.rng.below(3000) as u64;
                self.pass(by);
            }
            89..92 => self.reap(at),
            92..94 => {
                let cut = self.rng.once_in(2);
                self.nodes[at].is_cut_off = cut;
            }
            94..96 => {
                let pause = self.rng.once_in(3);
                self.nodes[at].pause(pause);
            }
            96..98 => self.nodes[at].rejoin(&mut self.table),
            98 if self.rng.once_in(3) => self.restart(at),
            _ => self.nodes[at].stop_processes(),
        }
        self.hear();
    }

    fn request(&mut self, at: usize, method: &str, params: Value, task: Option<TaskId>) {
        let Some(conn) = self.nodes[at].conn() else { return };
        let id = format!("r{}", self.next);
        self.next += 1;
        let key = params["_meta"]["ceased/idempotencyKey"].as_str().map(str::to_owned);
        let asked = Asked { task, key, commits: self.table.commits };
        self.asked.insert(id.clone(), (at, asked));
        self.nodes[at].world.send(conn, &request(json!(id), method, params));
    }

    fn create(&mut self, at: usize) {
        let mut call = json!({"name": "sleep", "arguments": {}, "task": {}});
        if self.rng.once_in(3) {
            // One of the last few, so that it is repeated while its call is on its way.
            let key = format!("k{}", self.walked.tasks / 4);
            call["_meta"] = json!({"ceased/idempotencyKey": key});
        }
        self.request(at, "tools/call", call, None);
    }

    fn ask(&mut self, at: usize) {
        let known: Vec<TaskId> = self.said.keys().copied().collect();
        if known.is_empty() {
            return;
        }
        let from = if self.rng.once_in(3) { 0 } else { known.len().saturating_sub(6) };
        let task = *self.rng.pick(&known[from..]);
        let methods = ["tasks/get", "tasks/get", "tasks/get", "tasks/result", "tasks/cancel"];
        let method = *self.rng.pick(&methods);
        self.request(at, method, json!({"taskId": task.to_string()}), Some(task));
    }

    fn end_work(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let running: Vec<JobId> = node.processes().collect();
        if running.is_empty() || node.is_paused {
            return;
        }
        let job = *self.rng.pick(&running);
        match self.rng.below(3) {
            0 => node.world.fail(job, -7, "it failed"),
            _ => node.world.done(job, "made"),
        }
    }

    fn pass(&mut self, by: u64) {
        self.table.now += by;
        self.nodes.iter_mut().for_each(|node| node.pass(self.table.now, by));
    }

    /// A node ends others whose lease is over. Their processes have ended by then (FLT-04).
    fn reap(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(epoch) = node.epoch.filter(|_| node.may_reap(self.table.now)) else { return };
        for task in self.table.reap(epoch) {
            self.walked.reaped += 1;
            let alive = self.nodes.iter().any(|node| node.runs(task));
            assert!(!alive, "{task} is failed for its node while its process is alive");
        }
    }

    fn restart(&mut self, at: usize) {
        self.asked.retain(|_, (node, _)| *node != at);
        let number = self.nodes.len() * usize::try_from(self.next).unwrap_or_default() + at;
        self.table.succeed(self.nodes[at].epoch);
        self.nodes[at] = Node::start(&self.settings, &mut self.table, number);
        self.next += 1;
    }

    fn hear(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(conn) = self.nodes[at].conn() else { continue };
            for message in self.nodes[at].world.rest(conn) {
                self.walked.digest = self.walked.digest.wrapping_mul(31).wrapping_add(
                    message
                        .to_string()
                        .bytes()
                        .fold(7, |sum: u64, byte| sum.wrapping_mul(131).wrapping_add(byte.into())),
                );
                self.take(at, &message);
            }
        }
    }

    fn take(&mut self, at: usize, message: &Value) {
        if message["method"] == "notifications/tasks/status" {
            return self.state(at, &message["params"], None);
        }
        let id = message["id"].as_str().unwrap_or_default();
        let Some((_, asked)) = self.asked.remove(id) else { return };
        let result = &message["result"];
        if let Some(handle) = result["task"].as_object() {
            let task = TaskId::parse(handle["taskId"].as_str().expect("an id")).expect("an id");
            assert!(self.table.has(task), "{task} is told before it is in the table");
            let is_new = !self.said.contains_key(&task);
            if let Some(key) = asked.key {
                let named = *self.named.entry(key.clone()).or_insert(task);
                assert_eq!(named, task, "the key {key} has a second run");
                self.walked.repeated += usize::from(!is_new);
            } else {
                assert!(is_new, "{task} is told twice");
            }
            self.walked.tasks += usize::from(is_new);
            self.said.entry(task).or_default();
        } else if result["taskId"].is_string() {
            self.state(at, result, Some(asked.commits));
        } else if let Some(task) = asked.task {
            let told = message.get("error").unwrap_or(result);
            match told["code"].as_i64() {
                // It has ended already, or is unknown.
                Some(-32602) => {
                    let text = told["message"].as_str().unwrap_or_default();
                    assert!(!text.contains("there is no task"), "FLT-01: {task} is lost: {text}");
                }
                // FLT-05: ask again.
                Some(-31006) => {}
                _ => {
                    let mut outcome = told.clone();
                    outcome.as_object_mut().map(|members| members.remove("_meta"));
                    self.outcome(task, outcome);
                }
            }
        }
    }

    /// FLT-02: a terminal status is the one that every node tells, for ever; a status is one that the table
    /// had between the request and its answer.
    fn state(&mut self, at: usize, object: &Value, since: Option<usize>) {
        let id = TaskId::parse(object["taskId"].as_str().expect("an id")).expect("an id");
        let status = object["status"].as_str().expect("a status").to_owned();
        if let Some(since) = since {
            let possible: BTreeSet<&str> = self.table.statuses(id, since);
            assert!(possible.contains(&*status), "{id} is told as {status}, of {possible:?}");
        }
        let runs = self.nodes[at].epoch.is_some_and(|epoch| self.table.runs_at(id, epoch));
        self.walked.elsewhere += usize::from(!runs);
        let Some(said) = self.said.get_mut(&id) else { return };
        let is_terminal = TERMINAL.contains(&&*status);
        if is_terminal {
            let before = said.status.get_or_insert_with(|| status.clone());
            assert_eq!(*before, status, "{id} has two ends");
        } else if since.is_some() && said.status.is_some() {
            let possible = self.table.statuses(id, since.unwrap_or_default());
            assert!(possible.len() > 1, "{id} had ended, and is {status} again");
        }
    }

    fn outcome(&mut self, task: TaskId, outcome: Value) {
        let Some(said) = self.said.get_mut(&task) else { return };
        let before = said.outcome.get_or_insert_with(|| outcome.clone());
        assert_eq!(*before, outcome, "{task} has two outcomes");
    }

    /// Everything is mended, and all work ends.
    fn rest(&mut self) {
        for node in &mut self.nodes {
            node.is_cut_off = false;
            node.pause(false);
        }
        for _ in 0..40 {
            for at in 0..self.nodes.len() {
                self.nodes[at].rejoin(&mut self.table);
                self.nodes[at].deliver();
                self.nodes[at].commit(&mut self.table, usize::MAX, false);
                self.nodes[at].answer(&self.table, false);
                self.nodes[at].look(&self.table);
                self.nodes[at].stop_processes();
                let running: Vec<JobId> = self.nodes[at].processes().collect();
                running.into_iter().for_each(|job| self.nodes[at].world.done(job, "made"));
                self.reap(at);
            }
            self.pass(500);
            self.hear();
        }
        assert!(self.asked.is_empty(), "unanswered: {:?}", self.asked);
        let left = self.table.at_work();
        let members: Vec<Option<u64>> = self.nodes.iter().map(|node| node.epoch).collect();
        assert!(left.is_empty(), "the table keeps {left:?}, members {members:?}");
        for node in &self.nodes {
            let sizes = node.world.sizes();
            assert_eq!((sizes.tasks, sizes.jobs), (0, 0), "a node keeps {sizes:?}");
        }
        self.walked.overtaken = self.nodes.iter().map(|node| node.overtaken).sum();
    }
}

/// Walks this many steps, and then to rest.
///
/// # Panics
/// When a statement to a client was not true.
#[must_use]
pub fn walk(seed: u64, steps: usize) -> Walked {
    let mut walk = Walk::new(seed);
    for _ in 0..steps {
        walk.step();
    }
    walk.rest();
    walk.walked
}
