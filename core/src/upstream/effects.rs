//! Consequences of the gateway, carried out.

use crate::engine::Engine;
use crate::outgoing::call::Caller;
use crate::upstream::awaited::Awaited;
use crate::upstream::effect::Effect;

impl Engine {
    /// Carries out the effects of the gateway, and the effects of those.
    pub(crate) fn carry_out_effects(&mut self) {
        while let Some(effect) = self.upstreams.effects.pop_front() {
            self.carry_out_effect(effect);
        }
    }

    fn carry_out_effect(&mut self, effect: Effect) {
        match effect {
            Effect::End { job, outcome } => {
                self.on_done(job, outcome);
                self.upstreams.receipts.remove(&job);
            }
            Effect::Escalate(job) => self.escalate(job),
            Effect::AskForJob { job, ask, request } => self.on_asked(job, ask, None, request),
            Effect::Withdraw { job, ask, reason } => {
                // The job may have ended with the same message, and its questions with it.
                if self.jobs.get(job).is_some_and(|job| job.asks.contains_key(&ask)) {
                    self.on_cancel_call(Caller::Job { job, ask }, reason.as_deref());
                }
            }
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
