//! The watchdog: the loop sends WATCHDOG=1 at half the interval of the service manager, so a
//! hanging turn sends nothing; and only while the other threads make progress.
//!
//! The process supervisor is probed, since it must always answer at once. The store's thread and
//! the workers cannot be: a sync takes as long as the disk takes, a tool as long as it likes. They
//! count as hanging when they have had work for half the interval without completing any. A slow
//! disk that makes progress therefore keeps the daemon alive, however large its backlog; a single
//! step that takes between 1 and 1.5 intervals gets the daemon killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ceased_core::time::Instant;

/// State of the watchdog in the loop.
#[derive(Debug)]
pub(crate) struct Watchdog {
    every: Duration,
    /// Time of the next message; `None` until the loop runs.
    next: Option<Instant>,
    /// The last probe of the supervisor.
    probe: Option<Probe>,
}

/// A liveness probe: the probed thread sets the flag.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probe(Arc<AtomicBool>);

impl Probe {
    /// Answers the probe; called by the probed thread.
    pub(crate) fn answer(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_answered(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Too early.
    NotYet,
    /// Send WATCHDOG=1 and probe again.
    Alive,
    /// This thread has not answered its probe, or has completed no work for too long: send nothing.
    Silent(&'static str),
}

/// Name of a thread that cannot be probed, and the time it has had work without completing any.
pub(crate) type Busy = (&'static str, Duration);

impl Watchdog {
    /// Reads the values of `$WATCHDOG_USEC` and `$WATCHDOG_PID`; `None` if the watchdog is
    /// disabled, meant for another process, or malformed.
    pub(crate) fn asked_for(micros: Option<&str>, pid: Option<&str>, own: u32) -> Option<Self> {
        if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
            return None;
        }
        let micros: u64 = micros?.parse().ok().filter(|micros| *micros > 0)?;
        Some(Self { every: Duration::from_micros(micros) / 2, next: None, probe: None })
    }

    /// Time of the next [`Watchdog::look`] that is due.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Checks the threads. The first check starts the clock.
    pub(crate) fn look(&mut self, now: Instant, busy: impl IntoIterator<Item = Busy>) -> Due {
        if self.next.is_some_and(|at| at > now) {
            return Due::NotYet;
        }
        let is_silent = self.probe.as_ref().is_some_and(|probe| !probe.is_answered());
        let hung = busy.into_iter().find(|(_, nothing_done)| *nothing_done >= self.every);
        let silent = is_silent.then_some("supervisor").or(hung.map(|(thread, _)| thread));
        if let Some(thread) = silent {
            // Check again before the next half: the next message would be late otherwise.
            self.next = Some(now + self.every / 4);
            return Due::Silent(thread);
        }
        self.next = Some(now + self.every);
        Due::Alive
    }

    /// Creates the next probe for the supervisor.
    pub(crate) fn ask(&mut self) -> Probe {
        self.probe.insert(Probe::default()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn environment_of_another_process_is_ignored() {
        let asked = |usec, pid| Watchdog::asked_for(usec, pid, 7).map(|dog| dog.every);
        assert_eq!(asked(Some("20000000"), Some("7")), Some(Duration::from_secs(10)));
        assert_eq!(asked(Some("2"), None), Some(Duration::from_micros(1)));
        for (usec, pid) in [
            (None, None),
            (None, Some("7")),
            (Some("0"), None),
            (Some("-1"), None),
            (Some("soon"), None),
            (Some("5"), Some("8")),
            (Some("5"), Some("me")),
        ] {
            assert_eq!(asked(usec, pid), None, "{usec:?} {pid:?}");
        }
    }

    #[test]
    fn alive_while_probes_are_answered() {
        let mut dog = Watchdog::asked_for(Some("2000000"), None, 1).unwrap();
        assert_eq!(dog.deadline(), None);
        assert_eq!(dog.look(at(5), []), Due::Alive);
        let probe = dog.ask();
        assert_eq!(dog.deadline(), Some(at(1005)));
        assert_eq!(dog.look(at(1004), []), Due::NotYet);
        assert_eq!(dog.look(at(1005), []), Due::Silent("supervisor"));
        assert_eq!(dog.deadline(), Some(at(1255)));
        probe.answer();
        assert_eq!(dog.look(at(1254), []), Due::NotYet);
        assert_eq!(dog.look(at(1255), []), Due::Alive);
        // A new probe needs a new answer.
        let _unanswered = dog.ask();
        assert_eq!(dog.look(at(2255), []), Due::Silent("supervisor"));
    }

    /// A slow step differs from a hanging one only in its duration, and a backlog from a hang in
    /// the work completed.
    #[test]
    fn silent_while_a_thread_hangs() {
        let mut dog = Watchdog::asked_for(Some("2000000"), None, 1).unwrap();
        let store = |millis| ("store", Duration::from_millis(millis));
        assert_eq!(dog.look(at(0), [store(0)]), Due::Alive);
        assert_eq!(dog.look(at(1000), [store(999)]), Due::Alive);
        let hung = [("workers", Duration::ZERO), store(1000)];
        assert_eq!(dog.look(at(2000), hung), Due::Silent("store"));
        // The manager waits until 3000; one more check comes before.
        assert_eq!(dog.look(at(2250), [store(0)]), Due::Alive);
    }
}
