//! Conversion of instants to the clock of process start times.
//!
//! The kernel tells start times in clock ticks of the boot clock, which also runs while the machine
//! sleeps; an [`Instant`] does not. So the difference of the two clocks is noted whenever the
//! supervisor turns. For an instant between two notes that differ, the answer is unknown.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// Number of remembered suspensions of the machine. Older instants are unknown.
const PERIODS_MAX: usize = 64;
/// Smallest difference that counts as a suspension: less is the time between two readings.
const JUMP: Duration = Duration::from_millis(5);
const NANOS_A_SECOND: u128 = 1_000_000_000;

/// The boot clock at earlier instants.
#[derive(Debug)]
pub(crate) struct BootClock {
    base: Instant,
    /// Periods without a suspension, oldest first; at least one.
    periods: VecDeque<Period>,
    current: Period,
    ticks_per_second: u64,
}

#[derive(Debug, Clone, Copy)]
struct Period {
    from: Instant,
    to: Instant,
    /// The boot clock at the base instant, as calculated from this period.
    base: Duration,
}

impl BootClock {
    /// A clock that knows the past up to its creation as one period.
    pub(crate) fn new() -> Self {
        let base = Instant::now();
        let current = Period { from: base, to: base, base: boot_time() };
        let ticks_per_second = clock_ticks_per_second().max(1);
        Self { base, periods: VecDeque::new(), current, ticks_per_second }
    }

    /// Notes the difference of the clocks now.
    pub(crate) fn note(&mut self) {
        self.note_at(Instant::now(), boot_time());
    }

    fn note_at(&mut self, now: Instant, boot: Duration) {
        let base = boot.saturating_sub(now.saturating_duration_since(self.base));
        if base.abs_diff(self.current.base) < JUMP {
            self.current.to = now;
            return;
        }
        self.periods.push_back(self.current);
        self.current = Period { from: now, to: now, base };
        if self.periods.len() > PERIODS_MAX {
            self.periods.pop_front();
        }
    }

    /// The clock tick of the boot clock in which an instant was; `None` if unknown.
    pub(crate) fn tick_of(&self, at: Instant) -> Option<u64> {
        let is_in = |period: &&Period| period.from <= at && at <= period.to;
        let period = std::iter::once(&self.current).chain(&self.periods).find(is_in)?;
        let since_base = at.saturating_duration_since(self.base);
        Some(self.to_ticks(period.base.saturating_add(since_base)))
    }

    /// The current clock tick.
    pub(crate) fn tick_now(&self) -> u64 {
        self.to_ticks(boot_time())
    }

    fn to_ticks(&self, time: Duration) -> u64 {
        let ticks = time.as_nanos() * u128::from(self.ticks_per_second) / NANOS_A_SECOND;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// A number of clock ticks as a duration.
    pub(crate) fn to_duration(&self, ticks: u64) -> Duration {
        let nanos = u128::from(ticks) * NANOS_A_SECOND / u128::from(self.ticks_per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Time since the boot of the machine, its sleep included.
#[must_use]
pub fn boot_time() -> Duration {
    // The boot clock is never negative.
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::Pid;

    use super::*;
    use crate::proc::table::Stat;

    #[test]
    fn tick_of_now_is_the_start_tick_of_a_process_started_now() {
        let mut clock = BootClock::new();
        let before = Instant::now();
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let after = Instant::now();
        clock.note();
        let start = Stat::of(Pid::from_child(&child)).unwrap().start;
        assert!(clock.tick_of(before).unwrap() <= start, "{start} {clock:?}");
        assert!(clock.tick_of(after).unwrap() >= start, "{start} {clock:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn instants_around_a_suspension_are_unknown_and_others_exact() {
        let mut clock = BootClock::new();
        let (base, boot) = (clock.base, clock.current.base);
        let at = |millis| base + Duration::from_millis(millis);
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        clock.note_at(at(1000), boot + second);
        clock.note_at(at(3000), boot + 3 * second + hour);
        clock.note_at(at(4000), boot + 4 * second + hour);
        let tick = |time| Some(clock.to_ticks(time));
        assert_eq!(clock.tick_of(at(500)), tick(boot + second / 2));
        assert_eq!(clock.tick_of(at(2000)), None);
        assert_eq!(clock.tick_of(at(3500)), tick(boot + 3 * second + second / 2 + hour));
        assert_eq!(clock.tick_of(at(9000)), None, "not noted yet");
    }
}
