//! The agent of a walk: turns with tool calls and terminals, background work, and its treatment of cancels.

use std::collections::BTreeMap;

use ceased_core::ConnId;
use serde_json::{Value, json};

use super::{Pieces, Process, Walk};
use crate::rng::Rng;

/// A tool call or terminal.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) session: String,
    pub(super) is_terminal: bool,
    pub(super) is_background: bool,
}

/// One agent process.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) conn: ConnId,
    /// Whether it obeys the cancel of a turn, and of a piece.
    obeys: (bool, bool),
    /// Whether it answers the cancel of a piece.
    answers: bool,
    sessions: u64,
    next_piece: u64,
    /// Turns under way, by session.
    turns: BTreeMap<String, ()>,
    pieces: Pieces,
}

impl Agent {
    pub(super) fn new(conn: ConnId, rng: &mut Rng) -> Self {
        let obeys = (rng.once_in(2), rng.once_in(2));
        let answers = !rng.once_in(3);
        let (turns, pieces) = (BTreeMap::new(), BTreeMap::new());
        Self { conn, obeys, answers, sessions: 0, next_piece: 0, turns, pieces }
    }

    /// The background work of a session, as its states list it.
    fn background(&self, session: &str) -> Value {
        let all = self.pieces.iter().filter(|(_, it)| it.is_background && it.session == session);
        let listed = |(id, piece): (&String, &Piece)| match piece.is_terminal {
            true => json!({"type": "terminal", "terminalId": id}),
            false => json!({"type": "tool_call", "toolCallId": id}),
        };
        all.map(listed).collect()
    }

    /// Pieces of a session that are or are not in the background.
    fn of(&self, session: &str, is_background: bool) -> Vec<String> {
        let is_it = |it: &&Piece| it.session == session && it.is_background == is_background;
        self.pieces.iter().filter(|(_, it)| is_it(it)).map(|(id, _)| id.clone()).collect()
    }
}

/// An update of the agent's own, which the supervisor's do not resemble.
fn update(session: &str, mut update: Value) -> Value {
    update["_meta"] = json!({"agent": true});
    json!({"jsonrpc": "2.0", "method": "session/update",
        "params": {"sessionId": session, "update": update}})
}

fn about(id: &str, piece: &Piece, more: &Value) -> Value {
    let (kind, member) = match piece.is_terminal {
        true => ("terminal_update", "terminalId"),
        false => ("tool_call_update", "toolCallId"),
    };
    let mut told = json!({"sessionUpdate": kind, member: id});
    let more = more.as_object().expect("members").clone();
    told.as_object_mut().expect("an object").extend(more);
    update(&piece.session, told)
}

impl Walk {
    fn agent_says(&mut self, message: &Value) {
        if let Some((_, agent)) = &self.agent {
            let conn = agent.conn;
            self.send(conn, message);
        }
    }

    fn agent_mut(&mut self) -> &mut Agent {
        &mut self.agent.as_mut().expect("it runs").1
    }

    pub(super) fn agent_reads(&mut self, frames: Vec<Value>) {
        for message in frames {
            if self.agent.is_some() {
                self.agent_hears(&message);
            }
        }
    }

