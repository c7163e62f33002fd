//! Answers of a peer: good and odd, early and late; retries, updates;
//! and its declared capabilities.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::link::{Questions, call_char, state_char};
use super::oracle::RUN;
use super::peer::{Peer, Scene, TOOLS, UNKNOWN};
use crate::rng::Rng;

/// Memory of a peer.
#[derive(Default)]
pub(super) struct Memory {
    /// Requests that it has answered.
    answered: BTreeSet<u64>,
    /// It has answered our initialize; for a party of ACP, that it is the one to send it.
    pub(super) opened: bool,
    /// It has said which tools it has.
    pub(super) listed: bool,
    /// It has sent its own.
    pub(super) greeted: bool,
    /// The keys of tasks it created, of those that ask for one.
    pub(super) created: VecDeque<String>,
    /// Which tools it called last.
    called: VecDeque<(u64, &'static str)>,
}

impl Memory {
    /// Whether something it was asked has no answer yet.
    pub(super) fn owes_an_answer(&self, questions: &Questions) -> bool {
        questions.asked.iter().any(|(at, ..)| !self.answered.contains(at))
    }

    pub(super) fn called(&mut self, number: u64, tool: &'static str) {
        self.called.push_back((number, tool));
        if self.called.len() > 64 {
            self.called.pop_front();
        }
    }
}

/// An answer to no request.
pub(super) const UNASKED: &str = r#"{"jsonrpc":"2.0","id":999999,"result":{}}"#;

/// An answer: its request, and its result or error as an object of one member.
pub(super) fn response(key: u64, body: &Value) -> String {
    let body = body.to_string();
    format!(r#"{{"jsonrpc":"2.0","id":{},{}"#, call_char(key), &body[1..])
}

/// Declared capabilities of a client.
pub(super) fn able(rng: &mut Rng, stateless: bool) -> Value {
    let mut able = json!({});
    if !rng.once_in(3) {
        let forms =
            [json!({}), json!({"form": {}}), json!({"url": {}}), json!({"form": {}, "url": {}})];
        able["elicitation"] = rng.pick(&forms).clone();
    }
    if !rng.once_in(2) {
        able["sampling"] = json!({});
    }
    if !rng.once_in(2) {
        able["roots"] = json!({});
    }
    if stateless && !rng.once_in(3) {
        able["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    }
    if !stateless && rng.once_in(2) {
        let requests = [
            json!({}),
            json!({"elicitation": {"create": {}}}),
            json!({"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}),
        ];
        able["tasks"] = json!({"requests": rng.pick(&requests)});
        if rng.once_in(2) {
            able["tasks"]["cancel"] = json!({});
        }
    }
    able
}

/// Makes params speak for themselves (MOD-01).
pub(super) fn claim(params: &mut Value, able: &Value, rng: &mut Rng, rude: bool) {
    let meta = &mut params["_meta"];
    let version = if rude && rng.once_in(20) { "2025-11-25" } else { super::dialects::STATELESS };
    meta["io.modelcontextprotocol/protocolVersion"] = version.into();
    if !(rude && rng.once_in(20)) {
        let other = if rng.once_in(10) { json!({}) } else { able.clone() };
        meta["io.modelcontextprotocol/clientCapabilities"] = other;
    }
    if rng.once_in(3) {
        let level = *rng.pick(&["debug", "info", "error", if rude { "loud" } else { "alert" }]);
        meta["io.modelcontextprotocol/logLevel"] = level.into();
    }
}

impl Peer {
    /// A request to it: the character of its id, and the text; most often one it has not
    /// answered yet.
    pub(super) fn question(&mut self, scene: &mut Scene<'_>) -> Option<(u64, String)> {
        let link = scene.judge.links.get(&scene.conn)?;
        let again = scene.swarm.faults.has(Fault::LateReport) && scene.rng.once_in(6);
        let open = |(at, ..): &&(u64, u64, String)| again || !self.memory.answered.contains(at);
        let asked: Vec<&(u64, u64, String)> = link.questions.asked.iter().filter(open).collect();
        let (at, key, text) = (!asked.is_empty()).then(|| (*scene.rng.pick(&asked)).clone())?;
        self.memory.answered.insert(at);
        if self.memory.answered.len() > 256 {
            self.memory.answered.pop_first();
        }
        Some((key, text))
    }

    pub(super) fn answer(&mut self, scene: &mut Scene<'_>) -> String {
        let Some((key, text)) = self.question(scene) else {
            return UNASKED.to_owned();
        };
        if text.contains(" task ") || text.contains("tasks/") {
            return self.serve_task(scene, key, &text);
        }
        let body = match scene.rng.below(6) {
            0 => json!({"error": {"code": -1, "message": "no"}}),
            1 => json!({"result": {"action": "decline"}}),
            _ => json!({"result": {"action": "accept", "of": key}}),
        };
        response(key, &body)
    }

    pub(super) fn busy(&mut self, scene: &mut Scene<'_>) -> String {
        let key = self.question(scene).map_or(0, |(key, _)| key);
        let far = scene.rng.below(100);
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{far}}}}}"#,
            call_char(key)
        )
    }

    /// Answers to some questions of a job, and to others that it did not ask.
    fn responses(scene: &mut Scene<'_>, job: u64) -> Value {
        let oracle = scene.judge.oracle.as_ref();
        let open = oracle.map(|oracle| oracle.open_questions(job)).unwrap_or_default();
        let mut responses = Map::new();
        for call in open {
            if !scene.rng.once_in(4) {
                responses.insert(call.to_string(), json!({"of": call}));
            }
        }
        if scene.swarm.faults.has(Fault::Foreign) && scene.rng.once_in(4) {
            responses.insert("999999".to_owned(), json!({}));
        }
        if scene.swarm.faults.has(Fault::Foreign) && scene.rng.once_in(20) {
            responses.insert("0".to_owned(), json!([]));
        }
        Value::Object(responses)
    }

    pub(super) fn update(&mut self, scene: &mut Scene<'_>) -> String {
        let (nonce, id) = Self::task(scene).unwrap_or((0, UNKNOWN));
        let mut params = json!({"taskId": id});
        if !(scene.swarm.faults.has(Fault::Foreign) && scene.rng.once_in(10)) {
            params["inputResponses"] = Self::responses(scene, nonce);
        }
        self.request(scene, "tasks/update", &params)
    }

    pub(super) fn listen(&mut self, scene: &mut Scene<'_>) -> String {
        let mut wanted = json!({});
        if scene.rng.once_in(2) {
            wanted["toolsListChanged"] = scene.rng.once_in(2).into();
        }
        if !scene.rng.once_in(4) {
            let ids: Vec<&str> = (0..scene.rng.below(4))
                .map(|_| Self::task(scene).map_or(UNKNOWN, |(_, id)| id))
                .collect();
            wanted["taskIds"] = json!(ids);
        }
        if !scene.is_wide() {
            return self.request(scene, "server/discover", &json!({}));
        }
        self.request(scene, "subscriptions/listen", &json!({"notifications": wanted}))
    }

    /// Returns with the input that a call asked for (MOD-07).
    pub(super) fn retry(&mut self, scene: &mut Scene<'_>) -> String {
        let foreign = scene.swarm.faults.has(Fault::Foreign) && scene.rng.once_in(8);
        let links = &scene.judge.links;
        let mine = links.iter().filter(|(conn, _)| foreign != (**conn == scene.conn));
        let parked: Vec<u64> =
            mine.flat_map(|(_, link)| link.questions.parked.iter().copied()).collect();
        let oracle = scene.judge.oracle.as_ref();
        let waits = |nonce: &u64| oracle.is_some_and(|oracle| oracle.is_parked(*nonce));
        let live: Vec<u64> = parked.iter().copied().filter(waits).collect();
        let parked = if live.is_empty() || scene.rng.once_in(6) { parked } else { live };
        let number = parked.last().copied().filter(|_| !scene.rng.once_in(4));
        let Some(number) =
            number.or_else(|| (!parked.is_empty()).then(|| *scene.rng.pick(&parked)))
        else {
            return self.request(scene, "tools/list", &json!({}));
        };
        let made = number % RUN;
        let called = self.memory.called.iter().find(|(call, _)| *call == made);
        let tool = called.map_or_else(|| *scene.rng.pick(&TOOLS), |(_, tool)| *tool);
        let mut params = json!({
            "name": tool, "arguments": {"n": number, "text": "x"},
            "requestState": state_char(number).to_string(),
        });
        if !scene.rng.once_in(5) {
            params["inputResponses"] = Self::responses(scene, number);
        }
        if scene.rng.once_in(2) {
            params["_meta"] = json!({"progressToken": number});
        }
        // In a session it would be another call with the same number.
        self.claimed(scene, "tools/call", &params)
    }
}
