//! Clients of a walk, and the oracle's rules about them: every request is answered once, with its
//! own content, and a cancelled one never.

use std::collections::BTreeMap;

use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::{SERVERS, Walk};

/// A client with a session.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Requests that wait for an answer, by their id as JSON text.
    pub(super) open: BTreeMap<String, Open>,
    /// Requests of servers that wait for this client, by their id, with the call they are for.
    asked: BTreeMap<String, String>,
}

/// A request that waits for an answer.
#[derive(Debug)]
pub(super) struct Open {
    /// The marker of a call; empty for a list.
    pub(super) marker: String,
    token: Option<Value>,
    progress: f64,
    pub(super) is_cancelled: bool,
}

impl Walk {
    fn some_client(&mut self) -> Option<ConnId> {
        let all: Vec<ConnId> = self.clients.keys().copied().collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    pub(super) fn disconnect(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let client = self.clients.remove(&conn).expect("it was picked");
        self.oracle.over.extend(client.open.into_values().map(|call| call.marker));
        self.feed(Event::Closed { conn });
    }

    /// Ids and tokens are drawn from few values, so that clients often have equal ones.
    fn fresh_id(&mut self, conn: ConnId) -> Option<Value> {
        let id = match self.rng.below(3) {
            0 => json!(format!("{}", self.rng.below(6))),
            _ => json!(self.rng.below(6)),
        };
        let client = self.clients.get(&conn)?;
        (!client.open.contains_key(&id.to_string())).then_some(id)
    }

    pub(super) fn call(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let Some(id) = self.fresh_id(conn) else { return };
        self.oracle.next += 1;
        let marker = format!("m{}", self.oracle.next);
        let server = *self.rng.pick(&SERVERS);
        let mut request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": format!("{server}_work"), "arguments": {"m": marker}}});
        let token = self.rng.once_in(2).then(|| match self.rng.below(2) {
            0 => json!(self.rng.below(4)),
            _ => json!(format!("{}", self.rng.below(4))),
        });
        let client = self.clients.get_mut(&conn).expect("it was picked");
        // A token is unique among the active requests of its client.
        let taken = client.open.values().any(|open| open.token.is_some() && open.token == token);
        let token = token.filter(|_| !taken);
        if let Some(token) = &token {
            request["params"]["_meta"] = json!({"progressToken": token, "x/marker": marker});
        }
        self.oracle.owner.insert(marker.clone(), conn);
        let open = Open { marker, token, progress: -1.0, is_cancelled: false };
        client.open.insert(id.to_string(), open);
        self.send(conn, &request);
    }

    pub(super) fn list(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let Some(id) = self.fresh_id(conn) else { return };
        let open = Open { marker: String::new(), token: None, progress: 0.0, is_cancelled: false };
        let client = self.clients.get_mut(&conn).expect("it was picked");
        client.open.insert(id.to_string(), open);
        let method = *self.rng.pick(&["tools/list", "ping", "tools/list"]);
        self.send(conn, &json!({"jsonrpc": "2.0", "id": id, "method": method}));
    }

    pub(super) fn cancel(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let client = self.clients.get(&conn).expect("it was picked");
        let open = client.open.iter().filter(|(_, call)| !call.marker.is_empty());
        let ids: Vec<String> = open.map(|(id, _)| id.clone()).collect();
        if ids.is_empty() {
            return;
        }
        let id = self.rng.pick(&ids).clone();
        let client = self.clients.get_mut(&conn).expect("it was picked");
        // CAN-08: from now on the id is free, and nothing of the call may come.
        let call = client.open.remove(&id).expect("it is open");
        self.oracle.over.insert(call.marker);
        self.walked.cancels += 1;
        let id: Value = serde_json::from_str(&id).expect("an id");
        self.send(
            conn,
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id, "reason": "enough"}}),
        );
    }

    /// Clients read everything at once.
    pub(super) fn clients_read(&mut self) {
        let conns: Vec<ConnId> = self.clients.keys().copied().collect();
        for conn in conns {
            for message in self.lines(conn) {
                self.heard(conn, &message);
            }
        }
    }

    fn heard(&mut self, conn: ConnId, message: &Value) {
        let client = self.clients.get_mut(&conn).expect("it reads");
        match message["method"].as_str() {
            None if message["id"] == "init" => {}
            None => {
                let id = message["id"].to_string();
                let call = client.open.remove(&id);
                let call = call.unwrap_or_else(|| panic!("{conn:?} has not asked: {message}"));
                assert!(!call.is_cancelled, "CAN-08: {message}");
                if message["error"].is_object() {
                    self.walked.errors += usize::from(!call.marker.is_empty());
                    return;
                }
                if !call.marker.is_empty() {
                    assert_eq!(message["result"]["m"], call.marker, "UPS-02: ids are not mixed");
                    self.walked.results += 1;
                }
            }
            Some("notifications/progress") => {
                let params = &message["params"];
                let call = client
                    .open
                    .values_mut()
                    .find(|call| call.token.as_ref() == Some(&params["progressToken"]));
                let call = call.unwrap_or_else(|| panic!("UPS-03: no such token: {message}"));
                assert_eq!(params["message"], call.marker, "UPS-03: tokens are not mixed");
                let progress = params["progress"].as_f64().expect("a number");
                assert!(progress > call.progress, "UPS-03: {message}");
                call.progress = progress;
                self.walked.progress += 1;
            }
            Some("elicitation/create") => {
                let marker = message["params"]["message"].as_str().expect("a text").to_owned();
                assert_eq!(self.oracle.owner.get(&marker), Some(&conn), "UPS-12: {message}");
                let before = client.asked.insert(message["id"].to_string(), marker);
                assert!(before.is_none(), "an id is used once: {message}");
            }
            Some("notifications/cancelled") => {
                let id = message["params"]["requestId"].to_string();
                assert!(client.asked.remove(&id).is_some(), "CAN-02: {message}");
            }
            Some(method) => {
                assert!(method.starts_with("notifications/"), "an unknown request: {message}");
            }
        }
    }

    /// A client answers a request of a server.
    pub(super) fn answer_a_question(&mut self) {
        let asked: Vec<(ConnId, String)> = self
            .clients
            .iter()
            .flat_map(|(conn, client)| client.asked.keys().map(|id| (*conn, id.clone())))
            .collect();
        if asked.is_empty() {
            return;
        }
        let (conn, id) = self.rng.pick(&asked).clone();
        let client = self.clients.get_mut(&conn).expect("it was asked");
        let marker = client.asked.remove(&id).expect("it was asked");
        let id: Value = serde_json::from_str(&id).expect("an id");
        let result = json!({"action": "accept", "content": {"m": marker}});
        self.send(conn, &json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
}
