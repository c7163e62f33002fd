//! A naive model of the observable behaviour, written from the rules, with linear searches and
//! independent of the engine's implementation.
//!
//! Messages are short texts, such as `1:R 7` (request 1 was answered with result 7) or `S #2
//! failed` (a status notification: the second task has failed).

use std::collections::BTreeMap;

/// Nanoseconds since the start of the world.
pub type Time = u64;

/// Settings that the rules leave to the operator.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Concurrent jobs.
    pub running_max: usize,
    /// Ttl of every task.
    pub ttl: Time,
    /// Longest lifetime of a task.
    pub max_ttl: Time,
    /// Time that the result of an overdue task is kept.
    pub late_result: Time,
    /// Whether a task may finish after its ttl.
    pub may_finish: bool,
    /// Time from the flag until the handler is abandoned.
    pub abandon_after: Time,
    /// Time from SIGTERM to SIGKILL.
    pub kill_grace: Time,
    /// Time from one SIGKILL to the next.
    pub kill_again: Time,
}

/// Outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A result.
    Good,
    /// A result with `isError`.
    Bad,
    /// A JSON-RPC error, -32000.
    Error,
    /// No result, because the job was stopped.
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum For {
    Request(String),
    Task,
    NoRequest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Queued,
    Running,
    Stopping { next: Time },
    Gone,
}

/// A job, in the order of creation.
#[derive(Debug, Clone)]
struct Job {
    conn: u64,
    whose: For,
    task: Option<usize>,
    command: bool,
    state: State,
    last: Option<(u32, u32)>,
}

/// A task, in the order of creation.
#[derive(Debug, Clone)]
struct Task {
    status: &'static str,
    creator: u64,
    job: usize,
    created: Time,
    end: Time,
    overdue: bool,
    waiters: Vec<(u64, String)>,
    outcome: Option<String>,
    gone: bool,
}

#[derive(Debug, Clone)]
enum Pending {
    Call(usize),
    Wait(usize),
}

/// Observations of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Messages to each connection, sorted.
    pub told: BTreeMap<u64, Vec<String>>,
    /// Started jobs, in order.
    pub started: Vec<usize>,
    /// Stop steps, sorted.
    pub stops: Vec<(usize, &'static str)>,
}

impl Seen {
    /// Removes an order that does not matter.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.told.retain(|_, lines| !lines.is_empty());
        self.told.values_mut().for_each(|lines| lines.sort());
        self.stops.sort_unstable();
        self
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Model {
    policy: Policy,
    now: Time,
    open: BTreeMap<u64, BTreeMap<String, Pending>>,
    jobs: Vec<Job>,
    tasks: Vec<Task>,
    seen: Seen,
}

impl Model {
    /// A new world.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let (open, jobs, tasks) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { policy, now: 0, open, jobs, tasks, seen: Seen::default() }
    }

    /// Observations since the last call.
    pub fn seen(&mut self) -> Seen {
        std::mem::take(&mut self.seen).sorted()
    }

