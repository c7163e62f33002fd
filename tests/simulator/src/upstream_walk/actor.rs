//! Scripted servers of a walk, and the oracle's rules about them: no call comes twice, a cancel
//! comes for a call that is over, and before all other data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ceased_core::ids::InstanceId;
use ceased_core::upstream::interface::ProcessEvidence;
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::Walk;

const TASKS: &str = "io.modelcontextprotocol/tasks";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Behaviour of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Temper {
    /// Answers a cancelled call with an error.
    Obeys,
    /// Stops and says nothing.
    Quiet,
    /// Goes on computing, and answers no ping while it does.
    Ignores,
    /// Starts processes that outlive the call.
    Strays,
    /// Answers after the cancel.
    Late,
    /// Asks its client during calls.
    Asks,
    /// Ends when it likes.
    Dies,
    /// Never finishes its handshake.
    Hangs,
    /// Prints lines that are no messages, and answers that match nothing.
    Garbles,
    /// Changes its lists.
    Changes,
}

impl Temper {
    pub(super) const ALL: [Self; 10] = [
        Self::Obeys,
        Self::Quiet,
        Self::Ignores,
        Self::Strays,
        Self::Late,
        Self::Asks,
        Self::Dies,
        Self::Hangs,
        Self::Garbles,
        Self::Changes,
    ];
}

/// A request of a client at a server, or the task that the server has made of it.
#[derive(Debug, Clone)]
struct Request {
    marker: String,
    /// Whether it may become a task.
    has_tasks: bool,
    token: Option<Value>,
    progress: u64,
    is_cancelled: bool,
}

/// One running server.
#[derive(Debug)]
pub(super) struct Actor {
    conn: ConnId,
    /// Its only client, if it has one.
    pub(super) client: Option<ConnId>,
    temper: Temper,
    is_modern: bool,
    /// Requests of clients that are not answered.
    requests: BTreeMap<u64, Request>,
    /// Tasks that have not ended.
    tasks: BTreeMap<String, Request>,
    /// Tasks that have ended.
    ended_tasks: BTreeSet<String>,
    /// Subscriptions of the engine.
    listens: BTreeSet<u64>,
    /// Requests that were answered, and had no cancel.
    answered: BTreeMap<u64, String>,
    /// Ids that were seen; none comes twice (UPS-02).
    ids: BTreeSet<u64>,
    /// Requests of the engine itself that are not answered.
    inbox: Vec<Value>,
    /// Requests to clients that wait for an answer: the calls they are for.
    questions: BTreeMap<u64, String>,
    next_question: u64,
    pub(super) strays: u32,
    cpu: Duration,
    lists: u64,
}

impl Actor {
    pub(super) const fn new(
        (conn, client): (ConnId, Option<ConnId>),
        temper: Temper,
        is_modern: bool,
    ) -> Self {
        Self {
            conn,
            client,
            temper,
            is_modern,
            requests: BTreeMap::new(),
            tasks: BTreeMap::new(),
            ended_tasks: BTreeSet::new(),
            listens: BTreeSet::new(),
            answered: BTreeMap::new(),
            ids: BTreeSet::new(),
            inbox: Vec::new(),
            questions: BTreeMap::new(),
            next_question: 0,
            strays: 0,
            cpu: Duration::ZERO,
            lists: 0,
        }
    }

    /// Facts about its processes.
    pub(super) fn evidence(&mut self) -> ProcessEvidence {
        if self.temper == Temper::Ignores {
            self.cpu += Duration::from_millis(90);
        }
        ProcessEvidence { born: Some(self.strays), cpu: Some(self.cpu), waited: None }
    }
}

