//! Rows of MCP servers: their instances with processes and calls.

use super::model::{Instance, InstanceProcesses, Process, Server};
use super::{Key, Row, Status, Tone, Trees, ago, columns, heading, matches, span, tree_of};

/// Lines of standard error in the details of an instance.
const LINES_MAX: usize = 5;

impl Status {
    /// The servers and their instances.
    pub(in crate::cli) fn server_rows(&self, filter: &str, trees: Trees<'_>, rows: &mut Vec<Row>) {
        let mut shown = Vec::new();
        for server in &self.servers {
            if server.instances.is_empty() {
                let row = server.row();
                shown.extend(matches(&row.text, filter).then_some(row));
            }
            for instance in &server.instances {
                let of = self.host.instances.get(&instance.instance);
                let row = instance.row(&server.server, of);
                if !matches(&row.text, filter) {
                    continue;
                }
                let whole = match trees {
                    Trees::Whole => true,
                    Trees::Of(selected) => selected == row.key.as_ref(),
                };
                shown.push(row);
                shown.extend(of.into_iter().flat_map(|of| tree_of(&of.processes, whole)));
            }
        }
        if !shown.is_empty() {
            rows.push(heading("INSTANCE", "SERVER", "USER", "STARTED", "STATE, CALLS"));
            rows.extend(shown);
        }
    }

    /// Details of an instance.
    pub(super) fn instance_details(&self, id: u64) -> Option<Vec<String>> {
        let of = |server: &&Server| server.instances.iter().any(|it| it.instance == id);
        let server = self.servers.iter().find(of)?;
        let instance = server.instances.iter().find(|it| it.instance == id)?;
        let mut lines =
            vec![format!("instance {id} of the server {}, {}", server.server, instance.state)];
        lines.extend(instance.identity.as_ref().map(|user| format!("serves {user}")));
        lines.extend(instance.connection.as_ref().map(|conn| format!("on connection {conn}")));
        lines.extend(instance.why.as_ref().map(|why| format!("ends because {why}")));
        lines.push(format!("calls: {}", instance.calls()));
        if let Some(of) = self.host.instances.get(&id) {
            lines.push(format!("runs for {}, {}", span(of.uptime_ms), of.in_words()));
            lines.extend(of.first_skipped.iter().map(|line| format!("skipped: {line}")));
            let last = of.stderr.len().saturating_sub(LINES_MAX);
            lines.extend(of.stderr.iter().skip(last).map(|line| format!("stderr: {line}")));
        }
        lines.extend(server.last_error.as_ref().map(|error| format!("last error: {error}")));
        Some(lines)
    }
}

impl Server {
    fn row(&self) -> Row {
        let tone = if self.state == "failed" { Tone::Bad } else { Tone::Quiet };
        let mut state = self.state.clone();
        if let Some(wait) = self.may_start_in_ms {
            state.push_str(&format!(", may start in {}", span(wait)));
        }
        if let Some(error) = self.last_error.as_ref().filter(|_| self.state == "failed") {
            state.push_str(&format!(": {error}"));
        }
        Row { key: None, tone, text: columns("-", &self.server, "", "", &state) }
    }
}

impl Instance {
    fn row(&self, server: &str, of: Option<&InstanceProcesses>) -> Row {
        let tone = match self.state.as_str() {
            "ready" => Tone::Plain,
            _ => Tone::Pending,
        };
        let mut state = format!("{}, {}", self.state, self.calls());
        if let Some(of) = of {
            state.push_str(&format!(", {}", of.in_words()));
        }
        if let Some(why) = self.why.as_ref().filter(|_| self.state != "ready") {
            state.push_str(&format!(": {why}"));
        }
        let since = of.map_or_else(String::new, |of| ago(of.uptime_ms));
        let user = self.identity.as_deref().unwrap_or_default();
        let text = columns(&format!("i{}", self.instance), server, user, &since, &state);
        Row { key: Some(Key::Instance(self.instance)), tone, text }
    }

    /// The calls under it.
    fn calls(&self) -> String {
        let jobs: Vec<String> = self.jobs.iter().map(|job| format!("job {job}")).collect();
        let jobs = if jobs.is_empty() { "no call".to_owned() } else { jobs.join(", ") };
        match self.waiting {
            0 => jobs,
            waiting => format!("{jobs}, {waiting} waiting"),
        }
    }
}

impl InstanceProcesses {
    /// Resident memory of all its processes.
    pub(in crate::cli) fn memory(&self) -> u64 {
        self.processes.iter().map(|process| process.memory_bytes).sum()
    }

    /// The process that the others come from.
    pub(in crate::cli) fn root(&self) -> Option<&Process> {
        let is_listed = |pid: i32| self.processes.iter().any(|process| process.pid == pid);
        self.processes.iter().find(|process| !is_listed(process.parent))
    }

    fn in_words(&self) -> String {
        let (count, memory) = (self.processes.len(), self.memory() / 1024 / 1024);
        let mut words = format!("{count} processes, {memory} MiB");
        if self.skipped_lines > 0 {
            words.push_str(&format!(", {} lines skipped", self.skipped_lines));
        }
        words
    }
}