    fn agent_hears(&mut self, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        let answer = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let own = format!("{}-", self.agent_mut().conn);
        if !session.is_empty() && !session.starts_with(&own) {
            let error = json!({"code": -32002, "message": "unknown session"});
            if !id.is_null() {
                self.agent_says(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            return;
        }
        match message["method"].as_str() {
            Some("initialize") => self.agent_says(&answer(json!({"protocolVersion": 2,
                "info": {"name": "bot", "version": "1"}, "capabilities": {}}))),
            Some("session/new") => {
                let agent = self.agent_mut();
                agent.sessions += 1;
                let name = format!("{}-{}", agent.conn, agent.sessions);
                self.agent_says(&answer(json!({"sessionId": name})));
            }
            Some("session/prompt") => {
                self.agent_says(&answer(json!({"messageId": format!("m{id}")})));
                self.begin_turn(&session);
            }
            Some("session/cancel") if self.agent_mut().obeys.0 => {
                self.end_turn(&session, "cancelled");
            }
            Some("tool_call/cancel") => {
                self.hear_piece_cancel(&answer(json!({})), &params["toolCallId"]);
            }
            Some("terminal/cancel") => {
                self.hear_piece_cancel(&answer(json!({})), &params["terminalId"]);
            }
            // It leaves the processes of the session to others.
            Some("session/close") => {
                let agent = self.agent_mut();
                agent.turns.remove(&session);
                agent.pieces.retain(|_, piece| piece.session != session);
                self.agent_says(&answer(json!({})));
            }
            Some("session/cancel" | "$/cancel_request") => {}
            Some(_) | None => panic!("no client says this: {message}"),
        }
    }

    fn begin_turn(&mut self, session: &str) {
        let agent = self.agent_mut();
        agent.turns.insert(session.to_owned(), ());
        self.tell_state(session, json!({"state": "running"}));
    }

    /// The state of a session with its background work.
    fn tell_state(&mut self, session: &str, mut state: Value) {
        let background = self.agent_mut().background(session);
        state["sessionUpdate"] = json!("state_update");
        state["background"] = background;
        self.agent_says(&update(session, state));
    }

    fn end_turn(&mut self, session: &str, reason: &str) {
        if self.agent_mut().turns.remove(session).is_none() {
            return;
        }
        for id in self.agent_mut().of(session, false) {
            self.end_piece(&id);
        }
        if self.agent.is_some() {
            self.tell_state(session, json!({"state": "idle", "stopReason": reason}));
        }
    }

    /// The agent ends a piece with its processes.
    fn end_piece(&mut self, id: &str) {
        let Some(piece) = self.agent_mut().pieces.remove(id) else { return };
        self.processes.retain(|process| process.piece != id);
        let end = match piece.is_terminal {
            true => json!({"exitStatus": {"exitCode": 0}}),
            false => json!({"status": "completed"}),
        };
        self.agent_says(&about(id, &piece, &end));
        if piece.is_background && self.agent.is_some() {
            let is_running = self.agent_mut().turns.contains_key(&piece.session);
            let state = if is_running { "running" } else { "idle" };
            self.tell_state(&piece.session, json!({"state": state}));
        }
    }

    fn hear_piece_cancel(&mut self, accepted: &Value, id: &Value) {
        let id = id.as_str().expect("an id").to_owned();
        let agent = self.agent_mut();
        if !agent.pieces.contains_key(&id) {
            let error = json!({"code": -32602, "message": "unknown"});
            let refusal = json!({"jsonrpc": "2.0", "id": accepted["id"], "error": error});
            return self.agent_says(&refusal);
        }
        let (obeys, answers) = (agent.obeys.1, agent.answers);
        if answers || obeys {
            self.agent_says(accepted);
        }
        if obeys && self.agent.is_some() {
            self.walked.obeyed += 1;
            self.end_piece(&id);
        }
    }

    /// The agent goes on with one of its turns.
    pub(super) fn agent_works(&mut self) {
        let Some((_, agent)) = &self.agent else { return };
        let turns: Vec<String> = agent.turns.keys().cloned().collect();
        let pieces: Vec<String> = agent.pieces.keys().cloned().collect();
        if turns.is_empty() {
            return;
        }
        let session = self.rng.pick(&turns).clone();
        match self.rng.below(10) {
            0..5 => self.begin_piece(&session),
            5..7 if !pieces.is_empty() => {
                let id = self.rng.pick(&pieces).clone();
                self.move_to_background(&id);
            }
            7 if !pieces.is_empty() => {
                let id = self.rng.pick(&pieces).clone();
                if !self.client.is_cancelled(&id) {
                    self.end_piece(&id);
                }
            }
            8 if !self.client.is_turn_cancelled(&session) => self.end_turn(&session, "end_turn"),
            _ => {}
        }
    }

    fn begin_piece(&mut self, session: &str) {
        let is_terminal = self.rng.once_in(2);
        let piece = Piece { session: session.to_owned(), is_terminal, is_background: false };
        let agent = self.agent_mut();
        agent.next_piece += 1;
        let id = format!("{}-p{}", agent.conn, agent.next_piece);
        agent.pieces.insert(id.clone(), piece.clone());
        self.client.pieces.insert(id.clone(), piece.clone());
        let is_doomed = self.client.is_turn_cancelled(session);
        let (born, piece_id) = (self.now.at, id.clone());
        self.processes.push(Process { born, piece: piece_id, is_doomed, is_background: false });
        let begun = match is_terminal {
            true => json!({"capabilities": {"cancel": {}}}),
            false => {
                json!({"title": "work", "status": "in_progress", "capabilities": {"cancel": {}}})
            }
        };
        self.agent_says(&about(&id, &piece, &begun));
    }

    fn move_to_background(&mut self, id: &str) {
        let Some((_, agent)) = &mut self.agent else { return };
        let Some(piece) = agent.pieces.get_mut(id) else { return };
        if self.client.is_cancelled(id) || self.client.is_turn_cancelled(&piece.session) {
            return;
        }
        piece.is_background = true;
        let session = piece.session.clone();
        let is_running = self.agent_mut().turns.contains_key(&session);
        self.tell_state(&session, json!({"state": if is_running { "running" } else { "idle" }}));
    }
}
