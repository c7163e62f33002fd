//! The ACP peers of a world, on either side, with validation against the published schema.

use ceased_core::acp::protocol::{AcpForm, AcpRole, Speaker};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use serde_json::{Value, json};

use super::peer::{Peer, exact};
use super::{World, raw_json};
use crate::schema;
use crate::trace::Input;

impl Peer {
    /// Matches an answer with its request and validates the message.
    pub(super) fn take_note_of_acp(&mut self, side: AcpRole, message: &Value) {
        let (request, response, notification) = match side {
            AcpRole::Agent => ("AgentRequest", "AgentResponse", "AgentNotification"),
            AcpRole::Client => ("ClientRequest", "ClientResponse", "ClientNotification"),
        };
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let method = message.get("method").and_then(Value::as_str);
        let definition = match (method, message.get("id")) {
            (Some("$/cancel_request"), None) => {
                let valid =
                    schema::check(schema::ACP, "CancelRequestNotification", &message["params"]);
                return valid.expect("a cancel is valid");
            }
            (Some(_), None) => notification,
            (Some(_), Some(_)) => request,
            (None, Some(id)) => {
                self.take_answer(id, message);
                response
            }
            (None, None) => panic!("an answer has an id: {message}"),
        };
        schema::check(schema::ACP, definition, message).expect("a sent message is valid");
    }

    /// A peer never gets more answers than it has sent requests.
    fn take_answer(&mut self, id: &Value, message: &Value) {
        if let Some(error) = message.get("error") {
            schema::check(schema::ACP, "Error", error).expect("an error is valid");
        }
        let id = exact(id);
        let answers = self.answered.iter().filter(|answered| **answered == id).count();
        let questions = self.asked.iter().filter(|(asked, _)| *asked == id).count();
        // A request with an unreadable id is answered with the id `null`.
        let unreadable = [json!(-32700), json!(-32600)].contains(&message["error"]["code"]);
        if answers >= questions && id.is_null() && unreadable {
            return;
        }
        assert!(answers < questions, "an answer without a request: {message}");
        self.answered.push(id);
    }
}

impl World {
    /// A peer connects with ACP; `side` is the role of the engine.
    pub fn open_acp(&mut self, form: AcpForm, side: AcpRole) -> ConnId {
        self.open_acp_as(Identity::User(1000), form, side)
    }

    /// An ACP connection of this identity.
    pub fn open_acp_as(&mut self, identity: Identity, form: AcpForm, side: AcpRole) -> ConnId {
        let conn = self.meet(Some(side), false);
        self.feed(Input::OpenedAcp(conn, identity, form, side));
        conn
    }

    /// An ACP peer sends a request; its job must start.
    ///
    /// # Panics
    /// When no job starts.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn request(&mut self, conn: ConnId, id: Value, method: &str, params: Value) -> JobId {
        let before = self.started.len();
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(conn, &request.to_string());
        assert_eq!(self.started.len(), before + 1, "{method} started one job");
        self.last_started()
    }

    /// An ACP peer sends a notification.
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn tell(&mut self, conn: ConnId, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(conn, &message.to_string());
    }

    /// A job sends a notification to its ACP peer.
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn notify(&mut self, job: JobId, method: &str, params: Value) {
        let params = Some(raw_json(&params.to_string()));
        self.feed(Input::Notify(Speaker::Job(job), method.to_owned(), params));
    }
}
