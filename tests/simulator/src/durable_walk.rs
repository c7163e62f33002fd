//! Random walks over durable tasks: the process is killed repeatedly, and every statement to a
//! client stays true (DUR-01).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::modern::{cancel, request, tasks};
use crate::rng::Rng;
use crate::store::Store;
use crate::tools;
use crate::trace::{Input, Trace};
use crate::world::{NEWEST, WALL_START, World, result_of};
use ceased_core::event::Outcome;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, JobId, TaskId};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::OutgoingRequest;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::Unstored;
use ceased_core::tool::{Catalog, OnDisconnect, Tool};
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);
const TERMINAL: [&str; 3] = ["completed", "failed", "cancelled"];

/// Identity and revision of a connection.
#[derive(Debug, Clone, Copy)]
struct Client {
    user: u32,
    modern: bool,
}

/// Statements about one task, to any peer, over all restarts.
#[derive(Debug, Default)]
struct Said {
    user: u32,
    /// Earliest time at which the task may be forgotten, by the wall clock.
    until: u64,
    /// Final statements, by the form they were made in.
    last: BTreeMap<&'static str, Value>,
    /// Whether a peer was told that the task does not exist.
    gone: bool,
}

/// An unanswered request.
#[derive(Debug, Clone)]
struct Asked {
    conn: ConnId,
    method: &'static str,
    task: Option<String>,
}

struct Walk {
    rng: Rng,
    settings: Arc<Settings>,
    store: Store,
    world: World,
    clients: BTreeMap<ConnId, Client>,
    asked: BTreeMap<String, Asked>,
    /// Requests whose cancel means that no answer follows.
    taken_back: BTreeSet<String>,
    said: BTreeMap<String, Said>,
    next: u64,
    /// Number of jobs already examined at their start.
    seen: usize,
    kills: usize,
    held: usize,
}

