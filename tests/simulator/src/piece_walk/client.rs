//! The client of a walk, and the oracle's rules about it.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::ConnId;
use serde_json::{Value, json};

use super::agent::Piece;
use super::{Pieces, Walk};
use crate::schema;

/// The client with its sessions.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) conn: ConnId,
    /// Requests that wait for an answer, by id: the method, and the session.
    pub(super) open: BTreeMap<u64, (&'static str, String)>,
    next: u64,
    is_greeted: bool,
    pub(super) is_closed: bool,
    sessions: Vec<String>,
    /// Sessions with a turn under way, and whether it was cancelled.
    turns: BTreeMap<String, bool>,
    /// Live pieces, and those of them that were cancelled.
    pub(super) pieces: Pieces,
    cancelled: BTreeSet<String>,
    /// The last list of background work, by session.
    pub(super) background: BTreeMap<String, Value>,
    /// Background pieces of an agent that has ended, whose end is not told yet.
    lost: BTreeSet<String>,
    /// Other pieces of agents that have ended.
    ended: BTreeSet<String>,
}

impl Client {
    pub(super) fn new(conn: ConnId) -> Self {
        Self {
            conn,
            open: BTreeMap::new(),
            next: 0,
            is_greeted: false,
            is_closed: false,
            sessions: Vec::new(),
            turns: BTreeMap::new(),
            pieces: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            background: BTreeMap::new(),
            lost: BTreeSet::new(),
            ended: BTreeSet::new(),
        }
    }

    pub(super) fn is_cancelled(&self, id: &str) -> bool {
        self.cancelled.contains(id)
    }

    pub(super) fn is_turn_cancelled(&self, session: &str) -> bool {
        self.turns.get(session) == Some(&true)
    }

    pub(super) fn end_piece(&mut self, id: &str) {
        self.pieces.remove(id);
        self.cancelled.remove(id);
    }

    /// Its background work is lost; everything else of it is over.
    pub(super) fn agent_is_gone(&mut self) {
        for (id, piece) in std::mem::take(&mut self.pieces) {
            match piece.is_background {
                true => self.lost.insert(id),
                // The agent may have said so in a message that came too late for the client.
                false => self.ended.insert(id),
            };
        }
        self.background.values_mut().for_each(|list| *list = json!([]));
        self.cancelled.clear();
    }

    /// Nothing that was cancelled waits.
    pub(super) fn assert_settled(&self) {
        let waits = |(method, _): &&(&str, String)| *method != "session/prompt";
        let open: Vec<_> = self.open.values().filter(waits).collect();
        assert!(open.is_empty(), "SUP-06: without an answer: {open:?}");
        let turns: Vec<_> = self.turns.iter().filter(|(_, is_cancelled)| **is_cancelled).collect();
        assert!(turns.is_empty(), "SUP-02: cancelled, and without an end: {turns:?}");
        assert!(self.lost.is_empty(), "SUP-05: lost, and not told: {:?}", self.lost);
    }
}

impl Walk {
    fn request(&mut self, method: &'static str, session: &str, mut params: Value) {
        if !session.is_empty() {
            params["sessionId"] = json!(session);
        }
        self.client.next += 1;
        let id = self.client.next;
        self.client.open.insert(id, (method, session.to_owned()));
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(self.client.conn, &message);
    }

    pub(super) fn greet(&mut self) {
        let info = json!({"name": "editor", "version": "1"});
        let params = json!({"protocolVersion": 2, "info": info, "capabilities": {}});
        self.request("initialize", "", params);
    }

    pub(super) fn open_session(&mut self) {
        if self.client.is_greeted && self.client.sessions.len() < 3 {
            self.request("session/new", "", json!({"cwd": "/", "mcpServers": []}));
        }
    }

