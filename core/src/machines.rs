//! The machines, each with the leaves of the engine that it works on. A machine calls no method of the
//! engine.

use crate::engine::Engine;
use crate::jobs::lifecycle::JobMachine;
use crate::lend::lend;
use crate::outgoing::calls::OutgoingMachine;
use crate::supervisor::machine::Supervisions;
use crate::tasks::machine::TaskMachine;
use crate::tasks::news::TaskNews;
use crate::upstream::gateway::Gateway;

impl Engine {
    /// The gateway, to be handed an input. Its effects are carried out at the end of the message.
    pub(crate) fn gateway(&mut self) -> Gateway<'_> {
        lend!(Gateway, self, self.drain.is_some())
    }

    /// The supervisions, to be handed an input.
    pub(crate) fn supervisor(&mut self) -> Supervisions<'_> {
        Supervisions {
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
        lend!(TaskNews, self)
    }

    /// Outgoing requests, to be handed an input.
    pub(crate) fn outgoing(&mut self) -> OutgoingMachine<'_> {
        lend!(OutgoingMachine, self, self.drain.is_some())
    }

    /// Jobs, to be begun or stopped.
    pub(crate) fn job_machine(&mut self) -> JobMachine<'_> {
        lend!(JobMachine, self, self.drain.is_some())
    }

    /// Tasks, to be handed an input.
    pub(crate) fn task_machine(&mut self) -> TaskMachine<'_> {
        lend!(TaskMachine, self, self.drain.is_some())
    }
}
