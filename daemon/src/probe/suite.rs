//! A table of checks over one context, and its run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::finding::{Checked, Finding};
use super::session::Trouble;

/// A check over a context.
pub(crate) struct Check<C> {
    pub(crate) id: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) title: &'static str,
    pub(crate) remedy: &'static str,
    pub(crate) run: fn(&C) -> Result<Finding, Trouble>,
}

impl<C> Check<C> {
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
pub(crate) fn run_all<C: Sync>(
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
                    let found =
                        (check.run)(context).unwrap_or_else(|Trouble(why)| Finding::unknown(why));
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
