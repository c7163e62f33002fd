//! Observation of the work of a call from outside: processes, CPU time, bytes written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
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
    output: BTreeMap<i32, Output>,
}

impl Sample {
    fn take(session: &Session<'_>) -> Self {
        let listed = session.processes();
        let output = listed.iter().map(|it| (it.pid, Output::of(it.pid))).collect();
        let processes = listed.into_iter().map(|it| (it.pid, it.name)).collect();
        Self { at: Instant::now(), processes, cpu: session.cpu(), output }
    }

    /// CPU use in percent, and bytes a second in files, since an earlier sample. Bytes to
    /// pipes, sockets and other descriptors are no work.
    fn since(&self, earlier: &Self) -> (Option<f64>, u64) {
        let span = self.at.duration_since(earlier.at).as_secs_f64().max(0.001);
        let cpu = self.cpu.zip(earlier.cpu).map(|(now, then)| now.saturating_sub(then));
        let each = self.output.iter();
        let bytes: u64 =
            each.filter_map(|(pid, output)| Some(output.since(earlier.output.get(pid)?))).sum();
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

/// Output of a process so far.
#[derive(Debug, Default)]
struct Output {
    /// Bytes written to descriptors of every kind.
    written: u64,
    /// Bytes sent to a disk.
    stored: u64,
    /// Sizes of the open regular files, by device and inode.
    files: BTreeMap<(u64, u64), u64>,
}

impl Output {
    fn of(pid: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
        };
        let files = files(pid).collect();
        Self { written: number("wchar:"), stored: number("write_bytes:"), files }
    }

    /// Bytes that went to files since an earlier time: the growth of the open files, or the bytes
    /// sent to a disk. Other processes may write to the same files, so that it is at most the
    /// number of bytes that this one has written.
    fn since(&self, earlier: &Self) -> u64 {
        let grown = |(file, size): (&(u64, u64), &u64)| {
            size.saturating_sub(earlier.files.get(file).copied().unwrap_or(*size))
        };
        let grown: u64 = self.files.iter().map(grown).sum();
        let stored = self.stored.saturating_sub(earlier.stored);
        grown.max(stored).min(self.written.saturating_sub(earlier.written))
    }
}

/// The open regular files of a process with their sizes.
fn files(pid: i32) -> impl Iterator<Item = ((u64, u64), u64)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let open = descriptors.flatten().filter_map(|it| fs::metadata(it.path()).ok());
    let regular = open.filter(fs::Metadata::is_file);
    regular.map(|file| ((file.dev(), file.ino()), file.len()))
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
    let within = session.timeout();
    observe_for(session, within, start, cancel)
}

/// As [`observe`], with this time limit after the cancel.
pub(crate) fn observe_for<'a>(
    session: &mut Session<'a>,
    within: Duration,
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
    watch_end(session, within, &before, last, &mut worked)?;
    Ok(worked)
}

/// Takes samples until the work has ended, or the time limit.
fn watch_end(
    session: &mut Session<'_>,
    within: Duration,
    before: &Sample,
    mut last: Sample,
    worked: &mut Worked,
) -> Result<(), Trouble> {
    let until = Instant::now() + within;
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
