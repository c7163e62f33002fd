//! Text rendering of the daemon's status: one list for `ps` and `top`.

mod agents;
mod entries;
mod layout;
mod model;
mod row;
mod servers;

use super::format::{clean, counted};
pub(super) use layout::span;
use layout::{Layout, known, millis};
use model::{Durations, Fleet, FleetMember, Host};
pub(super) use model::{Job, Peer, Process, Receipt, Server, Status, Task, Token};
use row::matches;
pub(super) use row::{Key, Row, Tone};

/// Maximum number of processes shown per job.
const TREE_MAX: usize = 8;

/// Jobs whose processes are all shown, besides those being cancelled.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trees<'a> {
    /// All jobs.
    Whole,
    /// The selected job.
    Of(Option<&'a Key>),
}

impl Trees<'_> {
    /// Whether the processes of a row are all shown.
    fn shows_whole(self, row: &Row) -> bool {
        match self {
            Self::Whole => true,
            Self::Of(selected) => row.key.is_some() && selected == row.key.as_ref(),
        }
    }
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

impl Host {
    /// Ended calls, and the time that they waited before; `None` for a viewer that is no operator.
    fn calls_in_words(&self) -> Option<String> {
        let (ran, waited) = (self.call_time.as_ref()?, self.queue_wait.as_ref()?);
        let wait = waited.p95_ms.map(|p95| format!("; 95 % waited {} at most", millis(p95)));
        Some(format!("ended: {}{}", ran.in_words(), wait.unwrap_or_default()))
    }
}

impl Fleet {
    /// Its members with their live tasks, this node first named.
    fn in_words(&self) -> String {
        let node = |node: &FleetMember| {
            let state = if node.state == "live" { "" } else { ", draining" };
            format!("{} ({} live{state})", clean(&node.name), node.tasks)
        };
        let nodes: Vec<String> = self.nodes.iter().map(node).collect();
        format!("this is {}; nodes: {}", clean(&self.node), nodes.join(", "))
    }
}

impl Durations {
    /// Their number, the bound of 95 of 100, and the longest one.
    fn in_words(&self) -> String {
        let (count, slowest) = (self.count, millis(self.longest_ms));
        let p95 = self.p95_ms.map(|p95| format!(", 95 % within {}", millis(p95)));
        format!("{count}{}, slowest {slowest}", p95.unwrap_or_default())
    }
}

impl Status {
    /// The number of jobs that wait for an answer, if there are any.
    fn asking(&self) -> String {
        match self.input_required {
            0 => String::new(),
            count => format!(", {count} waiting for an answer"),
        }
    }

