//! CPU time and memory of the processes of a job, for views.

use std::fs;
use std::time::{Duration, Instant};

use crate::proc::processes::Process;

/// Minimum interval between two measurements of one job: reading each process takes time on the
/// thread that also ends processes, and several viewers may ask at once.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// CPU time and memory of the processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// CPU time so far, also of ended processes as far as the containment counts them; `None` if
    /// unknown.
    pub cpu: Option<Duration>,
    /// CPUs in use, on average since the previous measurement, or since the start of the job: 1.5 is
    /// one and a half. `None` if unknown.
    pub cpus: Option<f64>,
    /// Bytes of memory: the control group's count where it has the memory controller, else the
    /// resident sets of the processes, in which shared pages count once for each process. `None` if
    /// unknown.
    pub memory: Option<u64>,
}

/// Measurements of one job, at most one a second.
#[derive(Debug)]
pub(crate) struct UsageMeter {
    /// Start of the job.
    started: Instant,
    latest: Option<(Instant, Usage)>,
}

impl UsageMeter {
    pub(crate) const fn new(started: Instant) -> Self {
        Self { started, latest: None }
    }

    /// The latest measurement, or a new one if it is older than a second.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        measure: impl FnOnce() -> (Option<Duration>, Option<u64>),
    ) -> Usage {
        if let Some((at, usage)) = self.latest
            && now.saturating_duration_since(at) < MEASURE_EVERY
        {
            return usage;
        }
        let (cpu, memory) = measure();
        let (from, before) = match self.latest {
            Some((at, Usage { cpu: Some(cpu), .. })) => (at, cpu),
            Some(_) | None => (self.started, Duration::ZERO),
        };
        let span = now.saturating_duration_since(from).as_secs_f64();
        let share = |cpu: Duration| cpu.saturating_sub(before).as_secs_f64() / span;
        let usage = Usage { cpu, cpus: cpu.filter(|_| span > 0.0).map(share), memory };
        self.latest = Some((now, usage));
        usage
    }
}

/// The resident sets of these processes, in bytes; an ended one has none.
pub(crate) fn resident(processes: &[Process]) -> u64 {
    let page = rustix::param::page_size() as u64;
    let pages = processes.iter().filter_map(|process| {
        let text = fs::read_to_string(format!("/proc/{}/statm", process.pid)).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    pages.fold(0, u64::saturating_add).saturating_mul(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_a_second_apart() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut meter = UsageMeter::new(start);
        let cpu = |millis| (Some(Duration::from_millis(millis)), Some(7));
        let first = meter.read(at(2000), || cpu(1000));
        assert_eq!((first.cpus, first.memory), (Some(0.5), Some(7)));
        assert_eq!(meter.read(at(2999), || panic!("measured again")), first);
        let second = meter.read(at(4000), || cpu(5000));
        assert_eq!(second.cpus, Some(2.0), "four seconds in two");
        // An unknown time is no time of zero.
        assert_eq!(meter.read(at(5000), || (None, None)), Usage::default());
        assert_eq!(meter.read(at(8000), || cpu(4000)).cpus, Some(0.5), "since the start");
    }

    #[test]
    fn this_process_has_memory() {
        let pid = i32::try_from(std::process::id()).expect("a process id");
        let process = |pid| Process { pid, parent: 0, name: String::new(), memory: 0, started: 0 };
        assert!(resident(&[process(pid)]) > 0);
        assert_eq!(resident(&[process(i32::MAX)]), 0);
    }
}
