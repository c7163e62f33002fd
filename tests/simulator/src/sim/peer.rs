//! A peer: its former messages, and its next. Not all of them make sense.

use std::sync::Arc;

use ceased_core::settings::Settings;
use serde_json::{Value, json};

use super::answers::{self, Memory};
use super::dialects;
use super::fault::Fault;
use super::generate::weighted;
use super::judge::Judge;
use super::repeats::Repeats;
use super::server;
use super::spelling;
use super::swarm::{Say, Swarm};
use crate::rng::Rng;

/// Every tool there may be.
pub(super) const TOOLS: [&str; 7] =
    ["echo", "sleep", "slow", "build", "report", "strict", "missing"];

/// The id of a task that never was.
pub(super) const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

/// Role of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// A client of MCP, and we its server.
    Client,
    /// A server of MCP, and we its client.
    Server,
    /// A party of ACP.
    Acp,
}

/// One peer.
pub(super) struct Peer {
    revision: &'static str,
    pub(super) speaks: Speaks,
    /// It knows no session: each of its requests speaks for itself.
    pub(super) stateless: bool,
    /// Its declared capabilities.
    pub(super) able: Value,
    pub(super) memory: Memory,
    greeted: bool,
    last_id: u64,
    /// Bytes on their way; one `char` a byte.
    pub(super) wire: String,
}

/// The speaking peer, and the subjects of its messages.
pub(super) struct Scene<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) swarm: &'a Swarm,
    pub(super) judge: &'a Judge,
    pub(super) conn: u64,
    pub(super) next_call: &'a mut u64,
    pub(super) repeats: &'a mut Repeats,
}

impl Scene<'_> {
    /// Whether much may wait unread in this world: where little may, the amount decides the
    /// messages, which is beyond the oracle, which does not count bytes.
    pub(super) fn is_wide(&self) -> bool {
        let wide = |s: &Arc<Settings>| s.limits.write_buffer_bytes >= 1 << 20;
        self.swarm.settings.iter().all(wide)
    }

    /// The id of a request in flight, as it stands on the wire; one that never was where there is
    /// none, or where this world's faults want it, which is said as well.
    pub(super) fn token_to_cancel(&mut self, strangers: &[&'static str]) -> (String, bool) {
        let oracle = self.judge.oracle.as_ref();
        let pending = oracle.and_then(|oracle| oracle.conns.get(&self.conn));
        let ids: Vec<String> = pending
            .map(|conn| conn.pending.iter().map(|pending| pending.token.clone()).collect())
            .unwrap_or_default();
        let link = self.judge.links.get(&self.conn);
        let unnamed: Vec<&str> =
            link.map(|link| link.unsent.unnamed().collect()).unwrap_or_default();
        if !unnamed.is_empty() && self.rng.once_in(2) {
            return ((*self.rng.pick(&unnamed)).to_owned(), false);
        }
        let foreign = self.swarm.faults.has(Fault::Foreign) && self.rng.once_in(4);
        let id = if ids.is_empty() || foreign {
            (*self.rng.pick(strangers)).to_owned()
        } else {
            self.rng.pick(&ids).clone()
        };
        (id, foreign)
    }
}

impl Peer {
    pub(super) fn new(revision: &'static str, rng: &mut Rng) -> Self {
        let stateless = revision == dialects::STATELESS;
        let able = answers::able(rng, stateless);
        let (memory, wire) = (Memory::default(), String::new());
        let greeted = stateless;
        let speaks = Speaks::Client;
        Self { revision, speaks, stateless, able, memory, greeted, last_id: 0, wire }
    }

    /// A server for us to be the client of.
    pub(super) fn server(rng: &mut Rng) -> Self {
        let able = server::able(rng);
        Self { speaks: Speaks::Server, greeted: true, able, ..Self::new("2025-11-25", rng) }
    }

    /// A party of ACP.
    pub(super) fn acp(we_are_agent: bool, rng: &mut Rng) -> Self {
        let mut peer = Self { speaks: Speaks::Acp, greeted: true, ..Self::new("2025-11-25", rng) };
        peer.memory.opened = we_are_agent;
        peer
    }

    /// Its role.
    pub(super) const fn speaks(&self) -> Speaks {
        self.speaks
    }

