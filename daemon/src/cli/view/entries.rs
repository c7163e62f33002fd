//! Rows and details of jobs, tasks, connections and receipts.

use super::layout::{Layout, ago, bar, bytes, known, millis, span};
use super::model::{Ended, Job, Peer, Receipt, Task, Work};
use super::row::{Key, Row, Tone, matches};

impl Job {
    pub(super) fn row(&self, layout: &Layout) -> Row {
        let (tone, state) = match self.state.as_str() {
            "cancelling" => (Tone::Pending, self.cancelling()),
            "running" => (Tone::Plain, self.progress().unwrap_or_else(|| "running".into())),
            "input_required" => (Tone::Plain, "waits for an answer of its requestor".into()),
            "queued" => (Tone::Quiet, "queued: waiting for a worker".into()),
            other => (Tone::Plain, other.to_owned()),
        };
        let since = ago(self.elapsed_ms);
        let (key, id) = (Key::Job(self.job), self.job.to_string());
        let columns = [&*id, &self.tool, &self.identity, &since];
        if !layout.is_wide {
            return layout.row(key, tone, columns, &state);
        }
        let work = &self.work;
        let cpu = work.cpu_percent.map_or_else(String::new, |percent| format!("{percent}%"));
        let memory = work.memory_bytes.map_or_else(String::new, bytes);
        let usage = [&*cpu, &*memory, work.arguments.as_deref().unwrap_or_default()];
        let state = match &work.last_line {
            Some(line) if self.state == "running" => format!("{state} | {line}"),
            Some(_) | None => state,
        };
        Row { key: Some(key), tone, text: layout.job_line(columns, usage, &state) }
    }

    /// Usage, arguments and output on one line, for a narrow screen; `None` if nothing is known.
    /// `processes` is their number where they are not listed.
    pub(super) fn work_line(&self, processes: Option<usize>) -> Option<String> {
        let work = &self.work;
        let count = match processes.filter(|_| work.memory_bytes.is_some()) {
            Some(1) => Some("1 process".to_owned()),
            Some(count @ 2..) => Some(format!("{count} processes")),
            Some(0) | None => None,
        };
        let usage = [
            work.cpu_percent.map(|percent| format!("{percent}% CPU")),
            work.memory_bytes.map(bytes),
            count,
        ];
        let usage: Vec<String> = usage.into_iter().flatten().collect();
        let line = work.last_line.as_ref().map(|line| format!("| {line}"));
        let parts = [Some(usage.join(", ")), work.arguments.clone(), line];
        let parts: Vec<String> =
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        (!parts.is_empty()).then(|| parts.join("  "))
    }

    /// Whether the row contains a text, or the arguments do.
    pub(super) fn matches(&self, row: &Row, filter: &str) -> bool {
        let arguments = self.work.arguments.as_deref();
        matches(&row.text, filter) || arguments.is_some_and(|text| matches(text, filter))
    }

    /// CAN-13: elapsed time, step and reason of a cancel.
    fn cancelling(&self) -> String {
        let why = self.said.as_deref().unwrap_or(&self.reason);
        format!("cancelling {} {}: {why}", span(self.cancelling_ms), self.step)
    }

    fn progress(&self) -> Option<String> {
        let done = self.progress?;
        let message = self.message.as_deref().unwrap_or_default();
        Some(match self.total {
            Some(total) => format!("{} {done}/{total} {message}", bar(done, total)),
            None => format!("{done} {message}"),
        })
    }

    pub(in crate::cli) fn details(&self) -> Vec<String> {
        let mut lines = vec![
            format!("job {} runs {} for {}", self.job, self.tool, self.identity),
            format!("requested on connection {} {} ago", self.connection, span(self.elapsed_ms)),
        ];
        if let Some(task) = &self.task {
            lines.push(format!("task {task}"));
        }
        lines.extend(self.work.arguments.as_ref().map(|text| format!("arguments {text}")));
        lines.extend(self.work.usage());
        lines.extend(self.work.last_line.as_ref().map(|line| format!("last line: {line}")));
        lines.extend(self.progress().map(|progress| format!("progress {progress}")));
        if self.state == "cancelling" {
            let by = self.by.as_deref().unwrap_or("the daemon");
            lines.push(format!("cancelling since {} by {by}", span(self.cancelling_ms)));
            lines.push(format!("why: {}", self.said.as_deref().unwrap_or(&self.reason)));
            lines.push(format!("last step: {}; some processes are still alive", self.step));
        } else {
            lines.push(self.state.clone());
        }
        lines
    }
}

impl Task {
    /// Whether it has no end.
    pub(in crate::cli) fn is_live(&self) -> bool {
        matches!(&*self.status, "working" | "input_required")
    }

    /// Whether its work goes on after its end.
    fn is_stopping(&self) -> bool {
        self.job.is_some() || self.work == "ending"
    }

    pub(super) fn row(&self, layout: &Layout, job: Option<&Job>) -> Row {
        let tone = match self.status.as_str() {
            "working" => Tone::Plain,
            "input_required" => Tone::Pending,
            "failed" => Tone::Bad,
            "cancelled" if self.is_stopping() => Tone::Pending,
            _ => Tone::Quiet,
        };
        let mut state = self.status.clone();
        // CAN-13: its status is cancelled at once; its job has not ended before its processes have.
        if self.status == "cancelled" && self.is_stopping() {
            state.push_str(", cancelling its job");
        } else if let Some(Job { progress: Some(done), total: Some(total), .. }) = job {
            state.push_str(&format!(" {}", bar(*done, *total)));
        }
        if let Some(node) = &self.node {
            state.push_str(&format!(" at {node}"));
        }
        if let Some(left) = self.ttl_left_ms {
            state.push_str(&format!(", ttl {}", span(left)));
        }
        let short = self.task.get(..8).unwrap_or(&self.task);
        let (key, age) = (Key::Task(self.task.clone()), ago(self.age_ms));
        layout.row(key, tone, [short, &self.tool, &self.identity, &age], &state)
    }

