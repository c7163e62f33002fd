//! The example ACP agent under load: prompts that are answered, cancelled both ways, and that ask
//! for permission.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::binary::acp_agent;
use crate::daemon::{Peer, wait_until};
use crate::rng::Rng;

/// A running agent and its only client.
pub(super) struct Agent {
    child: Child,
    peer: Peer,
    session: String,
}

impl Agent {
    /// Starts an agent and opens a session.
    ///
    /// # Panics
    /// When the agent does not answer correctly.
    pub(super) fn start() -> Self {
        let mut command = Command::new(acp_agent());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent can be started");
        let output = OwnedFd::from(child.stdin.take().expect("a pipe"));
        let input = OwnedFd::from(child.stdout.take().expect("a pipe"));
        let mut peer = Peer::of_pipes(input, output);
        peer.result("initialize", r#"{"protocolVersion":1,"clientCapabilities":{}}"#);
        let session = peer.result("session/new", r#"{"cwd":"/","mcpServers":[]}"#);
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        Self { child, peer, session }
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends prompts until the soak ends, then ends the agent; returns the number of turns.
    ///
    /// # Panics
    /// When a turn does not end correctly.
    pub(super) fn run(mut self, mut rng: Rng, is_over: &AtomicBool) -> u64 {
        let mut turns = 0;
        while !is_over.load(Ordering::Relaxed) {
            self.turn(&mut rng);
            turns += 1;
        }
        self.peer.finish();
        wait_until("the agent ends with its input", || {
            self.child.try_wait().expect("a child can be waited for").is_some()
        });
        turns
    }

    fn turn(&mut self, rng: &mut Rng) {
        let asks = rng.once_in(3);
        let text = format!("{}one two three", if asks { "ask " } else { "" });
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        let prompt = self.peer.request("session/prompt", &params.to_string());
        sleep(Duration::from_millis(rng.below(60) as u64));
        match rng.below(4) {
            0 => self.tell("$/cancel_request", json!({"requestId": prompt})),
            1 => self.tell("session/cancel", json!({"sessionId": self.session})),
            _ => {}
        }
        loop {
            let message = self.peer.message().expect("the agent is connected");
            if message["method"] == "session/request_permission" {
                self.permit(&message["id"], rng.once_in(2));
            } else if message["id"] == prompt && message["method"].is_null() {
                let reason = &message["result"]["stopReason"];
                let is_end = ["end_turn", "cancelled", "refusal"].iter().any(|end| reason == end);
                assert!(is_end || message["error"]["code"] == -32800, "{message}");
                return;
            }
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    fn tell(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.peer.send(&message.to_string());
    }

    fn permit(&mut self, id: &Value, yes: bool) {
        let outcome = match yes {
            true => json!({"outcome": "selected", "optionId": "yes"}),
            false => json!({"outcome": "cancelled"}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}});
        self.peer.send(&answer.to_string());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The agent may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
