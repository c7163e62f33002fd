//! Metrics in the Prometheus text format, version 0.0.4.

use std::fmt::Write as _;

use ceased_core::stats::{AgentStats, ServerStats};

use super::Snapshot;
use crate::observability::histogram::Histogram;

/// A page under construction.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP ceased_{name} {help}\n# TYPE ceased_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "ceased_{name}{labels} {value}");
    }

    /// The samples of a histogram; `label` is one pair without braces, or empty.
    fn histogram(&mut self, name: &str, label: &str, values: &Histogram) {
        let comma = if label.is_empty() { "" } else { "," };
        let alone = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        for (end, count) in values.cumulative() {
            let end = end.map_or("+Inf".into(), |millis| (millis as f64 / 1e3).to_string());
            self.sample(
                &format!("{name}_bucket"),
                &format!("{{{label}{comma}le=\"{end}\"}}"),
                count,
            );
        }
        self.sample(&format!("{name}_sum"), &alone, values.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), &alone, values.count());
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }
}

impl Snapshot<'_> {
    /// The whole page. No label holds anything a peer chose, so that peers cannot make up series;
    /// the names of tools are those of the configuration.
    pub(crate) fn prometheus(&self) -> String {
        let mut page = Page(String::with_capacity(8 * 1024));
        self.gauges(&mut page);
        self.times(&mut page);
        self.counts(&mut page);
        self.tools(&mut page);
        self.servers(&mut page);
        self.agents(&mut page);
        page.0
    }

    fn gauges(&self, page: &mut Page) {
        let gauges = &self.gauges;
        page.single(
            "up_seconds",
            "gauge",
            "Seconds since the daemon started.",
            self.uptime.as_secs(),
        );
        page.single("connections", "gauge", "Open connections.", gauges.connections);
        page.single("requests", "gauge", "Unanswered requests.", gauges.requests);
        page.family(
            "jobs",
            "gauge",
            "Jobs by state; relayed ones are at a server, and a cancelling job still has processes or a running \
             handler.",
        );
        for (state, count) in [
            ("running", gauges.running),
            ("relayed", gauges.relayed),
            ("queued", gauges.queued),
            ("cancelling", gauges.cancelling),
        ] {
            page.sample("jobs", &format!("{{state=\"{state}\"}}"), count);
        }
        page.family("tasks", "gauge", "Tasks by status.");
        for (status, count) in &gauges.tasks {
            page.sample("tasks", &format!("{{status=\"{status}\"}}"), count);
        }
        page.family("limit", "gauge", "Configured upper bounds of the gauges.");
        for (limit, max) in [
            ("connections", self.limits.connections_max),
            ("workers", self.limits.running_max),
            ("queue", self.limits.queued_max),
        ] {
            page.sample("limit", &format!("{{limit=\"{limit}\"}}"), max);
        }
        if let Some(is_open) = self.store_is_open {
            let help = "1 if the task store accepts new tasks, else 0; must be 1.";
            page.single("store_open", "gauge", help, u8::from(is_open));
        }
        if let Some(bytes) = self.store_bytes {
            page.single("store_bytes", "gauge", "Size of the store's files in bytes.", bytes);
        }
        let survived = "Processes alive after their job was stopped; must be 0. NaN if \
                        containment is by process groups, which cannot be counted.";
        let alive = self.metrics.survivors().map_or(String::from("NaN"), |n| n.to_string());
        page.single("survivors", "gauge", survived, alive);
        let abandoned = "Threads of abandoned handlers that have not returned.";
        page.single("abandoned_threads", "gauge", abandoned, self.abandoned_threads);
    }

    fn tools(&self, page: &mut Page) {
        page.family("build_info", "gauge", "The version of the daemon; always 1.");
        let version = env!("CARGO_PKG_VERSION");
        page.sample("build_info", &format!("{{version=\"{version}\"}}"), 1);
        page.family("tool_calls_total", "counter", "Ended calls, by tool and outcome.");
        for (tool, numbers) in self.tools {
            let tool = label(tool);
            for (outcome, count) in numbers.outcomes() {
                let outcome = outcome.as_str();
                let labels = format!("{{tool=\"{tool}\",outcome=\"{outcome}\"}}");
                page.sample("tool_calls_total", &labels, count);
            }
        }
        page.family("tool_call_seconds", "histogram", "Time that ended calls ran, by tool.");
        for (tool, numbers) in self.tools {
            let label = format!("tool=\"{}\"", label(tool));
            page.histogram("tool_call_seconds", &label, &numbers.took);
        }
    }

    fn servers(&self, page: &mut Page) {
        if self.servers.is_empty() {
            return;
        }
        page.family("server_instances", "gauge", "Instances of MCP servers that are there.");
        for (stats, _) in &self.servers {
            let labels = format!("{{server=\"{}\"}}", label(&stats.server));
            page.sample("server_instances", &labels, stats.instances);
        }
        type Count = fn(&(ServerStats, u64)) -> u64;
        let families: [(&str, &str, Count); 7] = [
            ("starts", "Instances started, by server.", |(stats, _)| stats.starts),
            ("restarts", "Instances started in place of another one.", |(stats, _)| stats.restarts),
            ("deaths", "Instances that died by themselves.", |(stats, _)| stats.deaths),
            ("replaced", "Instances replaced because they ignored a cancel.", |(stats, _)| {
                stats.replaced
            }),
            ("strays_ended", "Processes ended that a cancelled request left.", |(stats, _)| {
                stats.strays_ended
            }),
            ("calls", "Requests sent to servers.", |(stats, _)| stats.calls),
            ("skipped_lines", "Lines that are no messages.", |(_, skipped)| *skipped),
        ];
        for (name, help, count) in families {
            let name = format!("server_{name}_total");
            page.family(&name, "counter", help);
            for server in &self.servers {
                let labels = format!("{{server=\"{}\"}}", label(&server.0.server));
                page.sample(&name, &labels, count(server));
            }
        }
    }

    fn agents(&self, page: &mut Page) {
        type Count = fn(&AgentStats) -> u64;
        let families: [(&str, &str, &str, Count); 7] = [
            ("clients", "gauge", "Connections that have an ACP agent.", |it| it.clients as u64),
            ("processes", "gauge", "Processes of agents, without their children.", |it| {
                it.processes as u64
            }),
            ("requests", "gauge", "Turns and requests under way.", |it| it.requests as u64),
            ("starts_total", "counter", "Processes of agents started.", |it| it.starts),
            ("deaths_total", "counter", "Processes that ended by themselves.", |it| it.deaths),
            ("replaced_total", "counter", "Processes ended because they ignored a cancel.", |it| {
                it.replaced
            }),
            ("stops_total", "counter", "Turns and requests that were stopped.", |it| it.stops),
        ];
        for (name, kind, help, count) in families {
            if self.agents.is_empty() {
                return;
            }
            let name = format!("agent_{name}");
            page.family(&name, kind, help);
            for agent in &self.agents {
                let labels = format!("{{agent=\"{}\"}}", label(&agent.agent));
                page.sample(&name, &labels, count(agent));
            }
        }
    }

    fn times(&self, page: &mut Page) {
        let help = "Time from the request to stop a job until its last process or handler ended.";
        page.family("cancel_to_death_seconds", "histogram", help);
        page.histogram("cancel_to_death_seconds", "", &self.metrics.deaths);
        let help = "Time that calls waited for a place before they began.";
        page.family("queue_wait_seconds", "histogram", help);
        page.histogram("queue_wait_seconds", "", self.times.1);
    }

    fn counts(&self, page: &mut Page) {
        let (received, sent) = self.bytes();
        let metrics = &self.metrics;
        for (name, help, count) in [
            ("received_bytes_total", "Bytes read from peers.", received),
            ("sent_bytes_total", "Bytes written to peers.", sent),
            ("connections_total", "Connections accepted.", metrics.connections_accepted),
            (
                "processes_ended_total",
                "Processes ended by a signal of the daemon.",
                metrics.processes_ended,
            ),
            ("audit_dropped_total", "Audit records dropped.", self.audit_dropped),
            ("on_end_dropped_total", "Commands of `on_end` dropped.", self.on_end_dropped),
        ] {
            page.single(name, "counter", help, count);
        }
        if let Some(dropped) = self.spans_dropped {
            let help = "Spans that were not delivered to the collector.";
            page.single("otlp_dropped_total", "counter", help, dropped);
        }
        page.family("refused_by_limit_total", "counter", "Requests rejected, by limit.");
        for (limit, count) in &metrics.refused {
            page.sample("refused_by_limit_total", &format!("{{limit=\"{limit}\"}}"), count);
        }
        for (name, count) in self.counters.named() {
            let family = format!("{}_total", snake(name));
            page.single(&family, "counter", meaning(name), count);
        }
    }
}