    /// Puts one more line on the wire.
    pub(super) fn speak(&mut self, mut scene: Scene<'_>, say: Option<Say>) {
        let swarm = scene.swarm;
        let rude = swarm.faults.has(Fault::Rude) && scene.rng.once_in(12);
        let line = if self.greeted == rude && self.speaks != Speaks::Acp {
            self.greet(&mut scene)
        } else if self.speaks == Speaks::Server && !self.memory.opened && !rude {
            self.serve(&mut scene)
        } else {
            let say = say.unwrap_or_else(|| self.apt(scene.rng, swarm));
            self.say(&mut scene, say)
        };
        self.wire.push_str(&line);
        self.wire.push_str(if scene.rng.once_in(20) { "\r\n" } else { "\n" });
    }

    /// A message; most often one that makes sense in its state.
    fn apt(&self, rng: &mut Rng, swarm: &Swarm) -> Say {
        let say = weighted(rng, &swarm.says);
        if rng.once_in(8) {
            return say;
        }
        let (odd, apt): (&[Say], &[Say]) = match (self.speaks, self.stateless) {
            (Speaks::Client, false) => (
                &[Say::Update, Say::Listen, Say::Retry, Say::Discover, Say::Hint],
                &[Say::Call, Say::CallTask, Say::Result, Say::Answer],
            ),
            (Speaks::Client, true) => (
                &[Say::Result, Say::List, Say::Level, Say::Hint, Say::Busy, Say::Ping, Say::Answer],
                &[Say::Call, Say::Call, Say::Update, Say::Get, Say::Listen, Say::Retry],
            ),
            (Speaks::Server, _) => (
                &[
                    Say::Tools,
                    Say::Level,
                    Say::Status,
                    Say::Update,
                    Say::Listen,
                    Say::Retry,
                    Say::Discover,
                ],
                &[Say::Answer, Say::Answer, Say::Hint, Say::Call, Say::CallTask, Say::Busy],
            ),
            (Speaks::Acp, _) => (
                &[
                    Say::Ping,
                    Say::Tools,
                    Say::Level,
                    Say::Status,
                    Say::List,
                    Say::CancelTask,
                    Say::Update,
                    Say::Listen,
                    Say::Discover,
                ],
                &[Say::Call, Say::Call, Say::Cancel, Say::Answer],
            ),
        };
        // Kinds that this run lacks stay away.
        let other = *rng.pick(apt);
        let has = swarm.says.iter().any(|(known, _)| *known == other);
        if odd.contains(&say) && has { other } else { say }
    }

    fn greet(&mut self, scene: &mut Scene<'_>) -> String {
        self.greeted = true;
        let odd = scene.swarm.faults.has(Fault::Rude) && scene.rng.once_in(4);
        let revision = if odd { "2099-01-01" } else { self.revision };
        let params = json!({
            "protocolVersion": revision, "capabilities": self.able,
            "clientInfo": {"name": "peer", "version": "0"},
        });
        self.say_request(scene, "initialize", &params)
    }

    /// The next id: a number or the same number as a string.
    fn id(&mut self, scene: &mut Scene<'_>) -> String {
        self.last_id += 1;
        let number = self.last_id % scene.swarm.ids;
        match scene.rng.below(6) {
            0 => format!("\"{number}\""),
            1 if scene.swarm.ids > 3 => format!("\"\\u0069{number}\""),
            _ => spelling::number(number, scene.rng.clone()),
        }
    }

    /// A request in a session, or one that speaks for itself.
    pub(super) fn request(
        &mut self,
        scene: &mut Scene<'_>,
        method: &str,
        params: &Value,
    ) -> String {
        // Both may be spoken on one connection.
        let other = scene.swarm.faults.has(Fault::Rude) && scene.rng.once_in(20);
        if self.stateless == other {
            return self.say_request(scene, method, params);
        }
        self.claimed(scene, method, params)
    }

    /// A request that needs no params.
    fn bare_request(&mut self, scene: &mut Scene<'_>, method: &str) -> String {
        let params = spelling::nothing(scene.rng.clone());
        match params.is_object() || self.stateless {
            true => self.request(scene, method, &json!({})),
            false => self.say_request(scene, method, &params),
        }
    }

    /// A request that speaks for itself.
    pub(super) fn claimed(
        &mut self,
        scene: &mut Scene<'_>,
        method: &str,
        params: &Value,
    ) -> String {
        let rude = scene.swarm.faults.has(Fault::Rude);
        let mut params = params.clone();
        answers::claim(&mut params, &self.able, scene.rng, rude);
        self.say_request(scene, method, &params)
    }

