//! `ceased/agent`: a connection becomes the client of an agent of the configuration.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::AuditEvent;
use crate::ids::ConnId;
use crate::outbox::requests::Reply;
use crate::rpc::error::{ErrorObject, code, limit_error};
use crate::rpc::params::{self, Params};
use crate::supervisor::machine::Supervisions;
use crate::upstream::server::UpstreamServer;

impl Supervisions<'_> {
    /// Puts the named agent behind a connection, before its handshake. Everything after the answer
    /// passes to the agent, which starts with the first request.
    pub(crate) fn attach_agent(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let conn = reply.conn;
        let name = params::find(params, ["agent"]).and_then(|[it]| params::text("agent", it));
        let name = match name {
            Ok(name) => name,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        if self.drains {
            let message = "the daemon is shutting down";
            return self.outbox.fail(reply, &ErrorObject::new(code::SHUTTING_DOWN, message));
        }
        if !self.is_attachable(&reply) {
            let message = "ceased/agent must be the first request of a connection that is a stream";
            return self.outbox.invalid_request(reply, message);
        }
        let agent = match self.agent_for(conn, &name) {
            Ok(agent) => agent,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        if let Some((limit, max, whose)) = self.full_agent(conn, &agent) {
            self.outbox.counters_mut().refused += 1;
            let identity = self.outbox.identity_of(conn);
            self.outbox.note(AuditEvent::Refused { conn, identity, limit });
            let message = alloc::format!(
                "limit reached: {limit} = {max} of [[agent]] {name:?}: {whose} have as many \
                 connections to it, idle ones included"
            );
            return self.outbox.fail(reply, &limit_error(limit, max, message));
        }
        self.upstreams.answer(self.outbox, reply, |json| {
            json.raw("{}");
        });
        self.put_behind(conn, &agent);
    }

    /// The limit of an agent that is reached, its value, and the clients that reach it. A client
    /// counts while it is connected, whether or not its agent works.
    fn full_agent(
        &self,
        conn: ConnId,
        agent: &UpstreamServer,
    ) -> Option<(&'static str, usize, String)> {
        let identity = self.outbox.identity_of(conn);
        let (max, share) = (agent.max_instances, agent.max_instances_per_identity);
        if self.agents.clients_of(&agent.name) >= max {
            return Some(("max_instances", max, String::from("its clients")));
        }
        let own = self.agents.clients_of_identity(&agent.name, &identity);
        let whose = || alloc::format!("clients of {identity}");
        (own >= share).then(|| ("max_instances_per_identity", share, whose()))
    }

    /// Whether nothing but this request has happened on its connection, and frames of an agent can
    /// follow the answer. A client of HTTP has no stream for them.
    fn is_attachable(&self, reply: &Reply) -> bool {
        let connection = self.outbox.connection(reply.conn);
        let is_free = connection
            .is_some_and(|it| !it.is_lone && it.scope.is_none() && it.requests.is_empty());
        is_free && reply.batch.is_none() && self.outgoing.has_no_calls(reply.conn)
    }

    /// The agent of this name, if the peer may use it.
    fn agent_for(&self, conn: ConnId, name: &str) -> Result<Arc<UpstreamServer>, ErrorObject> {
        // TSK-39: an agent that a peer may not use is for it as if it were not there.
        let caller = self.outbox.caller(conn);
        let offered = self.settings.agents.iter().filter(|it| caller.is_in(&it.allow));
        let offered: Vec<&Arc<UpstreamServer>> = offered.collect();
        if let Some(agent) = offered.iter().find(|it| *it.name == *name) {
            return Ok(Arc::clone(agent));
        }
        let names: Vec<&str> = offered.iter().map(|it| &*it.name).collect();
        let there = match names.is_empty() {
            true => String::from("there is none"),
            false => alloc::format!("there are {}", names.join(", ")),
        };
        let message = alloc::format!("there is no agent {:?}; {there}", self.outbox.clean(name));
        Err(ErrorObject::invalid_params(message))
    }
}
