//! Requests that speak for themselves (MOD-01), the tasks extension, subscriptions.

use std::collections::BTreeSet;

use ceased_core::log_level::LogLevel;
use ceased_core::tool::TaskSupport;
use serde_json::Value;

use super::able::Able;
use super::asks::Place;
use super::requests::Asked;
use super::{Oracle, Pending, What};
use crate::sim::dialects;
use crate::sim::mark::Mark;
use crate::slow::Id;

const META: &str = "io.modelcontextprotocol/";

/// The self-description of a request.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Claim {
    pub(super) log: Option<LogLevel>,
    /// EXT-01
    tasks: bool,
    pub(super) able: Able,
}

/// Topics of a subscription (MOD-08).
#[derive(Debug, Clone)]
pub(in crate::sim) struct Listens {
    tools: bool,
    tasks: BTreeSet<u64>,
    able: Able,
    /// The subscription as its messages name it.
    name: String,
}

/// The claim of a request; none when it belongs to a session, a code when it cannot be served.
pub(super) fn claim_of(params: &Value) -> Option<Result<Claim, i64>> {
    let meta = params.get("_meta")?.as_object()?;
    let said = |key: &str| meta.get(&format!("{META}{key}")).filter(|value| !value.is_null());
    let (version, able) = (said("protocolVersion"), said("clientCapabilities"));
    if version.is_none() && able.is_none() {
        return None;
    }
    let log = said("logLevel").map(|word| LogLevel::ALL.into_iter().find(|l| word == l.as_str()));
    Some(match (version.and_then(Value::as_str), able.filter(|able| able.is_object())) {
        (Some(version), _) if version != dialects::STATELESS => Err(-32022),
        (None, _) | (_, None) => Err(-32602),
        _ if log == Some(None) => Err(-32602),
        (Some(_), Some(able)) => {
            let tasks = able.pointer("/extensions/io.modelcontextprotocol~1tasks");
            let tasks = tasks.is_some_and(Value::is_object);
            Ok(Claim { log: log.flatten(), tasks, able: Able::of_client(able, false, true) })
        }
    })
}

impl Oracle {
    pub(super) fn stateless_request(
        &mut self,
        mut asked: Asked,
        method: &str,
        params: &Value,
        claim: Result<Claim, i64>,
    ) {
        asked.modern = true;
        if let Some(conn) = self.conns.get_mut(&asked.conn) {
            conn.stateless = true;
        }
        self.mark(Mark::Stateless);
        let claim = match claim {
            Ok(claim) => claim,
            Err(code) => {
                self.mark(Mark::BadClaim);
                return self.answer(&asked, &format!("E {code}"));
            }
        };
        if asked.batch.is_some() {
            return self.answer(&asked, "E -32600");
        }
        if self.is_draining() {
            return self.answer(&asked, "E -31005");
        }
        let of_tasks = ["tasks/get", "tasks/update", "tasks/cancel"].contains(&method);
        if of_tasks && !claim.tasks {
            self.mark(Mark::TasksNotDeclared);
            return self.answer(&asked, "E -32021");
        }
        match method {
            "server/discover" => {
                let text = format!("V {}", dialects::ALL.len() + 1);
                self.answer(&asked, &text);
            }
            "tools/list" => self.list_tools(&asked, &["title", "outputSchema"]),
            "tools/call" => self.stateless_call(asked, params, claim),
            "subscriptions/listen" => self.listen(asked, params, &claim),
            "ceased/status" => self.status(&asked),
            "tasks/get" => {
                if let Some(at) = self.named(&asked, params) {
                    let shown = self.detailed(at, &claim.able);
                    self.answer(&asked, &format!("D {shown}"));
                }
            }
            "tasks/update" => self.update_task(&asked, params),
            "tasks/cancel" => {
                let Some(at) = self.named(&asked, params) else { return };
                // EXT-04
                if !self.tasks[at].is_over() {
                    self.cancel_live_task(self.tasks[at].nonce);
                }
                self.answer(&asked, "{}");
            }
            // MOD-07
            _ => {
                self.mark(Mark::UnknownMethod);
                self.answer(&asked, "E -32601");
            }
        }
    }

