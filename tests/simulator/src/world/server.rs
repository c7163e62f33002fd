//! Peers that are servers: the engine is their client.

use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId};
use ceased_core::outgoing::remote_task::RemoteTaskView;
use ceased_core::protocol::role::{AsClient, Offers, Role};
use serde_json::{Value, json};

use super::World;

impl World {
    /// The engine connects to a server as its client; its first message is unread. Its `initialize`
    /// is an outgoing call with the number of the connection.
    pub fn dial_with(&mut self, identity: Identity, offers: Offers) -> ConnId {
        let ask = AskId::new(1_000_000 + self.next_conn);
        let role = Role::Client(AsClient { ask, offers, answer_timeout: None });
        self.connect_as(identity, role)
    }

    /// The engine connects to a server and initializes a session of this revision, with a server
    /// that declares these capabilities.
    ///
    /// # Panics
    /// When the engine does not behave so.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn dial(&mut self, revision: &'static str, capabilities: Value) -> ConnId {
        let conn = self.dial_with(Identity::User(1000), Offers::ALL);
        let initialize = self.next(conn);
        assert_eq!(initialize["method"], "initialize", "the first message of a client");
        self.silent(conn);
        self.peers.get_mut(&conn).expect("the peer exists").revision = revision;
        let result = json!({
            "protocolVersion": revision, "capabilities": capabilities,
            "serverInfo": {"name": "peer", "version": "1"},
        });
        self.answer(conn, &initialize["id"], result);
        self.expect(conn, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        self.silent(conn);
        let told = self.told.pop().expect("the host gets the session");
        assert!(matches!(told.1, ceased_core::outgoing::call::Answer::Result(_)), "{told:?}");
        conn
    }

    /// A peer answers a request of the engine.
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn answer(&mut self, conn: ConnId, id: &Value, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.send(conn, &answer.to_string());
    }

    /// A peer refuses a request of the engine.
    pub fn refuse(&mut self, conn: ConnId, id: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
        self.send(conn, &answer.to_string());
    }

    /// Tasks at peers that the engine follows.
    pub fn remote_tasks(&self) -> Vec<RemoteTaskView<'_>> {
        self.engine.remote_tasks().collect()
    }
}
