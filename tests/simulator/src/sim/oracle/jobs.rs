//! Jobs: their turn, messages, stop and end.

use ceased_core::event::Outcome;
use ceased_core::log_level::LogLevel;
use ceased_core::tool::Tool;
use serde_json::Value;

use super::acp::is_no_cancel;
use super::requests::Asked;
use super::{For, Job, Oracle, Stage};
use crate::sim::mark::Mark;
use crate::slow::Id;

/// How long the rest of a job may outlive its first process.
const LINGER: u64 = 100_000_000;
/// Between one SIGKILL and the next.
const KILL_AGAIN: u64 = 1_000_000_000;

impl Oracle {
    pub(super) fn job(&mut self, nonce: u64) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.nonce == nonce)
    }

    /// The first of these identities after the last one: users by their numbers first, then tokens
    /// by their names, then the anonymous one.
    fn in_turn(mut owners: Vec<&String>, last: Option<&String>) -> Option<String> {
        let rank = |owner: &String| match owner.split_once(':') {
            Some(("uid", uid)) => (0, uid.parse::<u64>().unwrap_or(0), String::new()),
            Some((_, name)) => (1, 0, name.to_owned()),
            None => (2, 0, String::new()),
        };
        owners.sort_by_key(|owner| rank(owner));
        let last = last.map(rank);
        let later = owners.iter().find(|owner| Some(rank(owner)) > last);
        later.or_else(|| owners.first()).map(|owner| (*owner).clone())
    }

    /// Jobs that wait and may start: of identities below their share (TSK-37), before open gates.
    fn startable(&self) -> Vec<&Job> {
        let share = self.settings.limits.running_per_identity_max;
        let may = |job: &&Job| {
            !job.runs() && self.running_of(&job.owner) < share && self.closed_gate(job).is_none()
        };
        self.jobs.iter().filter(may).collect()
    }

    /// The first gate of a job that has no room.
    fn closed_gate<'a>(&self, job: &'a Job) -> Option<&'a (String, usize)> {
        let behind =
            |gate: &str| self.jobs.iter().filter(|other| other.runs() && other.is_at(gate)).count();
        job.gates.iter().find(|(gate, limit)| behind(gate) >= *limit)
    }

    /// Whether a job that is not there yet will wait for others at a gate.
    pub(super) fn would_wait_at_gate(&self, job: &Job) -> bool {
        let ahead = |gate: &str| self.jobs.iter().filter(|other| other.is_at(gate)).count();
        job.gates.iter().any(|(gate, limit)| ahead(gate) >= *limit)
    }

    /// GATE-03: the queue position of a waiting job.
    pub(super) fn waiting_text(&self, job: &Job) -> String {
        match self.closed_gate(job) {
            Some((gate, limit)) => match (gate.strip_prefix("lock "), limit) {
                (Some(lock), _) => format!("waiting for lock {lock:?}"),
                (None, 1) => "waiting for another call of this tool".to_owned(),
                (None, limit) => format!("waiting for one of {limit} calls of this tool"),
            },
            None => {
                let before = self.jobs.iter().take_while(|other| other.nonce != job.nonce);
                let own = before.filter(|other| !other.runs() && other.owner == job.owner);
                format!("waiting, {} ahead", own.count())
            }
        }
    }

    /// The next job to start, by turns; of one's own first come, first served. A gate at which
    /// several wait has turns of its own (GATE-02).
    fn next_job(&mut self) -> Option<u64> {
        let startable = self.startable();
        let owners = startable.iter().map(|job| &job.owner).collect();
        let owner = Self::in_turn(owners, self.last_turn.as_ref())?;
        let first = *startable.iter().find(|job| job.owner == owner)?;
        let contended = first.gates.iter().rev().find(|(gate, _)| {
            self.jobs.iter().filter(|job| !job.runs() && job.is_at(gate)).count() > 1
        });
        let mut next = first.nonce;
        if let Some((gate, _)) = contended {
            let at: Vec<_> = startable.iter().filter(|job| job.is_at(gate)).collect();
            let owners = at.iter().map(|job| &job.owner).collect();
            let passes = Self::in_turn(owners, self.last_at_gate.get(gate))?;
            next = at.iter().find(|job| job.owner == passes)?.nonce;
        }
        self.last_turn = Some(owner);
        Some(next)
    }

    pub(super) fn turn(&mut self) {
        self.park_asking_calls();
        while self.has_room()
            && let Some(nonce) = self.next_job()
        {
            let job = self.job(nonce).expect("it waits").clone();
            for (gate, _) in &job.gates {
                self.last_at_gate.insert(gate.clone(), job.owner.clone());
            }
            self.start(nonce);
        }
        let waits_at_gate = |job: &Job| !job.runs() && self.closed_gate(job).is_some();
        if self.jobs.iter().any(waits_at_gate) {
            self.mark(Mark::WaitsAtGate);
        }
        if self.jobs.iter().any(|job| !job.runs()) {
            self.mark(Mark::WaitsInQueue);
            if self.has_room() {
                self.mark(Mark::WaitsForOwnWorker);
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let running = self.jobs.iter().filter(|job| job.works()).count();
        running < self.settings.limits.running_max
    }

    pub(super) fn running_of(&self, owner: &str) -> usize {
        self.jobs.iter().filter(|job| job.works() && job.owner == owner).count()
    }

    /// Whether one more job of an identity would have to wait: it has its share, or all workers are
    /// taken when each that may start has started.
    pub(super) fn is_crowded(&self, owner: &str) -> bool {
        let limits = &self.settings.limits;
        let share = limits.running_per_identity_max;
        let mut owners: Vec<&String> = self.jobs.iter().map(|job| &job.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let all =
            |owner: &str| self.jobs.iter().filter(|job| job.owner == owner && !job.waits()).count();
        let taken = |owner: &&String| all(owner).min(share.max(self.running_of(owner)));
        all(owner) >= share || owners.iter().map(taken).sum::<usize>() >= limits.running_max
    }

    pub(super) fn start(&mut self, nonce: u64) {
        let (now, armed) = (self.now, self.arm());
        let Some(job) = self.job(nonce) else { return };
        job.stage = Stage::Running;
        job.timer = job.timeout.map(|timeout| (now.saturating_add(timeout), armed));
        if let Some(task) = self.tasks.iter_mut().find(|task| task.nonce == nonce) {
            task.message.clear();
        }
        self.order(format!("start #{nonce}"));
    }

    /// The outcome of a job has no receiver any more (J3).
    pub(super) fn disown(&mut self, nonce: u64, why: &'static str) {
        self.forget_key_of(nonce);
        if let Some(job) = self.job(nonce) {
            job.whose = For::Nobody;
            (job.held, job.orphan) = (None, None);
            self.parked.retain(|parked| parked.job != Some(nonce));
            self.stop(nonce, why);
        }
    }

    pub(super) fn stop(&mut self, nonce: u64, why: &'static str) {
        let (now, armed) = (self.now, self.arm());
        let Some(job) = self.job(nonce) else { return };
        match &mut job.stage {
            Stage::Queued => {
                let _ = self.remove_job(nonce);
            }
            Stage::Running | Stage::Lingering => {
                let step = if job.command { "Terminate" } else { "Flag" };
                job.stage = Stage::Stopping { step, why };
                job.timer = Some((now.saturating_add(job.wait), armed));
                self.cancel_asks(nonce);
                self.order(format!("stop #{nonce} {step} {why}"));
            }
            Stage::Stopping { why: before, .. } => {
                if is_no_cancel(before) {
                    *before = why;
                }
            }
        }
    }

    pub(super) fn job_timer(&mut self, nonce: u64) {
        let now = self.now;
        let Some(job) = self.job(nonce) else { return };
        job.timer = None;
        match job.stage {
            Stage::Queued => unreachable!("what waits has no timer"),
            Stage::Running => {
                self.mark(Mark::TimedOut);
                self.stop(nonce, "TimedOut");
            }
            Stage::Lingering => {
                self.mark(Mark::LeftBehind);
                self.stop(nonce, "LeftBehind");
            }
            Stage::Stopping { why, .. } if job.command => {
                job.stage = Stage::Stopping { step: "Kill", why };
                self.end_grace(nonce, why);
                let armed = self.arm();
                let job = self.job(nonce).expect("its timer was due");
                job.timer = Some((now + KILL_AGAIN, armed));
                self.mark(Mark::Killed);
                self.order(format!("stop #{nonce} Kill {why}"));
            }
            Stage::Stopping { why, .. } => {
                job.stage = Stage::Stopping { step: "Abandon", why };
                self.end_grace(nonce, why);
                self.mark(Mark::Abandoned);
                self.order(format!("stop #{nonce} Abandon {why}"));
                self.done(nonce, &Outcome::Stopped);
            }
        }
    }

    /// The shutdown is nearly over: SIGKILL without waiting for the stop policy.
    pub(super) fn kill_everything(&mut self) {
        let now = self.now;
        // Early enough to learn of jobs that outlast SIGKILL.
        let end = self.drain.as_ref().and_then(|drain| drain.end);
        let again = end.map_or(KILL_AGAIN, |end| KILL_AGAIN.min(end.saturating_sub(now) / 2));
        let mut orders = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| job.command) {
            if let Stage::Stopping { step, why } = &mut job.stage {
                *step = "Kill";
                self.armed += 1;
                job.timer = Some((now + again, self.armed));
                orders.push(format!("stop #{} Kill {why}", job.nonce));
            }
        }
        if !orders.is_empty() {
            self.mark(Mark::DrainKills);
        }
        self.expected.orders.extend(orders);
    }

    pub(super) fn lingering(&mut self, nonce: u64) {
        let (now, armed) = (self.now, self.arm());
        if let Some(job) = self.job(nonce).filter(|job| job.stage == Stage::Running) {
            job.stage = Stage::Lingering;
            job.timer = Some((now + LINGER, armed));
        }
    }

    fn remove_job(&mut self, nonce: u64) -> Option<Job> {
        self.drop_asks(nonce, &[]);
        let at = self.jobs.iter().position(|job| job.nonce == nonce)?;
        let job = self.jobs.remove(at);
        let jobs = &self.jobs;
        self.last_at_gate.retain(|gate, _| jobs.iter().any(|job| job.is_at(gate)));
        Some(job)
    }

    pub(super) fn done(&mut self, nonce: u64, outcome: &Outcome) {
        let Some(job) = self.remove_job(nonce) else { return self.mark(Mark::LateReport) };
        let why = match job.stage {
            Stage::Stopping { why, .. } => Some(why),
            Stage::Queued | Stage::Running | Stage::Lingering => None,
        };
        self.deliver_outcome(nonce, &job, outcome, why);
    }

    /// STOP-02: a request that waits for a job that cannot be ended is given the outcome so far.
    pub(super) fn outlasted(&mut self, nonce: u64, outcome: &Outcome) {
        let found = self.jobs.iter().position(|job| job.nonce == nonce && !job.outlasts);
        let stopping = found.and_then(|at| match self.jobs[at].stage {
            Stage::Stopping { why, .. } => Some((at, why)),
            Stage::Queued | Stage::Running | Stage::Lingering => None,
        });
        let Some((at, why)) = stopping else { return self.mark(Mark::LateReport) };
        self.mark(Mark::Outlasted);
        let mut job = self.jobs.remove(at);
        self.deliver_outcome(nonce, &job, outcome, Some(why));
        (job.outlasts, job.whose) = (true, For::Nobody);
        (job.held, job.orphan) = (None, None);
        self.jobs.insert(at, job);
    }

    fn deliver_outcome(
        &mut self,
        nonce: u64,
        job: &Job,
        outcome: &Outcome,
        why: Option<&'static str>,
    ) {
        if job.whose == For::Nobody {
            // TSK-26, CAN-08
            if !matches!(outcome, Outcome::Stopped) {
                self.mark(Mark::ResultAfterCancel);
            }
            return;
        }
        let end = End::of(outcome, why);
        let cancelled = why.is_some_and(|why| why != "TimedOut" && !is_no_cancel(why));
        self.remember(nonce, &end.answer, cancelled);
        if let Some(held) = &job.held {
            self.mark(Mark::HeldBeforeAnswer);
            self.tell_for(job.conn, held.clone(), job.recalls());
        }
        let of_service = match job.whose {
            For::Request(_) => self.answer_of_service(job, outcome, why),
            For::Task | For::Retry | For::Orphan | For::Nobody => None,
        };
        let answer = of_service.unwrap_or_else(|| end.answer.clone());
        match &job.whose {
            For::Nobody | For::Orphan => {}
            For::Retry => {
                self.mark(Mark::ParkedOutcome);
                self.keep_outcome(nonce, end.answer);
            }
            For::Request(id) => {
                let asked: Option<Asked> = self.take_pending(job.conn, id);
                self.answer(&asked.expect("it waits (RPC-03)"), &answer);
                self.close_if_finished(job.conn);
            }
            For::Task => {
                let status = if end.good { "completed" } else { "failed" };
                // TSK-16
                let of_task = if end.is_result { format!(" #{nonce}") } else { String::new() };
                self.end_task(nonce, status, end.says, format!("{}{of_task}", end.answer));
            }
        }
    }

    /// TSK-33: a peer gets only progress that grows; any other value is told as a heartbeat is.
    pub(super) fn progress(
        &mut self,
        nonce: u64,
        progress: f64,
        total: Option<f64>,
        message: Option<&str>,
        crowded: bool,
    ) {
        let Some(job) = self.jobs.iter_mut().find(|job| job.nonce == nonce) else {
            return self.mark(Mark::LateReport);
        };
        let Some(token) = job.token.clone() else { return };
        if !progress.is_finite() {
            return;
        }
        let total = total.filter(|total| total.is_finite());
        let is_backwards = job.last.is_some_and(|last| progress <= last);
        let (progress, total) = if is_backwards {
            job.beats.own.1 = total;
            job.step()
        } else {
            job.last = Some(progress);
            job.beats.own = (progress, total, 0);
            (progress, total)
        };
        if is_backwards {
            self.mark(Mark::ProgressBackwards);
        }
        self.arm_beat(nonce);
        let job = self.jobs.iter_mut().find(|job| job.nonce == nonce).expect("it is there");
        let Some(conn) = self.conns.get(&job.conn) else { return };
        let told = job.claim.is_some() || conn.rules().progress_message;
        let message = message.filter(|_| told);
        let mut text = format!("progress {token} {progress}");
        if let Some(total) = total {
            text.push_str(&format!("/{total}"));
        }
        if let Some(message) = message {
            text.push_str(&format!(" {message:?}"));
        }
        if job.of_task {
            text.push_str(&format!(" #{nonce}"));
        }
        let heard = !matches!(job.whose, For::Nobody | For::Retry | For::Orphan);
        if crowded {
            // Only the latest waits for a peer that does not read; without a receiver it is dropped.
            job.held = heard.then_some(text);
            return self.mark(Mark::ProgressHeld);
        }
        job.held = None;
        if heard {
            let (conn, request) = (job.conn, job.recalls().cloned());
            self.tell_for(conn, text, request.as_ref());
        }
    }

    /// The peer reads again.
    pub(super) fn show_held(&mut self, conn: u64) {
        let of_conn = self.jobs.iter_mut().filter(|job| job.conn == conn);
        let held: Vec<(String, Option<Id>)> = of_conn
            .filter_map(|job| job.held.take().map(|text| (text, job.recalls().cloned())))
            .collect();
        for (text, request) in held {
            self.mark(Mark::HeldShown);
            self.tell_for(conn, text, request.as_ref());
        }
    }

    pub(super) fn log(&mut self, nonce: u64, level: LogLevel, data: &str, crowded: bool) {
        let Some(job) = self.jobs.iter().find(|job| job.nonce == nonce) else {
            return self.mark(Mark::LateReport);
        };
        let Some(conn) = self.conns.get(&job.conn).filter(|conn| conn.acp.is_none()) else {
            return;
        };
        let least = match &job.claim {
            Some(claim) => claim.log,
            // Servers log to clients, never the other way.
            None => Some(conn.level).filter(|_| conn.client.is_none()),
        };
        let wanted = !matches!(job.whose, For::Nobody | For::Retry | For::Orphan);
        if !wanted || least.is_none_or(|least| level < least) || crowded {
            return self.mark(Mark::LogDropped);
        }
        let of_task = if job.of_task { format!(" #{nonce}") } else { String::new() };
        let text = format!("log {} {} {data}{of_task}", level.as_str(), job.tool);
        let (conn, request) = (job.conn, job.recalls().cloned());
        self.tell_for(conn, text, request.as_ref());
    }
}

/// GATE-01: how many calls of a tool run at once, and the lock that it names.
pub(super) fn gates(tool: &Tool, arguments: &Value) -> Vec<(String, usize)> {
    let mut gates = Vec::new();
    if let Some(limit) = tool.max_running {
        gates.push((format!("tool {}", tool.name), limit));
    }
    if let Some(lock) = &tool.lock {
        let text = arguments["text"].as_str().unwrap_or_default();
        gates.push((format!("lock {}", lock.replace("{text}", text)), 1));
    }
    gates
}

impl Job {
    fn is_at(&self, gate: &str) -> bool {
        self.gates.iter().any(|(name, _)| name == gate)
    }

    /// The request whose cancel removes the unsent messages of this job (MOD-04).
    pub(super) fn recalls(&self) -> Option<&Id> {
        match &self.whose {
            For::Request(id) if self.claim.is_some() => Some(id),
            For::Request(_) | For::Task | For::Retry | For::Orphan | For::Nobody => None,
        }
    }
}

/// Meaning of an outcome for a request that waits for it (TSK-14, TSK-43).
struct End {
    answer: String,
    is_result: bool,
    good: bool,
    says: String,
}

impl End {
    fn of(outcome: &Outcome, why: Option<&str>) -> Self {
        let error = |code: i64, says: &str| Self {
            answer: format!("E {code}"),
            is_result: false,
            good: false,
            says: says.to_owned(),
        };
        match outcome {
            Outcome::Error(given) | Outcome::Refused(given) => error(given.code, &given.message),
            Outcome::Stopped => match why {
                Some("TimedOut") => error(-31004, "timeout"),
                Some("Shutdown") => error(-31005, "shutdown"),
                _ => error(-32603, "stopped"),
            },
            Outcome::Result(result) => {
                let value: Value = serde_json::from_str(result.get()).expect("workers write JSON");
                if !value.is_object() {
                    return error(-32603, "no object");
                }
                let text = value["content"][0]["text"].as_str().unwrap_or_default();
                let bad = value["isError"] == true;
                Self {
                    answer: format!("R {text}{}", if bad { " bad" } else { "" }),
                    is_result: true,
                    good: !bad,
                    says: if bad { text.to_owned() } else { String::new() },
                }
            }
        }
    }
}
