//! The machines, each with the leaves of the engine that it works on. A machine calls no method of the
//! engine.

use crate::engine::Engine;
use crate::supervisor::machine::Supervisor;
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
}
