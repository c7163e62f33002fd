//! Sessions and requests of their own, at random on the same connections: after every step the
//! tables agree, every message is valid, and in the end nothing is left.

use std::time::Duration;

use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::outgoing::call::OutgoingRequest;
use ceased_simulator::modern::{able, cancel, plain, request, tasks};
use ceased_simulator::rng::Rng;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World, raw_json};
use serde_json::{Value, json};

const TOOLS: [&str; 5] = ["echo", "sleep", "slow", "build", "report"];

struct Walk {
    world: World,
    rng: Rng,
    conns: Vec<ConnId>,
    states: Vec<(String, String)>,
    tasks: Vec<String>,
    asks: u64,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            running_max: 6,
            inflight_max: 6,
            subscriptions_max: 2,
            parked_max: 2,
            parked_for: Duration::from_secs(20),
            write_buffer_bytes: 2000,
            ..Limits::default()
        };
        let policy = TaskPolicy { default_ttl: Duration::from_secs(40), ..TaskPolicy::default() };
        let mut world = World::with(limits, policy);
        let everything = json!({"elicitation": {}, "sampling": {}, "roots": {}});
        let conns = vec![
            world.connect(Identity::User(1)),
            world.open_with(Identity::User(1), NEWEST, everything),
            world.connect(Identity::User(2)),
        ];
        Self { world, rng: Rng::new(seed), conns, states: vec![], tasks: vec![], asks: 0 }
    }

    fn one(&mut self, of: usize) -> usize {
        self.rng.below(of)
    }

    fn id(&mut self) -> Value {
        [json!(1), json!("1"), json!(2), json!("x\u{7f}\"")][self.one(4)].clone()
    }

    fn task(&mut self) -> String {
        let at = self.one(self.tasks.len().max(1));
        self.tasks.get(at).cloned().unwrap_or_default()
    }

    fn job(&mut self) -> Option<JobId> {
        let at = self.one(self.world.running.len().max(1));
        self.world.running.keys().nth(at).copied()
    }

    /// A message of a client.
    fn line(&mut self) -> String {
        let (id, task) = (self.id(), self.task());
        let tool = TOOLS[self.one(TOOLS.len())];
        let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "info"});
        let capable = json!({
            "elicitation": {}, "roots": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
        });
        match self.one(14) {
            0 | 1 => request(id, "tools/call", plain(json!({"name": tool, "_meta": meta}))),
            2 => request(id, "tools/call", able(&json!({"roots": {}}), json!({"name": tool}))),
            3 | 4 => request(id, "tools/call", tasks(json!({"name": tool, "_meta": meta}))),
            5 => request(id, "tools/call", json!({"name": tool, "_meta": meta, "task": {}})),
            6 => request(id, "tools/call", json!({"name": tool, "_meta": meta})),
            7 => {
                let wanted = json!({"toolsListChanged": true, "taskIds": self.tasks});
                let params = able(&capable, json!({"notifications": wanted}));
                request(id, "subscriptions/listen", params)
            }
            8 => request(id, "tasks/get", able(&capable, json!({"taskId": task}))),
            9 => request(id, "tasks/cancel", tasks(json!({"taskId": task}))),
            10 => request(id, "tasks/result", json!({"taskId": task})),
            11 => {
                let responses = json!({self.asks.to_string(): {"roots": []}});
                let params = json!({"taskId": task, "inputResponses": responses});
                request(id, "tasks/update", able(&capable, params))
            }
            12 => {
                let at = self.one(self.states.len().max(1));
                let (tool, state) = self.states.get(at).cloned().unwrap_or_default();
                let responses = json!({self.asks.to_string(): {"roots": []}});
                let params =
                    json!({"name": tool, "requestState": state, "inputResponses": responses});
                request(id, "tools/call", able(&capable, params))
            }
            _ => cancel(id),
        }
    }

    fn step(&mut self) {
        let at = self.one(self.conns.len());
        let conn = self.conns[at];
        let open = self.world.is_open(conn);
        match self.one(16) {
            0..=6 if open => {
                let line = self.line();
                self.world.frame(conn, &line);
            }
            7 | 8 => self.world.feed(Input::Turn),
            9 if open => self.world.block(conn),
            10 if open => self.world.read_again(conn),
            11 => {
                let Some(job) = self.job() else { return };
                self.asks += 1;
                let (method, params) = ("roots/list".into(), Some(raw_json("{}")));
                let ask =
                    OutgoingRequest { key: None, method, params, answer_timeout: None, task: None };
                self.world.feed(Input::Asked(job, AskId::new(self.asks), None, ask));
            }
            12 => {
                let Some(job) = self.job() else { return };
                let progress = f64::from(u32::try_from(self.asks).expect("few")) + 1.0;
                self.world.progress(job, progress);
            }
            13 => {
                let Some(job) = self.job() else { return };
                self.world.done(job, "done");
            }
            14 => {
                let span = Duration::from_millis(self.rng.word() % 10_000);
                self.world.advance(span);
            }
            15 => {
                let settings = tools::settings(Limits::default(), TaskPolicy::default());
                if self.rng.once_in(20) {
                    self.world.feed(Input::Configured(settings));
                }
            }
            _ => {}
        }
        self.listen();
    }

    /// The messages that the clients received.
    fn listen(&mut self) {
        for conn in self.conns.clone() {
            for told in self.world.rest(conn) {
                let result = &told["result"];
                if let Some(state) = result["requestState"].as_str() {
                    let tools = TOOLS.map(|tool| (tool.to_owned(), state.to_owned()));
                    self.states.extend(tools);
                }
                let task = result["taskId"].as_str().or(result["task"]["taskId"].as_str());
                self.tasks.extend(task.map(ToOwned::to_owned));
            }
        }
    }

    /// All peers leave, and everything ends.
    fn end(mut self) {
        for (at, conn) in self.conns.clone().into_iter().enumerate() {
            if self.world.is_open(conn) && at == 0 {
                self.world.feed(Input::Finished(conn, AfterInput::Answer));
            }
            if self.world.is_open(conn) {
                self.world.lose(conn);
            }
        }
        self.world.feed(Input::Turn);
        while let Some(job) = self.world.running.keys().next().copied() {
            self.world.done(job, "late");
        }
        self.world.advance(Duration::from_secs(200_000));
        let sizes = self.world.sizes();
        let left = (sizes.connections, sizes.requests, sizes.jobs, sizes.tasks, sizes.timers);
        assert_eq!(left, (0, 0, 0, 0, 0));
    }
}

/// MOD-01, MOD-04, MOD-07, MOD-08, EXT-07, RPC-03: whatever happens in whatever order.
#[test]
fn whatever_happens() {
    let (mut parked, mut made) = (0, 0);
    for seed in 0..300 {
        let mut walk = Walk::new(seed);
        for _ in 0..250 {
            walk.step();
        }
        parked += walk.states.len();
        made += walk.tasks.len();
        walk.end();
    }
    assert!(parked > 300 && made > 1000, "{parked} parked and {made} tasks: too quiet");
}