fn settings(rng: &mut Rng) -> Arc<Settings> {
    let limits = Limits {
        running_max: 1 + rng.below(6),
        inflight_max: 8 + rng.below(20),
        resident_result_bytes: 200 + rng.below(2) * 5000,
        ..Limits::default()
    };
    let tasks = TaskPolicy {
        durable: true,
        store_retry: SECOND,
        default_ttl: 60 * SECOND,
        max_ttl: 120 * SECOND,
        late_result: 20 * SECOND,
        on_ttl: if rng.once_in(2) { OnTtl::Finish } else { OnTtl::Stop },
        page_size: 1000,
        ..TaskPolicy::default()
    };
    let kept = Tool { on_disconnect: OnDisconnect::Detach, ..tools::tool("kept") };
    // Jobs of this tool start while their tasks are being written.
    let looks = Tool { read_only: true, ..tools::optional("look") };
    let catalog = Catalog::new([tools::optional("sleep"), looks, kept]).expect("good tools");
    Arc::new(Settings { limits, tasks, catalog, ..Settings::default() })
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let mut store = Store::default();
        let world = store.world(&settings);
        let mut walk = Self {
            rng,
            settings,
            store,
            world,
            clients: BTreeMap::new(),
            asked: BTreeMap::new(),
            taken_back: BTreeSet::new(),
            said: BTreeMap::new(),
            next: 1,
            seen: 0,
            kills: 0,
            held: 0,
        };
        walk.world.trace = Some(Trace::default());
        walk
    }

    fn wall(&self) -> u64 {
        self.world.now().wall.as_millis()
    }

    // ----------------------------------------------------------------------- steps

    fn step(&mut self) {
        match self.rng.below(100) {
            0..5 => self.connect(),
            5..7 => self.disconnect(),
            7..24 => self.create(),
            24..27 => self.call(),
            27 => self.cancel(),
            28..47 => self.ask(),
            47..60 => self.report(),
            60..80 => {
                let count = 1 + self.rng.below(4);
                self.store.commit(&mut self.world, count);
            }
            80..84 => self.refuse(),
            84..90 => {
                let readable = !self.rng.once_in(5);
                self.store.load(&mut self.world, readable);
            }
            90..96 => {
                let millis = self.rng.below(1500) as u64;
                self.world.advance(Duration::from_millis(millis));
            }
            96 => self.world.advance(20 * SECOND),
            97 => self.listen(),
            98 => self.kill(),
            _ if self.rng.once_in(4) => self.shut_down(),
            _ => self.store.commit_all(&mut self.world),
        }
        self.look();
        self.held = self.held.max(self.world.sizes().held);
    }

    fn connect(&mut self) {
        if self.clients.len() > 6 {
            return;
        }
        let client =
            Client { user: 1 + u32::from(self.rng.once_in(3)), modern: self.rng.once_in(2) };
        let identity = Identity::User(client.user);
        let conn = match client.modern {
            true => self.world.connect(identity),
            false => self.world.open_as(identity, NEWEST),
        };
        self.clients.insert(conn, client);
    }

    fn some_client(&mut self) -> Option<(ConnId, Client)> {
        let all: Vec<(ConnId, Client)> = self.clients.iter().map(|(c, x)| (*c, *x)).collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    fn disconnect(&mut self) {
        if let Some((conn, _)) = self.some_client() {
            self.clients.remove(&conn);
            self.world.lose(conn);
        }
    }

    fn send(&mut self, conn: ConnId, client: Client, asked: Asked, params: Value) {
        let id = format!("r{}", self.next);
        self.next += 1;
        let params = if client.modern { tasks(params) } else { params };
        let method = if asked.method == "kept" { "tools/call" } else { asked.method };
        self.world.frame(conn, &request(json!(id), method, params));
        self.asked.insert(id, asked);
        if self.rng.once_in(2) {
            self.world.feed(Input::Turn);
        }
    }

    fn create(&mut self) {
        let Some((conn, client)) = self.some_client() else { return };
        let name = if self.rng.once_in(2) { "look" } else { "sleep" };
        let mut params = json!({"name": name, "arguments": {}});
        if !client.modern {
            params["task"] = json!({"ttl": 500 + self.rng.below(60_000)});
            params["_meta"] = json!({"progressToken": self.next});
        }
        self.send(conn, client, Asked { conn, method: "tools/call", task: None }, params);
    }

    /// A call that becomes a task when its connection closes, which often happens at once.
    fn call(&mut self) {
        let Some((conn, client)) = self.some_client() else { return };
        let params = json!({"name": "kept", "arguments": {}});
        self.send(conn, client, Asked { conn, method: "kept", task: None }, params);
        if self.rng.once_in(2) {
            self.clients.remove(&conn);
            self.world.lose(conn);
        }
    }

    /// Cancels a call, whose task may exist already or not.
    fn cancel(&mut self) {
        let Some((conn, client)) = self.some_client() else { return };
        let creates = |asked: &Asked| asked.method == "tools/call" && asked.conn == conn;
        let latest = self.asked.iter().rfind(|(_, asked)| creates(asked));
        let Some(id) = latest.map(|(id, _)| id.clone()).filter(|_| client.modern) else { return };
        // No answer may follow.
        self.asked.remove(&id);
        self.taken_back.insert(id.clone());
        self.world.send(conn, &cancel(json!(id)));
    }

    fn ask(&mut self) {
        let Some((conn, client)) = self.some_client() else { return };
        if !client.modern && self.rng.once_in(5) {
            return self.send(
                conn,
                client,
                Asked { conn, method: "tasks/list", task: None },
                json!({}),
            );
        }
        let known: Vec<&String> = self.said.keys().collect();
        if known.is_empty() {
            return;
        }
        // Mostly one of the latest tasks.
        let from = if self.rng.once_in(3) { 0 } else { known.len().saturating_sub(5) };
        let task = (*self.rng.pick(&known[from..])).clone();
        let methods: &[&'static str] = match client.modern {
            true => &["tasks/get", "tasks/get", "tasks/cancel"],
            false => &["tasks/get", "tasks/result", "tasks/result", "tasks/cancel"],
        };
        let method = *self.rng.pick(methods);
        let params = json!({"taskId": task});
        self.send(conn, client, Asked { conn, method, task: Some(task) }, params);
    }

    fn listen(&mut self) {
        let Some((conn, client)) = self.some_client() else { return };
        if client.modern {
            let ids: Vec<&String> = self.said.keys().collect();
            let params = json!({"notifications": {"taskIds": ids}});
            let asked = Asked { conn, method: "subscriptions/listen", task: None };
            self.send(conn, client, asked, params);
        }
    }

    /// A job reports something, usually its end.
    fn report(&mut self) {
        let running: Vec<JobId> = self.world.running.keys().copied().collect();
        if running.is_empty() {
            return;
        }
        let job = *self.rng.pick(&running);
        let number = self.next;
        if self.rng.once_in(4) {
            self.next += 1;
            self.world.progress(job, number as f64);
            return self.world.log(job, LogLevel::Error, json!(number));
        }
        let text = format!("{number} {}", "x".repeat(self.rng.below(2) * 300));
        let content = json!([{"type": "text", "text": text}]);
        let outcome = match self.rng.below(6) {
            0 if self.world.running[&job].step.is_none() => {
                let params =
                    r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;
                let params = Some(crate::world::raw_json(params));
                let method = "elicitation/create".into();
                let request =
                    OutgoingRequest { key: None, method, params, answer_timeout: None, task: None };
                let ask = AskId::new(number);
                self.next += 1;
                return self.world.feed(Input::Asked(job, ask, None, request));
            }
            1 => Outcome::Error(ErrorObject::new(7, text)),
            2 => result_of(&json!({"content": content, "isError": true})),
            3 => Outcome::Stopped,
            _ => result_of(&json!({"content": content})),
        };
        self.next += 1;
        self.world.end(job, outcome);
    }

    fn refuse(&mut self) {
        self.store.take(&mut self.world);
        let why = if self.rng.once_in(2) { Unstored::Full } else { Unstored::Broken };
        if self.rng.once_in(4) {
            // The failure was detected before a write was tried.
            self.world.feed(Input::StoreFailed(why));
        }
        for _ in 0..=self.rng.below(3) {
            if !self.store.waiting.is_empty() {
                let yet_done = self.rng.once_in(3);
                self.store.refuse(&mut self.world, why, yet_done);
            }
        }
    }

    /// Kills the process: the engine's state is lost, and some of the writes in progress may have
    /// reached the disk.
    fn kill(&mut self) {
        self.store.take(&mut self.world);
        let arrived = self.rng.below(self.store.waiting.len() + 1);
        self.store.arrive(arrived);
        self.restart();
        self.kills += 1;
    }

    fn shut_down(&mut self) {
        let by = self.world.now().at + SECOND;
        self.world.feed(Input::Drain(by));
        self.look();
        self.store.commit_all(&mut self.world);
        self.look();
        self.world.advance(SECOND);
        self.look();
        assert_eq!(self.world.exits, 1);
        self.restart();
    }

    fn restart(&mut self) {
        let down = self.rng.below(3) * self.rng.below(20_000);
        let wall = self.wall() + down as u64;
        if let Some(trace) = self.world.trace.take()
            && self.rng.once_in(10)
        {
            let replay = |trace: &Trace| trace.replay(&self.settings, self.store.id_source());
            assert_eq!(replay(&trace), replay(&trace.through_json()), "DET-01");
        }
        self.world = self.store.empty_world(&self.settings);
        self.world.trace = Some(Trace::default());
        self.world.set_wall(wall.max(WALL_START));
        self.store.restore(&mut self.world);
        self.clients.clear();
        self.asked.clear();
        self.taken_back.clear();
        self.seen = 0;
    }

    // ----------------------------------------------------------------------- observations

    /// Compares every statement with the content of the disk and with earlier statements.
    fn look(&mut self) {
        for job in self.world.started.clone().into_iter().skip(self.seen) {
            let Some(running) = self.world.running.get(&job) else { continue };
            if let Some(task) = running.task.filter(|_| running.tool != "look") {
                assert!(
                    self.store.records.contains_key(&task),
                    "{job} runs for a task that is not on disk"
                );
            }
        }
        self.seen = self.world.started.len();
        let clients: Vec<(ConnId, Client)> = self.clients.iter().map(|(c, x)| (*c, *x)).collect();
        for (conn, client) in clients {
            for message in self.world.rest(conn) {
                self.hear(client, &message);
            }
            if !self.world.is_open(conn) {
                self.clients.remove(&conn);
            }
        }
    }

    fn hear(&mut self, client: Client, message: &Value) {
        if let Some(method) = message.get("method").and_then(Value::as_str) {
            match method {
                "notifications/tasks/status" => self.hear_object(client, &message["params"]),
                "notifications/tasks" => self.hear_detailed(client, &message["params"]),
                "notifications/progress" | "notifications/message" => {
                    let related = &message["params"]["_meta"];
                    let related = &related["io.modelcontextprotocol/related-task"]["taskId"];
                    if let Some(id) = related.as_str() {
                        let said = self.of(client, id);
                        assert!(said.last.is_empty(), "{id} had ended, and says: {message}");
                    }
                }
                _ => {}
            }
            return;
        }
        let id = message["id"].as_str().unwrap_or_default();
        assert!(!self.taken_back.contains(id), "an answer to a cancelled request: {message}");
        let Some(asked) = self.asked.remove(id) else { return };
        let Some(result) = message.get("result") else {
            return self.hear_error(client, &asked, &message["error"]);
        };
        match (asked.method, client.modern) {
            ("tools/call", modern) => {
                let handle = if modern { result } else { &result["task"] };
                self.hear_promise(client, handle);
            }
            ("tasks/list", _) => self.hear_list(client, result),
            ("tasks/get", true) => self.hear_detailed(client, result),
            ("tasks/get" | "tasks/cancel", false) => self.hear_object(client, result),
            ("tasks/result", _) => {
                let mut outcome = result.clone();
                outcome.as_object_mut().expect("an object").remove("_meta");
                self.hear_final(client, &asked.task.expect("of a task"), "outcome", outcome);
            }
            (_, _) => {}
        }
    }

    /// Every statement concerns a task that was announced to that user.
    fn of(&mut self, client: Client, id: &str) -> &mut Said {
        let said = self.said.get_mut(id).unwrap_or_else(|| panic!("{id} was never announced"));
        assert_eq!(said.user, client.user, "{id} is another's (TSK-39)");
        assert!(!said.gone, "{id} is back");
        said
    }

    fn hear_promise(&mut self, client: Client, handle: &Value) {
        let id = handle["taskId"].as_str().expect("a handle names its task").to_owned();
        assert!(self.on_disk(&id).is_some(), "{id} is announced before it is on disk");
        let ttl = handle.get("ttl").or_else(|| handle.get("ttlMs")).and_then(Value::as_u64);
        let record = &self.store.records[&TaskId::parse(&id).expect("an id")];
        let until = record.created.as_millis() + ttl.expect("a task has a ttl");
        let said = Said { user: client.user, until, ..Said::default() };
        assert!(self.said.insert(id, said).is_none(), "an id is used twice");
    }

    fn on_disk(&self, id: &str) -> Option<&ceased_core::tasks::durable::TaskRecord> {
        self.store.records.get(&TaskId::parse(id)?)
    }

    /// A core task object.
    fn hear_object(&mut self, client: Client, object: &Value) {
        let id = object["taskId"].as_str().expect("a task object has an id").to_owned();
        let mut object = object.clone();
        object.as_object_mut().expect("an object").remove("_meta");
        self.hear_state(client, &id, "object", object);
    }

    /// A task object of the extension.
    fn hear_detailed(&mut self, client: Client, detailed: &Value) {
        let id = detailed["taskId"].as_str().expect("a task object has an id").to_owned();
        let mut detailed = detailed.clone();
        let members = detailed.as_object_mut().expect("an object");
        members.remove("_meta");
        members.remove("resultType");
        if let Some(result) =
            members.get("result").cloned().or_else(|| members.get("error").cloned())
        {
            self.hear_final(client, &id, "outcome", result);
        } else if members["status"] == "completed" || members["status"] == "failed" {
            panic!("an end without an outcome: {detailed}");
        }
        self.hear_state(client, &id, "detailed", detailed);
    }

    fn hear_state(&mut self, client: Client, id: &str, form: &'static str, object: Value) {
        let status = object["status"].as_str().expect("a task object has a status").to_owned();
        if TERMINAL.contains(&status.as_str()) {
            let cancelled = status == "cancelled";
            self.hear_final(client, id, form, object);
            self.hear_final(client, id, "cancelled", json!(cancelled));
            return;
        }
        let said = self.of(client, id);
        assert!(said.last.is_empty(), "{id} had ended and is {status} again: {:?}", said.last);
    }

    /// A statement that must never change.
    fn hear_final(&mut self, client: Client, id: &str, form: &'static str, mut what: Value) {
        // Revisions with result metadata add the server and the type to a result.
        if let Some(result) = what.as_object_mut().filter(|_| form == "outcome") {
            result.remove("_meta");
            result.remove("resultType");
        }
        let ended = self.on_disk(id).is_none_or(|record| record.status.is_terminal());
        assert!(ended, "the end of {id} is announced and not on disk: {what}");
        let before = self.of(client, id).last.insert(form, what.clone());
        assert!(before.as_ref().is_none_or(|before| *before == what), "{before:?} and {what}");
    }

    fn hear_list(&mut self, client: Client, result: &Value) {
        let mut listed = BTreeSet::new();
        for object in result["tasks"].as_array().expect("a list") {
            listed.insert(object["taskId"].as_str().expect("an id").to_owned());
            self.hear_listed(client, object);
        }
        let wall = self.wall();
        for (id, said) in &self.said {
            let there = said.user != client.user || said.until <= wall || listed.contains(id);
            assert!(there, "{id} was announced until {} and is missing at {wall}", said.until);
        }
    }

    /// An owner may see a task in a list before it gets the handle.
    fn hear_listed(&mut self, client: Client, object: &Value) {
        let id = object["taskId"].as_str().expect("an id").to_owned();
        assert!(self.on_disk(&id).is_some(), "{id} is listed and not on disk");
        let record = self.on_disk(&id).expect("a listed task is on disk");
        let until = record.created.as_millis() + object["ttl"].as_u64().expect("a ttl");
        let user = client.user;
        self.said.entry(id.clone()).or_insert_with(|| Said { user, until, ..Said::default() });
        self.hear_object(client, object);
    }

    fn hear_error(&mut self, client: Client, asked: &Asked, error: &Value) {
        let wall = self.wall();
        let code = error["code"].as_i64().expect("an error has a code");
        let Some(id) = asked.task.as_deref() else { return };
        let message = error["message"].as_str().unwrap_or_default();
        let unknown = code == -32602 && message.starts_with("there is no task") || code == -31002;
        if unknown {
            let said = self.said.get_mut(id).expect("only known tasks are asked for");
            if said.user == client.user {
                assert!(said.until <= wall, "{id} is forgotten: {} of {wall}", said.until);
                said.gone = true;
            }
        } else if code == -32602 {
            let status = message.split(' ').nth(3).expect("the message has the status").to_owned();
            let cancelled = json!(status == "cancelled");
            self.hear_final(client, id, "cancelled", cancelled);
        } else if asked.method == "tasks/result" && ![-31003, -31005, -31006].contains(&code) {
            self.hear_final(client, id, "outcome", error.clone());
        }
    }

    // ----------------------------------------------------------------------- the end

    /// Checks that every announced task exists, and that after all ttls the store is empty.
    fn finish(mut self) -> (usize, usize, usize) {
        self.kill();
        self.store.commit_all(&mut self.world);
        for user in [1, 2] {
            let client = Client { user, modern: false };
            let conn = self.world.open_as(Identity::User(user), NEWEST);
            self.clients.insert(conn, client);
            let asked = Asked { conn, method: "tasks/list", task: None };
            self.send(conn, client, asked, json!({}));
            self.look();
            let wall = self.wall();
            let mine = |(id, said): (&String, &Said)| {
                (said.user == user && said.until > wall).then(|| id.clone())
            };
            for task in self.said.iter().filter_map(mine).collect::<Vec<_>>() {
                for method in ["tasks/get", "tasks/result"] {
                    let asked = Asked { conn, method, task: Some(task.clone()) };
                    self.send(conn, client, asked, json!({"taskId": task}));
                    self.store.load(&mut self.world, true);
                    self.look();
                }
            }
            assert!(self.asked.is_empty(), "unanswered requests: {:?}", self.asked);
        }
        self.world.advance(300 * SECOND);
        self.store.commit_all(&mut self.world);
        let sizes = self.world.sizes();
        assert_eq!((sizes.tasks, sizes.jobs, sizes.held, sizes.unpersisted), (0, 0, 0, 0));
        assert!(self.store.records.is_empty(), "records are left in the store");
        let ended = self.said.values().filter(|said| !said.last.is_empty()).count();
        (self.kills, self.held, ended)
    }
}

/// Statistics of a walk.
#[derive(Debug, Clone, Copy)]
pub struct Walked {
    /// Number of kills.
    pub kills: usize,
    /// Largest number of requests that waited for the store.
    pub held: usize,
    /// Announced ends of tasks.
    pub ended: usize,
}

/// Walks `steps` steps through a world of durable tasks.
///
/// # Panics
/// When a statement is lost or contradicted, or an invariant of the engine is broken.
#[must_use]
pub fn walk(seed: u64, steps: usize) -> Walked {
    let mut walk = Walk::new(seed);
    for _ in 0..steps {
        walk.step();
    }
    let (kills, held, ended) = walk.finish();
    Walked { kills, held, ended }
}
