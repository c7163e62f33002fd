//! Text rendering of the daemon's status: one list for `ps` and `top`.

mod model;

use super::format::clean;
pub(super) use model::{Job, Peer, Process, Receipt, Status, Task};

/// Maximum number of processes shown per job.
const TREE_MAX: usize = 8;
/// Width of a progress bar.
const BAR: usize = 10;

/// Subject of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Job(u64),
    Task(String),
    Connection(String),
    Receipt(u64),
}

/// Emphasis of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Heading,
    Plain,
    /// In transition, such as being cancelled.
    Pending,
    /// Ended as expected.
    Good,
    /// Ended with a problem.
    Bad,
    /// Secondary information.
    Quiet,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The entry, if the row can be selected.
    pub(super) key: Option<Key>,
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// Jobs whose processes are all shown, besides those being cancelled.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trees<'a> {
    /// All jobs.
    Whole,
    /// The selected job.
    Of(Option<&'a Key>),
}

/// Order of jobs and tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    /// Cancelling jobs first, then running ones; oldest first in each group.
    #[default]
    State,
    /// Oldest first.
    Age,
    /// By tool.
    Tool,
    /// By identity.
    User,
}

impl Sort {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::State => Self::Age,
            Self::Age => Self::Tool,
            Self::Tool => Self::User,
            Self::User => Self::State,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Age => "age",
            Self::Tool => "tool",
            Self::User => "user",
        }
    }
}

impl Status {
    /// Summary in three lines: viewer, load, and whether cancels left processes behind.
    pub(super) fn summary(&self) -> [(Tone, String); 3] {
        let host = &self.host;
        let jobs = if self.operator { "the jobs of all users" } else { "your own jobs" };
        let draining = if self.draining { ", shutting down" } else { "" };
        let first = format!(
            "{} {}, pid {}, up {}{draining}; you: {}, seeing {jobs}",
            clean(&self.server),
            clean(&self.version),
            host.pid,
            span(host.uptime_ms),
            clean(&self.identity),
        );
        let count = |status: &str| self.tasks.get(status).copied().unwrap_or_default();
        let live = count("working") + count("input_required");
        let kept = count("total").saturating_sub(live);
        let second = format!(
            "jobs: {} running, {} queued, {} cancelling; tasks: {live} working, {kept} ended; peers: {}",
            self.running, self.queued, self.cancelling, self.connections
        );
        let deaths = &host.cancel_to_death;
        // A viewer that is no operator is told of its own cancels alone.
        let mut third = match deaths {
            Some(deaths) => format!(
                "cancels done: {}, slowest {}; survivors {}",
                deaths.count,
                millis(deaths.longest_ms),
                known(host.survivors)
            ),
            None => {
                let slowest = host.receipts.iter().filter_map(|receipt| receipt.died_after_ms);
                format!(
                    "your latest cancels: {}, slowest {}; survivors {}",
                    host.receipts.len(),
                    millis(slowest.fold(0.0, f64::max)),
                    known(self.own_survivors())
                )
            }
        };
        if host.abandoned_threads > 0 {
            third.push_str(&format!("; {} abandoned handlers", host.abandoned_threads));
        }
        if host.audit_dropped > 0 {
            third.push_str(&format!("; {} audit records lost", host.audit_dropped));
        }
        let survivors = host.survivors.or_else(|| self.own_survivors());
        let bad = survivors.unwrap_or_default() + host.abandoned_threads + host.audit_dropped > 0;
        let busy = if self.cancelling > 0 { Tone::Pending } else { Tone::Plain };
        let third_tone = if bad { Tone::Bad } else { Tone::Good };
        [(Tone::Quiet, first), (busy, second), (third_tone, third)]
    }

    /// Processes that outlive the cancels of the viewer; `None` where that is not known.
    fn own_survivors(&self) -> Option<u64> {
        self.host.receipts.iter().map(|receipt| receipt.survivors).sum()
    }

