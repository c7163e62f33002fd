//! Agents of a walk, and the oracle's rules about them: a handshake first, each prompt once, no
//! cancel that came too late, and no answer to the question of another.

use std::collections::{BTreeMap, VecDeque};

use ceased_core::ids::InstanceId;
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::{Reopens, Walk};

/// Treatment of cancels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Temper {
    /// Obeys both forms.
    Obeys,
    /// Obeys `session/cancel`.
    SessionOnly,
    /// Obeys `$/cancel_request`.
    RequestOnly,
    /// Obeys none.
    Ignores,
    /// Obeys none, and answers some time later.
    Late,
}

impl Temper {
    pub(super) const ALL: [Self; 5] =
        [Self::Obeys, Self::SessionOnly, Self::RequestOnly, Self::Ignores, Self::Late];
}

/// Modes of sessions.
pub(super) const MODES: [&str; 3] = [FIRST_MODE, "plan", "bypass"];
/// The mode that a session begins in, and that a fresh agent has it in.
pub(super) const FIRST_MODE: &str = "default";

/// A prompt under way.
#[derive(Debug)]
struct Turn {
    id: Value,
    session: String,
    marker: String,
    /// Whether any cancel was heard.
    is_cancelled: bool,
    /// Whether a cancel was heard that the agent obeys.
    obeys: bool,
}

/// One agent process.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) conn: ConnId,
    pub(super) client: ConnId,
    temper: Temper,
    is_greeted: bool,
    /// Its sessions, with their modes.
    sessions: BTreeMap<String, String>,
    turns: Vec<Turn>,
    /// Its questions, by their ids, with their markers.
    asked: BTreeMap<u64, String>,
    next: u64,
    pub(super) inbox: VecDeque<Value>,
    /// Processes that hold its turns up.
    pub(super) strays: u32,
}

impl Actor {
    pub(super) fn new(conn: ConnId, client: ConnId, temper: Temper) -> Self {
        Self {
            conn,
            client,
            temper,
            is_greeted: false,
            sessions: BTreeMap::new(),
            turns: Vec::new(),
            asked: BTreeMap::new(),
            next: 0,
            inbox: VecDeque::new(),
            strays: 0,
        }
    }

    fn hear_cancel(&mut self, obeys: bool, is_it: impl Fn(&Turn) -> bool) {
        for turn in self.turns.iter_mut().filter(|turn| is_it(turn)) {
            (turn.is_cancelled, turn.obeys) = (true, turn.obeys || obeys);
        }
    }
}

fn declared(reopens: Reopens) -> Value {
    match reopens {
        Reopens::Not => json!({}),
        Reopens::Loads => json!({"loadSession": true}),
        Reopens::Resumes => json!({"sessionCapabilities": {"resume": {}}}),
    }
}

