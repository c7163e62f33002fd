//! Random walks of several engines around one table: nodes are killed, paused and cut off, clocks jump, answers
//! of the table come late or never, and every statement to a client stays true (FLT-01 to FLT-06).

mod clients;
mod node;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::ids::{JobId, TaskId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::outgoing::call::Answer as Told;
use ceased_core::settings::Settings;
use serde_json::{Value, json};

use self::clients::{About, Clients};
use self::node::{Answer, Node};
use self::table::{LEASE, LIVE_MAX, Table};
use crate::modern::{TASKS, able, request};
use crate::rng::Rng;
use crate::tools;

/// The table's clock jumps by so much at most, in milliseconds.
const JUMP: u64 = 60_000;

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
    /// Tasks that the table had no room for.
    pub refused: usize,
    /// Lists that were read to their end.
    pub lists: usize,
    /// Answers to questions that a node acknowledged.
    pub answered: usize,
    /// Answers that reached the job that had asked.
    pub arrived: usize,
    /// Subscriptions that heard of all ends.
    pub listened: usize,
    /// Sum over all statements, which is the same for the same seed.
    pub digest: u64,
}

impl Walked {
    /// The counts.
    #[must_use]
    pub fn counts(mut self) -> [usize; 10] {
        self.counts_mut().map(|count| *count)
    }

    /// The counts, to be added to.
    pub const fn counts_mut(&mut self) -> [&mut usize; 10] {
        let Self {
            tasks,
            reaped,
            overtaken,
            elsewhere,
            repeated,
            refused,
            lists,
            answered,
            arrived,
            listened,
            digest: _,
        } = self;
        [tasks, reaped, overtaken, elsewhere, repeated, refused, lists, answered, arrived, listened]
    }
}

