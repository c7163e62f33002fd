//! A table of checks of one kind of subject, and its run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::about::About;
use super::arena::Arena;
use super::finding::{Checked, Finding, SessionError, Verdict};

/// The context of the checks of one kind of subject.
pub(crate) trait Subject: Sync {
    /// Precondition of a check.
    type Needs: Sync;

    /// The place of its jobs.
    fn arena(&self) -> &Arena;

    /// The reason for which a check cannot be done.
    fn missing(&self, _: &Self::Needs) -> Option<String> {
        None
    }
}

/// A check of a subject.
pub(crate) struct Check<C: Subject> {
    pub(crate) about: About,
    pub(crate) needs: C::Needs,
    pub(crate) run: fn(&C) -> Result<Finding, SessionError>,
}

impl<C: Subject> Check<C> {
    /// The check with its finding, and the time that it took.
    pub(crate) const fn with(&self, finding: Finding, took: Duration) -> Checked {
        Checked { about: self.about, finding, took, is_known: false }
    }
}

/// How checks run beside each other.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Number of checks at once.
    pub(crate) at_once: usize,
    /// Time limit of everything that a subject has to do.
    pub(crate) timeout: Duration,
}

impl Load {
    /// A quarter of the load, for a second look; `None` if checks ran alone.
    fn reduced(self) -> Option<Self> {
        (self.at_once > 1).then_some(Self { at_once: self.at_once.div_ceil(4), ..self })
    }
}

/// The result of one run of a check.
struct Ran {
    checked: Checked,
    /// Whether a busy machine may be the reason that the check does not hold: a time limit passed, or
    /// something that was waited for did not come.
    is_late: bool,
}

/// Runs checks; the results are in the order of the checks.
///
/// A check that did not hold because a time limit passed is done once more with fewer beside it: on a
/// busy machine subjects that start at once are late together, which says nothing of one.
pub(crate) fn run_all<C: Subject>(
    context: &C,
    checks: &[&Check<C>],
    load: Load,
    told: &(dyn Fn(&str) + Sync),
) -> Vec<Checked> {
    let mut first = run_together(context, checks, load, told);
    let Some(reduced) = load.reduced() else {
        return first.into_iter().map(|ran| ran.checked).collect();
    };
    let late: Vec<usize> = (0..first.len()).filter(|place| first[*place].is_late).collect();
    if !late.is_empty() {
        context.arena().begin_second_look();
    }
    let again: Vec<&Check<C>> = late.iter().map(|place| checks[*place]).collect();
    for (place, ran) in late.into_iter().zip(run_together(context, &again, reduced, told)) {
        first[place] = ran;
    }
    first.into_iter().map(|ran| ran.checked).collect()
}

/// Runs checks, as many at once as the load allows; the results are in the order of the checks.
fn run_together<C: Subject>(
    context: &C,
    checks: &[&Check<C>],
    load: Load,
    told: &(dyn Fn(&str) + Sync),
) -> Vec<Ran> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Ran)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..load.at_once.max(1) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = checks.get(place) else { break };
                    told(check.about.id);
                    let ran = run(context, check, load.timeout);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, ran));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, ran)| ran).collect()
}

fn run<C: Subject>(context: &C, check: &Check<C>, timeout: Duration) -> Ran {
    let began = Instant::now();
    let (finding, is_late) = match context.missing(&check.needs) {
        Some(reason) => (Finding::unknown(reason), false),
        None => match (check.run)(context) {
            Ok(finding) => {
                let is_late = finding.verdict == Verdict::Deviates && began.elapsed() >= timeout;
                (finding, is_late)
            }
            Err(SessionError(why)) => (Finding::unknown(why), true),
        },
    };
    Ran { checked: check.with(finding, began.elapsed()), is_late }
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
