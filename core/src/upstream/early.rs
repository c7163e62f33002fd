//! Messages of servers to a session that has not said `notifications/initialized`: they are held
//! until then.
//!
//! A server behind this engine finishes its own handshake on its own hop, often before the client
//! has the answer to its `initialize`. A client that makes a request is taken as initialized.

use alloc::vec::Vec;

use crate::ids::{ConnId, RequestId};
use crate::outbox::requests::{Reply, Topic};
use crate::outgoing::call::{OutgoingRequest, Refusal};
use crate::upstream::early_messages::EarlyMessages;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::questions::refuse_question;
use crate::upstream::table::Upstreams;

impl Upstreams {
    /// A session begins: requests and changes of servers wait until its client is initialized.
    pub(crate) fn hold_early(&mut self, client: ConnId) {
        if !self.is_empty() {
            self.early.insert(client, EarlyMessages::default());
        }
    }

    /// Holds a change of a list; false for a client that is initialized.
    pub(crate) fn hold_topic(&mut self, client: ConnId, topic: Topic) -> bool {
        let early = self.early.get_mut(&client);
        early.is_some_and(|early| {
            early.topics.insert(topic);
            true
        })
    }
}

impl Gateway<'_> {
    /// A client is initialized: it gets the messages that were held for it.
    pub(crate) fn release_early(&mut self, client: ConnId) {
        let Some(early) = self.upstreams.early.remove(&client) else { return };
        for (reply, request) in early.questions {
            match self.outbox.connections().contains_key(&reply.conn) {
                true => self.ask_client(reply, client, request),
                false => self.outbox.forget(reply),
            }
        }
        for topic in early.topics {
            self.effect(GatewayEffect::Announce { topic, clients: [client].into() });
        }
        early.notes.iter().for_each(|note| self.notify(client, note));
    }

    /// Holds a request of a server; hands it back for a client that is initialized.
    pub(crate) fn hold_question(
        &mut self,
        reply: Reply,
        client: ConnId,
        request: OutgoingRequest,
    ) -> Option<(Reply, OutgoingRequest)> {
        let max = self.settings.limits.calls_max;
        let Some(early) = self.upstreams.early.get_mut(&client) else {
            return Some((reply, request));
        };
        if early.questions.len() >= max {
            refuse_question(self.outbox, reply, Refusal::TooMany);
        } else {
            early.questions.push_back((reply, request));
        }
        None
    }

    /// A server withdraws a request that is held; true if it is (CAN-08: it has no answer).
    pub(crate) fn withdraw_early(&mut self, conn: ConnId, request: &RequestId) -> bool {
        for early in self.upstreams.early.values_mut() {
            let held = { early.questions.iter() }
                .position(|(reply, _)| reply.conn == conn && reply.id == *request);
            if let Some((reply, _)) = held.and_then(|at| early.questions.remove(at)) {
                self.outbox.forget(reply);
                return true;
            }
        }
        false
    }

    /// A client is gone: the requests that were held for it fail.
    pub(crate) fn lose_early(&mut self, client: ConnId) {
        let early = self.upstreams.early.remove(&client).unwrap_or_default();
        let replies: Vec<Reply> = early.questions.into_iter().map(|(reply, _)| reply).collect();
        for reply in replies {
            refuse_question(self.outbox, reply, Refusal::NoConnection);
        }
    }
}