/// The value of a label, escaped as the format wants it.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Meaning of a counter of the engine, for a reader of the page alone.
fn meaning(name: &str) -> &'static str {
    match name {
        "frames" => "Lines read from peers.",
        "requests" => "Requests read.",
        "answers" => "Requests answered with a result.",
        "errors" => "Requests answered with an error.",
        "invalid" => "Lines that are not a valid message.",
        "overlong" => "Lines longer than message_bytes.",
        "unaskedResponses" => "Responses without a matching request.",
        "lateResponses" => "Responses to requests that were cancelled or timed out.",
        "cancelled" => "Requests cancelled by their requestor.",
        "cancelsIgnored" => "Cancellations without a cancellable target.",
        "cancelsMalformed" => "Malformed cancellations.",
        "jobsStarted" => "Jobs started.",
        "jobsNeverStarted" => "Jobs that ended before they started.",
        "jobsAbandoned" => "Handlers abandoned because they ignored their cancel flag.",
        "lateReports" => "Reports of jobs that had already ended or were cancelled.",
        "progressDropped" => "Progress dropped because it did not increase or had no recipient.",
        "tasksCreated" => "Tasks created.",
        "tasksExpired" => "Tasks deleted at their ttl.",
        "refused" => "Requests rejected by a limit.",
        "idCollisions" => "Collisions of generated task ids.",
        "unstored" => "Writes that the store failed to carry out.",
        "unknownTasks" => "Requests for an unknown task or a task of another identity.",
        "fastPolls" => "Requests for a task before its poll interval elapsed.",
        "suspicions" => "Abuse patterns detected.",
        _ => "A counter of the engine.",
    }
}

/// Converts `jobsStarted` to `jobs_started`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}
