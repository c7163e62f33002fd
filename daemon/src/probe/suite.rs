//! A table of checks of one kind of subject, and its run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

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
    pub(crate) id: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) needs: C::Needs,
    pub(crate) title: &'static str,
    pub(crate) remedy: &'static str,
    pub(crate) run: fn(&C) -> Result<Finding, Trouble>,
}

impl<C: Subject> Check<C> {
    /// The check with its finding.
    pub(crate) const fn with(&self, finding: Finding) -> Checked {
        let Self { id, rule, title, remedy, .. } = *self;
        Checked { id, rule, title, remedy, finding }
    }

    /// Whether its id begins with one of these; every check if there are none.
    pub(crate) fn is_one_of(&self, only: &[String]) -> bool {
        only.is_empty() || only.iter().any(|wanted| self.id.starts_with(wanted.as_str()))
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
                    told(check.id);
                    let found = run(context, check);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((place, check.with(found)));
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

/// The results for a subject that does not answer the handshake: that check deviates, and nothing
/// can be said about the others.
pub(crate) fn without_handshake<'a, C: Subject + 'a>(
    checks: impl Iterator<Item = &'a Check<C>>,
    handshake: &str,
    why: &str,
) -> Vec<Checked> {
    let finding = |id: &str| match id == handshake {
        true => Finding::deviates(why),
        false => Finding::unknown("the handshake is not answered"),
    };
    checks.map(|check| check.with(finding(check.id))).collect()
}
