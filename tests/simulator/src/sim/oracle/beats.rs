//! Heartbeats: progress of a job that sends none itself.

use super::state::Job;
use super::{For, Oracle, Stage};
use crate::sim::mark::Mark;

/// The heartbeat of one job.
#[derive(Debug, Clone)]
pub(super) struct Beats {
    /// Its time, in nanoseconds.
    every: Option<u64>,
    /// When the job was asked for.
    since: u64,
    /// When it is due, and how many timers were armed by then.
    pub(super) timer: Option<(u64, u64)>,
    /// The last value and total that the job reported itself, and the heartbeats since.
    pub(super) own: (f64, Option<f64>, u32),
    line: String,
}

impl Beats {
    pub(super) const fn new(every: Option<u64>, since: u64) -> Self {
        Self { every, since, timer: None, own: (0.0, None, 0), line: String::new() }
    }

    /// The job is answered: the next request knows nothing of earlier messages.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.every, self.since);
    }
}

impl Job {
    /// The smallest step of its progress, and the total that belongs to it.
    pub(super) fn step(&mut self) -> (f64, Option<f64>) {
        let (own, total, beats) = self.beats.own;
        let mut value = own + f64::from(beats + 1) / 1e6;
        // PRG-02
        if let Some(last) = self.last.filter(|last| value <= *last) {
            value = last.next_up();
        }
        self.beats.own.2 += 1;
        self.last = Some(value);
        (value, total.filter(|total| value <= *total))
    }
}

impl Oracle {
    /// The time to the next heartbeat begins anew, where progress is wanted.
    pub(super) fn arm_beat(&mut self, nonce: u64) {
        let now = self.now;
        let Some(job) = self.job(nonce).filter(|job| job.token.is_some()) else { return };
        let Some(every) = job.beats.every else { return };
        let armed = self.arm();
        let job = self.job(nonce).expect("it is there");
        job.beats.timer = Some((now.saturating_add(every), armed));
    }

    /// A job printed something.
    pub(super) fn output(&mut self, nonce: u64, line: &str) {
        let Some(job) = self.job(nonce) else { return self.mark(Mark::LateReport) };
        line.clone_into(&mut job.beats.line);
        let open = |status: &str| matches!(status, "working" | "input_required");
        let task = self.tasks.iter_mut().find(|task| task.nonce == nonce);
        if let Some(task) = task.filter(|task| open(task.status)) {
            line.clone_into(&mut task.message);
        }
    }

    /// PRG-01: it is time to tell something.
    pub(super) fn beat(&mut self, nonce: u64) {
        let at = self.jobs.iter().position(|job| job.nonce == nonce).expect("its timer was due");
        self.jobs[at].beats.timer = None;
        let heard = !matches!(self.jobs[at].whose, For::Nobody | For::Retry | For::Orphan);
        if !heard {
            return;
        }
        self.arm_beat(nonce);
        let job = &self.jobs[at];
        let Some(token) = job.token.clone() else { return };
        if job.held.is_some() {
            return;
        }
        let time = elapsed((self.now - job.beats.since) / 1_000_000_000);
        let message = match (job.stage, job.beats.line.as_str()) {
            (Stage::Queued, _) => format!("{time}: {}", self.waiting_text(job)),
            (_, "") => time,
            (_, line) => format!("{time}: {line}"),
        };
        let (value, total) = self.jobs[at].step();
        let job = &self.jobs[at];
        let told = job.claim.is_some()
            || self.conns.get(&job.conn).is_some_and(|conn| conn.rules().progress_message);
        let mut text = format!("progress {token} {value}");
        if let Some(total) = total {
            text.push_str(&format!("/{total}"));
        }
        if told {
            text.push_str(&format!(" {message:?}"));
        }
        if job.of_task {
            text.push_str(&format!(" #{nonce}"));
        }
        let (conn, request, queued) =
            (job.conn, job.recalls().cloned(), job.stage == Stage::Queued);
        self.tell_for(conn, text, request.as_ref());
        self.mark(if queued { Mark::HeartbeatInQueue } else { Mark::Heartbeat });
    }
}

fn elapsed(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if hours > 0 {
        format!("{hours}h {minutes}m")
    } else if minutes > 0 {
        format!("{minutes}m {}s", seconds % 60)
    } else {
        format!("{seconds}s")
    }
}
