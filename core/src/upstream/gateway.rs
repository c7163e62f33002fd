//! The gateway: a machine that is the client of servers, with the tables that only it changes.
//!
//! It takes inputs with access to the leaves of the engine, and calls no method of the engine. A
//! consequence beyond it is an [`GatewayEffect`], which the engine carries out at the end of the message.

use alloc::sync::Arc;

use crate::collections::det_map::Seed;
use crate::collections::timer_queue::TimerQueue;
use crate::ids::{CallId, ConnId};
use crate::jobs::Jobs;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::Reply;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::call::{Answer, CallFor, OutgoingCall};
use crate::rpc::result::ResultText;
use crate::settings::Settings;
use crate::tasks::task::Tasks;
use crate::time::Now;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::subscription::LISTEN;
use crate::upstream::table::Upstreams;

/// The tables of upstreams, and the leaves of the engine that the gateway works on.
pub(crate) struct Gateway<'a> {
    pub(crate) upstreams: &'a mut Upstreams,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) outgoing: &'a mut OutgoingRequests,
    pub(crate) timers: &'a mut TimerQueue,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) now: Now,
    pub(crate) seed: Seed,
    /// Whether the daemon shuts down.
    pub(crate) drains: bool,
}

impl Gateway<'_> {
    /// Appends a consequence.
    pub(super) fn effect(&mut self, effect: GatewayEffect) {
        self.upstreams.effects.push_back(effect);
    }

    /// Answers a request with a result.
    pub(super) fn answer(&mut self, reply: Reply, result: impl FnOnce(&mut Writer<'_>)) {
        self.upstreams.answer(self.outbox, reply, result);
    }

    /// A peer answers a request of the gateway, or one that the gateway has passed on.
    pub(crate) fn on_answer(
        &mut self,
        conn: ConnId,
        number: CallId,
        call: &OutgoingCall,
        answer: Result<ResultText<'_>, Raw<'_>>,
    ) {
        let outcome = answer.map(|result| result.raw());
        match call.receiver() {
            CallFor::Relayed(job) => self.on_relayed_answer(job, answer),
            CallFor::Upstream(id) if &*call.method == LISTEN => self.on_listen_ended(id, number),
            CallFor::Upstream(id) => self.on_instance_answer(id, number, &call.method, outcome),
            CallFor::RelayedPoll(job) => self.on_server_task_polled(job, outcome),
            CallFor::RelayedCancel(job) => self.on_relayed_task_cancelled(job),
            CallFor::Question => self.on_client_answered(conn, number, Answer::of(outcome)),
            CallFor::Caller(_)
            | CallFor::NoReceiver
            | CallFor::Elsewhere(_)
            | CallFor::Poll(_)
            | CallFor::Fetch(_)
            | CallFor::Cancel => {}
        }
    }
}
