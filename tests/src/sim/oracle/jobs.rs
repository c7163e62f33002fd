//! Jobs: their turn, what they tell, how they stop and end.

use ceased_core::event::Outcome;
use ceased_core::log_level::LogLevel;
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

    /// Whose job is next: everybody has a turn, users by their numbers first, then tokens by their
    /// names, then who is nobody.
    fn whose_turn(&self) -> Option<String> {
        let rank = |owner: &String| match owner.split_once(':') {
            Some(("uid", uid)) => (0, uid.parse::<u64>().unwrap_or(0), String::new()),
            Some((_, name)) => (1, 0, name.to_owned()),
            None => (2, 0, String::new()),
        };
        let share = self.settings.limits.running_per_identity_max;
        let mut waiting: Vec<&String> =
            self.jobs.iter().filter(|job| !job.runs()).map(|job| &job.owner).collect();
        // TSK-37: an identity with as many running as it may have waits for one of its own.
        waiting.retain(|owner| self.running_of(owner) < share);
        waiting.sort_by_key(|owner| rank(owner));
        let last = self.last_turn.as_ref().map(rank);
        let later = waiting.iter().find(|owner| Some(rank(owner)) > last);
        later.or_else(|| waiting.first()).map(|owner| (*owner).clone())
    }

    /// By turns; of one's own first come, first served.
    pub(super) fn turn(&mut self) {
        self.park_who_asks();
        while self.has_room()
            && let Some(owner) = self.whose_turn()
        {
            let next = self.jobs.iter().find(|job| !job.runs() && job.owner == owner);
            let Some(nonce) = next.map(|job| job.nonce) else { break };
            self.last_turn = Some(owner);
            self.start(nonce);
        }
        if self.jobs.iter().any(|job| !job.runs()) {
            self.mark(Mark::WaitsInQueue);
            if self.has_room() {
                self.mark(Mark::WaitsForOwnWorker);
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let running = self.jobs.iter().filter(|job| job.runs()).count();
        running < self.settings.limits.running_max
    }

    pub(super) fn running_of(&self, owner: &str) -> usize {
        self.jobs.iter().filter(|job| job.runs() && job.owner == owner).count()
    }

    /// Whether one more job of an identity would have to wait: it has its share, or all workers are
    /// taken when each that may start has started.
    pub(super) fn is_crowded(&self, owner: &str) -> bool {
        let limits = &self.settings.limits;
        let share = limits.running_per_identity_max;
        let mut owners: Vec<&String> = self.jobs.iter().map(|job| &job.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let all = |owner: &str| self.jobs.iter().filter(|job| job.owner == owner).count();
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

    /// The shutdown is nearly over: SIGKILL without waiting for the ladder.
    pub(super) fn kill_everything(&mut self) {
        let now = self.now;
        // Early enough to learn of what SIGKILL does not end.
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
        Some(self.jobs.remove(at))
    }

    pub(super) fn done(&mut self, nonce: u64, outcome: &Outcome) {
        let Some(job) = self.remove_job(nonce) else { return self.mark(Mark::LateReport) };
        let why = match job.stage {
            Stage::Stopping { why, .. } => Some(why),
            Stage::Queued | Stage::Running | Stage::Lingering => None,
        };
        self.hand_in(nonce, &job, outcome, why);
    }

    /// STOP-02: whoever waits for a job that cannot be ended is given what there is.
    pub(super) fn outlasted(&mut self, nonce: u64, outcome: &Outcome) {
        let found = self.jobs.iter().position(|job| job.nonce == nonce && !job.outlasts);
        let stopping = found.and_then(|at| match self.jobs[at].stage {
            Stage::Stopping { why, .. } => Some((at, why)),
            Stage::Queued | Stage::Running | Stage::Lingering => None,
        });
        let Some((at, why)) = stopping else { return self.mark(Mark::LateReport) };
        self.mark(Mark::Outlasted);
        let mut job = self.jobs.remove(at);
        self.hand_in(nonce, &job, outcome, Some(why));
        (job.outlasts, job.whose) = (true, For::Nobody);
        (job.held, job.orphan) = (None, None);
        self.jobs.insert(at, job);
    }

    fn hand_in(&mut self, nonce: u64, job: &Job, outcome: &Outcome, why: Option<&'static str>) {
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

    /// TSK-33: whoever may hear it hears only what grows.
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
        if !progress.is_finite() || job.last.is_some_and(|last| progress <= last) {
            return self.mark(Mark::ProgressBackwards);
        }
        job.last = Some(progress);
        job.beats.own = (progress, total.filter(|total| total.is_finite()), 0);
        self.arm_beat(nonce);
        let job = self.jobs.iter_mut().find(|job| job.nonce == nonce).expect("it is there");
        let Some(conn) = self.conns.get(&job.conn) else { return };
        let told = job.claim.is_some() || conn.rules().progress_message;
        let message = message.filter(|_| told);
        let mut text = format!("progress {token} {progress}");
        if let Some(total) = total.filter(|total| total.is_finite()) {
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
            // Only the latest waits for a peer that does not read; for nobody it does not wait.
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

impl Job {
    /// The request whose cancel takes back what is not sent of this job's messages (MOD-04).
    pub(super) fn recalls(&self) -> Option<&Id> {
        match &self.whose {
            For::Request(id) if self.claim.is_some() => Some(id),
            For::Request(_) | For::Task | For::Retry | For::Orphan | For::Nobody => None,
        }
    }
}

/// What an outcome means to whoever waits for it (TSK-14, TSK-43).
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
