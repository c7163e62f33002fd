//! Clients of a walk, and the oracle's rules about them: every request is answered once, with its
//! own content, and a cancelled one in bounded time.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::ConnId;
use serde_json::{Value, json};

use super::actor::{FIRST_MODE, MODES};
use super::{Reopens, Walk};
use crate::frames;

/// A client with sessions.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Requests that wait for an answer, by their id as JSON text.
    pub(super) open: BTreeMap<String, Open>,
    sessions: Vec<String>,
    /// The modes that it shows, by session.
    pub(super) modes: BTreeMap<String, String>,
    /// Sessions in which an agent has refused a mode to the supervisor.
    pub(super) refused: BTreeSet<String>,
    /// Questions of agents, with their markers.
    asked: Vec<(Value, String)>,
    is_greeted: bool,
    pub(super) is_finished: bool,
}

/// A request that waits for an answer.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) method: &'static str,
    session: Option<String>,
    marker: String,
    /// Mode that is chosen.
    mode: Option<String>,
    pub(super) is_cancelled: bool,
}

impl Walk {
    fn some_client(&mut self) -> Option<ConnId> {
        let ready = self.clients.iter().filter(|(_, it)| it.is_greeted && !it.is_finished);
        let all: Vec<ConnId> = ready.map(|(conn, _)| *conn).collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    fn request(&mut self, conn: ConnId, method: &'static str, params: &Value) {
        // Ids are used again once they are answered, so that a late answer would find another
        // request.
        let id = json!(self.rng.below(5));
        let marker = self.marker();
        let client = self.clients.get_mut(&conn).expect("it is connected");
        if client.open.contains_key(&id.to_string()) {
            return;
        }
        let session = params["sessionId"].as_str().map(str::to_owned);
        let mode = params["modeId"].as_str().map(str::to_owned);
        let open = Open { method, session, marker: marker.clone(), mode, is_cancelled: false };
        client.open.insert(id.to_string(), open);
        let mut params = params.clone();
        params["marker"] = json!(marker);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(conn, &message);
    }

    pub(super) fn hello(&mut self, conn: ConnId) {
        self.request(conn, "initialize", &json!({"protocolVersion": 1}));
    }

    pub(super) fn open_session(&mut self) {
        let Some(conn) = self.some_client() else { return };
        if self.clients[&conn].sessions.len() < 3 {
            self.request(conn, "session/new", &json!({"cwd": "/", "mcpServers": []}));
        }
    }

    fn some_session(&mut self, conn: ConnId) -> Option<String> {
        let sessions = self.clients[&conn].sessions.clone();
        (!sessions.is_empty()).then(|| self.rng.pick(&sessions).clone())
    }

    pub(super) fn prompt(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let Some(session) = self.some_session(conn) else { return };
        // A second prompt comes behind a cancelled turn alone.
        let of = |open: &&Open| open.session.as_ref() == Some(&session) && !open.is_cancelled;
        if self.clients[&conn].open.values().any(|open| of(&open)) {
            return;
        }
        self.request(conn, "session/prompt", &json!({"sessionId": session}));
    }

    pub(super) fn choose_mode(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let Some(session) = self.some_session(conn) else { return };
        let mode = *self.rng.pick(&MODES);
        self.request(conn, "session/set_mode", &json!({"sessionId": session, "modeId": mode}));
    }

    pub(super) fn cancel(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let client = self.clients.get_mut(&conn).expect("it was picked");
        if self.rng.once_in(2) {
            let Some(session) = self.some_session(conn) else { return };
            let mut live = false;
            let client = self.clients.get_mut(&conn).expect("it was picked");
            for open in client.open.values_mut() {
                if open.method == "session/prompt" && open.session.as_ref() == Some(&session) {
                    (open.is_cancelled, live) = (true, true);
                }
            }
            self.walked.late += usize::from(!live);
            let params = json!({"sessionId": session, "late": !live});
            let message = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
            return self.send(conn, &message);
        }
        let id = json!(self.rng.below(5));
        let open = client.open.get_mut(&id.to_string());
        let cancellable = open.filter(|open| open.method != "initialize");
        let live = cancellable.is_some();
        if let Some(open) = cancellable {
            open.is_cancelled = true;
        }
        let (method, name) = *self.rng.pick(&[
            ("$/cancel_request", "requestId"),
            ("$/cancelRequest", "requestId"),
            ("$/cancelRequest", "id"),
        ]);
        let params = json!({name: id, "late": !live});
        self.send(conn, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(super) fn answer_question(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let count = self.clients[&conn].asked.len();
        if count == 0 {
            return;
        }
        let at = self.rng.below(count);
        let (id, marker) = self.clients.get_mut(&conn).expect("it was picked").asked.remove(at);
        self.send(conn, &json!({"jsonrpc": "2.0", "id": id, "result": {"marker": marker}}));
    }

    pub(super) fn clients_read(&mut self) {
        let all: Vec<ConnId> = self.clients.keys().copied().collect();
        for conn in all {
            let text = frames::taken(&mut self.engine, conn);
            for line in text.lines() {
                let message = serde_json::from_str(line).expect("frames are JSON");
                self.client_hears(conn, &message);
            }
        }
    }

    fn client_hears(&mut self, conn: ConnId, message: &Value) {
        let client = self.clients.get_mut(&conn).expect("it is connected");
        let params = &message["params"];
        match message["method"].as_str() {
            Some("session/update") if params["update"]["currentModeId"].is_string() => {
                let session = params["sessionId"].as_str().expect("it has a session");
                let mode = params["update"]["currentModeId"].as_str().expect("it has a mode");
                client.modes.insert(session.to_owned(), mode.to_owned());
                if params.get("marker").is_none() {
                    let was_refused = client.refused.remove(session);
                    assert!(was_refused, "SUP-02: a mode was not asked for: {message}");
                    self.walked.taken_back += 1;
                }
            }
            Some("session/update") => {
                let marker = params["marker"].as_str().expect("updates have markers");
                let is_live = client.open.values().any(|open| {
                    open.marker == marker && open.session.as_deref() == params["sessionId"].as_str()
                });
                assert!(is_live, "SUP-02: an update of a turn that is over: {message}");
            }
            Some("session/request_permission") => {
                let marker = params["marker"].as_str().expect("questions have markers");
                let is_twice = client.asked.iter().any(|(id, _)| *id == message["id"]);
                assert!(!is_twice, "an id that waits for an answer is used again: {message}");
                client.asked.push((message["id"].clone(), marker.to_owned()));
            }
            // A question was withdrawn; the client answers nevertheless, at some time.
            Some("$/cancel_request") => {}
            Some(_) => panic!("no agent says this: {message}"),
            None => self.take_answer(conn, message),
        }
    }

    fn take_answer(&mut self, conn: ConnId, message: &Value) {
        let reopens = self.reopens;
        let client = self.clients.get_mut(&conn).expect("it is connected");
        let open = client.open.remove(&message["id"].to_string());
        let open = open.unwrap_or_else(|| panic!("RPC-03: an answer of no request: {message}"));
        let (result, code) = (&message["result"], message["error"]["code"].as_i64());
        match code {
            None if result["marker"].is_string() => {
                assert_eq!(result["marker"], open.marker, "an answer of another request");
                match open.method {
                    "initialize" => client.is_greeted = true,
                    "session/new" => {
                        let session = result["sessionId"].as_str().expect("it has an id");
                        client.sessions.push(session.to_owned());
                        client.modes.insert(session.to_owned(), FIRST_MODE.to_owned());
                    }
                    "session/set_mode" => {
                        let session = open.session.expect("it has a session");
                        client.modes.insert(session, open.mode.expect("it has a mode"));
                    }
                    _ => self.walked.answers += 1,
                }
            }
            None => {
                assert_eq!(*result, json!({"stopReason": "cancelled"}), "{message}");
                assert!(open.is_cancelled, "SUP-04: not cancelled: {message}");
                self.walked.given_up += 1;
            }
            // Its agent refuses the mode.
            Some(-32602) => assert_eq!(open.method, "session/set_mode", "{message}"),
            Some(-32800) => {
                let by_shutdown = message["error"]["data"]["source"] == "shutdown";
                assert!(open.is_cancelled || by_shutdown, "SUP-04: not cancelled: {message}");
                self.walked.given_up += usize::from(!by_shutdown);
            }
            Some(-32603) => {
                let why = message["error"]["message"].as_str().expect("it has a message");
                assert!(why.contains("signal") || why.contains("cannot be started"), "{why}");
                self.walked.deaths += 1;
                if open.method == "initialize" && !client.is_finished {
                    self.hello(conn);
                }
            }
            Some(-32002) => {
                assert!(reopens == Reopens::Not, "the session can be reopened: {message}");
                let session = open.session.expect("a session was lost");
                client.sessions.retain(|known| *known != session);
                self.walked.lost += 1;
            }
            Some(_) => panic!("no answer of an agent: {message}"),
        }
    }
}
