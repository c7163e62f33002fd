//! Thresholds that log a warning (TSK-38).

use std::time::Duration;

use ceased_core::limits::Limits;
use ceased_core::stats::Load;
use ceased_core::time::Instant;

use crate::observability::audit::CancelRecord;

/// Hysteresis in percent of the limit: a gauge must fall this far below its mark before it is
/// warned about again.
const SLACK: usize = 10;
/// Minimum time between two warnings about one limit, and between two about identities at their
/// limit.
const PAUSE: Duration = Duration::from_secs(60);

/// Thresholds of the warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Percent of a limit at which a gauge is warned about; 0 disables the warnings.
    pub(crate) high_water: u8,
    /// Time after which stopping a job counts as slow.
    pub(crate) slow_stop: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { high_water: 80, slow_stop: Duration::from_secs(10) }
    }
}

/// Warnings already given, for hysteresis and rate limiting.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    thresholds: Thresholds,
    raised: [Mark; 3],
    identity_warned: Option<Instant>,
}

/// Whether a gauge is above its mark, and the time of the last warning.
#[derive(Debug, Default, Clone, Copy)]
struct Mark {
    raised: bool,
    warned: Option<Instant>,
}

impl Alerts {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, ..Self::default() }
    }

    /// Replaces the thresholds.
    pub(crate) const fn warn_at(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Checks all gauges against the high-water mark.
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
                // Rate limit: a gauge that crosses the mark every few milliseconds would fill the
                // log.
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

    /// Checks the number of unfinished tasks of an identity.
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

    /// Checks the end of a stopped job.
    pub(crate) fn look_at_end(&self, record: &CancelRecord) {
        let (job, tool) = (record.receipt.job.get(), &*record.receipt.tool);
        let survivors = record.survivors.unwrap_or_default();
        let threshold = self.thresholds.slow_stop;
        match record.died_after {
            None => {
                tracing::error!(
                    job,
                    tool,
                    survivors,
                    "cannot end processes of a stopped job: they outlast SIGKILL"
                );
            }
            Some(took) => {
                if took > threshold {
                    tracing::warn!(
                        job,
                        tool,
                        ?took,
                        ?threshold,
                        "stopping a job took longer than the threshold"
                    );
                }
                if survivors > 0 {
                    tracing::error!(job, tool, survivors, "processes survive their job");
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

    /// TSK-38: warns when the mark is reached, and again only after the gauge fell below the slack.
    #[test]
    fn mark_is_warned_about_once() {
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
        assert_eq!(warned, 1, "a second warning within the pause");
        let later = Instant::from_nanos(0) + PAUSE + Duration::from_secs(2);
        alerts.look(later, with(80), &limits);
        assert_eq!(alerts.raised[0].warned, Some(later));
        let mut off = Alerts::new(Thresholds { high_water: 0, ..Thresholds::default() });
        off.look(later, with(100), &limits);
        assert!(off.raised.iter().all(|mark| !mark.raised));
    }
}