    fn stateless_call(&mut self, asked: Asked, params: &Value, claim: Claim) {
        let Some(name) = params["name"].as_str() else { return self.answer(&asked, "E -32602") };
        if let Some(state) = params.get("requestState") {
            return self.retry(asked, name, state, params, claim);
        }
        let settings = std::sync::Arc::clone(&self.settings);
        let Some(tool) = settings.catalog.get(name) else { return self.answer(&asked, "E -32602") };
        // EXT-01
        let ttl = match (tool.task_support, claim.tasks) {
            (TaskSupport::Forbidden, _) | (TaskSupport::Optional, false) => None,
            (TaskSupport::Optional | TaskSupport::Required, true) => Some(None),
            (TaskSupport::Required, false) => {
                self.mark(Mark::TasksNotDeclared);
                return self.answer(&asked, "E -32021");
            }
        };
        self.call_once(asked, tool, params, ttl, Some(claim));
    }

    /// EXT-02, EXT-03
    fn detailed(&self, at: usize, able: &Able) -> String {
        let task = &self.tasks[at];
        let outcome = task.outcome.as_deref().unwrap_or_default();
        let of_task = format!(" #{}", task.nonce);
        let outcome = outcome.strip_suffix(&of_task).unwrap_or(outcome);
        let mut shown = self.show(at);
        if task.status == "failed" && outcome.starts_with("R ") {
            shown = shown.replacen(" failed ", " completed ", 1);
        }
        match task.status {
            "working" | "cancelled" => {}
            "input_required" => {
                let job = self.jobs.iter().find(|job| job.nonce == task.nonce);
                shown.push(' ');
                shown.push_str(&job.map_or_else(String::new, |job| questions(job, able)));
            }
            _ => {
                shown.push(' ');
                shown.push_str(outcome);
            }
        }
        shown
    }

    /// EXT-05
    fn update_task(&mut self, asked: &Asked, params: &Value) {
        let Some(at) = self.named(asked, params) else { return };
        let nonce = self.tasks[at].nonce;
        let responses = params.get("inputResponses").and_then(Value::as_object);
        let Some(responses) = responses.filter(|all| all.values().all(Value::is_object)) else {
            return self.answer(asked, "E -32602");
        };
        self.mark(Mark::TaskUpdated);
        self.take_responses(nonce, responses);
        self.answer(asked, "{}");
    }

    /// Takes the answers to questions that a `tasks/get` showed.
    pub(super) fn take_responses(&mut self, nonce: u64, said: &serde_json::Map<String, Value>) {
        let Some(job) = self.job(nonce) else { return };
        let open: Vec<u64> = job.questions().map(|(call, _)| call).collect();
        for (key, response) in said {
            let call = open.iter().find(|call| call.to_string() == *key).copied();
            let place = call.and_then(|call| self.job(nonce)?.asks.get(&call).cloned());
            let (Some(call), Some(place)) = (call, place) else { continue };
            if let Place::Sent(conn, number) | Place::Offered(conn, number, _) = place {
                self.cancel_out(conn, number);
            }
            self.mark(Mark::InputTaken);
            self.end_ask(super::asks::Asker::Job(nonce), call, &format!("R {response}"));
        }
    }

    fn listen(&mut self, asked: Asked, params: &Value, claim: &Claim) {
        let wanted = &params["notifications"];
        let named = wanted.get("taskIds");
        if !wanted.is_object() {
            return self.answer(&asked, "E -32602");
        }
        if named.is_some() && !claim.tasks {
            return self.answer(&asked, "E -32021");
        }
        if named.is_some() && self.is_too_often(&asked) {
            return;
        }
        let entry = &self.conns[&asked.conn];
        let open = entry.pending.iter().filter(|pending| pending.what == What::Cancel).count();
        let limits = &self.settings.limits;
        if open >= limits.subscriptions_max || entry.pending.len() >= limits.inflight_max {
            return self.answer(&asked, "E -31003 subscriptions_per_connection");
        }
        let ids: Vec<&str> = named
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        // MOD-08, TSK-39
        let visible = |task: &&super::Task| {
            let id = self.names.get(&task.nonce).map(String::as_str);
            task.owner == entry.identity && id.is_some_and(|id| ids.contains(&id))
        };
        let tasks: BTreeSet<u64> = self.tasks.iter().filter(visible).map(|t| t.nonce).collect();
        let tools = wanted["toolsListChanged"] == true;
        let token: Value = serde_json::from_str(&asked.token).expect("an id is JSON");
        let name = token.to_string();
        let of = named.map(|_| format!("{:?}", tasks.iter().collect::<Vec<_>>()));
        let text = format!("listening {name} {tools} {}", of.unwrap_or_default());
        self.tell_for(asked.conn, text, Some(&asked.id));
        for task in self.tasks.iter_mut().filter(|task| tasks.contains(&task.nonce)) {
            task.listeners.push((asked.conn, asked.id.clone()));
            task.listeners.sort();
        }
        self.mark(Mark::Subscribed);
        let listens = Listens { tools, tasks, able: claim.able.clone(), name };
        let conn = asked.conn;
        self.wait_for(asked, What::Cancel);
        let pending = self.conns.get_mut(&conn).and_then(|conn| conn.pending.last_mut());
        pending.expect("it was put there").listens = Some(listens);
    }

