//! Clients of a soak with unusual behaviour: 2026-07-28, idempotency keys, and calls that continue
//! after their client disconnects.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::load::{Client, served};
use crate::daemon::Peer;
use crate::modern::able;

/// Params of a client of 2026-07-28 with elicitation, and optionally with the tasks extension.
fn claim(knows_tasks: bool, params: Value) -> String {
    let mut capabilities = json!({"elicitation": {}});
    if knows_tasks {
        capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    }
    able(&capabilities, params).to_string()
}

impl Client<'_> {
    pub(super) fn modern(&mut self, peer: &mut Peer) {
        match self.rng.below(4) {
            0 => {
                let params = json!({"name": "echo", "arguments": {"text": "modern"}});
                let answer = self.ask(peer, "tools/call", &claim(false, params));
                served(&answer);
            }
            1 => self.asked(peer),
            _ => self.modern_task(peer),
        }
        peer.forget_notes();
    }

    /// A call that is answered with a question; the client answers it or not.
    fn asked(&mut self, peer: &mut Peer) {
        let call = json!({"name": "asks", "arguments": {}});
        let answer = self.ask(peer, "tools/call", &claim(false, call.clone()));
        if answer["result"]["resultType"] != "input_required" {
            // Too many calls are suspended already, so the tool could not ask.
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            return;
        }
        if self.rng.once_in(4) {
            return;
        }
        sleep(Duration::from_millis(self.rng.below(50) as u64));
        let mut retry = call;
        let requests = answer["result"]["inputRequests"].as_object();
        for key in requests.into_iter().flat_map(serde_json::Map::keys) {
            retry["inputResponses"][key] = json!({"action": "accept", "content": {}});
        }
        retry["requestState"] = answer["result"]["requestState"].clone();
        // The answer may be late.
        self.ask(peer, "tools/call", &claim(false, retry));
    }

    fn modern_task(&mut self, peer: &mut Peer) {
        let ms = self.rng.below(60);
        let params = json!({"name": "sleep", "arguments": {"ms": ms}});
        let created = self.ask(peer, "tools/call", &claim(true, params));
        let Some(task) = created["result"]["taskId"].as_str() else {
            panic!("no task: {created}");
        };
        let of_task = claim(true, json!({"taskId": task}));
        let wanted = json!({"toolsListChanged": true, "taskIds": [task]});
        let listening = claim(true, json!({"notifications": wanted}));
        let subscription = peer.request("subscriptions/listen", &listening);
        match self.rng.below(3) {
            0 => drop(self.ask(peer, "tasks/cancel", &of_task)),
            1 => {
                let update = json!({"taskId": task, "inputResponses": {}});
                self.ask(peer, "tasks/update", &claim(true, update));
            }
            _ => {}
        }
        drop(self.ask(peer, "tasks/get", &of_task));
        peer.cancel(subscription);
    }

    /// Sends a call twice with one key, on one connection or on two, and checks that it runs once;
    /// or sends a call that continues as a task after its connection is closed.
    pub(super) fn keyed(&mut self, peer: &mut Peer) {
        let key = format!("{:016x}", self.rng.word());
        let (tool, arguments) = match self.rng.below(3) {
            0 => ("echo", json!({"text": key})),
            1 => ("count", json!({"n": 3})),
            _ => ("later", json!({})),
        };
        let params = json!({
            "name": tool, "arguments": arguments, "_meta": {"ceased/idempotencyKey": key},
        })
        .to_string();
        let first = peer.request("tools/call", &params);
        let second = peer.request("tools/call", &params);
        if self.rng.once_in(4) {
            // Neither call has a waiting request any more.
            return;
        }
        let mut answers = [first, second].map(|id| {
            let mut answer = peer.answer(id);
            answer["id"].take();
            answer
        });
        while answers[1]["error"]["code"] == -31008 {
            // The first call still ran when the second arrived.
            let again = peer.request("tools/call", &params);
            answers[1] = peer.answer(again);
            answers[1]["id"].take();
        }
        let is_refused = |answer: &Value| answer["error"]["code"] == -31003;
        if answers.iter().any(is_refused) {
            // The limits of keys and of their bytes are reached.
            return sleep(Duration::from_millis(200));
        }
        served(&answers[0]);
        assert_eq!(answers[0], answers[1], "one call, two answers");
        peer.forget_notes();
    }
}
