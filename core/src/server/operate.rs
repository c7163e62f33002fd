//! `ceased/reload`, `ceased/restart`, `ceased/drain` and `ceased/shutdown`: orders of an operator to the host.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::action::{Action, OperatorOrder};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::ConnId;
use crate::outbox::requests::Reply;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::upstream::gateway::Gateway;

impl Engine {
    /// Hands an order to the host and answers at once; a peer that is no operator is refused. The
    /// outcome of a reload is in `ceased/status`.
    pub(crate) fn operate(&mut self, reply: Reply, order: OperatorOrder) {
        let (conn, identity) = (reply.conn, self.operator(reply.conn, order));
        match identity {
            Ok(identity) => {
                self.outbox.push(Action::Operate { conn, identity, order });
                self.upstreams.answer(&mut self.outbox, reply, |json| {
                    json.raw("{}");
                });
            }
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    /// The error for work that is asked for while the daemon takes no more.
    pub(crate) fn no_further_work(&self) -> Option<ErrorObject> {
        let message = "the daemon takes no further work: it ends when the running work has ended";
        self.retires.then(|| ErrorObject::new(code::SHUTTING_DOWN, message))
    }

    /// `ceased/restart`: begins the processes of a server or an agent anew.
    pub(crate) fn restart_server(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match self.restart(reply.conn, params) {
            Ok(processes) => self.upstreams.answer(&mut self.outbox, reply, |json| {
                json.raw("{\"instances\":").display(processes).raw("}");
            }),
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    fn restart(&mut self, conn: ConnId, params: Option<&Params<'_>>) -> Result<usize, ErrorObject> {
        let order = OperatorOrder::Restart;
        let identity = self.operator(conn, order)?;
        let [name] = params::find(params, ["server"])?;
        let name = params::text("server", name)?;
        let operate = Action::Operate { conn, identity, order };
        if let Some(count) = self.at_server(&name, |gateway| gateway.restart(&name)) {
            self.outbox.push(operate);
            return Ok(count);
        }
        let processes = self.supervisor().restart(&name);
        let processes = processes.ok_or_else(|| self.no_such_name(&name))?;
        self.outbox.push(operate);
        Ok(processes)
    }

    /// `ceased/approve`: the tools of a server that differ from the approved ones, and their approval
    /// (UPS-19).
    pub(crate) fn approve_tools(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match self.approve(reply.conn, params) {
            Ok((changes, is_approved)) => self.upstreams.answer(&mut self.outbox, reply, |json| {
                json.raw("{\"approved\":").display(is_approved).raw(&changes).raw("}");
            }),
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    fn approve(
        &mut self,
        conn: ConnId,
        params: Option<&Params<'_>>,
    ) -> Result<(String, bool), ErrorObject> {
        let order = OperatorOrder::Approve;
        let identity = self.operator(conn, order)?;
        let [name, revision] = params::find(params, ["server", "revision"])?;
        let name = params::text("server", name)?;
        let wrong = || ErrorObject::invalid_params("params.revision must be a whole number");
        let shown = revision.map(|it| it.get().parse().map_err(|_| wrong())).transpose()?;
        let answer = self.at_server(&name, |gateway| gateway.approve(&name, shown));
        let answer = answer.ok_or_else(|| self.no_such_name(&name))??;
        if answer.1 {
            self.outbox.push(Action::Operate { conn, identity, order });
        }
        Ok(answer)
    }

    /// Has the gateway act on a server; `None` if there is none of this name.
    fn at_server<R>(&mut self, name: &str, act: impl FnOnce(&mut Gateway<'_>) -> R) -> Option<R> {
        self.upstreams.server(name)?;
        Some(act(&mut self.gateway()))
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

    /// The identity of the operator on a connection.
    fn operator(&self, conn: ConnId, order: OperatorOrder) -> Result<Identity, ErrorObject> {
        let identity = self.outbox.identity(conn).filter(|_| self.outbox.is_operator(conn));
        identity.cloned().ok_or_else(|| {
            let message = format!(
                "{} is for operators: root, the user that the daemon runs as, and `operators` of [daemon], each outside of jobs",
                order.method()
            );
            ErrorObject::new(code::FORBIDDEN, message)
        })
    }
}
