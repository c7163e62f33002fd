//! The peers of a world: lines in both directions, each answer matched with its request.

use std::collections::VecDeque;

use ceased_core::acp::protocol::AcpRole;
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, JobId};
use ceased_core::protocol::role::Role;
use ceased_core::reason::CloseReason;
use serde_json::{Value, json};

use super::{NEWEST, World};
use crate::schema::{self, Asked};
use crate::trace::Input;

/// One peer with its requests and received messages.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) revision: &'static str,
    /// Whether a session was started.
    pub(super) initialized: bool,
    /// Whether the engine is the client.
    pub(super) is_server: bool,
    pub(super) lines: VecDeque<String>,
    /// Requests by id.
    pub(super) asked: Vec<(Value, Asked)>,
    /// Ids of the answers.
    pub(super) answered: Vec<Value>,
    pub(super) reads: bool,
    pub(super) closing: Option<CloseReason>,
    pub(super) gone: bool,
    /// Role of the engine towards it, if it speaks ACP.
    pub(super) acp: Option<AcpRole>,
}

impl Peer {
    /// Matches an answer with its request and validates the message.
    pub(super) fn take_note_of(&mut self, message: &Value) {
        if let Some(side) = self.acp {
            return self.take_note_of_acp(side, message);
        }
        if let Some(messages) = message.as_array() {
            assert_eq!(self.revision, "2025-03-26", "only one revision has batches: {message}");
            assert!(!messages.is_empty(), "an empty batch is never sent");
            // An answer with an unreadable id has no valid form here, see `check_message`.
            let readable: Vec<&Value> = messages.iter().filter(|m| !m["id"].is_null()).collect();
            if !readable.is_empty() {
                let valid = schema::check(self.revision, "JSONRPCBatchResponse", &json!(readable));
                valid.expect("a batch is valid");
            }
            for message in messages {
                self.take_note_of(message);
            }
            return;
        }
        if message.get("method").is_some() && message.get("id").is_some() {
            let valid = schema::check_request(self.revision, message);
            return valid.expect("a request is valid");
        }
        // Before the negotiation the engine speaks plain JSON-RPC; the answer to initialize is the
        // first message in the revision that it names.
        if let Some(revision) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
            let known =
                ceased_core::protocol::revision::ALL.iter().find(|d| d.revision == revision);
            self.revision = known.expect("the negotiated revision is known").revision;
            self.initialized = true;
        }
        let Some(id) = message.get("id").filter(|id| !id.is_null()) else {
            let valid = schema::check_message(self.revision, message, None);
            return valid.expect("a notification is valid");
        };
        // An id may be used twice (a refused duplicate, or reuse after the answer), and the answers
        // of a batch come late. So an answer matches any request with its id, and there are never
        // more answers than requests.
        let id = exact(id);
        let answers = self.answered.iter().filter(|answered| **answered == id).count();
        let questions = self.asked.iter().filter(|(asked, _)| *asked == id).count();
        assert!(answers < questions, "an answer without a request: {message}");
        self.answered.push(id.clone());
        let mut failure = String::new();
        for (_, asked) in self.asked.iter().rev().filter(|(asked, _)| *asked == id) {
            match schema::check_message(self.revision, message, Some(asked)) {
                Ok(()) => return,
                Err(error) => failure = error,
            }
        }
        panic!("{failure}");
    }

    /// Remembers a request.
    pub(super) fn asks(&mut self, message: &Value) {
        if let Some(messages) = message.as_array() {
            return messages.iter().for_each(|message| self.asks(message));
        }
        let has = |member| message.get(member).is_some();
        let response = !has("method") && (has("result") != has("error"));
        if response && message["jsonrpc"] == "2.0" {
            return;
        }
        let Some(id) = message.get("id").map(exact) else { return };
        let null = id.is_null() && self.acp.is_some();
        if !id.is_string() && !id.is_number() && !null {
            return;
        }
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let with_task = message.pointer("/params/task").is_some();
        let claims = schema::claims(message);
        if claims && !self.initialized {
            self.revision = schema::MODERN;
        }
        let of_server = self.is_server;
        self.asked.push((id, Asked { method, with_task, claims, of_server }));
    }
}

impl World {
    /// A peer connects.
    pub fn connect(&mut self, identity: Identity) -> ConnId {
        self.connect_as(identity, Role::Server)
    }

    /// A peer connects to the engine in this role.
    pub fn connect_as(&mut self, identity: Identity, role: Role) -> ConnId {
        self.connect_with(identity, Rights::Full, role)
    }