impl Walk {
    fn some_actor(&mut self) -> Option<InstanceId> {
        let all: Vec<InstanceId> = self.actors.keys().copied().collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    /// A server reads all that was written to it since it last read.
    pub(super) fn actor_reads(&mut self) {
        let Some(id) = self.some_actor() else { return };
        let conn = self.actors[&id].conn;
        let mut only_cancels = true;
        for message in self.lines(conn) {
            let method = message["method"].as_str().unwrap_or_default();
            let is_cancel = method == "notifications/cancelled" || method.starts_with("tasks/");
            assert!(!is_cancel || only_cancels, "UPS-04: a cancel waits behind data: {message}");
            only_cancels &= is_cancel;
            self.actor_heard(id, &message);
        }
        let actor = &self.actors[&id];
        for request in actor.requests.values().chain(actor.tasks.values()) {
            let is_over = self.oracle.over.contains(&request.marker);
            let is_told = request.is_cancelled || self.ending.contains(&id);
            assert!(!is_over || is_told, "UPS-04: {} is over and not cancelled", request.marker);
        }
    }

    fn actor_heard(&mut self, id: InstanceId, message: &Value) {
        let actor = self.actors.get_mut(&id).expect("it reads");
        match message["method"].as_str() {
            Some("tools/call") => {
                let number = message["id"].as_u64().expect("UPS-02: an integer of ours");
                assert!(actor.ids.insert(number), "UPS-02: {number} comes twice");
                let params = &message["params"];
                assert_eq!(params["name"], "work", "UPS-11: {message}");
                let marker = params["arguments"]["m"].as_str().expect("a marker").to_owned();
                assert!(self.oracle.seen.insert(marker.clone()), "UPS-06: {marker} is replayed");
                let is_over = self.oracle.over.contains(&marker);
                assert!(!is_over, "UPS-04: {marker} was cancelled before it was written");
                let meta = &params["_meta"];
                let token = meta.get("progressToken").cloned();
                if let Some(own) = meta.get("x/marker") {
                    assert_eq!(*own, marker.as_str(), "UPS-10: {message}");
                }
                let able = &meta["io.modelcontextprotocol/clientCapabilities"];
                let has_tasks = able["extensions"][TASKS].is_object();
                assert!(actor.is_modern || !has_tasks, "UPS-15: {message}");
                let request =
                    Request { marker, has_tasks, token, progress: 0, is_cancelled: false };
                actor.requests.insert(number, request);
                actor.strays += u32::from(actor.temper == Temper::Strays);
            }
            Some("notifications/cancelled") => {
                let number = message["params"]["requestId"].as_u64().expect("UPS-04: our id");
                if actor.listens.remove(&number) {
                    return;
                }
                let marker = match actor.requests.get_mut(&number) {
                    Some(request) => {
                        assert!(!request.is_cancelled, "UPS-04: cancelled twice: {message}");
                        request.is_cancelled = true;
                        request.marker.clone()
                    }
                    // The answer has crossed the cancel.
                    None => actor.answered.remove(&number).expect("UPS-04: no such request"),
                };
                assert!(self.oracle.over.contains(&marker), "UPS-04: {marker} is wanted");
            }
            Some("tasks/cancel") => {
                let task = message["params"]["taskId"].as_str().expect("a task of this server");
                match actor.tasks.get_mut(task) {
                    Some(request) => {
                        assert!(!request.is_cancelled, "UPS-04: cancelled twice: {message}");
                        request.is_cancelled = true;
                        let is_over = self.oracle.over.contains(&request.marker);
                        assert!(is_over, "UPS-04: {} is wanted", request.marker);
                    }
                    // The end of the task has crossed the cancel.
                    None => assert!(actor.ended_tasks.contains(task), "UPS-04: no task: {message}"),
                }
                actor.inbox.push(message.clone());
            }
            Some("notifications/initialized") => {}
            Some(_) => actor.inbox.push(message.clone()),
            None => {
                let number = message["id"].as_u64().expect("an id of this server");
                let marker = actor.questions.remove(&number);
                let marker =
                    marker.unwrap_or_else(|| panic!("UPS-12: no such question: {message}"));
                if message["error"].is_object() {
                    self.walked.refused += 1;
                } else {
                    assert_eq!(message["result"]["content"]["m"], marker, "UPS-12: {message}");
                    self.walked.questions += 1;
                }
            }
        }
    }

    /// A server does something, by its temper.
    pub(super) fn actor_works(&mut self) {
        if self.rng.once_in(5) {
            return self.answer_a_question();
        }
        let Some(id) = self.some_actor() else { return };
        let actor = self.actors.get(&id).expect("it was picked");
        let (conn, temper) = (actor.conn, actor.temper);
        match self.rng.below(8) {
            0..4 if !actor.inbox.is_empty() => self.answer_the_engine(id),
            0..5 => self.answer_a_call(id),
            5 => self.tell_progress(id),
            6 if temper == Temper::Asks => self.ask(id),
            6 if temper == Temper::Dies && self.rng.once_in(3) => self.end_actor(id, "signal 11"),
            6 if temper == Temper::Garbles => {
                let line = *self.rng.pick(&[
                    "listening",
                    "{}",
                    "[]",
                    "{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{}}",
                    "{\"jsonrpc\":\"2.0\",\"id\":\"0\",\"result\":{}}",
                    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":987654,\"progress\":1}}",
                    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":0}}",
                ]);
                self.feed(Event::Frame { conn, frame: line.as_bytes() });
            }
            6 if temper == Temper::Changes => self.change_lists(id),
            _ => {}
        }
    }

    /// A server says that its tools are others, to those that it tells of it.
    fn change_lists(&mut self, id: InstanceId) {
        let actor = self.actors.get_mut(&id).expect("it was picked");
        actor.lists += 1;
        let (conn, method) = (actor.conn, "notifications/tools/list_changed");
        if !actor.is_modern {
            return self.send(conn, &json!({"jsonrpc": "2.0", "method": method}));
        }
        for listen in actor.listens.clone() {
            let params = json!({"_meta": {SUBSCRIPTION: listen}});
            self.send(conn, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        }
    }

    /// A server acknowledges a subscription, and may end it later.
    fn acknowledge(&mut self, id: InstanceId, request: &Value) {
        let actor = self.actors.get_mut(&id).expect("it was picked");
        let number = request["id"].as_u64().expect("an integer of ours");
        let conn = actor.conn;
        let ends = self.rng.once_in(6);
        if !ends {
            actor.listens.insert(number);
        }
        let params = json!({"_meta": {SUBSCRIPTION: number},
            "notifications": request["params"]["notifications"]});
        let method = "notifications/subscriptions/acknowledged";
        self.send(conn, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        if ends {
            let result = json!({"resultType": "complete"});
            self.send(conn, &json!({"jsonrpc": "2.0", "id": number, "result": result}));
        }
    }

    /// The state of a task, which may end with it.
    fn state_of_task(&mut self, id: InstanceId, task: &str) -> Value {
        let ends = self.rng.once_in(3);
        let actor = self.actors.get_mut(&id).expect("it was picked");
        let mut state = json!({"resultType": "complete", "taskId": task, "pollIntervalMs": 50});
        let Some(request) = actor.tasks.get(task).cloned() else {
            state["status"] = json!("cancelled");
            return state;
        };
        let goes_on = request.is_cancelled
            && matches!(actor.temper, Temper::Quiet | Temper::Ignores | Temper::Strays);
        if !ends || goes_on {
            state["status"] = json!("working");
            return state;
        }
        actor.tasks.remove(task);
        actor.ended_tasks.insert(task.to_owned());
        match request.is_cancelled && actor.temper == Temper::Obeys {
            true => state["status"] = json!("cancelled"),
            false => {
                state["status"] = json!("completed");
                state["result"] = json!({"m": request.marker});
            }
        }
        state
    }

    /// A server of the revision without sessions makes a task of a call, or refuses one that may
    /// not become a task.
    fn make_a_task(&mut self, id: InstanceId, number: u64, mut request: Request) {
        let actor = self.actors.get_mut(&id).expect("it was picked");
        let conn = actor.conn;
        actor.requests.remove(&number);
        if !request.is_cancelled {
            actor.answered.insert(number, request.marker.clone());
        }
        if !request.has_tasks {
            // UPS-06: a refused call has not been served, and may come once more.
            self.oracle.seen.remove(&request.marker);
            let needed = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
            let error = json!({"code": -32021, "message": "a task only", "data": needed});
            return self.send(conn, &json!({"jsonrpc": "2.0", "id": number, "error": error}));
        }
        let task = format!("t{number}");
        request.is_cancelled = false;
        actor.tasks.insert(task.clone(), request);
        let result = json!({"resultType": "task", "taskId": task, "status": "working",
            "pollIntervalMs": 50});
        self.walked.tasks += 1;
        self.send(conn, &json!({"jsonrpc": "2.0", "id": number, "result": result}));
    }

    fn answer_the_engine(&mut self, id: InstanceId) {
        let actor = self.actors.get_mut(&id).expect("it was picked");
        let is_stuck = actor.temper == Temper::Ignores && {
            actor.requests.values().chain(actor.tasks.values())
        }
        .any(|request| request.is_cancelled);
        let first = actor.inbox[0]["method"].as_str().expect("a request").to_owned();
        let is_handshake = ["initialize", "server/discover"].contains(&&*first);
        if is_stuck || (actor.temper == Temper::Hangs && is_handshake) {
            return;
        }
        let request = actor.inbox.remove(0);
        let (conn, lists, is_modern) = (actor.conn, actor.lists, actor.is_modern);
        let capabilities = json!({"tools": {"listChanged": true}});
        let result = match &*first {
            "initialize" if !is_modern => {
                json!({"protocolVersion": "2025-06-18", "capabilities": capabilities})
            }
            "server/discover" if is_modern => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
            }
            "tools/list" => {
                let other = format!("other{lists}");
                json!({"tools": [{"name": "work", "inputSchema": {}},
                    {"name": other, "inputSchema": {}}]})
            }
            "ping" => json!({}),
            "subscriptions/listen" if is_modern && !self.rng.once_in(6) => {
                return self.acknowledge(id, &request);
            }
            "tasks/get" if is_modern => {
                let task = request["params"]["taskId"].as_str().expect("a task").to_owned();
                self.state_of_task(id, &task)
            }
            "tasks/cancel" if is_modern => json!({"resultType": "complete"}),
            _ => {
                let error = json!({"code": -32601, "message": "unknown"});
                let id = &request["id"];
                return self.send(conn, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        self.send(conn, &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// A request of a server at random, if it has one that this may happen to.
    fn some_request(&mut self, id: InstanceId) -> Option<(u64, Request)> {
        let actor = &self.actors[&id];
        let all: Vec<(u64, Request)> =
            actor.requests.iter().map(|(number, request)| (*number, request.clone())).collect();
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    fn answer_a_call(&mut self, id: InstanceId) {
        let Some((number, request)) = self.some_request(id) else { return };
        let actor = self.actors.get_mut(&id).expect("it was picked");
        if request.is_cancelled && matches!(actor.temper, Temper::Quiet | Temper::Ignores) {
            return;
        }
        if actor.is_modern && self.rng.once_in(3) {
            return self.make_a_task(id, number, request);
        }
        let obeys = request.is_cancelled && actor.temper == Temper::Obeys;
        actor.requests.remove(&number);
        if !request.is_cancelled {
            actor.answered.insert(number, request.marker.clone());
        }
        let conn = actor.conn;
        let answer = match obeys {
            true => json!({"jsonrpc": "2.0", "id": number,
                "error": {"code": -32800, "message": "cancelled"}}),
            false => json!({"jsonrpc": "2.0", "id": number, "result": {"m": request.marker}}),
        };
        self.send(conn, &answer);
    }

    fn tell_progress(&mut self, id: InstanceId) {
        let Some((number, request)) = self.some_request(id) else { return };
        let actor = self.actors.get_mut(&id).expect("it was picked");
        let Some(token) = request.token else { return };
        let conn = actor.conn;
        let progress = request.progress + self.rng.below(2) as u64;
        actor.requests.get_mut(&number).expect("it was picked").progress = progress;
        let params =
            json!({"progressToken": token, "progress": progress, "message": request.marker});
        self.send(
            conn,
            &json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": params}),
        );
    }

    fn ask(&mut self, id: InstanceId) {
        let Some((_, request)) = self.some_request(id) else { return };
        // A cancelled call has no client that a question of it could be for.
        if self.oracle.over.contains(&request.marker) {
            return;
        }
        let names_call = self.rng.once_in(2);
        let actor = self.actors.get_mut(&id).expect("it was picked");
        if actor.is_modern {
            return;
        }
        // A server that has several calls and names none leaves it to luck.
        let is_clear = actor.requests.len() == 1 || request.token.is_some();
        if !is_clear {
            return;
        }
        let number = actor.next_question;
        actor.next_question += 1;
        actor.questions.insert(number, request.marker.clone());
        let mut params = json!({"message": request.marker, "requestedSchema": {}});
        if let Some(token) = request.token.filter(|_| names_call || actor.requests.len() > 1) {
            params["_meta"] = json!({"progressToken": token});
        }
        let conn = actor.conn;
        self.send(
            conn,
            &json!({"jsonrpc": "2.0", "id": number, "method": "elicitation/create",
            "params": params}),
        );
    }
}
