//! Heartbeats: progress for requestors of jobs that report none themselves, or none that grows.
//!
//! Clients give up a request after a time without progress (60 s in the official SDKs), and most
//! commands report none. A heartbeat says how long the job takes and the last line that it printed.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use crate::collections::timer_queue::{Timer, TimerQueue};
use crate::ids::JobId;
use crate::jobs::Jobs;
use crate::jobs::job::{Job, JobProgress, JobState, Own};
use crate::jobs::messages::{audience, progress_message, write_progress};
use crate::outbox::Outbox;
use crate::tasks::task::{Task, Tasks};
use crate::time::Instant;

/// Heartbeats that add up to 1. A step this small stays below the next value that the job reports
/// itself, so that those values are passed on unchanged (TSK-33).
const STEPS_IN_ONE: f64 = 1e6;

impl Jobs {
    /// A job printed something.
    pub(crate) fn on_output(
        &mut self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        id: JobId,
        line: &str,
    ) {
        let line: Box<str> = outbox.clean(line).into_boxed_str();
        let Some(job) = self.get_mut(id) else {
            outbox.counters_mut().late_reports += 1;
            return;
        };
        let task = job.task;
        job.progress.line = Some(line.clone());
        if let Some(task) = task.and_then(|task| tasks.get_mut(task))
            && task.job == Some(id)
            && !task.status().is_terminal()
        {
            task.aside.line = Some(line);
        }
    }

    /// PRG-01: a requestor with a progress token hears of its job at least once a heartbeat.
    pub(crate) fn on_heartbeat_timer(
        &mut self,
        timers: &mut TimerQueue,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        id: JobId,
    ) {
        let Some(job) = self.get_mut(id) else { return };
        let Some(progress) = job.progress.some() else { return };
        progress.heartbeat = None;
        let Some(job) = self.get(id) else { return };
        // A job without a receiver has none until another request takes it over, which arms it.
        let Some(audience) = audience(job) else { return };
        self.arm_heartbeat(timers, outbox.now(), id);
        let Some(job) = self.get(id) else { return };
        // A value of the job waits until the peer reads again, and comes first. A peer that may not
        // know of a task yet hears nothing of it.
        if job.progress.held.is_some() || audience.task.is_some_and(|task| !tasks.is_visible(task))
        {
            return;
        }
        let message = self.heartbeat_message(outbox, job);
        let Some(job) = self.get_mut(id) else { return };
        let (value, total) = job.progress.step();
        let Some(job) = self.get(id) else { return };
        let message = progress_message(outbox, job, value, total, Some(&message));
        write_progress(outbox, tasks, message);
    }

    fn heartbeat_message(&self, outbox: &Outbox, job: &Job) -> String {
        let mut message = elapsed((outbox.now() - job.since).as_secs());
        let line = job.progress.line.as_deref();
        match job.state() {
            JobState::Held(_) | JobState::Queued(_) => {
                message.push_str(": ");
                message.push_str(&self.place(outbox, job));
            }
            JobState::Running | JobState::Lingering | JobState::Stopping { .. } => {
                if let Some(line) = line.filter(|line| !line.is_empty()) {
                    message.push_str(": ");
                    message.push_str(line);
                }
            }
        }
        message
    }

    /// Starts the time to the next heartbeat of a job anew: its requestor was told something, or
    /// is another one.
    pub(crate) fn arm_heartbeat(&mut self, timers: &mut TimerQueue, now: Instant, id: JobId) {
        let Some(job) = self.get_mut(id) else { return };
        let Some(span) = job.tool.heartbeat else { return };
        if let Some(progress) = job.progress.some()
            && progress.token.is_some()
        {
            let at = now + span;
            timers.arm(&mut progress.heartbeat, Timer::Heartbeat(id), at);
        }
    }

    /// The place of a job that waits: the gate it is at, or the number of jobs of the same identity
    /// before it for a place of the same pool.
    pub(crate) fn place(&self, outbox: &Outbox, job: &Job) -> String {
        match self.pools().closed_gate(job) {
            Some(gate) => format!("waiting {}", outbox.clean(&format!("{gate}"))),
            None => format!("waiting, {} ahead", self.pools().before(job)),
        }
    }

    /// The place of a task that is shown as waiting.
    pub(crate) fn place_of_task(&self, outbox: &Outbox, task: &Task) -> Option<String> {
        let waits = task.queued && !task.status().is_terminal();
        let job = self.get(task.job.filter(|_| waits)?)?;
        (!job.has_begun()).then(|| self.place(outbox, job))
    }
}

impl JobProgress {
    /// The smallest step of the value that is told, and the total that belongs to it.
    pub(super) fn step(&mut self) -> (f64, Option<f64>) {
        let value = next_value(&self.own, self.last);
        self.own.beats = self.own.beats.saturating_add(1);
        self.last = Some(value);
        (value, self.own.total.filter(|total| value <= *total))
    }
}

/// The value of the next heartbeat: larger than every value before it, and hardly larger than the
/// last one of the job.
fn next_value(own: &Own, last: Option<f64>) -> f64 {
    let value = own.value + (f64::from(own.beats) + 1.0) / STEPS_IN_ONE;
    match last {
        // PRG-02: the step is lost beside a large value.
        Some(last) if value <= last => last.next_up(),
        Some(_) | None => value,
    }
}

/// A time for people: `45s`, `2m 5s`, `3h 0m`.
fn elapsed(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let texts = [0, 59, 60, 125, 3599, 3600, 90_061].map(elapsed);
        assert_eq!(texts, ["0s", "59s", "1m 0s", "2m 5s", "59m 59s", "1h 0m", "25h 1m"]);
    }

    /// PRG-02
    #[test]
    fn heartbeat_values_grow_whatever_the_job_reports() {
        let next = |value, beats, last| next_value(&Own { value, total: None, beats }, last);
        for (value, beats, last, text) in [
            (0.0, 0, None, "0.000001"),
            (0.0, 2, Some(0.000_002), "0.000003"),
            (3.0, 0, Some(3.0), "3.000001"),
        ] {
            assert_eq!(alloc::string::ToString::to_string(&next(value, beats, last)), text);
        }
        for last in [1e17, f64::MAX / 2.0, -1e18] {
            assert!(next(last, 0, Some(last)) > last, "{last}");
        }
        // A value that fell behind does not pull the heartbeat back.
        assert!(next(1.0, 0, Some(5.0)) > 5.0);
    }
}