impl Walk {
    fn some_actor(&mut self) -> Option<InstanceId> {
        let all: Vec<InstanceId> = self.actors.keys().copied().collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    pub(super) fn actor_reads(&mut self) {
        if let Some(instance) = self.some_actor() {
            self.reads(instance);
        }
    }

    /// Takes one frame; false if there is none.
    pub(super) fn reads(&mut self, instance: InstanceId) -> bool {
        let Some(actor) = self.actors.get_mut(&instance) else { return false };
        let Some(message) = actor.inbox.pop_front() else { return false };
        let (id, params) = (&message["id"], &message["params"]);
        let marker = params["marker"].as_str().unwrap_or_default().to_owned();
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let method = message["method"].as_str();
        assert!(actor.is_greeted || method == Some("initialize"), "no handshake: {message}");
        assert_ne!(params["late"], true, "SUP-04: a cancel that came too late: {message}");
        let conn = actor.conn;
        let mut says = Vec::new();
        match method {
            Some("initialize") => {
                actor.is_greeted = true;
                let able = declared(self.reopens);
                says.push(json!({"jsonrpc": "2.0", "id": id, "result": {
                    "protocolVersion": 1, "agentCapabilities": able, "marker": marker}}));
            }
            Some("session/new") => {
                actor.next += 1;
                let session = format!("{conn}-{}", actor.next);
                actor.sessions.insert(session.clone(), FIRST_MODE.to_owned());
                says.push(json!({"jsonrpc": "2.0", "id": id, "result": {
                    "sessionId": session, "marker": marker, "modes": modes()}}));
            }
            Some(method @ ("session/load" | "session/resume")) => {
                let loads = method == "session/load";
                assert_eq!(loads, self.reopens == Reopens::Loads, "it is not declared");
                assert_eq!(params["cwd"], "/", "the params of session/new: {message}");
                if loads {
                    says.push(update(&session, "history"));
                    says.push(mode_update(&session, FIRST_MODE, "history"));
                }
                actor.sessions.insert(session, FIRST_MODE.to_owned());
                self.walked.reopened += 1;
                let told = self.rng.once_in(2).then(modes);
                says.push(json!({"jsonrpc": "2.0", "id": id, "result": {"modes": told}}));
            }
            Some("session/set_mode") => {
                let mode = params["modeId"].as_str().expect("a mode");
                let known = actor.sessions.get_mut(&session).expect("a known session");
                if self.rng.once_in(4) {
                    if let Some(client) = self.clients.get_mut(&actor.client)
                        && id.is_string()
                    {
                        client.refused.insert(session);
                    }
                    says.push(json!({"jsonrpc": "2.0", "id": id, "error": {
                        "code": -32602, "message": "not now"}}));
                } else {
                    mode.clone_into(known);
                    self.walked.modes += usize::from(id.is_string());
                    if self.rng.once_in(2) {
                        says.push(mode_update(&session, mode, "echo"));
                    }
                    says.push(json!({"jsonrpc": "2.0", "id": id, "result": {"marker": marker}}));
                }
            }
            Some("session/prompt") => {
                let mode = actor.sessions.get(&session);
                let mode = mode.unwrap_or_else(|| panic!("an unknown session: {message}"));
                if let Some(client) = self.clients.get(&actor.client) {
                    let shown = client.modes.get(&session);
                    assert_eq!(shown, Some(mode), "SUP-02: a turn in another mode: {message}");
                }
                assert!(self.seen.insert(marker.clone()), "UPS-06: a prompt twice: {message}");
                let fenced = actor.turns.iter().any(|it| it.session == session && it.is_cancelled);
                assert!(!fenced, "SUP-04: a prompt in a cancelled turn: {message}");
                let (is_cancelled, obeys) = (false, false);
                actor.turns.push(Turn { id: id.clone(), session, marker, is_cancelled, obeys });
            }
            Some("session/cancel") => {
                let obeys = matches!(actor.temper, Temper::Obeys | Temper::SessionOnly);
                actor.hear_cancel(obeys, |turn| turn.session == session);
            }
            Some("$/cancel_request" | "$/cancelRequest") => {
                let obeys = matches!(actor.temper, Temper::Obeys | Temper::RequestOnly);
                let of = params.get("requestId").or_else(|| params.get("id"));
                actor.hear_cancel(obeys, |turn| Some(&turn.id) == of);
            }
            Some(_) => panic!("no client says this: {message}"),
            None => {
                let asked = id.as_u64().and_then(|id| actor.asked.remove(&id));
                let result = &message["result"];
                // A question in a turn that was given up gets an answer of the supervisor.
                if message["error"]["code"] != -32800 {
                    assert_eq!(result["marker"].as_str(), asked.as_deref(), "{message}");
                    self.walked.questions += 1;
                }
            }
        }
        for message in says {
            self.actor_says(instance, &message);
        }
        true
    }

    fn actor_says(&mut self, instance: InstanceId, message: &Value) {
        let Some(actor) = self.actors.get(&instance) else { return };
        let (conn, text) = (actor.conn, message.to_string());
        self.feed(Event::Frame { conn, frame: text.as_bytes() });
    }

    pub(super) fn actor_works(&mut self) {
        let Some(instance) = self.some_actor() else { return };
        if self.rng.once_in(150) {
            return self.end_actor(instance, "signal 9");
        }
        let Some(actor) = self.actors.get_mut(&instance) else { return };
        if actor.turns.is_empty() {
            return;
        }
        let at = self.rng.below(actor.turns.len());
        let turn = &actor.turns[at];
        let (session, marker) = (turn.session.clone(), turn.marker.clone());
        let answers = match (turn.is_cancelled, turn.obeys) {
            // Its children hold it up.
            _ if actor.strays > 0 => false,
            (_, true) => true,
            (true, false) => actor.temper == Temper::Late && self.rng.once_in(12),
            (false, _) => self.rng.once_in(6),
        };
        if answers {
            let turn = self.actors.get_mut(&instance).map(|actor| actor.turns.swap_remove(at));
            if let Some(turn) = turn {
                self.actor_says(instance, &answer(&turn));
            }
            return;
        }
        match self.rng.below(12) {
            0 => {
                // The agent changes the mode by itself.
                let mode = *self.rng.pick(&MODES);
                let Some(actor) = self.actors.get_mut(&instance) else { return };
                actor.sessions.insert(session.clone(), mode.to_owned());
                self.actor_says(instance, &mode_update(&session, mode, &marker));
            }
            1..6 => self.actor_says(instance, &update(&session, &marker)),
            6 => {
                let marker = self.marker();
                let Some(actor) = self.actors.get_mut(&instance) else { return };
                // Every process counts its ids from the same number.
                let id = actor.asked.len() as u64;
                if actor.asked.contains_key(&id) {
                    return;
                }
                actor.asked.insert(id, marker.clone());
                let params = json!({"sessionId": session, "marker": marker});
                self.actor_says(
                    instance,
                    &json!({"jsonrpc": "2.0", "id": id,
                    "method": "session/request_permission", "params": params}),
                );
            }
            7 => {
                if let Some(actor) = self.actors.get_mut(&instance) {
                    actor.strays += 1;
                }
            }
            8 => {
                if let Some(actor) = self.actors.get_mut(&instance) {
                    actor.strays = 0;
                }
            }
            _ => {}
        }
    }

    /// An agent that is ended answers some of its turns after all.
    pub(super) fn last_words(&mut self, instance: InstanceId) {
        let Some(actor) = self.actors.get_mut(&instance) else { return };
        let turns = std::mem::take(&mut actor.turns);
        for turn in turns {
            if self.rng.once_in(2) {
                self.actor_says(instance, &update(&turn.session, &turn.marker));
                self.actor_says(instance, &answer(&turn));
            }
        }
    }
}

fn update(session: &str, marker: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {
        "sessionId": session, "marker": marker}})
}

fn mode_update(session: &str, mode: &str, marker: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {
        "sessionId": session, "marker": marker,
        "update": {"sessionUpdate": "current_mode_update", "currentModeId": mode}}})
}

fn modes() -> Value {
    json!({"currentModeId": FIRST_MODE, "availableModes": []})
}

fn answer(turn: &Turn) -> Value {
    let reason = if turn.obeys { "cancelled" } else { "end_turn" };
    json!({"jsonrpc": "2.0", "id": turn.id, "result": {
        "stopReason": reason, "marker": turn.marker}})
}
