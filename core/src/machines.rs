//! The machines, each with the leaves of the engine that it works on. A machine calls no method of the
//! engine.

use crate::engine::Engine;
use crate::jobs::lifecycle::JobMachine;
use crate::outgoing::calls::Calls;
use crate::supervisor::machine::Supervisor;
use crate::tasks::machine::TaskMachine;
use crate::tasks::news::TaskNews;
use crate::upstream::gateway::Gateway;

impl Engine {
    /// The gateway, to be handed an input. Its effects are carried out at the end of the message.
    pub(crate) fn gateway(&mut self) -> Gateway<'_> {
        Gateway {
            upstreams: &mut self.upstreams,
            outbox: &mut self.outbox,
            outgoing: &mut self.outgoing,
            timers: &mut self.timers,
            jobs: &mut self.jobs,
            tasks: &mut self.tasks,
            settings: &self.settings,
            now: self.now,
            seed: self.seed,
            drains: self.drain.is_some(),
        }
    }

    /// The supervisions, to be handed an input.
    pub(crate) fn supervisor(&mut self) -> Supervisor<'_> {
        Supervisor {
            agents: &mut self.agents,
            outbox: &mut self.outbox,
            timers: &mut self.timers,
            jobs: &mut self.jobs,
            upstreams: &mut self.upstreams,
            settings: &self.settings,
            now: self.now.at,
            seed: self.seed,
            outgoing: &self.outgoing,
            drains: self.drain.is_some(),
        }
    }

    /// News of tasks and lists.
    pub(crate) fn news(&mut self) -> TaskNews<'_> {
        TaskNews {
            tasks: &mut self.tasks,
            outbox: &mut self.outbox,
            jobs: &mut self.jobs,
            timers: &mut self.timers,
            settings: &self.settings,
            now: self.now,
        }
    }

    /// Outgoing requests, to be handed an input.
    pub(crate) fn calls(&mut self) -> Calls<'_> {
        Calls {
            upstreams: &mut self.upstreams,
            outbox: &mut self.outbox,
            outgoing: &mut self.outgoing,
            timers: &mut self.timers,
            jobs: &mut self.jobs,
            tasks: &mut self.tasks,
            suspended: &mut self.suspended,
            settings: &self.settings,
            now: self.now,
            seed: self.seed,
            drains: self.drain.is_some(),
        }
    }

    /// Jobs, to be begun or stopped.
    pub(crate) fn job_machine(&mut self) -> JobMachine<'_> {
        JobMachine {
            upstreams: &mut self.upstreams,
            outbox: &mut self.outbox,
            outgoing: &mut self.outgoing,
            timers: &mut self.timers,
            jobs: &mut self.jobs,
            tasks: &mut self.tasks,
            suspended: &mut self.suspended,
            keyed: &mut self.keyed,
            settings: &self.settings,
            now: self.now,
            seed: self.seed,
            drains: self.drain.is_some(),
        }
    }

    /// Tasks, to be handed an input.
    pub(crate) fn task_machine(&mut self) -> TaskMachine<'_> {
        TaskMachine {
            upstreams: &mut self.upstreams,
            outbox: &mut self.outbox,
            outgoing: &mut self.outgoing,
            timers: &mut self.timers,
            jobs: &mut self.jobs,
            tasks: &mut self.tasks,
            suspended: &mut self.suspended,
            keyed: &mut self.keyed,
            lookups: &mut self.lookups,
            retires: &mut self.retires,
            settings: &self.settings,
            now: self.now,
            seed: self.seed,
            drains: self.drain.is_some(),
        }
    }
}
