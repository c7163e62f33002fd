//! Observation of the work of a call from outside: processes, CPU time, bytes written.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::finding::SessionError;
use super::observed::Worked;
use super::session::Session;
use super::weight::{Weight, Zone, median};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(350);
/// Samples of a round of a call before its cancel, always the same number so that the verdicts are
/// the same.
const SAMPLES: usize = 12;
/// Rounds while the CPU use is not clear.
const ROUNDS_MAX: usize = 3;
/// Most samples for the time before the call, and the last ones of them, which are judged: one
/// alone may be that of a runtime's bookkeeping.
const IDLE_SAMPLES: usize = 8;
const IDLE_JUDGED: usize = 3;
/// Samples without activity that show the end of the work; so many are judged at the time limit.
const QUIET_SAMPLES: usize = 5;
/// Percent of a CPU above idle that are no work, and those that are.
const CPU_ACTIVE: Zone = Zone { low: 4.0, high: 8.0 };
/// Percent of a CPU up to which a subject rests.
const CPU_RESTING: f64 = 2.5;
/// After a cancel, percent of a CPU above idle that are no work in any case.
const CPU_LEFT: f64 = 2.0;
/// Bytes a second above idle that count as work.
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
    /// The CPU use during the call; light if it is unknown.
    pub(crate) fn load(&self) -> Weight {
        self.cpu.map_or(Weight::Light, |[idle, active, _]| CPU_ACTIVE.weigh(active - idle))
    }

    /// The CPU use at the end, of a call that had used it: an eighth of the call's is none, and a
    /// quarter of it is work.
    pub(crate) fn rest(&self) -> Weight {
        let Some([idle, active, end]) = self.cpu.filter(|_| self.load() == Weight::Heavy) else {
            return Weight::Light;
        };
        let load = active - idle;
        Zone { low: (load / 8.0).max(CPU_LEFT), high: load / 4.0 }.weigh(end - idle)
    }

    /// Whether the call wrote.
    pub(crate) const fn wrote(&self) -> bool {
        self.writing >= WRITING_SAMPLES
    }

    /// Whether it still writes.
    #[allow(clippy::cast_precision_loss, reason = "a rate for a comparison")]
    pub(crate) fn writes(&self) -> bool {
        let [idle, active, end] = self.written.map(|rate| rate as f64);
        self.wrote() && end > limit(idle, active, WRITTEN_ACTIVE as f64)
    }
}

/// Samples of a call before its cancel.
#[derive(Debug)]
pub(crate) struct During {
    idle: Activity,
    samples: Vec<Activity>,
}

impl During {
    pub(crate) const fn new(idle: Activity) -> Self {
        Self { idle, samples: Vec::new() }
    }

    /// Whether the next sample begins another round.
    const fn begins_round(&self) -> bool {
        self.samples.len().is_multiple_of(SAMPLES)
    }

    /// Whether another sample is needed: rounds are whole, and repeated while the CPU use is not
    /// clear.
    pub(crate) fn wants_sample(&self) -> bool {
        if self.samples.is_empty() || !self.begins_round() {
            return true;
        }
        self.samples.len() < SAMPLES * ROUNDS_MAX && self.summary().load() == Weight::Unclear
    }

    pub(crate) fn take(&mut self, sample: Activity) {
        self.samples.push(sample);
    }

    /// Sums up the samples. The median of the CPU use tells a computation from the start of a
    /// process, and the number of samples with output tells work from a line in a log.
    pub(crate) fn summary(&self) -> Worked {
        let (idle, during) = (self.idle, &self.samples);
        let is_known = during.iter().all(|(cpu, _)| cpu.is_some());
        let cpu = median(during.iter().filter_map(|(cpu, _)| *cpu)).filter(|_| is_known);
        let count = u64::try_from(during.len()).unwrap_or(u64::MAX).max(1);
        let is_writing = |it: &&Activity| it.1.saturating_sub(idle.1) > WRITTEN_ACTIVE;
        let rounds = u32::try_from(during.len() / SAMPLES).unwrap_or(u32::MAX).max(1);
        Worked {
            cpu: idle.0.zip(cpu).map(|(idle, active)| [idle, active, 0.0]),
            rounds,
            written: [idle.1, during.iter().map(|(_, written)| written).sum::<u64>() / count, 0],
            writing: during.iter().filter(is_writing).count() * SAMPLES / during.len().max(1),
            ..Worked::default()
        }
    }
}

/// Samples after the cancel.
#[derive(Debug, Default)]
pub(crate) struct After {
    quiet: usize,
    /// CPU use of the last samples.
    cpu: VecDeque<f64>,
}

impl After {
    /// Takes a sample, whose processes are in `worked` already; true once the work has ended. The
    /// CPU use at the end is the median of the last samples.
    pub(crate) fn take(&mut self, worked: &mut Worked, sample: Activity) -> bool {
        let (cpu, written) = sample;
        worked.written[2] = written;
        if let (Some(all), Some(now)) = (&mut worked.cpu, cpu) {
            all[2] = now;
        }
        let is_quiet =
            worked.alive.is_empty() && worked.rest() == Weight::Light && !worked.writes();
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        self.cpu.extend(cpu);
        if self.cpu.len() > QUIET_SAMPLES {
            self.cpu.pop_front();
        }
        if let (Some(all), Some(end)) = (&mut worked.cpu, median(self.cpu.iter().copied())) {
            all[2] = end;
        }
        self.quiet >= QUIET_SAMPLES
    }
}

