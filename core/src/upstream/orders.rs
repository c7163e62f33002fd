//! Restarts of servers and agents by an operator.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::{Action, OperatorOrder};
use crate::engine::Engine;
use crate::ids::InstanceId;
use crate::outbox::requests::Reply;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::upstream::audience::Audience;
use crate::upstream::spoken::Era;
use crate::upstream::table::{Instance, Key};

impl Engine {
    /// `ceased/restart`: new requests of a server go to fresh instances; those that it has finish
    /// theirs (UPS-06). A server that failed to start may start again at once. The same for the
    /// processes of an agent.
    pub(crate) fn restart_server(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let conn = reply.conn;
        let operator =
            self.outbox.identity(conn).cloned().filter(|_| self.outbox.is_operator(conn));
        let Some(identity) = operator else {
            let message = "ceased/restart is for operators: root, the user that the daemon runs as, and `operators` of [daemon], each outside of jobs";
            return self.outbox.fail(reply, &ErrorObject::new(code::FORBIDDEN, message));
        };
        let name = params::find(params, ["server"]).and_then(|[it]| params::text("server", it));
        let name = match name {
            Ok(name) => name,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let Some(server) = self.upstreams.server(&name) else {
            let Some(processes) = self.restart_agent(&name) else {
                let error = self.no_such_name(&name);
                return self.outbox.fail(reply, &error);
            };
            self.outbox.push(Action::Operate { conn, identity, order: OperatorOrder::Restart });
            return self.answer(reply, |json| {
                json.raw("{\"instances\":").display(processes).raw("}");
            });
        };
        let server = Arc::clone(&server.server);
        self.upstreams.forgive(&name);
        self.outbox.push(Action::Operate { conn, identity, order: OperatorOrder::Restart });
        let open: Vec<(InstanceId, Key, Era, Option<Audience>)> = self
            .upstreams
            .instances
            .iter()
            .filter(|(_, instance)| instance.server == server && instance.is_open())
            .map(|(id, of)| (*id, of.key.clone(), of.era, of.audience.clone()))
            .collect();
        for (id, key, era, audience) in &open {
            if let Some(state) = self.upstreams.server_mut(&name) {
                state.counts.note_restart();
            }
            self.drain_instance(*id, "an operator restarted it");
            let is_free = self.find_instance(&server, key, *era).is_none();
            let has_room = self.upstreams.count(&name) < server.max_instances.max(1);
            if *key != Key::Call && is_free && has_room {
                let audience = audience.clone();
                let instance = Instance::new(Arc::clone(&server), key.clone(), *era);
                self.upstreams.insert(Instance { audience, ..instance });
            }
        }
        self.start_queued();
        self.keep_warm(&server);
        self.answer(reply, |json| {
            json.raw("{\"instances\":").display(open.len()).raw("}");
        });
    }

    /// The error for a name that neither a server nor an agent has.
    fn no_such_name(&self, name: &str) -> ErrorObject {
        let servers = self.upstreams.servers.iter().map(|server| &*server.server.name);
        let agents = self.settings.agents.iter().map(|agent| &*agent.name);
        let names: Vec<&str> = servers.chain(agents).collect();
        let there = match names.is_empty() {
            true => String::from("the daemon has none"),
            false => format!("there are {}", names.join(", ")),
        };
        let message = format!("there is no server or agent {:?}; {there}", self.outbox.clean(name));
        ErrorObject::invalid_params(message)
    }
}
