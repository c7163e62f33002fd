//! A party of ACP: requests of either side, cancels in every spelling, answers to
//! cancelled requests.

use serde_json::{Value, json};

use super::answers::{UNASKED, response};
use super::peer::{Peer, Scene};
use super::spelling;
use super::swarm::Say;

impl Peer {
    /// A message of a party of ACP, beside those of all peers.
    pub(super) fn say_acp(&mut self, scene: &mut Scene<'_>, say: Say) -> Option<String> {
        match say {
            Say::Call | Say::CallTask | Say::Get | Say::Retry => Some(self.ask_party(scene)),
            Say::Cancel => Some(Self::cancel_party(scene)),
            Say::Answer | Say::Result => Some(self.answer_party(scene)),
            Say::Busy | Say::Hint => {
                let methods = ["session/cancel", "session/update", "$/other", "session/other"];
                let method = *scene.rng.pick(&methods);
                let params = json!({"sessionId": "s"});
                let said = json!({"jsonrpc": "2.0", "method": method, "params": params});
                Some(said.to_string())
            }
            Say::Ping
            | Say::Tools
            | Say::Level
            | Say::Status
            | Say::List
            | Say::CancelTask
            | Say::Garbage
            | Say::Batch
            | Say::Odd
            | Say::Update
            | Say::Listen
            | Say::Discover => None,
        }
    }

    fn ask_party(&mut self, scene: &mut Scene<'_>) -> String {
        let of_agent = ["initialize", "session/new", "session/prompt", "session/prompt"];
        let of_client =
            ["fs/read_text_file", "session/request_permission", "terminal/wait_for_exit"];
        // It may take us for the other side.
        let other = scene.rng.once_in(12);
        let mut method =
            *scene.rng.pick(if self.memory.opened == other { &of_client[..] } else { &of_agent });
        if self.memory.opened && !self.memory.greeted {
            self.memory.greeted = true;
            method = "initialize";
        }
        let mut params = json!({"n": *scene.next_call, "sessionId": "s"});
        *scene.next_call += 1;
        if method == "initialize" {
            let request = !scene.rng.once_in(4);
            params["clientCapabilities"] = json!({"cancellation": {"request": request}});
        }
        self.say_request(scene, method, &params)
    }

    /// ACP-01: in any of the three spellings.
    fn cancel_party(scene: &mut Scene<'_>) -> String {
        let (id, _) = scene.token_to_cancel(&["1", "\"1\"", "null", "1.5", "{}"]);
        let spellings = [
            ("$/cancel_request", "requestId"),
            ("$/cancelRequest", "requestId"),
            ("$/cancelRequest", "id"),
            ("$/cancel_request", "id"),
        ];
        let (method, member) = *scene.rng.pick(&spellings);
        let id = spelling::again(&id, scene.rng.clone());
        let (around, beside) =
            (spelling::around(scene.rng.clone()), spelling::beside(scene.rng.clone()));
        // Where another member could name the request, nothing else does.
        let beside = if beside.contains("requestId") { "" } else { beside };
        format!(
            r#"{{"jsonrpc":"2.0",{around}"method":"{method}","params":{{"{member}":{id}{beside}}}}}"#
        )
    }

    fn answer_party(&mut self, scene: &mut Scene<'_>) -> String {
        let Some((key, text)) = self.question(scene) else { return UNASKED.to_owned() };
        let body: Value = match scene.rng.below(5) {
            0 => json!({"error": {"code": -32800, "message": "Request cancelled"}}),
            1 => json!({"error": {"code": -32000, "message": "no"}}),
            _ if text.contains("initialize") => {
                let request = !scene.rng.once_in(4);
                json!({"result": {"agentCapabilities": {"cancellation": {"request": request}}}})
            }
            _ => json!({"result": {"of": key}}),
        };
        response(key, &body)
    }
}