    pub(super) fn details(&self) -> Vec<String> {
        let mut lines = vec![
            format!("task {}", self.task),
            format!("of {}, created {} ago by {}", self.tool, span(self.age_ms), self.identity),
            self.status.clone(),
        ];
        lines.extend(
            self.status_message.as_ref().map(|message| format!("status message: {message}")),
        );
        lines.extend(self.ttl_left_ms.map(|left| format!("kept for {}", span(left))));
        lines.push(match (self.job, &self.node) {
            (Some(job), _) => format!("its job is {job}"),
            (None, Some(node)) => {
                let work = if self.work.is_empty() { "" } else { ", its work: " };
                let runs = if self.is_live() { "runs" } else { "ran" };
                format!("it {runs} at the node {node}{work}{}", self.work)
            }
            (None, None) => "no running job".into(),
        });
        lines
    }
}

impl Peer {
    pub(super) fn row(&self, layout: &Layout) -> Row {
        let mut requests = format!("{} made, {} unanswered", self.requests, self.in_flight);
        if self.unsent_bytes > 0 {
            requests.push_str(&format!(", {} bytes unread", self.unsent_bytes));
        }
        let since = ago(self.elapsed_ms);
        let columns = [&*self.connection, &self.protocol, &self.identity, &since];
        layout.row(Key::Connection(self.connection.clone()), Tone::Plain, columns, &requests)
    }

    pub(super) fn details(&self) -> Vec<String> {
        vec![
            format!("connection {} of {}", self.connection, self.identity),
            format!("protocol MCP {}, connected for {}", self.protocol, span(self.elapsed_ms)),
            format!("{} requests, {} of them unanswered", self.requests, self.in_flight),
            format!("{} bytes not read by the peer", self.unsent_bytes),
        ]
    }
}

impl Receipt {
    /// Processes ended and left, the time that took, and the reason.
    fn in_words(&self) -> String {
        let why = self.reason.as_deref().unwrap_or(&self.why);
        let (ended, left) = (known(self.processes_ended), known(self.survivors));
        match (&self.end, self.died_after_ms, self.survivors) {
            (Some(end), ..) => format!("{end}: {why}"),
            (None, Some(after), _) => {
                format!("{ended} ended, {left} left in {}: {why}", millis(after))
            }
            (None, None, Some(_)) => format!("{ended} ended, {left} cannot be ended: {why}"),
            (None, None, None) => format!("its end is not known: {why}"),
        }
    }

    fn tone(&self) -> Tone {
        // An answer is evidence of an end (UPS-05), but counts no process.
        let is_answered = self.proof.as_deref() == Some("answered");
        if self.survivors == Some(0) || is_answered { Tone::Good } else { Tone::Bad }
    }

    pub(super) fn row(&self, layout: &Layout) -> Row {
        let when = ago(self.ended_ago_ms);
        let (key, id) = (Key::Receipt(self.job), self.job.to_string());
        let columns = [&*id, &self.tool, &self.identity, &when];
        layout.row(key, self.tone(), columns, &self.in_words())
    }

    pub(super) fn details(&self) -> Vec<String> {
        let when = ago(self.ended_ago_ms);
        vec![
            format!("job {} of {} ran {}", self.job, self.identity, self.tool),
            format!("stopped by {}: {}", self.by, self.reason.as_deref().unwrap_or(&self.why)),
            format!("last step: {}; processes ended: {}", self.stage, known(self.processes_ended)),
            match (&self.end, self.died_after_ms, self.survivors) {
                (Some(end), ..) => format!("{end}, {when}"),
                (None, Some(after), _) => {
                    format!("its last process ended after {}, {when}", millis(after))
                }
                (None, None, Some(_)) => format!("some processes could not be ended, {when}"),
                (None, None, None) => format!("the end of its work is not known, {when}"),
            },
            format!("survivors: {}", known(self.survivors)),
        ]
    }
}

impl Ended {
    pub(super) fn row(&self, layout: &Layout) -> Row {
        let how = match (self.exit_code, self.signal) {
            _ if self.outcome == "ok" => String::new(),
            (Some(code), _) => format!(" (exit code {code})"),
            (None, Some(signal)) => format!(" (signal {signal})"),
            (None, None) => String::new(),
        };
        let mut state = format!("{}{how} after {}", self.outcome, span(self.duration_ms));
        if let Some(receipt) = &self.receipt {
            state.push_str(&format!("; {}", receipt.in_words()));
        }
        if let Some(arguments) = &self.arguments {
            state.push_str(&format!("; {arguments}"));
        }
        let tone = match self.outcome.as_str() {
            "ok" => Tone::Good,
            "stopped" => self.receipt.as_ref().map_or(Tone::Quiet, Receipt::tone),
            _ => Tone::Bad,
        };
        let (when, id) = (ago(self.ended_ago_ms), self.job.to_string());
        layout.row(Key::Receipt(self.job), tone, [&*id, &self.tool, &self.identity, &when], &state)
    }
}

impl Work {
    /// CPU time and memory in words; `None` if unknown.
    fn usage(&self) -> Option<String> {
        let cpu = self.cpu_ms.map(|cpu| {
            let lately = self.cpu_percent.map(|percent| format!(", {percent}% of one CPU lately"));
            format!("CPU time {}{}", span(cpu), lately.unwrap_or_default())
        });
        let memory = self.memory_bytes.map(|memory| format!("memory {}", bytes(memory)));
        let parts: Vec<String> = [cpu, memory].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
