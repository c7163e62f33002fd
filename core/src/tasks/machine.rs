//! The machine of tasks: their creation, requests about them, their store, and the table that several
//! engines share. It works on top of jobs and of outgoing requests, and calls no method of the engine.

use alloc::sync::Arc;

use crate::collections::det_map::Seed;
use crate::collections::timer_queue::TimerQueue;
use crate::jobs::Jobs;
use crate::jobs::lifecycle::JobMachine;
use crate::lend::lend;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::calls::OutgoingMachine;
use crate::server::keyed_calls::KeyedCalls;
use crate::server::suspended_calls::SuspendedCalls;
use crate::settings::Settings;
use crate::tasks::lookups::TaskLookups;
use crate::tasks::news::TaskNews;
use crate::tasks::task::Tasks;
use crate::time::Now;
use crate::upstream::table::Upstreams;

/// Tasks, with the leaves of the engine that they work on.
pub(crate) struct TaskMachine<'a> {
    pub(crate) upstreams: &'a mut Upstreams,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) outgoing: &'a mut OutgoingRequests,
    pub(crate) timers: &'a mut TimerQueue,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) suspended: &'a mut SuspendedCalls,
    pub(crate) keyed: &'a mut KeyedCalls,
    pub(crate) lookups: &'a mut TaskLookups,
    /// No further work is taken.
    pub(crate) retires: &'a mut bool,
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) now: Now,
    pub(crate) seed: Seed,
    /// Whether the daemon shuts down.
    pub(crate) drains: bool,
}

impl TaskMachine<'_> {
    /// The jobs behind tasks.
    pub(super) fn job_machine(&mut self) -> JobMachine<'_> {
        lend!(JobMachine, self, self.drains)
    }

    /// The questions of tasks.
    pub(super) fn outgoing(&mut self) -> OutgoingMachine<'_> {
        lend!(OutgoingMachine, self, self.drains)
    }

    /// News of tasks.
    pub(super) fn news(&mut self) -> TaskNews<'_> {
        lend!(TaskNews, self)
    }
}