    /// A peer connects to the engine in this role and with these rights.
    pub fn connect_with(&mut self, identity: Identity, rights: Rights, role: Role) -> ConnId {
        let conn = self.meet(None, role != Role::Server);
        self.feed(Input::Opened(conn, identity, role, rights));
        conn
    }

    /// Creates a peer before its connection.
    pub(super) fn meet(&mut self, acp: Option<AcpRole>, is_server: bool) -> ConnId {
        let conn = ConnId::new(self.next_conn);
        self.next_conn += 1;
        let peer = Peer {
            revision: "2024-11-05",
            initialized: false,
            is_server,
            lines: VecDeque::new(),
            asked: Vec::new(),
            answered: Vec::new(),
            reads: true,
            closing: None,
            gone: false,
            acp,
        };
        self.peers.insert(conn, peer);
        conn
    }

    /// A peer connects and initializes.
    ///
    /// # Panics
    /// When initialize is refused.
    pub fn open_as(&mut self, identity: Identity, revision: &str) -> ConnId {
        self.open_with(identity, revision, json!({}))
    }

    /// As [`World::open_as`], with a peer that declares these capabilities.
    ///
    /// # Panics
    /// When initialize is refused.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn open_with(&mut self, identity: Identity, revision: &str, capabilities: Value) -> ConnId {
        let conn = self.connect(identity);
        self.initialize(conn, revision, capabilities)
    }

    /// As [`World::open_as`], for a process inside a job (SEC-05).
    ///
    /// # Panics
    /// When initialize is refused.
    #[track_caller]
    pub fn open_inside_job(&mut self, identity: Identity, revision: &str) -> ConnId {
        let conn = self.connect_with(identity, Rights::InsideJob, Role::Server);
        self.initialize(conn, revision, json!({}))
    }

    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    fn initialize(&mut self, conn: ConnId, revision: &str, capabilities: Value) -> ConnId {
        let params = json!({
            "protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "peer", "version": "1"},
        });
        let answer = self.ask(conn, "initialize", params);
        assert!(answer.get("result").is_some(), "initialize was refused: {answer}");
        self.send(conn, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self.silent(conn);
        conn
    }

    /// User 1000 connects and initializes with the newest session revision.
    pub fn open(&mut self) -> ConnId {
        self.open_as(Identity::User(1000), NEWEST)
    }

    /// One line arrives, without a turn after it.
    pub fn frame(&mut self, conn: ConnId, line: &str) {
        if let Ok(message) = serde_json::from_str::<Value>(line) {
            self.peers.get_mut(&conn).expect("the peer exists").asks(&message);
        }
        self.feed(Input::Frame(conn, line.as_bytes().to_vec()));
    }

    /// A line arrives that is too long, of which the first level is known.
    pub fn overlong(&mut self, conn: ConnId, skeleton: &str) {
        if let Ok(message) = serde_json::from_str::<Value>(skeleton) {
            self.peers.get_mut(&conn).expect("the peer exists").asks(&message);
        }
        self.feed(Input::TooLong(conn, skeleton.to_owned()));
    }

    /// One line arrives, followed by a turn.
    pub fn send(&mut self, conn: ConnId, line: &str) {
        self.frame(conn, line);
        self.feed(Input::Turn);
    }

    /// The next line sent to a peer.
    ///
    /// # Panics
    /// When there is none.
    pub fn raw(&mut self, conn: ConnId) -> String {
        let peer = self.peers.get_mut(&conn).expect("the peer exists");
        peer.lines.pop_front().unwrap_or_else(|| panic!("no further line for {conn}"))
    }

    /// The next message sent to a peer.
    pub fn next(&mut self, conn: ConnId) -> Value {
        serde_json::from_str(&self.raw(conn)).expect("a received line is JSON")
    }

    /// All unread messages of a peer.
    pub fn rest(&mut self, conn: ConnId) -> Vec<Value> {
        let lines = self.peers.get(&conn).map_or(0, |peer| peer.lines.len());
        (0..lines).map(|_| self.next(conn)).collect()
    }

    /// Checks that the next message of a peer is exactly this.
    ///
    /// # Panics
    /// When it differs, or there is none.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn expect(&mut self, conn: ConnId, message: Value) {
        assert_eq!(self.next(conn), message);
    }

    /// Checks that the next message of a peer is an error with this id and code; returns its text.
    ///
    /// # Panics
    /// When it differs, or there is none.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn expect_error(&mut self, conn: ConnId, id: Value, code: i64) -> String {
        let message = self.next(conn);
        assert_eq!((&message["id"], &message["error"]["code"]), (&id, &json!(code)), "{message}");
        message["error"]["message"].as_str().expect("an error has a message").to_owned()
    }

    /// Checks that a peer has no further message.
    ///
    /// # Panics
    /// When it has one.
    #[track_caller]
    pub fn silent(&mut self, conn: ConnId) {
        let rest = self.rest(conn);
        assert!(rest.is_empty(), "unexpected messages for {conn}: {rest:?}");
    }

    /// Sends a request with a fresh id and returns the answer, which must come at once. Other
    /// messages stay unread.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    pub fn ask(&mut self, conn: ConnId, method: &str, params: Value) -> Value {
        let answer = self.ask_in_passing(conn, method, params);
        self.feed(Input::Turn);
        answer
    }

    /// As [`World::ask`], without a turn after it, so that no job starts.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn ask_in_passing(&mut self, conn: ConnId, method: &str, params: Value) -> Value {
        let id = format!("ask-{}", self.next_ask);
        self.next_ask += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.frame(conn, &request.to_string());
        let peer = self.peers.get_mut(&conn).expect("the peer exists");
        let last = peer.lines.pop_back();
        let last = last.unwrap_or_else(|| panic!("{method} was not answered"));
        let answer: Value = serde_json::from_str(&last).expect("a received line is JSON");
        assert_eq!(answer["id"], json!(id), "{method} was not answered");
        answer
    }

    /// Sends a request and returns the result.
    #[track_caller]
    pub fn result(&mut self, conn: ConnId, method: &str, params: Value) -> Value {
        let mut answer = self.ask(conn, method, params);
        assert!(answer.get("result").is_some(), "{method} was refused: {answer}");
        answer["result"].take()
    }

    /// Sends a request and returns code and message of the error.
    #[track_caller]
    pub fn refusal(&mut self, conn: ConnId, method: &str, params: Value) -> (i64, String) {
        let answer = self.ask(conn, method, params);
        let code = answer["error"]["code"].as_i64();
        let code = code.unwrap_or_else(|| panic!("{method} was not refused: {answer}"));
        (code, answer["error"]["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Calls a tool without a task; the job must start.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn call(&mut self, conn: ConnId, id: Value, tool: &str) -> JobId {
        let before = self.started.len();
        let params = json!({"name": tool, "arguments": {}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.send(conn, &request.to_string());
        assert_eq!(self.started.len(), before + 1, "the call started one job");
        self.last_started()
    }

    /// Calls a tool as a task; the job must start. Returns the task's id.
    #[track_caller]
    pub fn task(&mut self, conn: ConnId, tool: &str) -> (String, JobId) {
        self.task_with(conn, tool, json!({}))
    }

    /// Calls a tool as a task with these task params.
    #[track_caller]
    pub fn task_with(&mut self, conn: ConnId, tool: &str, task: Value) -> (String, JobId) {
        let before = self.started.len();
        let params = json!({"name": tool, "arguments": {}, "task": task});
        let result = self.result(conn, "tools/call", params);
        assert_eq!(self.started.len(), before + 1, "the call started one job");
        let id = result["task"]["taskId"].as_str().expect("a task has an id").to_owned();
        (id, self.last_started())
    }

    /// Status of a task by `tasks/get`; `None` if the task does not exist.
    #[track_caller]
    pub fn status(&mut self, conn: ConnId, task: &str) -> Option<String> {
        let answer = self.ask(conn, "tasks/get", json!({"taskId": task}));
        answer.pointer("/result/status").and_then(Value::as_str).map(ToOwned::to_owned)
    }

    /// A peer stops reading; output for it is buffered.
    pub fn stop_reading(&mut self, conn: ConnId) {
        self.peers.get_mut(&conn).expect("the peer exists").reads = false;
    }

    /// The host notices that a peer does not read.
    pub fn block(&mut self, conn: ConnId) {
        self.stop_reading(conn);
        self.feed(Input::Blocked(conn));
    }

    /// A peer resumes reading before the host noticed that it had stopped.
    pub fn start_reading(&mut self, conn: ConnId) {
        self.peers.get_mut(&conn).expect("the peer exists").reads = true;
        self.deliver();
    }

    /// A peer resumes reading and reads everything.
    pub fn read_again(&mut self, conn: ConnId) {
        self.peers.get_mut(&conn).expect("the peer exists").reads = true;
        self.deliver();
        if self.is_open(conn) {
            self.feed(Input::Drained(conn));
        }
    }
}

/// An id as compared by value: `-0` is parsed as a float and equals the integer 0.
pub(super) fn exact(id: &Value) -> Value {
    if id.as_f64() == Some(0.0) { json!(0) } else { id.clone() }
}
