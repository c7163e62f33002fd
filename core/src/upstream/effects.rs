//! Consequences of the gateway, carried out.

use crate::engine::Engine;
use crate::upstream::awaited::Awaited;
use crate::upstream::effect::Effect;
use crate::upstream::gateway::Gateway;

impl Engine {
    /// Hands an input to the gateway, and carries out the consequences.
    pub(crate) fn with_gateway<T>(&mut self, input: impl FnOnce(&mut Gateway<'_>) -> T) -> T {
        let result = input(&mut Gateway {
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
        });
        let mut effects = core::mem::take(&mut self.upstreams.effects);
        for effect in effects.drain(..) {
            self.carry_out_effect(effect);
        }
        // For the next ones.
        self.upstreams.effects = effects;
        result
    }

    fn carry_out_effect(&mut self, effect: Effect) {
        match effect {
            Effect::End { job, outcome } => {
                self.on_done(job, outcome);
                self.upstreams.receipts.remove(&job);
            }
            Effect::Escalate(job) => self.escalate(job),
            Effect::AskForJob { job, ask, request } => self.on_asked(job, ask, None, request),
            Effect::Withdraw { caller, reason } => self.on_cancel_call(caller, reason.as_deref()),
            Effect::Announce { topic, clients } => self.announce_list_to(topic, &clients),
            Effect::Answer { reply, awaited } => {
                let conn = reply.conn;
                match awaited {
                    Awaited::Initialize => self.answer_initialize(reply),
                    Awaited::Discover => self.discover(reply),
                    Awaited::Listen(asked) => self.listen_after(reply, &asked),
                    // The gateway answers it itself.
                    Awaited::List(_) => self.outbox.forget(reply),
                }
                self.outbox.close_if_finished(conn);
            }
            Effect::Remove(conn) => self.remove_connection(conn),
        }
    }
}