    /// The number of requests at servers, if there are any.
    fn at_servers(&self) -> String {
        match self.relayed {
            0 => String::new(),
            count => format!(", {count} at servers"),
        }
    }

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
            "jobs: {} running{}, {} queued, {} cancelling; tasks: {live} working, {kept} ended; peers: {}",
            self.running,
            self.asking(),
            self.queued,
            self.cancelling,
            self.connections
        );
        let deaths = &host.cancel_to_death;
        // A viewer that is no operator is told of its own cancels alone.
        let mut third = match deaths {
            Some(deaths) => {
                format!("cancels done: {}; survivors {}", deaths.in_words(), known(host.survivors))
            }
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
            let threads = host.abandoned_threads;
            let threads = counted(threads, "abandoned handler", "abandoned handlers");
            third.push_str(&format!("; {threads}"));
        }
        if host.audit_dropped > 0 {
            let lost = counted(host.audit_dropped, "audit record", "audit records");
            third.push_str(&format!("; {lost} lost"));
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
        let (running, queued) = (self.running.saturating_sub(self.relayed), self.queued);
        let mut lines = vec![
            (Tone::Plain, "", first),
            (
                busy,
                "jobs",
                format!(
                    "{running} running{}{}{}, {queued} queued{}, {} cancelling",
                    limit("workers"),
                    self.at_servers(),
                    self.asking(),
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
        lines.extend(self.host.calls_in_words().map(|text| (Tone::Plain, "calls", text)));
        lines.extend(self.servers_in_words().map(|(tone, text)| (tone, "servers", text)));
        lines.extend(self.agents_in_words().map(|text| (Tone::Plain, "agents", text)));
        lines
            .extend(self.host.fleet.as_ref().map(|fleet| (Tone::Plain, "fleet", fleet.in_words())));
        let store = &self.host.store;
        if !store.kept.is_empty() {
            let tone = if store.state == "open" { Tone::Plain } else { Tone::Bad };
            lines.push((tone, "store", store.in_words()));
        }
        if !self.host.containment.is_empty() {
            lines.push((Tone::Plain, "containment", self.host.containment.clone()));
        }
        // The line has the name of the column already.
        let cancels = cancels.strip_prefix("cancels ").map(str::to_owned).unwrap_or(cancels);
        lines.push((cancel_tone, "cancels", cancels));
        if !self.counters.is_empty() {
            let of = |name: &str| self.counters.get(name).copied().unwrap_or_default();
            let requests = format!(
                "{} read, {} answered, {}, {} cancelled, {} refused by a limit",
                of("requests"),
                of("answers"),
                counted(of("errors"), "error", "errors"),
                of("cancelled"),
                of("refused")
            );
            lines.push((Tone::Plain, "requests", requests));
        }
        lines
    }

    /// The jobs that run and the latest receipts, on a screen of so many columns.
    pub(super) fn running_rows(&self, trees: Trees<'_>, width: Option<usize>) -> Vec<Row> {
        let (mut rows, layout) = (Vec::new(), Layout::of(self, width));
        self.job_rows(&layout, "", Sort::State, trees, &mut rows);
        self.agent_rows(&layout, "", trees, &mut rows);
        self.receipt_rows(&layout, "", &mut rows);
        rows
    }

    /// All rows that contain `filter`, a line each, on a screen of so many columns.
    pub(super) fn rows(
        &self,
        filter: &str,
        sort: Sort,
        trees: Trees<'_>,
        width: Option<usize>,
    ) -> Vec<Row> {
        let (mut rows, layout) = (Vec::new(), Layout::of(self, width));
        self.job_rows(&layout, filter, sort, trees, &mut rows);
        self.agent_rows(&layout, filter, trees, &mut rows);
        self.server_rows(&layout, filter, trees, &mut rows);
        match self.host.ended.is_empty() {
            true => self.receipt_rows(&layout, filter, &mut rows),
            false => self.ended_rows(&layout, filter, &mut rows),
        }
        self.task_rows(&layout, filter, sort, &mut rows);
        self.peer_rows(&layout, filter, &mut rows);
        rows
    }

    fn job_rows(
        &self,
        layout: &Layout,
        filter: &str,
        sort: Sort,
        trees: Trees<'_>,
        rows: &mut Vec<Row>,
    ) {
        let mut jobs: Vec<&Job> = self.jobs.iter().collect();
        let rank = |job: &Job| match job.state.as_str() {
            "cancelling" => 0,
            "running" => 1,
            "input_required" => 2,
            _ => 3,
        };
        match sort {
            Sort::State => jobs.sort_by_key(|job| (rank(job), job.job)),
            Sort::Age => jobs.sort_by_key(|job| job.job),
            Sort::Tool => jobs.sort_by(|a, b| (&a.tool, a.job).cmp(&(&b.tool, b.job))),
            Sort::User => jobs.sort_by(|a, b| (&a.identity, a.job).cmp(&(&b.identity, b.job))),
        }
        rows.push(layout.job_heading());
        let before = rows.len();
        for job in jobs {
            let row = job.row(layout);
            if !job.matches(&row, filter) {
                continue;
            }
            let is_whole = trees.shows_whole(&row);
            rows.push(row);
            let lines = self.tree(job.job);
            if is_whole || job.state == "cancelling" {
                rows.extend(
                    job.work_line(None).filter(|_| !layout.is_wide).map(|it| layout.below(&it)),
                );
                rows.extend(whole(layout, &lines));
            } else {
                let work = job.work_line(Some(lines.len())).filter(|_| !layout.is_wide);
                rows.extend(work.or_else(|| folded(&lines)).map(|line| layout.below(&line)));
            }
        }
        if rows.len() == before {
            rows.push(layout.below("nothing"));
        }
    }

    /// The processes of a job as a tree.
    fn tree(&self, job: u64) -> Vec<String> {
        self.host.processes.get(&job).map(|processes| tree_of(processes)).unwrap_or_default()
    }

    fn receipt_rows(&self, layout: &Layout, filter: &str, rows: &mut Vec<Row>) {
        let shown: Vec<Row> = self
            .host
            .receipts
            .iter()
            .map(|receipt| receipt.row(layout))
            .filter(|row| matches(&row.text, filter))
            .take(5)
            .collect();
        if !shown.is_empty() {
            let names = ["CEASED", "TOOL", "USER", "ENDED"];
            rows.push(layout.heading(names, "CANCEL DONE: PROCESSES ENDED, LEFT"));
            rows.extend(shown);
        }
    }

    /// Calls that have ended, with their receipts.
    fn ended_rows(&self, layout: &Layout, filter: &str, rows: &mut Vec<Row>) {
        let shown = self.host.ended.iter().map(|call| call.row(layout));
        let shown: Vec<Row> = shown.filter(|row| matches(&row.text, filter)).collect();
        rows.push(
            layout.heading(["ENDED", "TOOL", "USER", "ENDED"], "OUTCOME, RECEIPT, ARGUMENTS"),
        );
        rows.extend(shown);
    }

    fn task_rows(&self, layout: &Layout, filter: &str, sort: Sort, rows: &mut Vec<Row>) {
        let mut tasks: Vec<&Task> = self.task_list.iter().collect();
        let is_over = |task: &Task| !task.is_live();
        match sort {
            Sort::State => tasks.sort_by_key(|task| (is_over(task), task.age_ms)),
            Sort::Age => tasks.sort_by_key(|task| std::cmp::Reverse(task.age_ms)),
            Sort::Tool => tasks.sort_by(|a, b| a.tool.cmp(&b.tool)),
            Sort::User => tasks.sort_by(|a, b| a.identity.cmp(&b.identity)),
        }
        let job_of = |task: &Task| self.jobs.iter().find(|job| Some(job.job) == task.job);
        let shown = tasks.into_iter().map(|task| task.row(layout, job_of(task)));
        let shown: Vec<Row> = shown.filter(|row| matches(&row.text, filter)).collect();
        if !shown.is_empty() {
            let names = ["TASK", "TOOL", "USER", "CREATED"];
            rows.push(layout.heading(names, "STATE, HOW LONG IT IS KEPT (TTL)"));
            rows.extend(shown);
        }
    }

    fn peer_rows(&self, layout: &Layout, filter: &str, rows: &mut Vec<Row>) {
        let shown = self.peers.iter().map(|peer| peer.row(layout));
        let shown: Vec<Row> = shown.filter(|row| matches(&row.text, filter)).collect();
        if !shown.is_empty() {
            rows.push(layout.heading(["PEER", "PROTOCOL", "USER", "SINCE"], "REQUESTS"));
            rows.extend(shown);
        }
    }

    /// A job or a task in words, and its tool and identity.
    pub(super) fn named(&self, key: &Key) -> (String, Option<(&str, &str)>) {
        match key {
            Key::Task(id) => {
                let task = self.task_list.iter().find(|task| task.task == *id);
                (format!("task {id}"), task.map(|task| (&*task.tool, &*task.identity)))
            }
            Key::Job(id) | Key::Instance(id) | Key::Receipt(id) => {
                let job = self.jobs.iter().find(|job| job.job == *id);
                (format!("job {id}"), job.map(|job| (&*job.tool, &*job.identity)))
            }
            Key::Connection(id) => (format!("connection {id}"), None),
        }
    }

    /// Details of one entry, one per line.
    pub(super) fn details(&self, key: &Key) -> Vec<String> {
        let lines = match key {
            Key::Job(id) => {
                let job = self.jobs.iter().find(|job| job.job == *id).map(Job::details);
                job.or_else(|| self.agent_request_details(*id))
            }
            Key::Task(id) => self.task_list.iter().find(|task| task.task == *id).map(Task::details),
            Key::Connection(id) => {
                self.peers.iter().find(|peer| peer.connection == *id).map(Peer::details)
            }
            Key::Instance(id) => self.instance_details(*id).or_else(|| self.agent_details(*id)),
            Key::Receipt(id) => {
                self.host.receipts.iter().find(|receipt| receipt.job == *id).map(Receipt::details)
            }
        };
        lines.unwrap_or_else(|| vec!["the entry no longer exists".into()])
    }
}

/// A tree of processes on a line each.
fn tree_of(processes: &[Process]) -> Vec<String> {
    let mut lines = Vec::new();
    let is_listed = |pid: i32| processes.iter().any(|process| process.pid == pid);
    let roots: Vec<&Process> =
        processes.iter().filter(|process| !is_listed(process.parent)).collect();
    grow(processes, &roots, "", &mut lines);
    lines
}

/// Appends the row of a process tree, and the tree, whole or in one line.
fn push_tree(
    layout: &Layout,
    trees: Trees<'_>,
    row: Row,
    processes: &[Process],
    rows: &mut Vec<Row>,
) {
    let (is_whole, lines) = (trees.shows_whole(&row), tree_of(processes));
    rows.push(row);
    match is_whole {
        true => rows.extend(whole(layout, &lines)),
        false => rows.extend(folded(&lines).map(|line| layout.below(&line))),
    }
}

/// Rows of a whole tree, up to [`TREE_MAX`] processes.
fn whole(layout: &Layout, lines: &[String]) -> Vec<Row> {
    let mut rows: Vec<Row> = lines.iter().take(TREE_MAX).map(|line| layout.below(line)).collect();
    let more = lines.len().saturating_sub(TREE_MAX);
    if more > 0 {
        let noun = if more == 1 { "process" } else { "processes" };
        rows.push(layout.below(&format!("… and {more} more {noun}")));
    }
    rows
}

/// The one line of a tree that is not shown whole: its first process and the number of others.
fn folded(lines: &[String]) -> Option<String> {
    match lines {
        [] => None,
        [only] => Some(only.clone()),
        [first, rest @ ..] => Some(format!("{first}, and {} more", rest.len())),
    }
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

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;
