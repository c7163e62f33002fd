//! A server that we are the client of: a script, and not an honest one. And messages of any peer
//! about the tasks it made for us.

use serde_json::{Value, json};

use super::answers::{UNASKED, response};
use super::dialects;
use super::fault::Fault;
use super::peer::{Peer, Scene, Speaks, TOOLS};
use crate::rng::Rng;

/// Declared capabilities of a server.
pub(super) fn able(rng: &mut Rng) -> Value {
    let mut able = json!({});
    if !rng.once_in(10) {
        able["tools"] = json!({});
    }
    if !rng.once_in(4) {
        able["tasks"] = json!({"list": {}, "requests": {"tools": {"call": {}}}});
        if !rng.once_in(4) {
            able["tasks"]["cancel"] = json!({});
        }
    }
    able
}

impl Peer {
    /// Answers something it was asked.
    pub(super) fn serve(&mut self, scene: &mut Scene<'_>) -> String {
        let Some((key, text)) = self.question(scene) else { return UNASKED.to_owned() };
        if text.starts_with("init ") {
            self.memory.opened = true;
            return response(key, &self.session(scene));
        }
        if text.contains(" task ") || text.contains(" tasks/") {
            return self.serve_task(scene, key, &text);
        }
        let body = match scene.rng.below(8) {
            0 => json!({"error": {"code": -32000, "message": "no"}}),
            1 => json!({"result": []}),
            _ if text.contains("tools/list") => {
                self.memory.listed = true;
                json!({"result": {"tools": Self::tools(scene.rng)}})
            }
            _ => json!({"result": {"content": [], "of": key}}),
        };
        response(key, &body)
    }

    /// Its answer to initialize.
    fn session(&self, scene: &mut Scene<'_>) -> Value {
        let rude = scene.swarm.faults.has(Fault::Rude);
        let version = match scene.rng.below(12) {
            0 if rude => "2099-01-01",
            1 | 2 => scene.rng.pick(&dialects::ALL).revision,
            _ => "2025-11-25",
        };
        if rude && scene.rng.once_in(12) {
            let odd = [
                json!({"error": {"code": -32602, "message": "no"}}),
                json!({"result": []}),
                json!({"result": {}}),
            ];
            return scene.rng.pick(&odd).clone();
        }
        let info = json!({"name": "server", "version": "0"});
        let able = &self.able;
        json!({"result": {"protocolVersion": version, "capabilities": able, "serverInfo": info}})
    }

    fn tools(rng: &mut Rng) -> Value {
        let supports = ["optional", "optional", "required", "forbidden"];
        let count = 2 + rng.below(TOOLS.len() - 1);
        let tools = TOOLS.iter().take(count).map(|name| {
            let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
            if !rng.once_in(5) {
                tool["execution"] = json!({"taskSupport": rng.pick(&supports)});
            }
            tool
        });
        tools.collect()
    }

    /// Answers a request about a task, or with one.
    pub(super) fn serve_task(&mut self, scene: &mut Scene<'_>, key: u64, text: &str) -> String {
        let odd = scene.swarm.faults.has(Fault::Rude) && scene.rng.once_in(12);
        let id = text.rsplit(' ').next().unwrap_or_default();
        let body = match text {
            _ if odd => {
                let odd = [
                    json!({"result": {"task": []}}),
                    json!({"result": {}}),
                    json!({"result": 7}),
                    json!({"result": {"taskId": "another", "status": "working"}}),
                    json!({"result": {"taskId": id, "status": "busy"}}),
                ];
                scene.rng.pick(&odd).clone()
            }
            // About the question, not about the task (TSK-13).
            _ if text.contains(" tasks/get ") && scene.rng.once_in(3) => {
                let wait = scene.rng.below(5000);
                let no = [
                    json!({"error": {"code": -32603, "message": "broken", "data": "for now"}}),
                    json!({"error": {
                        "code": -31003, "message": "busy", "data": {"retryAfterMs": wait}
                    }}),
                ];
                scene.rng.pick(&no).clone()
            }
            _ if text.contains(" tasks/result ") && scene.rng.once_in(4) => {
                let wait = json!({"retryAfterMs": scene.rng.below(5000)});
                json!({"error": {"code": -31003, "message": "busy", "data": wait}})
            }
            _ if scene.rng.once_in(12) => json!({"error": {"code": -32602, "message": "no"}}),
            _ if text.contains(" tasks/result ") => json!({"result": {"content": [], "of": key}}),
            _ if text.contains(" tasks/") => json!({"result": Self::report(scene.rng, id)}),
            // It may ignore the wish for a task (TSK-03).
            _ if scene.rng.once_in(8) => json!({"result": {"content": []}}),
            _ => {
                let id = format!("r{key}");
                self.memory.created.push_back(id.clone());
                if self.memory.created.len() > 8 {
                    self.memory.created.pop_front();
                }
                json!({"result": {"task": Self::report(scene.rng, &id)}})
            }
        };
        response(key, &body)
    }

    fn report(rng: &mut Rng, id: &str) -> Value {
        let all =
            ["working", "working", "working", "input_required", "completed", "failed", "cancelled"];
        let stamp = "2025-11-01T00:00:00Z";
        let mut task = json!({
            "taskId": id, "status": rng.pick(&all), "ttl": null,
            "createdAt": stamp, "lastUpdatedAt": stamp,
        });
        if !rng.once_in(3) {
            task["pollInterval"] = (rng.below(3000)).into();
        }
        task
    }

    /// Tells of a task of its own unasked (TSK-18).
    pub(super) fn hint(&mut self, scene: &mut Scene<'_>) -> String {
        let created: Vec<String> = self.memory.created.iter().cloned().collect();
        let id = if created.is_empty() { "r0" } else { scene.rng.pick(&created).as_str() };
        let (method, params) = if self.speaks == Speaks::Server && scene.rng.once_in(4) {
            ("notifications/tools/list_changed", json!({}))
        } else {
            ("notifications/tasks/status", Self::report(scene.rng, id))
        };
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    }
}
