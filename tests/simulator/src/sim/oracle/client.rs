//! Sessions in which we are the client: their start, the known tools of the server, and
//! the server's requests to us (TSK-44).

use std::collections::BTreeMap;

use ceased_core::protocol::role::AsClient;
use ceased_core::tool::TaskSupport;
use serde_json::{Value, json};

use super::Oracle;
use super::able::Able;
use super::asks::Asker;
use super::calls::{Body, Kind};
use super::requests::Asked;
use crate::sim::dialects;
use crate::sim::mark::Mark;

/// A session in which we are the client.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Client {
    /// Our declared capabilities, and whether as tasks.
    offers: Vec<(&'static str, bool)>,
    /// The known tools of the server (TSK-04).
    tools: BTreeMap<String, String>,
}

const SERVICES: [(&str, &str, &str); 3] = [
    ("elicitation/create", "elicitation", "create"),
    ("roots/list", "roots", ""),
    ("sampling/createMessage", "sampling", "createMessage"),
];

impl Oracle {
    pub(super) fn begin_session(&mut self, conn: u64, role: AsClient, full: bool) {
        let call = role.ask.get();
        if full {
            self.mark(Mark::TooManyConnections);
            self.refuse_ask(Asker::Host, call, "TooMany");
            return self.close(conn, "TooMany", true);
        }
        let offered = |method: &str| match method {
            "elicitation/create" => role.offers.elicitation,
            "roots/list" => role.offers.roots,
            _ => role.offers.sampling,
        };
        let services = &self.settings.services;
        let mut offers = Vec::new();
        let mut said = json!({});
        for (method, name, verb) in SERVICES {
            let Some(service) = services.get(method).filter(|_| offered(method)) else { continue };
            let tasks = !verb.is_empty() && service.task_support != TaskSupport::Forbidden;
            offers.push((method, tasks));
            said[name] = json!({});
            if tasks {
                said["tasks"]["cancel"] = json!({});
                said["tasks"]["requests"][name][verb] = json!({});
                if self.conns[&conn].identity != "anonymous" {
                    said["tasks"]["list"] = json!({});
                }
            }
        }
        let newest = dialects::ALL.last().expect("there is a newest").revision;
        let label = format!("init {newest} {said}");
        let client = Client { offers, tools: BTreeMap::new() };
        self.conns.get_mut(&conn).expect("it was opened").client = Some(client);
        let kind = Kind::For(Asker::Host);
        self.place(conn, kind, call, "initialize", label, role.answer_timeout.as_ref(), false);
        self.host_calls.insert(call, conn);
    }

    pub(super) fn initialized(&mut self, conn: u64, call: u64, body: &Body) {
        let value: Value = serde_json::from_str(&body.text).unwrap_or(Value::Null);
        let version = value.get("protocolVersion").and_then(Value::as_str);
        let rules = dialects::ALL.iter().find(|rules| Some(rules.revision) == version);
        let said = value.get("capabilities");
        let (Some(rules), Some(said), true) = (rules, said, body.good) else {
            self.mark(Mark::NoSession);
            let how = if body.good { "unusable".to_owned() } else { body.gist() };
            self.end_ask(Asker::Host, call, &how);
            return self.close(conn, "NoSession", true);
        };
        let entry = self.conns.get_mut(&conn).expect("it answers");
        entry.rules = Some(rules);
        entry.able = Able::of_server(said, rules.tasks);
        self.mark(Mark::SessionBegun);
        self.tell(conn, "initialized".to_owned());
        self.end_ask(Asker::Host, call, &body.gist());
    }

    /// `initialize` got no answer: it is not cancelled (CAN-04), and there is no session.
    pub(super) fn no_session(&mut self, conn: u64) {
        self.mark(Mark::NoSession);
        self.close(conn, "NoSession", true);
    }

    pub(super) fn learn_tools(&mut self, conn: u64, body: &Body) {
        let value: Value = serde_json::from_str(&body.text).unwrap_or(Value::Null);
        let client = self.conns.get_mut(&conn).and_then(|entry| entry.client.as_mut());
        let Some(client) = client.filter(|_| body.good) else { return };
        for tool in value["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            let support = tool.pointer("/execution/taskSupport").and_then(Value::as_str);
            client.tools.insert(name.to_owned(), support.unwrap_or("forbidden").to_owned());
        }
    }

    pub(super) fn forget_tools(&mut self, conn: u64) {
        let client = self.conns.get_mut(&conn).and_then(|entry| entry.client.as_mut());
        if let Some(client) = client {
            client.tools.clear();
        }
    }

    /// TSK-04: why a tool may not be called like this.
    pub(super) fn misuse(&self, conn: u64, tool: Option<&str>, task: bool) -> Option<&'static str> {
        let client = self.conns.get(&conn)?.client.as_ref()?;
        let support = tool.and_then(|tool| client.tools.get(tool)).map(String::as_str);
        match (task, support) {
            (true, Some("optional" | "required")) => None,
            (true, _) => Some("ToolWithoutTasks"),
            (false, Some("required")) => Some("ToolOnlyAsTask"),
            (false, _) => None,
        }
    }

    /// A server asks something of us.
    pub(super) fn request_of_server(&mut self, asked: Asked, method: &str, params: &Value) {
        let entry = &self.conns[&asked.conn];
        let client = entry.client.as_ref().expect("we are the client");
        let offer = client.offers.iter().find(|(offered, _)| *offered == method).copied();
        let declared = client.offers.iter().any(|(_, tasks)| *tasks);
        let Some(rules) = entry.rules else {
            return match method {
                "ping" => self.answer(&asked, "{}"),
                _ => self.answer(&asked, "E -32600"),
            };
        };
        let tasks = rules.tasks && declared;
        match (method, offer) {
            ("ping", _) => self.answer(&asked, "{}"),
            _ if self.is_draining() => self.answer(&asked, "E -31005"),
            ("tasks/get", _) if tasks => self.get_task(&asked, params),
            ("tasks/result", _) if tasks => self.await_task(asked, params),
            ("tasks/list", _) if tasks => self.list_tasks(&asked, params),
            ("tasks/cancel", _) if tasks => self.cancel_task(&asked, params),
            (_, None) => {
                self.mark(Mark::UnknownMethod);
                self.answer(&asked, "E -32601");
            }
            (_, Some((_, as_task))) => self.serve(asked, method, params, as_task && rules.tasks),
        }
    }

    fn serve(&mut self, asked: Asked, method: &str, params: &Value, tasks: bool) {
        let settings = std::sync::Arc::clone(&self.settings);
        // It was declared, and a reload took it away.
        let Some(service) = settings.services.get(method) else {
            return self.answer(&asked, "E -32601");
        };
        let wish = params.get("task").filter(|task| tasks && !task.is_null());
        let ttl = match (service.task_support, wish) {
            (TaskSupport::Forbidden, _) | (TaskSupport::Optional, None) => None,
            (TaskSupport::Required, None) => return self.answer(&asked, "E -32600"),
            (TaskSupport::Optional | TaskSupport::Required, Some(task)) => {
                let Some(ttl) = super::requests::read_ttl(task) else {
                    return self.answer(&asked, "E -32602");
                };
                Some(ttl)
            }
        };
        self.mark(Mark::Served);
        self.admit(asked, service, params, &params["_meta"], ttl, None);
    }
}
