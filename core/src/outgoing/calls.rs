//! The machine of outgoing requests, of jobs and the host to peers, and of their answers. It works on top
//! of the gateway, and calls no method of the engine.

use alloc::sync::Arc;

use crate::collections::det_map::Seed;
use crate::collections::timer_queue::TimerQueue;
use crate::jobs::Jobs;
use crate::lend::lend;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::server::suspended_calls::SuspendedCalls;
use crate::settings::Settings;
use crate::tasks::news::TaskNews;
use crate::tasks::task::Tasks;
use crate::time::Now;
use crate::upstream::gateway::Gateway;
use crate::upstream::table::Upstreams;

/// Outgoing requests and their callers, with the leaves of the engine that they work on.
pub(crate) struct OutgoingMachine<'a> {
    pub(crate) upstreams: &'a mut Upstreams,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) outgoing: &'a mut OutgoingRequests,
    pub(crate) timers: &'a mut TimerQueue,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) suspended: &'a mut SuspendedCalls,
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) now: Now,
    pub(crate) seed: Seed,
    /// Whether the daemon shuts down.
    pub(crate) drains: bool,
}

impl OutgoingMachine<'_> {
    /// The gateway below, for answers to requests that it has passed on.
    pub(super) fn gateway(&mut self) -> Gateway<'_> {
        lend!(Gateway, self, self.drains)
    }

    /// News of tasks that have asked something or have their answer.
    pub(super) fn news(&mut self) -> TaskNews<'_> {
        lend!(TaskNews, self)
    }
}
