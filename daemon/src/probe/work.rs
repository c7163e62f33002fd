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
/// Samples of a call before its cancel, always the same number so that the verdicts are the same.
const SAMPLES: usize = 12;
/// Most samples for the time before the call.
const IDLE_SAMPLES: usize = 6;
/// Samples without activity that show the end of the work.
const QUIET_SAMPLES: u32 = 5;
/// Percent of a CPU, and bytes a second, above idle that count as work.
const CPU_ACTIVE: f64 = 5.0;
const WRITTEN_ACTIVE: u64 = 16;
/// Samples with output that are needed to call it work.
const WRITING_SAMPLES: usize = 3;

/// CPU use in percent, if it is known, and bytes a second.
type Activity = (Option<f64>, u64);

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
    fn since(&self, earlier: &Self) -> Activity {
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
        self.writing >= WRITING_SAMPLES
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
    let (before, idle) = rest(session)?;
    let id = start(session)?;
    let (mut started, mut during) = (BTreeMap::new(), Vec::new());
    let mut last = Sample::take(session);
    for _ in 0..SAMPLES {
        session.watch(Instant::now() + SAMPLE_EVERY)?;
        let sample = Sample::take(session);
        during.push(sample.since(&last));
        started.extend(sample.new_processes(&before));
        last = sample;
    }
    cancel(session, &id)?;
    let mut worked = summary(idle, &during);
    worked.started = started.into_values().collect();
    watch_end(session, within, &before, last, &mut worked)?;
    Ok(worked)
}

/// Takes samples until the processes rest, or a few times: a server that has just started may still
/// be busy with that.
fn rest(session: &mut Session<'_>) -> Result<(Sample, Activity), Trouble> {
    let mut last = Sample::take(session);
    let mut idle = (None, 0);
    for _ in 0..IDLE_SAMPLES {
        session.watch(Instant::now() + SAMPLE_EVERY)?;
        let sample = Sample::take(session);
        idle = sample.since(&last);
        last = sample;
        if idle.0.is_none_or(|cpu| cpu < CPU_ACTIVE / 2.0) && idle.1 <= WRITTEN_ACTIVE {
            break;
        }
    }
    Ok((last, idle))
}

/// Sums up the samples of a call. The median of the CPU use tells a computation from the start of
/// a process, and the number of samples with output tells work from a line in a log.
fn summary(idle: Activity, during: &[Activity]) -> Worked {
    let mut cpu: Vec<f64> = during.iter().filter_map(|(cpu, _)| *cpu).collect();
    cpu.sort_unstable_by(f64::total_cmp);
    let median = cpu.get(cpu.len() / 2).copied().filter(|_| cpu.len() == during.len());
    let count = u64::try_from(during.len()).unwrap_or(u64::MAX).max(1);
    let is_writing = |it: &&Activity| it.1.saturating_sub(idle.1) > WRITTEN_ACTIVE;
    Worked {
        cpu: idle.0.zip(median).map(|(idle, active)| [idle, active, 0.0]),
        written: [idle.1, during.iter().map(|(_, written)| written).sum::<u64>() / count, 0],
        writing: during.iter().filter(is_writing).count(),
        ..Worked::default()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_from_the_start_of_a_process_and_a_line_in_a_log() {
        let mut during = vec![(Some(0.2), 0); SAMPLES];
        during[0] = (Some(60.0), 400);
        during[1] = (Some(20.0), 400);
        let worked = summary((Some(0.1), 0), &during);
        assert!(!worked.used_cpu() && !worked.wrote());
        let worked = summary((Some(0.1), 0), &[(Some(12.0), 400); SAMPLES]);
        assert!(worked.used_cpu() && worked.wrote());
        assert!(!worked.uses_cpu() && !worked.writes());
        assert!(summary((Some(0.1), 0), &[(None, 0); SAMPLES]).cpu.is_none());
    }
}
