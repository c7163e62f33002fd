//! Thresholds that log a warning (TSK-38).

use std::time::Duration;

use ceased_core::limits::Limits;
use ceased_core::stats::Load;
use ceased_core::time::Instant;

use crate::observability::audit::CancelRecord;

/// How far below its mark something must fall before it is warned of again, in percent of its
/// limit: what hovers at the mark is warned of once.
const SLACK: usize = 10;
/// Warnings about one limit are at least this far apart, and those about full identities, however
/// many of them there are.
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

/// Limits that were warned of and have not fallen since.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    thresholds: Thresholds,
    raised: [Mark; 3],
    identity_warned: Option<Instant>,
}

/// Whether something is above its mark, and when that was said.
#[derive(Debug, Default, Clone, Copy)]
struct Mark {
    raised: bool,
    warned: Option<Instant>,
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
    pub(crate) fn look(&mut self, now: Instant, load: Load, limits: &Limits) {
        let percent = usize::from(self.thresholds.high_water);
        if percent == 0 {
            return;
        }
        let watched = [
            ("connections", load.connections, limits.connections_max),
            ("workers", load.running, limits.running_max),
            ("queue", load.queued, limits.queued_max),
        ];
        for ((limit, used, max), mark) in watched.into_iter().zip(&mut self.raised) {
            if is_above(used, max, percent) {
                // What comes and goes by the millisecond would fill the log.
                let recently = mark.warned.is_some_and(|at| now - at < PAUSE);
                if !std::mem::replace(&mut mark.raised, true) && !recently {
                    mark.warned = Some(now);
                    tracing::warn!(limit, used, max, percent, "above the high-water mark");
                }
            } else if !is_above(used, max, percent.saturating_sub(SLACK)) {
                mark.raised = false;
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

    /// A job that was told to stop has ended.
    pub(crate) fn look_at_end(&self, record: &CancelRecord) {
        let (job, tool) = (record.receipt.job.get(), &*record.receipt.tool);
        let survivors = record.survivors.unwrap_or_default();
        let threshold = self.thresholds.slow_stop;
        match record.died_after {
            None => {
                tracing::error!(job, tool, survivors, "processes of a stopped job cannot be ended");
            }
            Some(took) => {
                if took > threshold {
                    tracing::warn!(job, tool, ?took, ?threshold, "slow to stop");
                }
                if survivors > 0 {
                    tracing::error!(job, tool, survivors, "processes outlive their job");
                }
            }
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
        let mut warned = 0;
        let steps =
            [(79, false), (80, true), (100, true), (75, true), (69, false), (80, true), (0, false)];
        for (second, (used, raised)) in (0..).zip(steps) {
            let now = Instant::from_nanos(second * 1_000_000_000);
            alerts.look(now, with(used), &limits);
            assert_eq!(alerts.raised[0].raised, raised, "{used}");
            warned += usize::from(alerts.raised[0].warned == Some(now));
        }
        assert_eq!(warned, 1, "so soon it is not said again");
        let later = Instant::from_nanos(0) + PAUSE + Duration::from_secs(2);
        alerts.look(later, with(80), &limits);
        assert_eq!(alerts.raised[0].warned, Some(later));
        let mut off = Alerts::new(Thresholds { high_water: 0, ..Thresholds::default() });
        off.look(later, with(100), &limits);
        assert!(off.raised.iter().all(|mark| !mark.raised));
    }
}
