//! Random walks of the engine as a client: whatever a server answers, in whatever order, every call
//! is told exactly once and nothing is left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::ids::{AskId, ConnId};
use ceased_core::outgoing::call::{AnswerTimeout, AskTask, Caller, OutgoingRequest};
use ceased_simulator::rng::Rng;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

const STATUSES: [&str; 5] = ["working", "input_required", "completed", "failed", "cancelled"];

/// One walk: the world, and its open requests.
struct Walk {
    world: World,
    rng: Rng,
    conn: ConnId,
    /// Our requests that the server has not answered.
    open: Vec<Value>,
    /// How often each call was to be told of, which is once.
    made: Vec<Caller>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = World::new();
        let mut tasks = json!({"requests": {"tools": {"call": {}}}});
        if rng.below(4) > 0 {
            tasks["cancel"] = json!({});
        }
        let conn = world.dial(NEWEST, json!({"tools": {}, "tasks": tasks}));
        let mut walk = Self { world, rng, conn, open: Vec::new(), made: Vec::new() };
        walk.call(OutgoingRequest {
            key: None,
            method: "tools/list".into(),
            params: None,
            answer_timeout: None,
            task: None,
        });
        let id = walk.open.remove(0)["id"].clone();
        let tool = json!({"name": "t", "inputSchema": {"type": "object"},
            "execution": {"taskSupport": "optional"}});
        walk.world.answer(conn, &id, json!({"tools": [tool]}));
        walk
    }

    fn call(&mut self, request: OutgoingRequest) {
        let ask = AskId::new(self.made.len() as u64);
        self.made.push(Caller::Host(ask));
        self.world.feed(Input::Call(self.conn, ask, request));
        self.listen();
    }

    fn call_tool(&mut self) {
        let answer_timeout = AnswerTimeout {
            timeout: Duration::from_secs(3),
            extend_on_progress: self.rng.below(2) == 0,
            cap: Duration::from_secs(9),
        };
        let params = to_raw_value(&json!({"name": "t", "arguments": {}})).expect("it is JSON");
        let request = OutgoingRequest {
            key: None,
            method: "tools/call".into(),
            params: Some(params),
            answer_timeout: (self.rng.below(3) == 0).then_some(answer_timeout),
            task: (self.rng.below(4) > 0).then(AskTask::default),
        };
        self.call(request);
    }

    /// Takes the messages to the server.
    fn listen(&mut self) {
        for message in self.world.rest(self.conn) {
            if message.get("id").is_some() {
                self.open.push(message);
            }
        }
    }

    fn report(&mut self, id: &str) -> Value {
        let status = STATUSES[self.rng.below(STATUSES.len())];
        json!({"taskId": id, "status": status, "ttl": null, "pollInterval": self.rng.below(2000),
            "createdAt": "2025-11-01T00:00:00Z", "lastUpdatedAt": "2025-11-01T00:00:00Z"})
    }

    /// The server answers one of our requests, rightly or not.
    fn answer(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.rng.below(self.open.len());
        // A few are answered twice.
        let keep = self.rng.below(10) == 0;
        let request = if keep { self.open[at].clone() } else { self.open.remove(at) };
        let id = &request["id"];
        if self.rng.below(6) == 0 {
            return self.world.refuse(self.conn, id, -32602, "no");
        }
        let named = request["params"]["taskId"].as_str().map(ToOwned::to_owned);
        let result = match self.rng.below(8) {
            0 => json!({"odd": true}),
            _ if request["method"] == "tools/call" && request["params"]["task"].is_object() => {
                json!({"task": self.report(&format!("task-{id}"))})
            }
            _ if request["method"] == "tasks/get" || request["method"] == "tasks/cancel" => {
                self.report(&named.unwrap_or_default())
            }
            _ => json!({"content": []}),
        };
        self.world.answer(self.conn, id, result);
    }

    fn hint(&mut self) {
        let tasks: Vec<String> =
            self.world.remote_tasks().iter().map(|task| task.task.to_owned()).collect();
        if !tasks.is_empty() {
            let task = self.rng.pick(&tasks).clone();
            let params = self.report(&task);
            let note = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status",
                "params": params});
            self.world.send(self.conn, &note.to_string());
        }
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..=2 => self.call_tool(),
            3..=6 => self.answer(),
            7 => self.hint(),
            8 => {
                let caller = self.made[self.rng.below(self.made.len())];
                self.world.feed(Input::CancelCall(caller, None));
            }
            _ => self.world.advance(Duration::from_millis(self.rng.below(3000) as u64)),
        }
        self.listen();
    }
}

/// CAN-05, CAN-10, TSK-13, TSK-42
#[test]
fn every_call_is_told_once() {
    let mut polls = 0;
    for seed in 0..300 {
        let mut walk = Walk::new(seed);
        for _ in 0..120 {
            walk.step();
            polls += walk.open.iter().filter(|request| request["method"] == "tasks/get").count();
        }
        walk.world.lose(walk.conn);
        let mut times: BTreeMap<Caller, usize> = BTreeMap::new();
        for (caller, _) in &walk.world.told {
            *times.entry(*caller).or_default() += 1;
        }
        for caller in &walk.made {
            assert_eq!(times.get(caller), Some(&1), "seed {seed}: {caller:?}");
        }
        let sizes = walk.world.sizes();
        assert_eq!((sizes.timers, sizes.connections), (0, 0), "seed {seed}");
        assert!(walk.world.remote_tasks().is_empty(), "seed {seed}");
    }
    assert!(polls > 0, "no task was ever asked about");
}
