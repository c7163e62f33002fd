//! Consequences of the gateway, carried out.

use crate::client::session::permitted;
use crate::connection::{Ending, Phase};
use crate::engine::Engine;
use crate::ids::ConnId;
use crate::outbox::requests::{Reply, Work};
use crate::outgoing::call::{AnswerTimeout, CallFor, OutgoingRequest, Refusal};
use crate::upstream::awaited::Awaited;
use crate::upstream::effect::Effect;
use crate::upstream::gateway::Gateway;
use crate::upstream::question::AskedOf;
use crate::upstream::questions::refuse_question;

impl Engine {
    /// Hands an input to the gateway, and carries out the consequences.
    pub(crate) fn with_gateway<T>(&mut self, input: impl FnOnce(&mut Gateway<'_>) -> T) -> T {
        let result = input(&mut Gateway {
            upstreams: &mut self.upstreams,
            outbox: &mut self.outbox,
            outgoing: &mut self.outgoing,
            timers: &mut self.timers,
            jobs: &self.jobs,
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
            Effect::Progress { job, progress, total, message } => {
                self.on_progress(job, progress, total, message.as_deref());
            }
            Effect::Message { job, level, params } => self.relay_message(job, level, &params),
            Effect::Escalate(job) => self.escalate(job),
            Effect::AskForJob { job, ask, request } => self.on_asked(job, ask, None, request),
            Effect::AskClient { reply, client, request } => self.ask_client(reply, client, request),
            Effect::Withdraw { caller, reason } => self.on_cancel_call(caller, reason.as_deref()),
            Effect::Announce { topic, clients } => self.announce_list_to(topic, &clients),
            Effect::Answer { reply, awaited } => match awaited {
                Awaited::Initialize => self.answer_initialize(reply),
                Awaited::Discover => self.discover(reply),
                Awaited::Listen(asked) => self.listen_after(reply, &asked),
                // The gateway answers it itself.
                Awaited::List(_) => self.outbox.forget(reply),
            },
            Effect::Answered(conn) => self.close_if_finished(conn),
            Effect::Remove(conn) => self.remove_connection(conn),
        }
    }

    /// How many requests of servers wait for answers of an identity's clients, and of its jobs.
    fn asking_of(&self, client: ConnId) -> usize {
        let Some(owner) = self.outbox.identity(client) else { return 0 };
        let asked = self.upstreams.asked.keys();
        let of_owner =
            asked.filter(|(other, _)| self.outbox.identity(*other) == Some(owner)).count();
        of_owner + self.jobs.queue().asking_of(owner)
    }

    /// Passes a request of a server to the only client of its instance.
    fn ask_client(&mut self, reply: Reply, client: ConnId, request: OutgoingRequest) {
        let limits = self.settings.limits;
        let (timeout, cap) = (limits.parked_for, limits.parked_for);
        let answer_timeout = Some(AnswerTimeout { timeout, extend_on_progress: false, cap });
        let request = OutgoingRequest { answer_timeout, ..request };
        let refusal = match self.outbox.connection(client) {
            None => Some(Refusal::NoConnection),
            Some(connection) if connection.ending != Ending::Open => Some(Refusal::NoConnection),
            Some(connection) if connection.phase == Phase::Fresh => Some(Refusal::NotInitialized),
            Some(_) if self.outgoing.counts(client).0 >= limits.calls_max => Some(Refusal::TooMany),
            Some(_) if self.asking_of(client) >= limits.parked_max => Some(Refusal::TooMany),
            Some(connection) => permitted(connection, &request).err(),
        };
        if let Some(refusal) = refusal {
            return refuse_question(&mut self.outbox, reply, refusal);
        }
        let call = self.place_call(client, CallFor::Question, &request, None);
        self.upstreams.asked.insert((client, call), (reply.conn, reply.id.clone()));
        if let Some(connection) = self.outbox.connection_mut(reply.conn) {
            connection.requests.open(reply, Work::Question(AskedOf::Client(client, call)));
        }
    }
}