    fn listens(&self, conn: u64, id: &Id) -> Option<&Listens> {
        let pending = self.conns.get(&conn)?.pending.iter().find(|pending| pending.id == *id)?;
        pending.listens.as_ref()
    }

    pub(super) fn tell_of_task(&mut self, at: usize) {
        for (conn, id) in self.tasks[at].listeners.clone() {
            let Some(listens) = self.listens(conn, &id) else { continue };
            let text = format!("task {} {}", listens.name, self.detailed(at, &listens.able));
            self.mark(Mark::TaskTold);
            self.tell_for(conn, text, Some(&id));
        }
    }

    pub(super) fn tell_of_tools(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        for conn in conns {
            let wants = |pending: &Pending| {
                let listens = pending.listens.as_ref().filter(|listens| listens.tools)?;
                Some((pending.id.clone(), format!("changed {}", listens.name)))
            };
            let mut told: Vec<_> = self.conns[&conn].pending.iter().filter_map(wants).collect();
            told.sort();
            for (id, text) in told {
                self.tell_for(conn, text, Some(&id));
            }
        }
    }

    pub(super) fn unlisten(&mut self, conn: u64, id: &Id, listens: Option<Listens>) {
        let named = listens.map(|listens| listens.tasks).unwrap_or_default();
        for task in self.tasks.iter_mut().filter(|task| named.contains(&task.nonce)) {
            task.listeners.retain(|(listens, request)| (listens, request) != (&conn, id));
        }
    }

    pub(super) fn forget_topic(&mut self, nonce: u64, listeners: &[(u64, Id)]) {
        for (conn, id) in listeners {
            let pending = self.conns.get_mut(conn).map(|conn| &mut conn.pending);
            let named = |pending: &&mut Pending| pending.id == *id;
            let found = pending.and_then(|pending| pending.iter_mut().find(named));
            if let Some(listens) = found.and_then(|pending| pending.listens.as_mut()) {
                listens.tasks.remove(&nonce);
            }
        }
    }

    /// Subscriptions end in good order, each with its result (MOD-08).
    pub(super) fn end_subscriptions(&mut self, conn: u64) {
        let Some(entry) = self.conns.get(&conn) else { return };
        let open = entry.pending.iter().filter(|pending| pending.what == What::Cancel);
        let mut over: Vec<(Id, Option<Listens>)> =
            open.map(|pending| (pending.id.clone(), pending.listens.clone())).collect();
        over.sort_by(|a, b| a.0.cmp(&b.0));
        for (id, listens) in over {
            let asked = self.take_pending(conn, &id).expect("it waits");
            let name = listens.as_ref().map(|listens| listens.name.clone()).unwrap_or_default();
            self.unlisten(conn, &id, listens);
            self.mark(Mark::SubscriptionEnded);
            self.answer(&asked, &format!("over {name}"));
        }
    }
}

/// Questions of a job that this client can answer.
pub(super) fn questions(job: &super::Job, able: &Able) -> String {
    let asked = job.questions().filter(|(_, ask)| ask.task.is_none() && able.answers(&ask.method));
    let asked: Vec<String> = asked.map(|(call, ask)| format!("{call}:{}", ask.method)).collect();
    format!("[{}]", asked.join(","))
}