    fn some_session(&mut self) -> Option<String> {
        let all = self.client.sessions.clone();
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    pub(super) fn prompt(&mut self) {
        let Some(session) = self.some_session() else { return };
        if self.client.turns.contains_key(&session) {
            return;
        }
        self.client.turns.insert(session.clone(), false);
        self.request(
            "session/prompt",
            &session,
            json!({"prompt": [{"type": "text", "text": "x"}]}),
        );
    }

    pub(super) fn cancel_turn(&mut self) {
        let Some(session) = self.some_session() else { return };
        let Some(is_cancelled) = self.client.turns.get_mut(&session) else { return };
        *is_cancelled = true;
        let of_turn = |id: &String| {
            self.client.pieces.get(id).is_some_and(|it| it.session == session && !it.is_background)
        };
        for process in &mut self.processes {
            process.is_doomed |= of_turn(&process.piece);
        }
        let params = json!({"sessionId": session});
        let message = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
        self.send(self.client.conn, &message);
    }

    pub(super) fn cancel_piece(&mut self) {
        let all: Vec<String> = self.client.pieces.keys().cloned().collect();
        if all.is_empty() {
            return;
        }
        let id = self.rng.pick(&all).clone();
        let piece = self.client.pieces[&id].clone();
        if !self.client.cancelled.insert(id.clone()) {
            return;
        }
        for process in &mut self.processes {
            process.is_doomed |= process.piece == id;
        }
        match piece.is_terminal {
            true => self.request("terminal/cancel", &piece.session, json!({"terminalId": id})),
            false => self.request("tool_call/cancel", &piece.session, json!({"toolCallId": id})),
        }
    }

    pub(super) fn close_session(&mut self) {
        let Some(session) = self.some_session().filter(|_| self.rng.once_in(4)) else { return };
        self.walked.closed += 1;
        let of = |id: &String| self.client.pieces.get(id).is_some_and(|it| it.session == session);
        for process in &mut self.processes {
            let is_of = of(&process.piece);
            process.is_doomed |= is_of;
            process.is_background &= !is_of;
        }
        let is_of = |_: &String, piece: &mut Piece| piece.session == session;
        let closed = self.client.pieces.extract_if(.., is_of).map(|(id, _)| id);
        // An agent that ends meanwhile has not closed it.
        self.client.ended.extend(closed);
        self.client.sessions.retain(|known| *known != session);
        self.client.turns.remove(&session);
        self.request("session/close", &session, json!({}));
    }

    pub(super) fn client_hears(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("session/update") => self.client_sees(message, params),
            Some(_) => panic!("no agent says this: {message}"),
            None => self.take_answer(message),
        }
    }

    /// An update: of the agent, or of the supervisor in its place.
    fn client_sees(&mut self, message: &Value, params: &Value) {
        let valid = schema::check(schema::ACP_2, "UpdateSessionNotification", params);
        valid.unwrap_or_else(|why| panic!("{why}"));
        let session = params["sessionId"].as_str().expect("it has a session").to_owned();
        let update = &params["update"];
        let is_ours = update.get("_meta").is_none();
        if update["sessionUpdate"] == "state_update" {
            if is_ours && let Some(known) = self.client.background.get(&session) {
                assert_eq!(update["background"], *known, "SUP-05: {message}");
            }
            if !is_ours {
                self.note_background(&session, &update["background"]);
            }
            if update["state"] == "idle"
                && let Some(was_cancelled) = self.client.turns.remove(&session)
            {
                self.walked.turns += usize::from(was_cancelled);
            }
            return;
        }
        let id = update["terminalId"].as_str().or(update["toolCallId"].as_str());
        let id = id.expect("it is about a piece");
        if update["exitStatus"].is_object() || update["status"] == "completed" {
            self.client.end_piece(id);
        }
        if is_ours {
            let was_told = self.client.lost.remove(id);
            let is_over = was_told || self.client.ended.remove(id);
            assert!(is_over, "SUP-05: not lost: {message}");
            self.walked.lost += usize::from(was_told);
        }
    }

    /// The agent lists the background work of a session.
    fn note_background(&mut self, session: &str, list: &Value) {
        self.client.background.insert(session.to_owned(), list.clone());
        for listed in list.as_array().expect("a list") {
            let id = listed["terminalId"].as_str().or(listed["toolCallId"].as_str());
            let id = id.expect("an id");
            if let Some(piece) = self.client.pieces.get_mut(id) {
                piece.is_background = true;
            }
            for process in self.processes.iter_mut().filter(|process| process.piece == id) {
                process.is_background = true;
            }
        }
    }

    fn take_answer(&mut self, message: &Value) {
        let id = message["id"].as_u64().expect("an id");
        let open = self.client.open.remove(&id);
        let (method, session) =
            open.unwrap_or_else(|| panic!("RPC-03: an answer of no request: {message}"));
        let result = &message["result"];
        let definition = match (method, message.get("error")) {
            (_, Some(_)) => "Error",
            ("terminal/cancel", _) => "CancelTerminalResponse",
            ("tool_call/cancel", _) => "CancelToolCallResponse",
            ("session/prompt", _) => "PromptResponse",
            (_, None) => "",
        };
        if !definition.is_empty() {
            let value = message.get("error").unwrap_or(result);
            let valid = schema::check(schema::ACP_2, definition, value);
            valid.unwrap_or_else(|why| panic!("{why}"));
        }
        match (method, message["error"]["code"].as_i64()) {
            ("initialize", None) => self.client.is_greeted = true,
            // Its agent has ended before it was greeted.
            ("initialize", Some(_)) if !self.client.is_closed => self.greet(),
            ("session/new", None) => {
                let name = result["sessionId"].as_str().expect("it has an id").to_owned();
                self.client.sessions.push(name);
            }
            ("session/prompt", Some(code)) => {
                self.client.turns.remove(&session);
                if code == -32002 {
                    self.client.sessions.retain(|known| *known != session);
                }
            }
            (_, Some(-32002)) => self.client.sessions.retain(|known| *known != session),
            _ => {}
        }
    }
}
