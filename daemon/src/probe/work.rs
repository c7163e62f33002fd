//! Observation of the work of a call from outside: processes, CPU time, bytes written.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::observed::Worked;
use super::session::{Session, Trouble};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(350);
/// Least and longest time for which a call is observed before its cancel.
const OBSERVE: [Duration; 2] = [Duration::from_millis(1000), Duration::from_secs(4)];
/// Samples without activity that show the end of the work.
const QUIET_SAMPLES: u32 = 3;
/// Percent of a CPU, and bytes a second, above idle that count as work.
const CPU_ACTIVE: f64 = 10.0;
const WRITTEN_ACTIVE: u64 = 16;

/// State of the processes at one time.
struct Sample {
    at: Instant,
    processes: BTreeMap<i32, String>,
    cpu: Option<Duration>,
    /// Bytes written by each process, whatever the file.
    written: BTreeMap<i32, u64>,
    /// Bytes that this program has received.
    received: u64,
}

impl Sample {
    fn take(session: &Session<'_>) -> Self {
        let listed = session.job.processes();
        let written = listed.iter().filter_map(|it| Some((it.pid, written(it.pid)?))).collect();
        let processes = listed.into_iter().map(|it| (it.pid, it.name)).collect();
        let (cpu, received) = (session.job.cpu(), session.pipe.bytes);
        Self { at: Instant::now(), processes, cpu, written, received }
    }

    /// CPU use in percent, and bytes a second, since an earlier sample. Bytes received by this
    /// program do not count.
    fn since(&self, earlier: &Self) -> (Option<f64>, u64) {
        let span = self.at.duration_since(earlier.at).as_secs_f64().max(0.001);
        let cpu = self.cpu.zip(earlier.cpu).map(|(now, then)| now.saturating_sub(then));
        let bytes: u64 = self
            .written
            .iter()
            .map(|(pid, now)| now.saturating_sub(earlier.written.get(pid).copied().unwrap_or(0)))
            .sum();
        let bytes = bytes.saturating_sub(self.received - earlier.received);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate for a report"
        )]
        let rate = (bytes as f64 / span) as u64;
        (cpu.map(|cpu| cpu.as_secs_f64() / span * 100.0), rate)
    }

    fn new_processes(&self, before: &Self) -> BTreeMap<i32, String> {
        let is_new = |pid: &i32| !before.processes.contains_key(pid);
        let new = self.processes.iter().filter(|(pid, _)| is_new(pid));
        new.map(|(pid, name)| (*pid, name.clone())).collect()
    }
}

/// Bytes that a process has written so far.
fn written(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.trim().parse().ok())
}

/// A limit between idle and active, nearer to idle.
fn limit(idle: f64, active: f64, least: f64) -> f64 {
    idle + ((active - idle) / 4.0).max(least)
}

impl Worked {
    /// Whether the CPU was in use during the call.
    pub(crate) fn used_cpu(&self) -> bool {
        self.cpu.is_some_and(|[idle, active, _]| active - idle > CPU_ACTIVE)
    }

    /// Whether the call wrote.
    pub(crate) const fn wrote(&self) -> bool {
        let [idle, active, _] = self.written;
        active.saturating_sub(idle) > WRITTEN_ACTIVE
    }

    /// Whether the CPU is still in use.
    pub(crate) fn uses_cpu(&self) -> bool {
        let is_busy = |[idle, active, end]: [f64; 3]| end > limit(idle, active, 3.0);
        self.used_cpu() && self.cpu.is_some_and(is_busy)
    }

    /// Whether it still writes.
    #[allow(clippy::cast_precision_loss, reason = "a rate for a comparison")]
    pub(crate) fn writes(&self) -> bool {
        let [idle, active, end] = self.written.map(|rate| rate as f64);
        self.wrote() && end > limit(idle, active, WRITTEN_ACTIVE as f64)
    }
}

/// Observes a call from before its start to the end of its work, or to the time limit.
pub(crate) fn observe<'a>(
    session: &mut Session<'a>,
    start: impl FnOnce(&mut Session<'a>) -> Result<Value, Trouble>,
    cancel: impl FnOnce(&mut Session<'a>, &Value) -> Result<(), Trouble>,
) -> Result<Worked, Trouble> {
    session.check_alive()?;
    let pause = |session: &mut Session<'a>| session.watch(Instant::now() + SAMPLE_EVERY);
    pause(session)?;
    let first = Sample::take(session);
    pause(session)?;
    let before = Sample::take(session);
    let idle = before.since(&first);
    let id = start(session)?;
    let begun = Instant::now();
    let (mut started, mut active) = (BTreeMap::new(), (idle.0, 0));
    let mut last = Sample::take(session);
    let mut worked = Worked::default();
    loop {
        pause(session)?;
        let sample = Sample::take(session);
        let (cpu, written) = sample.since(&last);
        active = (active.0.zip(cpu).map(|(a, b)| a.max(b)), active.1.max(written));
        started.extend(sample.new_processes(&before));
        last = sample;
        worked.cpu = idle.0.zip(active.0).map(|(idle, active)| [idle, active, 0.0]);
        worked.written = [idle.1, active.1, 0];
        let has_activity = !started.is_empty() || worked.used_cpu() || worked.wrote();
        let [least, most] = OBSERVE;
        if begun.elapsed() >= most || (has_activity && begun.elapsed() >= least) {
            break;
        }
    }
    cancel(session, &id)?;
    worked.started = started.values().cloned().collect();
    watch_end(session, &before, last, &mut worked)?;
    Ok(worked)
}

/// Takes samples until the work has ended, or the time limit.
fn watch_end(
    session: &mut Session<'_>,
    before: &Sample,
    mut last: Sample,
    worked: &mut Worked,
) -> Result<(), Trouble> {
    let until = Instant::now() + session.timeout();
    let mut quiet = 0;
    while quiet < QUIET_SAMPLES && Instant::now() < until {
        session.watch(Instant::now() + SAMPLE_EVERY)?;
        let sample = Sample::take(session);
        let (cpu, written) = sample.since(&last);
        if let (Some(all), Some(now)) = (&mut worked.cpu, cpu) {
            all[2] = now;
        }
        worked.written[2] = written;
        worked.alive = sample.new_processes(before).into_values().collect();
        let is_over = worked.alive.is_empty() && !worked.uses_cpu() && !worked.writes();
        quiet = if is_over { quiet + 1 } else { 0 };
        last = sample;
    }
    Ok(())
}