    /// The whole state in lines that have a name, for one screen.
    pub(super) fn overview(&self) -> Vec<(Tone, &'static str, String)> {
        let [(_, first), _, (cancel_tone, cancels)] = self.summary();
        let limit = |name: &str| match self.limits.get(name) {
            Some(limit) => format!(" of {limit}"),
            None => String::new(),
        };
        let count = |status: &str| self.tasks.get(status).copied().unwrap_or_default();
        let live = count("working") + count("input_required");
        let ended = count("total").saturating_sub(live);
        let busy = if self.cancelling > 0 { Tone::Pending } else { Tone::Plain };
        let (running, queued) = (self.running, self.queued);
        let mut lines = vec![
            (Tone::Plain, "", first),
            (
                busy,
                "jobs",
                format!(
                    "{running} running{}, {queued} queued{}, {} cancelling",
                    limit("workers"),
                    limit("queue"),
                    self.cancelling
                ),
            ),
            (
                Tone::Plain,
                "tasks",
                format!("{live} live{}, {ended} ended", limit("tasks_per_identity")),
            ),
            (Tone::Plain, "connections", format!("{}{}", self.connections, limit("connections"))),
        ];
        let store = &self.host.store;
        if !store.kept.is_empty() {
            let tone = if store.state == "open" { Tone::Plain } else { Tone::Bad };
            lines.push((tone, "store", store.in_words()));
        }
        if !self.host.containment.is_empty() {
            lines.push((Tone::Plain, "containment", self.host.containment.clone()));
        }
        lines.push((cancel_tone, "cancels", cancels));
        if !self.counters.is_empty() {
            let of = |name: &str| self.counters.get(name).copied().unwrap_or_default();
            let requests = format!(
                "{} read, {} answered, {} errors, {} cancelled, {} refused by a limit",
                of("requests"),
                of("answers"),
                of("errors"),
                of("cancelled"),
                of("refused")
            );
            lines.push((Tone::Plain, "requests", requests));
        }
        lines
    }

    /// The jobs that run and the latest receipts.
    pub(super) fn running_rows(&self, sort: Sort, trees: Trees<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        self.job_rows("", sort, trees, &mut rows);
        self.receipt_rows("", &mut rows);
        rows
    }

    /// All rows that contain `filter`, a line each.
    pub(super) fn rows(&self, filter: &str, sort: Sort, trees: Trees<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        self.job_rows(filter, sort, trees, &mut rows);
        self.receipt_rows(filter, &mut rows);
        self.task_rows(filter, sort, &mut rows);
        self.peer_rows(filter, &mut rows);
        rows
    }

    fn job_rows(&self, filter: &str, sort: Sort, trees: Trees<'_>, rows: &mut Vec<Row>) {
        let mut jobs: Vec<&Job> = self.jobs.iter().collect();
        let rank = |job: &Job| match job.state.as_str() {
            "cancelling" => 0,
            "running" => 1,
            _ => 2,
        };
        match sort {
            Sort::State => jobs.sort_by_key(|job| (rank(job), job.job)),
            Sort::Age => jobs.sort_by_key(|job| job.job),
            Sort::Tool => jobs.sort_by(|a, b| (&a.tool, a.job).cmp(&(&b.tool, b.job))),
            Sort::User => jobs.sort_by(|a, b| (&a.identity, a.job).cmp(&(&b.identity, b.job))),
        }
        rows.push(heading("JOB", "TOOL", "USER", "STARTED", "STATE"));
        let before = rows.len();
        for job in jobs {
            let row = job.row();
            if matches(&row.text, filter) {
                let whole = match trees {
                    Trees::Whole => true,
                    Trees::Of(selected) => selected == row.key.as_ref(),
                };
                rows.push(row);
                rows.extend(self.tree(job.job, whole || job.state == "cancelling"));
            }
        }
        if rows.len() == before {
            rows.push(quiet("nothing"));
        }
    }

    /// The processes of a job as a tree; or only the first, and the number of others.
    fn tree(&self, job: u64, whole: bool) -> Vec<Row> {
        let Some(processes) = self.host.processes.get(&job) else { return Vec::new() };
        let mut lines = Vec::new();
        let is_listed = |pid: i32| processes.iter().any(|process| process.pid == pid);
        let roots: Vec<&Process> =
            processes.iter().filter(|process| !is_listed(process.parent)).collect();
        grow(processes, &roots, "", &mut lines);
        if let (false, [first, rest @ ..]) = (whole, lines.as_slice()) {
            let others = match rest.len() {
                0 => String::new(),
                others => format!(", and {others} more"),
            };
            return vec![quiet(&format!("{first}{others}"))];
        }
        let more = lines.len().saturating_sub(TREE_MAX);
        lines.truncate(TREE_MAX);
        if more > 0 {
            lines.push(format!("… and {more} more processes"));
        }
        lines.into_iter().map(|line| quiet(&line)).collect()
    }

    fn receipt_rows(&self, filter: &str, rows: &mut Vec<Row>) {
        let shown: Vec<Row> = self
            .host
            .receipts
            .iter()
            .map(Receipt::row)
            .filter(|row| matches(&row.text, filter))
            .take(5)
            .collect();
        if !shown.is_empty() {
            rows.push(heading(
                "CEASED",
                "TOOL",
                "USER",
                "ENDED",
                "CANCEL DONE: PROCESSES ENDED, LEFT",
            ));
            rows.extend(shown);
        }
    }