/// Observes a call from before its start to the end of its work, or to the time limit.
pub(crate) fn observe<'a>(
    session: &mut Session<'a>,
    start: impl FnOnce(&mut Session<'a>) -> Result<Value, SessionError>,
    cancel: impl FnOnce(&mut Session<'a>, &Value) -> Result<(), SessionError>,
) -> Result<Worked, SessionError> {
    let within = session.timeout();
    observe_for(session, within, start, cancel)
}

/// As [`observe`], with this time limit after the cancel.
pub(crate) fn observe_for<'a>(
    session: &mut Session<'a>,
    within: Duration,
    start: impl FnOnce(&mut Session<'a>) -> Result<Value, SessionError>,
    cancel: impl FnOnce(&mut Session<'a>, &Value) -> Result<(), SessionError>,
) -> Result<Worked, SessionError> {
    session.check_alive()?;
    let (before, idle) = rest(session)?;
    let id = start(session)?;
    let (mut started, mut during) = (BTreeMap::new(), During::new(idle));
    let mut last = Sample::take(session);
    while during.wants_sample() {
        // Further rounds of a call that is over would show an idle subject.
        if !during.samples.is_empty() && during.begins_round() && !session.answers(&id).is_empty() {
            break;
        }
        session.watch(Instant::now() + SAMPLE_EVERY)?;
        let sample = Sample::take(session);
        during.take(sample.since(&last));
        started.extend(sample.new_processes(&before));
        last = sample;
    }
    cancel(session, &id)?;
    let mut worked = during.summary();
    worked.started = started.into_values().collect();
    watch_end(session, within, &before, last, &mut worked)?;
    Ok(worked)
}

/// Takes samples until the processes rest, or a few times: a server that has just started may still
/// be busy with that. The medians of the last ones are the activity at rest.
fn rest(session: &mut Session<'_>) -> Result<(Sample, Activity), SessionError> {
    let mut last = Sample::take(session);
    let mut idle: Vec<Activity> = Vec::new();
    for _ in 0..IDLE_SAMPLES {
        session.watch(Instant::now() + SAMPLE_EVERY)?;
        let sample = Sample::take(session);
        idle.push(sample.since(&last));
        last = sample;
        let rests =
            |it: &Activity| it.0.is_none_or(|cpu| cpu < CPU_RESTING) && it.1 <= WRITTEN_ACTIVE;
        if idle.len() >= IDLE_JUDGED && idle.iter().rev().take(IDLE_JUDGED).all(rests) {
            break;
        }
    }
    let judged = || idle.iter().rev().take(IDLE_JUDGED);
    let cpu = median(judged().filter_map(|it| it.0));
    let mut written: Vec<u64> = judged().map(|it| it.1).collect();
    written.sort_unstable();
    Ok((last, (cpu, written.get(written.len() / 2).copied().unwrap_or_default())))
}

/// Takes samples until the work has ended, or the time limit.
fn watch_end(
    session: &mut Session<'_>,
    within: Duration,
    before: &Sample,
    mut last: Sample,
    worked: &mut Worked,
) -> Result<(), SessionError> {
    let until = Instant::now() + within;
    let mut after = After::default();
    while Instant::now() < until {
        session.watch(Instant::now() + SAMPLE_EVERY)?;
        let sample = Sample::take(session);
        worked.alive = sample.new_processes(before).into_values().collect();
        if after.take(worked, sample.since(&last)) {
            break;
        }
        last = sample;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn during(samples: impl IntoIterator<Item = Activity>) -> During {
        let mut during = During::new((Some(0.1), 0));
        samples.into_iter().for_each(|it| during.take(it));
        during
    }

    #[test]
    fn work_is_told_from_the_start_of_a_process_and_a_line_in_a_log() {
        let mut samples = vec![(Some(0.2), 0); SAMPLES];
        samples[0] = (Some(60.0), 400);
        samples[1] = (Some(20.0), 400);
        let worked = during(samples).summary();
        assert!(worked.load() == Weight::Light && !worked.wrote());
        let worked = during([(Some(12.0), 400); SAMPLES]).summary();
        assert!(worked.load() == Weight::Heavy && worked.wrote());
        assert!(worked.rest() == Weight::Light && !worked.writes());
        assert!(during([(None, 0); SAMPLES]).summary().cpu.is_none());
    }

    /// Rounds are repeated in the dead zone alone, and so often at most.
    #[test]
    fn unclear_use_of_the_cpu_is_sampled_again() {
        let rounds = |level: f64| {
            let mut all = during([]);
            while all.wants_sample() {
                all.take((Some(level), 0));
            }
            all.summary().rounds
        };
        assert_eq!([1.0, 4.0, 5.0, 7.9, 8.2, 90.0].map(rounds), [1, 1, 3, 3, 1, 1]);
    }

    /// The work has ended after so many quiet samples in a row; else the last ones are judged.
    #[test]
    fn end_of_the_work_is_judged_by_the_last_samples() {
        let judged = |levels: &[f64]| {
            let mut worked = during([(Some(40.1), 0); SAMPLES]).summary();
            let mut after = After::default();
            let ended = levels.iter().position(|level| after.take(&mut worked, (Some(*level), 0)));
            (ended, worked.rest())
        };
        assert_eq!(judged(&[40.0, 30.0, 1.0, 0.0, 2.0, 0.0, 5.0]), (Some(6), Weight::Light));
        assert_eq!(judged(&[1.0, 1.0, 40.0, 1.0, 1.0]), (None, Weight::Light));
        assert_eq!(judged(&[1.0, 1.0, 40.0, 40.0, 41.0, 40.0, 1.0]), (None, Weight::Heavy));
        assert_eq!(judged(&[8.0; 30]), (None, Weight::Unclear));
    }
}