    /// Number of jobs so far, which is the number of the next one.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Number of tasks so far.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Status of a task; `None` after its deletion.
    #[must_use]
    pub fn status(&self, task: usize) -> Option<&'static str> {
        self.tasks.get(task).filter(|task| !task.gone).map(|task| task.status)
    }

    /// Jobs that the host runs.
    #[must_use]
    pub fn running(&self) -> Vec<usize> {
        let runs = |job: &Job| matches!(job.state, State::Running | State::Stopping { .. });
        (0..self.jobs.len()).filter(|at| runs(&self.jobs[*at])).collect()
    }

    /// Queued jobs.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.jobs.iter().filter(|job| job.state == State::Queued).count()
    }

    /// Unanswered requests.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.open.values().map(BTreeMap::len).sum()
    }

    fn tell(&mut self, conn: u64, what: String) {
        if self.open.contains_key(&conn) {
            self.seen.told.entry(conn).or_default().push(what);
        }
    }

    fn in_flight(&mut self, conn: u64, id: &str) -> bool {
        let taken = self.open[&conn].contains_key(id);
        if taken {
            self.tell(conn, format!("{id}:E -32600"));
        }
        taken
    }

    fn enqueue(&mut self, conn: u64, whose: For, task: Option<usize>, command: bool) -> usize {
        self.jobs.push(Job { conn, whose, task, command, state: State::Queued, last: None });
        self.jobs.len() - 1
    }

    /// A peer connects.
    pub fn connect(&mut self, conn: u64) {
        self.open.insert(conn, BTreeMap::new());
    }

    /// A call without a task.
    pub fn call(&mut self, conn: u64, id: &str, command: bool) {
        if self.in_flight(conn, id) {
            return;
        }
        let job = self.enqueue(conn, For::Request(id.to_owned()), None, command);
        let requests = self.open.get_mut(&conn).expect("the connection is open");
        requests.insert(id.to_owned(), Pending::Call(job));
    }

    /// A call as a task.
    pub fn create(&mut self, conn: u64, id: &str, command: bool) {
        if self.in_flight(conn, id) {
            return;
        }
        let task = self.tasks.len();
        let job = self.enqueue(conn, For::Task, Some(task), command);
        self.tasks.push(Task {
            status: "working",
            creator: conn,
            job,
            created: self.now,
            end: self.now + self.policy.ttl,
            overdue: false,
            waiters: Vec::new(),
            outcome: None,
            gone: false,
        });
        self.tell(conn, format!("{id}:T #{task} working"));
    }

    /// `tasks/result`.
    pub fn wait(&mut self, conn: u64, id: &str, task: usize) {
        if self.in_flight(conn, id) {
            return;
        }
        if self.status(task).is_none() {
            return self.tell(conn, format!("{id}:E -32602"));
        }
        if let Some(outcome) = self.tasks[task].outcome.clone() {
            return self.tell(conn, format!("{id}:{outcome}"));
        }
        self.tasks[task].waiters.push((conn, id.to_owned()));
        let requests = self.open.get_mut(&conn).expect("the connection is open");
        requests.insert(id.to_owned(), Pending::Wait(task));
    }

    /// `notifications/cancelled`.
    pub fn cancel(&mut self, conn: u64, id: &str) {
        match self.open.get_mut(&conn).and_then(|requests| requests.remove(id)) {
            None => {}
            Some(Pending::Call(job)) => self.disown(job),
            Some(Pending::Wait(task)) => {
                self.tasks[task].waiters.retain(|waiter| *waiter != (conn, id.to_owned()));
            }
        }
    }

    /// `tasks/cancel`.
    pub fn cancel_task(&mut self, conn: u64, id: &str, task: usize) {
        if self.status(task) != Some("working") {
            return self.tell(conn, format!("{id}:E -32602"));
        }
        self.end_task(task, "cancelled", "E -31001".to_owned());
        self.disown(self.tasks[task].job);
        self.tell(conn, format!("{id}:C #{task} cancelled"));
    }

    fn disown(&mut self, job: usize) {
        let policy = self.policy;
        let entry = &mut self.jobs[job];
        entry.whose = For::NoRequest;
        match entry.state {
            State::Queued => entry.state = State::Gone,
            State::Running => {
                let (wait, step) = if entry.command {
                    (policy.kill_grace, "Terminate")
                } else {
                    (policy.abandon_after, "Flag")
                };
                entry.state = State::Stopping { next: self.now + wait };
                self.seen.stops.push((job, step));
            }
            State::Stopping { .. } | State::Gone => {}
        }
    }

    fn end_task(&mut self, task: usize, status: &'static str, outcome: String) {
        let (now, late) = (self.now, self.policy.late_result);
        let entry = &mut self.tasks[task];
        assert_eq!(entry.status, "working", "a task ends once");
        entry.status = status;
        entry.outcome = Some(outcome.clone());
        if entry.overdue {
            entry.end = now + late;
        }
        let (creator, waiters) = (entry.creator, std::mem::take(&mut entry.waiters));
        self.tell(creator, format!("S #{task} {status}"));
        self.answer_waiters(waiters, &outcome);
    }

    fn answer_waiters(&mut self, waiters: Vec<(u64, String)>, outcome: &str) {
        for (conn, id) in waiters {
            self.open.get_mut(&conn).expect("a waiter is connected").remove(&id);
            self.tell(conn, format!("{id}:{outcome}"));
        }
    }

    /// A job has ended.
    pub fn done(&mut self, job: usize, end: End) {
        let entry = &mut self.jobs[job];
        entry.state = State::Gone;
        let (conn, whose) = (entry.conn, std::mem::replace(&mut entry.whose, For::NoRequest));
        let (status, outcome) = match end {
            End::Good => ("completed", format!("R {job}")),
            End::Bad => ("failed", format!("R !{job}")),
            End::Error => ("failed", "E -32000".to_owned()),
            End::Stopped => ("failed", "E -32603".to_owned()),
        };
        match whose {
            For::NoRequest => {}
            For::Request(id) => {
                self.open.get_mut(&conn).expect("the connection is open").remove(&id);
                self.tell(conn, format!("{id}:{outcome}"));
            }
            For::Task => {
                let task = self.jobs[job].task.expect("the job has a task");
                // A result of a task names the task.
                let outcome =
                    if outcome.starts_with('R') { format!("{outcome} #{task}") } else { outcome };
                self.end_task(task, status, outcome);
            }
        }
    }

    /// A job reports progress.
    pub fn progress(&mut self, job: usize, to: u32) {
        let entry = &mut self.jobs[job];
        // A value that does not grow is told by the smallest step.
        let (most, steps) = match entry.last {
            Some((most, steps)) if to <= most => (most, steps + 1),
            Some(_) | None => (to, 0),
        };
        entry.last = Some((most, steps));
        let to = f64::from(most) + f64::from(steps) / 1e6;
        if entry.whose != For::NoRequest {
            let of_task = entry.task.map(|task| format!(" #{task}")).unwrap_or_default();
            let conn = entry.conn;
            self.tell(conn, format!("P {job} {to}{of_task}"));
        }
    }

    /// A connection is closed.
    pub fn close(&mut self, conn: u64) {
        for (id, pending) in self.open.remove(&conn).unwrap_or_default() {
            match pending {
                Pending::Call(job) => self.disown(job),
                Pending::Wait(task) => {
                    self.tasks[task].waiters.retain(|waiter| *waiter != (conn, id.clone()));
                }
            }
        }
        self.seen.told.remove(&conn);
    }

    /// Starts queued jobs.
    pub fn turn(&mut self) {
        for job in 0..self.jobs.len() {
            if self.jobs[job].state == State::Queued
                && self.running().len() < self.policy.running_max
            {
                self.jobs[job].state = State::Running;
                self.seen.started.push(job);
            }
        }
    }

    /// Time passes.
    pub fn advance(&mut self, span: Time) {
        let end = self.now + span;
        while let Some(due) = self.due().filter(|due| *due <= end) {
            self.now = due;
            for job in 0..self.jobs.len() {
                if self.jobs[job].state == (State::Stopping { next: due }) {
                    self.next_step(job);
                }
            }
            for task in 0..self.tasks.len() {
                if !self.tasks[task].gone && self.tasks[task].end == due {
                    self.ttl_is_over(task);
                }
            }
        }
        self.now = end;
    }

    fn due(&self) -> Option<Time> {
        let ladders = self.jobs.iter().filter_map(|job| match job.state {
            State::Stopping { next } => Some(next),
            State::Queued | State::Running | State::Gone => None,
        });
        let ttls = self.tasks.iter().filter(|task| !task.gone).map(|task| task.end);
        ladders.chain(ttls).min()
    }

    fn next_step(&mut self, job: usize) {
        if self.jobs[job].command {
            self.seen.stops.push((job, "Kill"));
            self.jobs[job].state = State::Stopping { next: self.now + self.policy.kill_again };
        } else {
            self.seen.stops.push((job, "Abandon"));
            self.jobs[job].state = State::Gone;
        }
    }

    fn ttl_is_over(&mut self, task: usize) {
        let last = self.tasks[task].created + self.policy.max_ttl;
        let entry = &mut self.tasks[task];
        let works = entry.status == "working";
        if works && self.policy.may_finish && !entry.overdue && last > self.now {
            entry.overdue = true;
            entry.end = last;
            return;
        }
        entry.gone = true;
        let (job, waiters) = (entry.job, std::mem::take(&mut entry.waiters));
        if works {
            self.disown(job);
        }
        self.answer_waiters(waiters, "E -31002");
    }
}