    fn task_rows(&self, filter: &str, sort: Sort, rows: &mut Vec<Row>) {
        let mut tasks: Vec<&Task> = self.task_list.iter().collect();
        let is_over = |task: &Task| !matches!(&*task.status, "working" | "input_required");
        match sort {
            Sort::State => tasks.sort_by_key(|task| (is_over(task), task.age_ms)),
            Sort::Age => tasks.sort_by_key(|task| std::cmp::Reverse(task.age_ms)),
            Sort::Tool => tasks.sort_by(|a, b| a.tool.cmp(&b.tool)),
            Sort::User => tasks.sort_by(|a, b| a.identity.cmp(&b.identity)),
        }
        let job_of = |task: &Task| self.jobs.iter().find(|job| Some(job.job) == task.job);
        let shown = tasks.into_iter().map(|task| task.row(job_of(task)));
        let shown: Vec<Row> = shown.filter(|row| matches(&row.text, filter)).collect();
        if !shown.is_empty() {
            rows.push(heading(
                "TASK",
                "TOOL",
                "USER",
                "CREATED",
                "STATE, HOW LONG IT IS KEPT (TTL)",
            ));
            rows.extend(shown);
        }
    }

    fn peer_rows(&self, filter: &str, rows: &mut Vec<Row>) {
        let shown = self.peers.iter().map(Peer::row);
        let shown: Vec<Row> = shown.filter(|row| matches(&row.text, filter)).collect();
        if !shown.is_empty() {
            rows.push(heading("PEER", "PROTOCOL", "USER", "SINCE", "REQUESTS"));
            rows.extend(shown);
        }
    }

    /// Details of one entry, one per line.
    pub(super) fn details(&self, key: &Key) -> Vec<String> {
        let lines = match key {
            Key::Job(id) => self.jobs.iter().find(|job| job.job == *id).map(Job::details),
            Key::Task(id) => self.task_list.iter().find(|task| task.task == *id).map(Task::details),
            Key::Connection(id) => {
                self.peers.iter().find(|peer| peer.connection == *id).map(Peer::details)
            }
            Key::Receipt(id) => {
                self.host.receipts.iter().find(|receipt| receipt.job == *id).map(Receipt::details)
            }
        };
        lines.unwrap_or_else(|| vec!["the entry no longer exists".into()])
    }
}

