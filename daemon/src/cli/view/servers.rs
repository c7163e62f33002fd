//! Rows of MCP servers: their instances with processes and calls.

use super::layout::{Layout, ago, span};
use super::model::{Instance, InstanceProcesses, Process, Server};
use super::row::{Key, Row, Tone, matches};
use super::{Status, Trees, push_tree};
use crate::cli::format::counted;

/// Lines of standard error in the details of an instance.
const LINES_MAX: usize = 5;

impl Status {
    /// The servers and their instances.
    pub(in crate::cli) fn server_rows(
        &self,
        layout: &Layout,
        filter: &str,
        trees: Trees<'_>,
        rows: &mut Vec<Row>,
    ) {
        let mut shown = Vec::new();
        for server in &self.servers {
            if server.instances.is_empty() {
                let row = server.row(layout);
                shown.extend(matches(&row.text, filter).then_some(row));
            }
            for instance in &server.instances {
                let of = self.host.instances.get(&instance.instance);
                let row = instance.row(layout, &server.server, of);
                if !matches(&row.text, filter) {
                    continue;
                }
                let processes = of.map(|of| &*of.processes).unwrap_or_default();
                push_tree(layout, trees, row, processes, &mut shown);
            }
        }
        if !shown.is_empty() {
            let names = ["INSTANCE", "SERVER", "USER", "STARTED"];
            rows.push(layout.heading(names, "STATE, CALLS"));
            rows.extend(shown);
        }
    }

    /// Number of servers and instances in each state; `None` without servers.
    pub(super) fn servers_in_words(&self) -> Option<(Tone, String)> {
        if self.servers.is_empty() {
            return None;
        }
        let instances: usize = self.servers.iter().map(|server| server.instances.len()).sum();
        let states = ["ready", "starting", "draining", "failed", "idle"].map(|state| {
            (state, self.servers.iter().filter(|server| server.state == state).count())
        });
        let states = states.iter().filter(|(_, count)| *count > 0);
        let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
        let has_failed = self.servers.iter().any(|server| server.state == "failed");
        let tone = if has_failed { Tone::Bad } else { Tone::Plain };
        let instances = counted(instances as u64, "instance", "instances");
        let text = format!("{}; {instances}", states.join(", "));
        Some((tone, text))
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
            lines.extend(of.in_lines());
        }
        lines.extend(server.last_error.as_ref().map(|error| format!("last error: {error}")));
        Some(lines)
    }
}

impl Server {
    fn row(&self, layout: &Layout) -> Row {
        let tone = if self.state == "failed" { Tone::Bad } else { Tone::Quiet };
        let mut state = self.state.clone();
        if let Some(wait) = self.may_start_in_ms {
            state.push_str(&format!(", may start in {}", span(wait)));
        }
        if let Some(error) = self.last_error.as_ref().filter(|_| self.state == "failed") {
            state.push_str(&format!(": {error}"));
        }
        Row { key: None, tone, text: layout.line("-", &self.server, "", "", &state) }
    }
}

impl Instance {
    fn row(&self, layout: &Layout, server: &str, of: Option<&InstanceProcesses>) -> Row {
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
        let id = format!("i{}", self.instance);
        layout.row(Key::Instance(self.instance), tone, [&*id, server, user, &since], &state)
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

    /// Processes and output, for details.
    pub(super) fn in_lines(&self) -> Vec<String> {
        let mut lines = vec![format!("runs for {}, {}", span(self.uptime_ms), self.in_words())];
        lines.extend(self.first_skipped.iter().map(|line| format!("skipped: {line}")));
        let last = self.stderr.len().saturating_sub(LINES_MAX);
        lines.extend(self.stderr.iter().skip(last).map(|line| format!("stderr: {line}")));
        lines
    }

    fn in_words(&self) -> String {
        let (count, memory) = (self.processes.len(), self.memory() / 1024 / 1024);
        let count = counted(count as u64, "process", "processes");
        let mut words = format!("{count}, {memory} MiB");
        if self.skipped_lines > 0 {
            let lines = counted(self.skipped_lines, "line", "lines");
            words.push_str(&format!(", {lines} skipped"));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let text = r#"{"servers": [
            {"server": "git", "state": "ready", "instances": [
                {"instance": 7, "state": "draining", "identity": "ann", "jobs": [3], "waiting": 1,
                 "why": "it ignored a cancel"}]},
            {"server": "bad", "state": "failed", "lastError": "exit code 1", "instances": []}],
            "host": {"instances": {"7": {"uptimeMs": 5000, "skippedLines": 2, "stderr": ["hello"],
                "processes": [{"pid": 10, "parent": 1, "name": "sh", "memoryBytes": 2097152},
                              {"pid": 11, "parent": 10, "name": "node", "memoryBytes": 1048576}]}}}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn instances_are_listed_with_trees_and_calls() {
        let mut rows = Vec::new();
        let layout = Layout::of(&status(), None);
        status().server_rows(&layout, "", Trees::Whole, &mut rows);
        let text: Vec<&str> = rows.iter().map(|row| row.text.trim()).collect();
        let [_, instance, sh, node, bad] = text.as_slice() else { panic!("{text:?}") };
        for part in ["i7", "git", "ann", "draining", "job 3", "1 waiting", "2 processes, 3 MiB"] {
            assert!(instance.contains(part), "{part}: {instance}");
        }
        assert!(instance.contains("2 lines skipped: it ignored a cancel"), "{instance}");
        assert!(sh.contains("10 sh") && node.contains("11 node"), "{text:?}");
        assert!(bad.contains("failed: exit code 1"), "{bad}");
        let details = status().instance_details(7).unwrap().join("\n");
        assert!(details.contains("stderr: hello") && details.contains("serves ann"), "{details}");
        assert_eq!(status().instance_details(8), None);
    }

    #[test]
    fn failed_server_shows_in_the_overview() {
        let (tone, text) = status().servers_in_words().unwrap();
        assert_eq!((tone, &*text), (Tone::Bad, "1 ready, 1 failed; 1 instance"));
        assert_eq!(Status::default().servers_in_words(), None);
    }
}
