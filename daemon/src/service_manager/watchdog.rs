//! The watchdog: the manager is told that all is well at half the time it gives, from the loop, so
//! that a turn that hangs says nothing; and only while the other threads get on.
//!
//! The supervisor of processes is asked, since it must always answer at once. The store's thread
//! and the workers cannot: a sync takes as long as the disk takes, a tool as long as it likes. They
//! hang when they have had something to do and got nothing done for that half. So a disk that is
//! slow but works is no reason for silence, however much it is behind, as long as no single step
//! takes longer; the daemon is ended for one that takes between one and one and a half times what
//! the manager gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ceased_core::time::Instant;

/// What the loop remembers of it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    every: Duration,
    /// `None` until the loop runs.
    next: Option<Instant>,
    /// What the supervisor was asked last.
    probe: Option<Probe>,
}

/// A question to another thread: it answers by looking at it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probe(Arc<AtomicBool>);

impl Probe {
    /// Called by the thread that was asked.
    pub(crate) fn answer(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_answered(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    Nothing,
    /// To say that all is well, and to ask again.
    Alive,
    /// This thread has not answered since it was asked, or has got nothing done for so long:
    /// nothing is said.
    Silent(&'static str),
}

/// A thread that cannot be asked, and for how long it has had something to do and got nothing done.
pub(crate) type Busy = (&'static str, Duration);

impl Watchdog {
    /// By the values of `$WATCHDOG_USEC` and `$WATCHDOG_PID`; `None` when it is not for us or is
    /// unreadable.
    pub(crate) fn asked_for(micros: Option<&str>, pid: Option<&str>, own: u32) -> Option<Self> {
        if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
            return None;
        }
        let micros: u64 = micros?.parse().ok().filter(|micros| *micros > 0)?;
        Some(Self { every: Duration::from_micros(micros) / 2, next: None, probe: None })
    }

    /// When [`Watchdog::look`] has something to say.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Whether all is well. The first look starts the clock.
    pub(crate) fn look(&mut self, now: Instant, busy: impl IntoIterator<Item = Busy>) -> Due {
        if self.next.is_some_and(|at| at > now) {
            return Due::Nothing;
        }
        let is_silent = self.probe.as_ref().is_some_and(|probe| !probe.is_answered());
        let hung = busy.into_iter().find(|(_, nothing_done)| *nothing_done >= self.every);
        let silent = is_silent.then_some("supervisor").or(hung.map(|(thread, _)| thread));
        if let Some(thread) = silent {
            // Sooner than half the time from now, or the next word would come too late.
            self.next = Some(now + self.every / 4);
            return Due::Silent(thread);
        }
        self.next = Some(now + self.every);
        Due::Alive
    }

    /// What to ask the supervisor now.
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
    fn for_whom_it_is() {
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
    fn it_speaks_while_it_is_answered() {
        let mut dog = Watchdog::asked_for(Some("2000000"), None, 1).unwrap();
        assert_eq!(dog.deadline(), None);
        assert_eq!(dog.look(at(5), []), Due::Alive);
        let probe = dog.ask();
        assert_eq!(dog.deadline(), Some(at(1005)));
        assert_eq!(dog.look(at(1004), []), Due::Nothing);
        assert_eq!(dog.look(at(1005), []), Due::Silent("supervisor"));
        assert_eq!(dog.deadline(), Some(at(1255)));
        probe.answer();
        assert_eq!(dog.look(at(1254), []), Due::Nothing);
        assert_eq!(dog.look(at(1255), []), Due::Alive);
        // A new question, a new answer.
        let _unanswered = dog.ask();
        assert_eq!(dog.look(at(2255), []), Due::Silent("supervisor"));
    }

    /// A step that takes long is told from one that never ends by its length alone, and a thread
    /// that is behind from one that hangs by what it gets done.
    #[test]
    fn it_is_silent_while_a_thread_hangs() {
        let mut dog = Watchdog::asked_for(Some("2000000"), None, 1).unwrap();
        let store = |millis| ("store", Duration::from_millis(millis));
        assert_eq!(dog.look(at(0), [store(0)]), Due::Alive);
        assert_eq!(dog.look(at(1000), [store(999)]), Due::Alive);
        let hung = [("workers", Duration::ZERO), store(1000)];
        assert_eq!(dog.look(at(2000), hung), Due::Silent("store"));
        // The manager waits until 3000: there is another look before.
        assert_eq!(dog.look(at(2250), [store(0)]), Due::Alive);
    }
}
