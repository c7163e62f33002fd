//! Rows of ACP agents: their clients with processes and turns.

use super::layout::{Layout, ago, span};
use super::model::{Agent, AgentClient, AgentRequest};
use super::row::{Key, Row, Tone, matches};
use super::{Status, Trees, push_tree};

impl Status {
    /// The agents that have clients, a row each.
    pub(super) fn agent_rows(
        &self,
        layout: &Layout,
        filter: &str,
        trees: Trees<'_>,
        rows: &mut Vec<Row>,
    ) {
        let mut shown = Vec::new();
        for agent in &self.agents {
            for client in &agent.clients {
                let row = client.row(layout, &agent.agent);
                if !matches(&row.text, filter) {
                    continue;
                }
                let of = client.instance.and_then(|id| self.host.instances.get(&id));
                let processes = of.map(|of| &*of.processes).unwrap_or_default();
                push_tree(layout, trees, row, processes, &mut shown);
                shown.extend(client.requests.iter().map(|it| it.row(layout, agent, client)));
            }
        }
        if !shown.is_empty() {
            let names = ["INSTANCE", "AGENT", "USER", "STARTED"];
            rows.push(layout.heading(names, "STATE, TURNS"));
            rows.extend(shown);
        }
    }

    /// Number of agents, clients and turns; `None` without agents.
    pub(super) fn agents_in_words(&self) -> Option<String> {
        if self.agents.is_empty() {
            return None;
        }
        let clients = self.agents.iter().flat_map(|agent| &agent.clients);
        let turns: usize = clients.clone().map(|client| client.requests.len()).sum();
        let clients = clients.count();
        Some(format!("{}; {clients} clients, {turns} requests under way", self.agents.len()))
    }

    /// The request of this number, with its agent and client.
    fn agent_request(&self, job: u64) -> Option<(&Agent, &AgentClient, &AgentRequest)> {
        self.agents.iter().find_map(|agent| {
            agent.clients.iter().find_map(|client| {
                let request = client.requests.iter().find(|it| it.job == Some(job))?;
                Some((agent, client, request))
            })
        })
    }

    /// Whether a request to an agent is being cancelled.
    pub(in crate::cli) fn is_agent_request_cancelling(&self, job: u64) -> bool {
        self.agent_request(job).is_some_and(|(.., it)| it.state == "cancelling")
    }

    /// Details of a request to an agent.
    pub(super) fn agent_request_details(&self, job: u64) -> Option<Vec<String>> {
        let (agent, client, request) = self.agent_request(job)?;
        let mut lines = vec![
            format!(
                "job {job}: {} at the agent {}, {}",
                request.name(),
                agent.agent,
                request.state
            ),
            format!("of {} on connection {}", client.identity, client.connection),
            format!("since {}", ago(request.elapsed_ms)),
        ];
        lines.extend(request.waiting.as_ref().map(|cause| format!("waits for {cause}")));
        lines.extend(request.by.as_ref().map(|by| format!("cancelled by {by}")));
        lines.extend(client.instance.map(|id| format!("process i{id}")));
        Some(lines)
    }

    /// Details of the process of an agent.
    pub(super) fn agent_details(&self, id: u64) -> Option<Vec<String>> {
        let mut all = self.agents.iter().flat_map(|agent| {
            let name = &agent.agent;
            agent.clients.iter().map(move |client| (name, client))
        });
        let (name, client) = all.find(|(_, client)| client.instance == Some(id))?;
        let mut lines = vec![
            format!("process {id} of the agent {name}, {}", client.state),
            format!("serves {} on connection {}", client.identity, client.connection),
        ];
        let requests = client.requests.iter();
        lines.extend(
            requests.map(|it| format!("{} {} for {}", it.state, it.name(), span(it.elapsed_ms))),
        );
        if let Some(of) = self.host.instances.get(&id) {
            lines.extend(of.in_lines());
        }
        Some(lines)
    }
}

impl AgentClient {
    fn row(&self, layout: &Layout, agent: &str) -> Row {
        let is_cancelling = self.requests.iter().any(|it| it.state == "cancelling");
        let tone = match self.state.as_str() {
            "ready" if !is_cancelling => Tone::Plain,
            "idle" => Tone::Quiet,
            _ => Tone::Pending,
        };
        let requests = match self.requests.len() {
            0 => "no request".to_owned(),
            1 => "1 request".to_owned(),
            many => format!("{many} requests"),
        };
        let state = format!("{}, {requests}", self.state);
        let since = ago(self.elapsed_ms);
        match self.instance {
            Some(id) => {
                let columns = [&*format!("i{id}"), agent, &self.identity, &since];
                layout.row(Key::Instance(id), tone, columns, &state)
            }
            None => {
                let text = layout.line("-", agent, &self.identity, &since, &state);
                Row { key: None, tone, text }
            }
        }
    }
}