    pub(super) fn say_request(
        &mut self,
        scene: &mut Scene<'_>,
        method: &str,
        params: &Value,
    ) -> String {
        let id = self.id(scene);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }

    fn say(&mut self, scene: &mut Scene<'_>, say: Say) -> String {
        let serves = self.speaks == Speaks::Server;
        if self.speaks == Speaks::Acp
            && let Some(line) = self.say_acp(scene, say)
        {
            return line;
        }
        match say {
            Say::Ping => self.bare_request(scene, "ping"),
            Say::Tools => self.bare_request(scene, "tools/list"),
            Say::Status => self.bare_request(scene, "ceased/status"),
            Say::Level => {
                let level = *scene.rng.pick(&["debug", "info", "error", "emergency", "loud"]);
                self.request(scene, "logging/setLevel", &json!({"level": level}))
            }
            Say::Call if serves => self.ask_service(scene, false),
            Say::CallTask if serves => self.ask_service(scene, true),
            Say::Call => self.call(scene, false),
            Say::CallTask => self.call(scene, true),
            Say::Get => self.of_task(scene, "tasks/get"),
            Say::Result => self.of_task(scene, "tasks/result"),
            Say::CancelTask => self.of_task(scene, "tasks/cancel"),
            Say::List => {
                let params = Self::cursor(scene);
                self.request(scene, "tasks/list", &params)
            }
            Say::Cancel => Self::cancel(scene),
            Say::Garbage => garbage(scene.rng),
            Say::Batch => {
                let count = scene.rng.below(5);
                // A batch may be too much half-way through.
                if !scene.is_wide() {
                    return self.say(scene, Say::Ping);
                }
                let says = [Say::Ping, Say::Call, Say::Call, Say::Cancel, Say::Tools, Say::Odd];
                let parts: Vec<String> = (0..count)
                    .map(|_| {
                        let say = *scene.rng.pick(&says);
                        self.say(scene, say)
                    })
                    .collect();
                format!("[{}]", parts.join(", "))
            }
            Say::Odd => self.odd(scene),
            Say::Answer if serves => self.serve(scene),
            Say::Answer => self.answer(scene),
            Say::Hint => self.hint(scene),
            Say::Busy => self.busy(scene),
            Say::Update => self.update(scene),
            Say::Listen => self.listen(scene),
            Say::Retry => self.retry(scene),
            Say::Discover => self.request(scene, "server/discover", &json!({})),
        }
    }

    /// A server asks us for a service.
    fn ask_service(&mut self, scene: &mut Scene<'_>, as_task: bool) -> String {
        let methods = ["sampling/createMessage", "elicitation/create", "roots/list"];
        let method = *scene.rng.pick(&methods);
        let mut params = json!({"n": *scene.next_call});
        *scene.next_call += 1;
        if scene.rng.once_in(2) {
            params["_meta"] = json!({"progressToken": params["n"]});
        }
        if as_task {
            params["task"] = Self::wanted_task(scene.rng);
        }
        self.request(scene, method, &params)
    }

    fn wanted_task(rng: &mut Rng) -> Value {
        match rng.below(8) {
            0 => json!({"ttl": 0}),
            1 => json!({"ttl": 99_999_999_999_u64}),
            2 | 3 => json!({"ttl": 1 + rng.below(8000)}),
            _ => spelling::task(rng.clone()),
        }
    }

    fn call(&mut self, scene: &mut Scene<'_>, as_task: bool) -> String {
        let number = *scene.next_call;
        *scene.next_call += 1;
        let tool = *scene.rng.pick(&TOOLS);
        let mut params = json!({"name": tool, "arguments": {"n": number}});
        if !scene.rng.once_in(4) {
            params["arguments"]["text"] = "x".into();
        }
        if scene.rng.once_in(2) {
            let token =
                if scene.rng.once_in(2) { json!(number) } else { json!(format!("t{number}")) };
            let token = spelling::token(number, scene.rng.clone()).unwrap_or(token);
            params["_meta"] = json!({"progressToken": token});
        }
        if as_task {
            params["task"] = Self::wanted_task(scene.rng);
        }
        if tool == "missing" {
            params["arguments"]["pad"] = "x".repeat(scene.rng.below(900)).into();
        }
        let (number, tool) = if scene.swarm.keys > 0 && !scene.rng.once_in(3) {
            self.once(scene, number, tool, &mut params)
        } else {
            (number, tool)
        };
        self.memory.called(number, tool);
        self.request(scene, "tools/call", &params)
    }

