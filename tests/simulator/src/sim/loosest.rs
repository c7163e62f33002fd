//! The loosest of several limits: a reload does not evict admitted things.

use std::sync::Arc;

use ceased_core::limits::Limits;
use ceased_core::settings::Settings;

/// The maximum of existing things after any reload.
pub(super) struct Loosest {
    pub(super) running_max: usize,
    pub(super) queued_max: usize,
    pub(super) live_tasks_max: usize,
    pub(super) write_buffer_bytes: usize,
}

impl Loosest {
    /// Of everything that held so far.
    pub(super) fn of(settings: &[Arc<Settings>]) -> Self {
        let of = |pick: fn(&Limits) -> usize| {
            settings.iter().map(|settings| pick(&settings.limits)).max().unwrap_or(0)
        };
        Self {
            running_max: of(|limits| limits.running_max),
            queued_max: of(|limits| limits.queued_max),
            live_tasks_max: of(|limits| limits.live_tasks_max),
            write_buffer_bytes: of(|limits| limits.write_buffer_bytes),
        }
    }
}
