//! A table of checks of one kind of subject, and its run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::about::About;
use super::finding::{Checked, Finding};
use super::session::Trouble;

/// The context of the checks of one kind of subject.
pub(crate) trait Subject: Sync {
    /// Precondition of a check.
    type Needs: Sync;

    /// The reason for which a check cannot be done.
    fn missing(&self, _: &Self::Needs) -> Option<String> {
        None
    }
}

/// A check of a subject.
pub(crate) struct Check<C: Subject> {
    pub(crate) about: About,
    pub(crate) needs: C::Needs,
    pub(crate) run: fn(&C) -> Result<Finding, Trouble>,
}

impl<C: Subject> Check<C> {
    /// The check with its finding, and the time that it took.
    pub(crate) const fn with(&self, finding: Finding, took: Duration) -> Checked {
        Checked { about: self.about, finding, took, is_known: false }
    }
}

/// Runs checks, so many at once; the results are in the order of the checks.
pub(crate) fn run_all<C: Subject>(
    context: &C,
    checks: &[&Check<C>],
    at_once: usize,
    told: &(dyn Fn(&str) + Sync),
) -> Vec<Checked> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Checked)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = checks.get(place) else { break };
                    told(check.about.id);
                    let began = Instant::now();
                    let found = run(context, check);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((place, check.with(found, began.elapsed())));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, checked)| checked).collect()
}

fn run<C: Subject>(context: &C, check: &Check<C>) -> Finding {
    match context.missing(&check.needs) {
        Some(reason) => Finding::unknown(reason),
        None => (check.run)(context).unwrap_or_else(|Trouble(why)| Finding::unknown(why)),
    }
}

/// The results for a subject without a handshake, and the reason for which the probe could not be
/// done, if it is that.
///
/// The check of the handshake deviates where the subject does not answer; of one that was not
/// reached nothing can be said.
pub(crate) fn without_handshake<'a, C: Subject + 'a>(
    checks: impl Iterator<Item = &'a Check<C>>,
    handshake: &str,
    trouble: NoHandshake,
    took: Duration,
) -> (Vec<Checked>, Option<String>) {
    let (of_handshake, reason) = match trouble {
        NoHandshake::Unanswered(why) => (Finding::deviates(why), None),
        NoHandshake::Unreached(why) => (Finding::unknown(why.clone()), Some(why)),
    };
    let with = |check: &Check<C>| match check.about.id == handshake {
        true => check.with(of_handshake.clone(), took),
        false => check.with(Finding::unknown("the handshake is not answered"), Duration::ZERO),
    };
    (checks.map(with).collect(), reason)
}

/// The reason for which a subject has no handshake.
#[derive(Debug)]
pub(crate) enum NoHandshake {
    /// It did not start, is not reachable, or refuses the credentials.
    Unreached(String),
    /// It runs, and does not answer as it must.
    Unanswered(String),
}
