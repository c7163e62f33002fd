//! Thresholds that log a warning (TSK-38).

use std::time::Duration;

use ceased_core::engine::Load;
use ceased_core::limits::Limits;
use ceased_core::time::Instant;

/// How far below its mark something must fall before it is warned of again, in percent of its
/// limit: what hovers at the mark is warned of once.
const SLACK: usize = 10;
/// Warnings about full identities are at least this far apart, however many of them there are.
const PAUSE: Duration = Duration::from_secs(60);

/// When to warn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Percent of a limit that something bounded by it may reach; 0: no warnings.
    pub(crate) high_water: u8,
    /// How long stopping a job may take.
    pub(crate) slow_stop: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { high_water: 80, slow_stop: Duration::from_secs(10) }
    }
}

/// What was warned of and has not fallen since.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    thresholds: Thresholds,
    raised: [bool; 3],
    identity_warned: Option<Instant>,
}

impl Alerts {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, ..Self::default() }
    }

    /// Warns by other thresholds from now on.
    pub(crate) const fn warn_at(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Looks how full everything is.
    pub(crate) fn look(&mut self, now: Load, limits: &Limits) {
        let percent = usize::from(self.thresholds.high_water);
        if percent == 0 {
            return;
        }
        let watched = [
            ("connections", now.connections, limits.connections_max),
            ("workers", now.running, limits.running_max),
            ("queue", now.queued, limits.queued_max),
        ];
        for ((limit, used, max), raised) in watched.into_iter().zip(&mut self.raised) {
            if is_above(used, max, percent) {
                if !std::mem::replace(raised, true) {
                    tracing::warn!(limit, used, max, percent, "above the high-water mark");
                }
            } else if !is_above(used, max, percent.saturating_sub(SLACK)) {
                *raised = false;
            }
        }
    }

    /// An identity has so many tasks that have not ended.
    pub(crate) fn look_at_tasks(
        &mut self,
        now: Instant,
        identity: &dyn std::fmt::Display,
        live: usize,
        max: usize,
    ) {
        let percent = usize::from(self.thresholds.high_water);
        let recently = self.identity_warned.is_some_and(|at| now - at < PAUSE);
        if percent > 0 && is_above(live, max, percent) && !recently {
            self.identity_warned = Some(now);
            let limit = "tasks_per_identity";
            tracing::warn!(limit, %identity, used = live, max, percent, "above the high-water mark");
        }
    }

    /// A job that was told to stop has ended after this time, and this survived.
    pub(crate) fn look_at_end(&self, job: u64, tool: &str, took: Duration, survivors: u32) {
        if took > self.thresholds.slow_stop {
            let threshold = self.thresholds.slow_stop;
            tracing::warn!(job, tool, ?took, ?threshold, "slow to stop");
        }
        if survivors > 0 {
            tracing::error!(job, tool, survivors, "processes are alive after their job has ended");
        }
    }
}

fn is_above(used: usize, max: usize, percent: usize) -> bool {
    max > 0 && used.saturating_mul(100) >= max.saturating_mul(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(connections: usize) -> Load {
        Load { connections, ..Load::default() }
    }

    /// TSK-38: warned of when the mark is reached, and again only after it has fallen clearly.
    #[test]
    fn a_mark_is_warned_of_once() {
        let limits = Limits { connections_max: 100, ..Limits::default() };
        let mut alerts = Alerts::new(Thresholds { high_water: 80, ..Thresholds::default() });
        for (used, raised) in
            [(79, false), (80, true), (100, true), (75, true), (69, false), (80, true)]
        {
            alerts.look(with(used), &limits);
            assert_eq!(alerts.raised[0], raised, "{used}");
        }
        let mut off = Alerts::new(Thresholds { high_water: 0, ..Thresholds::default() });
        off.look(with(100), &limits);
        assert_eq!(off.raised, [false; 3]);
    }
}