    fn of_task(&mut self, scene: &mut Scene<'_>, method: &str) -> String {
        let id = Self::task(scene).map_or(UNKNOWN, |(_, id)| id);
        // Only a cancel holds whatever `_meta` is.
        let may = method == "tasks/cancel" && !self.stateless;
        match spelling::meta(scene.rng.clone()).filter(|_| may) {
            Some(meta) => self.say_request(scene, method, &json!({"taskId": id, "_meta": meta})),
            None => self.request(scene, method, &json!({"taskId": id})),
        }
    }

    /// A task there is, most often one of one's own.
    pub(super) fn task<'a>(scene: &mut Scene<'a>) -> Option<(u64, &'a str)> {
        let oracle = scene.judge.oracle.as_ref();
        let own = oracle.and_then(|o| o.conns.get(&scene.conn)).map(|conn| conn.identity.clone());
        let foreign = scene.swarm.faults.has(Fault::Foreign) && scene.rng.once_in(6);
        let known: Vec<(u64, &str)> = oracle
            .iter()
            .flat_map(|oracle| oracle.tasks.iter().map(move |task| (oracle, task)))
            .filter(|(_, task)| foreign || Some(&task.owner) == own.as_ref())
            .filter_map(|(oracle, task)| Some((task.nonce, oracle.name_of(task.nonce)?)))
            .collect();
        (!known.is_empty()).then(|| *scene.rng.pick(&known))
    }

    /// From the start, from where one was, or from where another was.
    fn cursor(scene: &mut Scene<'_>) -> Value {
        let others = scene.swarm.faults.has(Fault::Foreign) && scene.rng.once_in(3);
        let oracle = scene.judge.oracle.as_ref();
        let own = oracle.and_then(|oracle| oracle.conns.get(&scene.conn));
        let foreign = oracle.zip(own).and_then(|(all, own)| all.foreign_cursor(&own.identity));
        let link = scene.judge.links.get(&scene.conn);
        let known = if others { foreign } else { link.and_then(|link| link.cursor.as_deref()) };
        let mut cursors: Vec<&str> = known.into_iter().collect();
        if others && scene.rng.once_in(3) {
            cursors.push("00000000000000010000000000000000");
        }
        if cursors.is_empty() || (!others && scene.rng.once_in(3)) {
            return json!({});
        }
        json!({"cursor": scene.rng.pick(&cursors)})
    }

    /// A request in flight, most often; the peer cannot know that it still is.
    fn cancel(scene: &mut Scene<'_>) -> String {
        let (id, foreign) =
            scene.token_to_cancel(&["1", "2", "\"1\"", "\"2\"", "null", "1.5", "{}"]);
        let reason = match scene.rng.below(8) {
            0 => r#","reason":"no more need""#,
            1 if foreign => r#","reason":7"#,
            _ => spelling::beside(scene.rng.clone()),
        };
        let id = spelling::again(&id, scene.rng.clone());
        let around = spelling::around(scene.rng.clone());
        format!(
            r#"{{"jsonrpc":"2.0",{around}"method":"notifications/cancelled","params":{{"requestId":{id}{reason}}}}}"#
        )
    }

    /// Valid JSON-RPC that no server of ours is asked.
    fn odd(&mut self, scene: &mut Scene<'_>) -> String {
        match scene.rng.below(6) {
            0 => r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.to_owned(),
            1 => r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}"#.to_owned(),
            2 => r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
            3 => r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}"#.to_owned(),
            4 => self.request(scene, "tasks/get", &json!({"taskId": "no id"})),
            _ => self.request(scene, "resources/list", &json!({})),
        }
    }
}

fn garbage(rng: &mut Rng) -> String {
    let deep = "[".repeat(70);
    let many = [
        "",
        "hello",
        "GET / HTTP/1.1",
        "\u{16}\u{3}\u{1}",
        "{",
        "{}",
        "[]",
        "7",
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":7}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"\u{ff}\"}",
        "[1, {}, {\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}]",
        deep.as_str(),
    ];
    let one = (*rng.pick(&many)).to_owned();
    if rng.once_in(10) { format!("{{\"pad\":\"{}\"}}", "x".repeat(rng.below(6000))) } else { one }
}