impl AgentRequest {
    fn row(&self, layout: &Layout, agent: &Agent, client: &AgentClient) -> Row {
        let (name, user) = (&agent.agent, &client.identity);
        let (tone, since) = (self.tone(), ago(self.elapsed_ms));
        let by = self.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let cause = self.waiting.as_ref().map(|cause| format!(" for {cause}")).unwrap_or_default();
        let state = format!("{} {}{by}{cause}", self.state, self.name());
        match self.job {
            Some(job) => {
                let columns = [&*job.to_string(), name, user, &since];
                layout.row(Key::Job(job), tone, columns, &state)
            }
            None => {
                let text = layout.line("-", name, user, &since, &state);
                Row { key: None, tone, text }
            }
        }
    }

    /// The method; of a tool call, terminal or other background work the kind, with the id.
    fn name(&self) -> String {
        match &self.object {
            Some(object) => format!("{} {object}", self.method),
            None => self.method.clone(),
        }
    }

    fn tone(&self) -> Tone {
        match self.state.as_str() {
            "cancelling" => Tone::Pending,
            "waiting" => Tone::Quiet,
            _ => Tone::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let text = r#"{"agents": [
            {"agent": "claude", "maxInstances": 2, "clients": [
                {"connection": "c7", "identity": "ann", "state": "ready", "elapsedMs": 9000,
                 "instance": 3, "requests": [
                    {"job": 12, "requestId": 4, "by": "root", "method": "session/prompt", "elapsedMs": 5000,
                     "state": "cancelling"}]},
                {"connection": "c8", "identity": "bob", "state": "idle", "elapsedMs": 1000,
                 "requests": []}]}],
            "host": {"instances": {"3": {"uptimeMs": 8000, "stderr": ["hello"],
                "processes": [{"pid": 10, "parent": 1, "name": "node"}]}}}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn clients_of_agents_are_listed_with_turns_and_processes() {
        let mut rows = Vec::new();
        let layout = Layout::of(&status(), None);
        status().agent_rows(&layout, "", Trees::Whole, &mut rows);
        let text: Vec<&str> = rows.iter().map(|row| row.text.trim()).collect();
        let [_, ann, node, turn, bob] = text.as_slice() else { panic!("{text:?}") };
        for part in ["i3", "claude", "ann", "ready, 1 request"] {
            assert!(ann.contains(part), "{part}: {ann}");
        }
        for part in ["12", "claude", "ann", "5.0s ago", "cancelling session/prompt by root"] {
            assert!(turn.contains(part), "{part}: {turn}");
        }
        assert_eq!(rows[3].key, Some(Key::Job(12)));
        assert!(status().is_agent_request_cancelling(12));
        let details = status().details(&Key::Job(12)).join("\n");
        assert!(details.contains("claude") && details.contains("process i3"), "{details}");
        assert!(node.contains("10 node") && bob.contains("idle, no request"), "{text:?}");
        assert_eq!(rows[1].tone, Tone::Pending);
        let details = status().agent_details(3).unwrap().join("\n");
        assert!(details.contains("stderr: hello") && details.contains("serves ann"), "{details}");
        assert_eq!(status().agent_details(4), None);
    }

    /// A request that waits has a row with its number and cause.
    #[test]
    fn waiting_request_has_a_row_with_its_cause() {
        let mut status = status();
        let request = serde_json::json!({"job": 14, "method": "session/prompt", "elapsedMs": 700,
            "state": "waiting", "waiting": "the restart of the agent"});
        let request = serde_json::from_value(request).unwrap();
        status.agents[0].clients[1].requests.push(request);
        let mut rows = Vec::new();
        let layout = Layout::of(&status, None);
        status.agent_rows(&layout, "", Trees::Whole, &mut rows);
        let row = rows.iter().find(|row| row.key == Some(Key::Job(14))).expect("a row");
        let state = "waiting session/prompt for the restart of the agent";
        assert!(row.text.ends_with(state), "{}", row.text);
        assert_eq!(row.tone, Tone::Quiet);
        let details = status.details(&Key::Job(14)).join("\n");
        assert!(details.contains("waits for the restart of the agent"), "{details}");
    }

    #[test]
    fn agents_show_in_the_overview() {
        let words = status().agents_in_words();
        assert_eq!(words.as_deref(), Some("1; 2 clients, 1 requests under way"));
        assert_eq!(Status::default().agents_in_words(), None);
    }
}