struct Walk {
    rng: Rng,
    settings: Arc<Settings>,
    table: Table,
    nodes: Vec<Node>,
    clients: Clients,
    next: u64,
    /// Whether the table's clock jumps in this walk: then leases may end early, before work has ended.
    jumps: bool,
    /// Whether time passes in long steps in this walk, which end leases and outlast late answers, and every hint
    /// is lost.
    is_harsh: bool,
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
            page_size: 20,
            ..TaskPolicy::default()
        };
        let limits = Limits { running_max: 64, live_tasks_max: LIVE_MAX, ..Limits::default() };
        let settings = tools::settings(limits, policy);
        let count = 2 + rng.below(4);
        let mut table = Table::new(JUMP);
        let mut nodes = Vec::new();
        for number in 0..count {
            nodes.push(Node::start(&settings, &mut table, number, rate(&mut rng)));
        }
        let (jumps, is_harsh) = (rng.once_in(4), rng.once_in(4));
        let clients = Clients::default();
        let walked = Walked::default();
        Self { rng, settings, table, nodes, clients, next: 1, jumps, is_harsh, walked }
    }

    fn step(&mut self) {
        let at = self.rng.below(self.nodes.len());
        match self.rng.below(124) {
            0..12 => self.create(at),
            12..36 => self.ask(at),
            36..40 => self.update(at),
            40..55 => self.commit(at),
            55..72 => {
                let late = self.rng.once_in(4);
                self.nodes[at].answer(&self.table, late);
            }
            72..74 => self.nodes[at].deliver_written(),
            74..76 => self.nodes[at].deliver_heard(),
            76..80 if !self.is_harsh => {
                let (late, twice) = (self.rng.once_in(3), self.rng.once_in(3));
                self.nodes[at].look(&self.table, late, twice);
            }
            80..86 => self.end_work(at),
            86..89 => {
                let by = 1 + self.rng.below(if self.is_harsh { 8000 } else { 3000 }) as u64;
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
            99 if self.rng.once_in(6) => {
                // The table is away, or back, for all.
                let away = self.rng.once_in(2);
                self.nodes.iter_mut().for_each(|node| node.is_cut_off = away);
            }
            100..108 => self.list(at),
            108..114 => self.question(at),
            114..116 => self.listen(at),
            116 if self.jumps && self.rng.once_in(4) => {
                self.table.ahead = self.rng.below(2 * JUMP as usize) as u64;
            }
            _ => self.nodes[at].stop_processes(),
        }
        self.hear();
    }

    fn commit(&mut self, at: usize) {
        let most = 1 + self.rng.below(4);
        let late = self.rng.once_in(4);
        let answer = match self.rng.below(12) {
            0 => Answer::Lost,
            1 => Answer::FoundOut,
            _ => Answer::Arrives,
        };
        self.nodes[at].commit(&mut self.table, most, late, answer);
    }

    fn request(&mut self, at: usize, method: &str, params: Value, about: About) {
        let is_modern = params["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
        let Some(conn) = self.nodes[at].conn(is_modern) else { return };
        let id = self.id();
        self.nodes[at].world.send(conn, &request(json!(id), method, params));
        self.clients.ask(id, at, about, &self.table);
    }

    fn id(&mut self) -> String {
        self.next += 1;
        format!("r{}", self.next)
    }

    fn create(&mut self, at: usize) {
        let mut call = json!({"name": "sleep", "arguments": {}, "task": {}});
        let key = self.rng.once_in(5).then(|| format!("k{}", self.walked.tasks / 4));
        if let Some(key) = &key {
            // One of the last few, so that it is repeated while its call is on its way.
            call["_meta"] = json!({"ceased/idempotencyKey": key});
        }
        self.request(at, "tools/call", call, About::Creation { key });
    }

    fn some_task(&mut self) -> Option<TaskId> {
        let known = self.clients.tasks();
        let from = if self.rng.once_in(3) { 0 } else { known.len().saturating_sub(6) };
        (!known.is_empty()).then(|| *self.rng.pick(&known[from..]))
    }

    fn ask(&mut self, at: usize) {
        let Some(task) = self.some_task() else { return };
        let methods = ["tasks/get", "tasks/get", "tasks/get", "tasks/result", "tasks/cancel"];
        let method = *self.rng.pick(&methods);
        let params = json!({"taskId": task.to_string()});
        let params =
            if method == "tasks/get" && self.rng.once_in(2) { capable(params) } else { params };
        self.request(at, method, params, About::Task(task));
    }

    /// A client answers questions, at whichever node; nothing is sent twice on purpose.
    fn update(&mut self, at: usize) {
        let asking = self.clients.questions();
        if asking.is_empty() {
            return;
        }
        let (task, keys) = self.rng.pick(&asking).clone();
        let answer = json!({"action": "accept", "content": {}});
        let responses: serde_json::Map<String, Value> =
            keys.into_iter().map(|key| (key, answer.clone())).collect();
        let params = json!({"taskId": task.to_string(), "inputResponses": responses});
        self.request(at, "tasks/update", capable(params), About::Answers);
    }

    fn list(&mut self, at: usize) {
        if self.nodes[at].conn(false).is_none() {
            return;
        }
        let Some(cursor) = self.clients.next_page() else { return };
        let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
        self.request(at, "tasks/list", params, About::Page);
    }

    fn listen(&mut self, at: usize) {
        let Some(conn) = self.nodes[at].conn(true) else { return };
        let tasks: BTreeSet<String> =
            (0..3).filter_map(|_| self.some_task()).map(|task| task.to_string()).collect();
        let params = capable(json!({"notifications": {"taskIds": tasks}}));
        let id = self.id();
        self.clients.listen(id.clone(), at, self.nodes[at].fences);
        self.nodes[at].world.send(conn, &request(json!(id), "subscriptions/listen", params));
    }

    /// A job at work.
    fn some_job(&mut self, at: usize) -> Option<JobId> {
        let running: Vec<JobId> = self.nodes[at].processes().collect();
        let is_idle = running.is_empty() || self.nodes[at].is_paused;
        (!is_idle).then(|| *self.rng.pick(&running))
    }

    fn end_work(&mut self, at: usize) {
        let Some(job) = self.some_job(at) else { return };
        let world = &mut self.nodes[at].world;
        match self.rng.below(3) {
            0 => world.fail(job, -7, "it failed"),
            _ => world.done(job, "made"),
        }
    }

    fn question(&mut self, at: usize) {
        let Some(job) = self.some_job(at) else { return };
        self.next += 1;
        self.nodes[at].world.asked(job, self.next, "elicitation/create");
    }

    fn pass(&mut self, by: u64) {
        self.table.now += by;
        for node in &mut self.nodes {
            node.pass(&self.table, by);
            // FLT-03: the work of a task that has ended stops within a lease, whatever is lost.
            let outlasting = node.untouched().find(|task| self.table.has_long_ended(*task, LEASE));
            assert_eq!(outlasting, None, "it has ended and goes on");
        }
    }

    /// A node ends others whose lease is over. Their processes have ended by then (FLT-04).
    fn reap(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(epoch) = node.epoch.filter(|_| node.may_reap(self.table.now)) else { return };
        for task in self.table.reap(epoch) {
            self.walked.reaped += 1;
            let alive = self.nodes.iter().any(|node| node.runs(task));
            assert!(
                self.jumps || !alive,
                "{task} is failed for its node while its process is alive"
            );
        }
    }

    fn restart(&mut self, at: usize) {
        self.note_arrived(at);
        self.clients.forget_node(at);
        self.walked.overtaken += self.nodes[at].overtaken;
        let number = self.nodes.len() * usize::try_from(self.next).unwrap_or_default() + at;
        self.table.succeed(self.nodes[at].epoch);
        let rate = rate(&mut self.rng);
        self.nodes[at] = Node::start(&self.settings, &mut self.table, number, rate);
        self.next += 1;
    }

    /// Answers that jobs of a node have got, each once.
    fn note_arrived(&mut self, at: usize) {
        let told = &self.nodes[at].world.told;
        let taken = told.iter().filter(|(_, told)| matches!(told, Told::Result(_)));
        let taken: Vec<_> = taken.map(|(caller, _)| format!("{caller:?}")).collect();
        let once: BTreeSet<&String> = taken.iter().collect();
        assert_eq!(once.len(), taken.len(), "a question has two answers: {taken:?}");
        self.walked.arrived += taken.len();
    }

    fn hear(&mut self) {
        for at in 0..self.nodes.len() {
            for is_modern in [false, true] {
                let Some(conn) = self.nodes[at].conn(is_modern) else { continue };
                for message in self.nodes[at].world.rest(conn) {
                    let text = message.to_string();
                    let sum = text
                        .bytes()
                        .fold(7, |sum: u64, byte| sum.wrapping_mul(131).wrapping_add(byte.into()));
                    self.walked.digest = self.walked.digest.wrapping_mul(31).wrapping_add(sum);
                    let epoch = self.nodes[at].epoch;
                    self.clients.take(epoch, &message, &self.table, &mut self.walked);
                }
            }
        }
    }

    /// Everything is mended, and all work ends.
    fn rest(&mut self) {
        for node in &mut self.nodes {
            node.is_cut_off = false;
            node.pause(false);
        }
        for round in 0..60 {
            for at in 0..self.nodes.len() {
                let node = &mut self.nodes[at];
                node.rejoin(&mut self.table);
                node.deliver_written();
                node.commit(&mut self.table, usize::MAX, false, Answer::Arrives);
                node.answer(&self.table, false);
                node.look(&self.table, false, false);
                node.stop_processes();
                let running: Vec<JobId> = node.processes().collect();
                running.into_iter().for_each(|job| node.world.done(job, "made"));
                self.reap(at);
            }
            self.pass(500);
            self.hear();
            if round == 40 {
                let fences: Vec<usize> = self.nodes.iter().map(|node| node.fences).collect();
                self.clients.check_rest(&fences, &mut self.walked);
                self.nodes.iter_mut().for_each(Node::lose_subscriptions);
            }
        }
        let left = self.table.at_work();
        let members: Vec<Option<u64>> = self.nodes.iter().map(|node| node.epoch).collect();
        assert!(left.is_empty(), "the table keeps {left:?}, members {members:?}");
        for at in 0..self.nodes.len() {
            self.note_arrived(at);
            let sizes = self.nodes[at].world.sizes();
            assert_eq!((sizes.tasks, sizes.jobs), (0, 0), "a node keeps {sizes:?}");
        }
        self.walked.overtaken += self.nodes.iter().map(|node| node.overtaken).sum::<usize>();
    }
}

/// A client of 2026-07-28 that answers questions.
fn capable(params: Value) -> Value {
    able(&json!({"extensions": {TASKS: {}}, "elicitation": {}}), params)
}

/// Rate of a node's clock by the thousand: four percent off at most.
fn rate(rng: &mut Rng) -> u64 {
    960 + rng.below(81) as u64
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