impl Job {
    fn row(&self) -> Row {
        let (tone, state) = match self.state.as_str() {
            "cancelling" => (Tone::Pending, self.cancelling()),
            "running" => (Tone::Plain, self.progress().unwrap_or_else(|| "running".into())),
            "queued" => (Tone::Quiet, "queued: waiting for a worker".into()),
            other => (Tone::Plain, other.to_owned()),
        };
        let since = ago(self.elapsed_ms);
        let text = columns(&self.job.to_string(), &self.tool, &self.identity, &since, &state);
        Row { key: Some(Key::Job(self.job)), tone, text }
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

    pub(super) fn details(&self) -> Vec<String> {
        let mut lines = vec![
            format!("job {} runs {} for {}", self.job, self.tool, self.identity),
            format!("requested on connection {} {} ago", self.connection, span(self.elapsed_ms)),
        ];
        if let Some(task) = &self.task {
            lines.push(format!("task {task}"));
        }
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
    fn row(&self, job: Option<&Job>) -> Row {
        let tone = match self.status.as_str() {
            "working" => Tone::Plain,
            "input_required" => Tone::Pending,
            "failed" => Tone::Bad,
            "cancelled" if self.job.is_some() => Tone::Pending,
            _ => Tone::Quiet,
        };
        let mut state = self.status.clone();
        // CAN-13: its status is cancelled at once; its job has not ended before its processes have.
        if self.status == "cancelled" && self.job.is_some() {
            state.push_str(", cancelling its job");
        } else if let Some(Job { progress: Some(done), total: Some(total), .. }) = job {
            state.push_str(&format!(" {}", bar(*done, *total)));
        }
        if let Some(left) = self.ttl_left_ms {
            state.push_str(&format!(", ttl {}", span(left)));
        }
        let short = self.task.get(..8).unwrap_or(&self.task);
        let text = columns(short, &self.tool, &self.identity, &ago(self.age_ms), &state);
        Row { key: Some(Key::Task(self.task.clone())), tone, text }
    }

    fn details(&self) -> Vec<String> {
        let mut lines = vec![
            format!("task {}", self.task),
            format!("of {}, created {} ago by {}", self.tool, span(self.age_ms), self.identity),
            self.status.clone(),
        ];
        lines.extend(
            self.status_message.as_ref().map(|message| format!("status message: {message}")),
        );
        lines.extend(self.ttl_left_ms.map(|left| format!("kept for {}", span(left))));
        lines.push(match self.job {
            Some(job) => format!("its job is {job}"),
            None => "no running job".into(),
        });
        lines
    }
}

impl Peer {
    fn row(&self) -> Row {
        let mut requests = format!("{} made, {} unanswered", self.requests, self.in_flight);
        if self.unsent_bytes > 0 {
            requests.push_str(&format!(", {} bytes unread", self.unsent_bytes));
        }
        let since = ago(self.elapsed_ms);
        let text = columns(&self.connection, &self.protocol, &self.identity, &since, &requests);
        Row { key: Some(Key::Connection(self.connection.clone())), tone: Tone::Plain, text }
    }

    fn details(&self) -> Vec<String> {
        vec![
            format!("connection {} of {}", self.connection, self.identity),
            format!("protocol MCP {}, connected for {}", self.protocol, span(self.elapsed_ms)),
            format!("{} requests, {} of them unanswered", self.requests, self.in_flight),
            format!("{} bytes not read by the peer", self.unsent_bytes),
        ]
    }
}

/// A number that may be unknown.
fn known(number: Option<u64>) -> String {
    number.map_or(String::from("unknown"), |number| number.to_string())
}

impl Receipt {
    fn row(&self) -> Row {
        let why = self.reason.as_deref().unwrap_or(&self.why);
        let (ended, left) = (self.processes_ended, known(self.survivors));
        let how = match self.died_after_ms {
            Some(after) => format!("{ended} ended, {left} left in {}: {why}", millis(after)),
            None => format!("{ended} ended, {left} cannot be ended: {why}"),
        };
        let tone = if self.survivors == Some(0) { Tone::Good } else { Tone::Bad };
        let when = ago(self.ended_ago_ms);
        let text = columns(&self.job.to_string(), &self.tool, &self.identity, &when, &how);
        Row { key: Some(Key::Receipt(self.job)), tone, text }
    }

    fn details(&self) -> Vec<String> {
        vec![
            format!("job {} of {} ran {}", self.job, self.identity, self.tool),
            format!("stopped by {}: {}", self.by, self.reason.as_deref().unwrap_or(&self.why)),
            format!("last step: {}; {} processes ended", self.stage, self.processes_ended),
            match self.died_after_ms {
                Some(after) => {
                    let (after, ago) = (millis(after), ago(self.ended_ago_ms));
                    format!("its last process ended after {after}, {ago}")
                }
                None => format!("some processes could not be ended, {}", ago(self.ended_ago_ms)),
            },
            format!("survivors: {}", known(self.survivors)),
        ]
    }
}

fn heading(id: &str, what: &str, user: &str, since: &str, state: &str) -> Row {
    let text = columns(id, what, user, since, state);
    Row { key: None, tone: Tone::Heading, text }
}

fn quiet(text: &str) -> Row {
    Row { key: None, tone: Tone::Quiet, text: clean(&format!("{:9}{text}", "")).into_owned() }
}

/// Formats a line of five columns; the last one is not limited.
fn columns(id: &str, what: &str, user: &str, since: &str, state: &str) -> String {
    let [id, what, user, state] = [id, what, user, state].map(clean);
    let what = short(&what, 12);
    let user = short(&user, 10);
    format!("{id:>8} {what:<12} {user:<10} {since:>9}  {state}").trim_end().to_owned()
}

/// Truncates to a number of characters.
fn short(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

fn matches(text: &str, filter: &str) -> bool {
    filter.is_empty() || text.to_lowercase().contains(&filter.to_lowercase())
}

fn grow(all: &[Process], siblings: &[&Process], indent: &str, lines: &mut Vec<String>) {
    for (at, process) in siblings.iter().enumerate() {
        // The depth is bounded by the number of processes, even for cyclic data.
        if lines.len() >= all.len() {
            return;
        }
        let is_last = at + 1 == siblings.len();
        let branch = if is_last { "└ " } else { "├ " };
        lines.push(format!("{indent}{branch}{} {}", process.pid, process.name));
        let children: Vec<&Process> =
            all.iter().filter(|child| child.parent == process.pid).collect();
        grow(all, &children, &format!("{indent}{}", if is_last { "  " } else { "│ " }), lines);
    }
}

fn bar(done: f64, total: f64) -> String {
    let share = if total > 0.0 { (done / total).clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * BAR as f64).round() as usize;
    format!("[{}{}] {:.0}%", "#".repeat(full), "-".repeat(BAR - full.min(BAR)), share * 100.0)
}

/// Formats a duration in two units.
fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Formats an elapsed time.
fn ago(millis: u64) -> String {
    format!("{} ago", span(millis))
}

fn millis(millis: f64) -> String {
    if millis < 1000.0 { format!("{millis:.0}ms") } else { format!("{:.1}s", millis / 1e3) }
}

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;
