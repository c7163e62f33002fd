//! Connections that see some servers alone, and the server that shows through to one.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::ConnId;
use crate::outbox::requests::Reply;
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Params};
use crate::upstream::rewrite::elements;
use crate::upstream::scope::Scope;
use crate::upstream::table::Server;

impl Engine {
    /// `ceased/scope`: limits a connection to some servers, before its handshake.
    pub(crate) fn narrow(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let names = match params::find(params, ["servers"]) {
            Ok([Some(names)]) => texts(names.get()),
            Ok([None]) => None,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let message = "params.servers must be an array of names of servers";
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        };
        // TSK-39: a server that a peer may not use is for it as if it were not there.
        let identity = self.outbox.identity_of(reply.conn);
        let offered = self.upstreams.servers.iter();
        let offered = offered.filter(|server| server.server.allow.permits(&identity));
        let offered: Vec<&str> = offered.map(|server| &*server.server.name).collect();
        if let Some(unknown) = names.iter().find(|name| !offered.contains(&&***name)) {
            let unknown = self.outbox.clean(unknown);
            let there = match offered.is_empty() {
                true => String::from("none is offered to you"),
                false => alloc::format!("there are {}", offered.join(", ")),
            };
            let message = alloc::format!("there is no server {unknown:?}; {there}");
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        }
        if let Some(connection) = self.outbox.connection_mut(reply.conn) {
            connection.scope = Some(Box::new(Scope(names)));
        }
        self.answer(reply, |json| {
            json.raw("{}");
        });
    }

    /// The server that shows through to a connection: the only one that there is, if it is
    /// transparent, or the only one of the connection's scope.
    pub(crate) fn shown_through(&self, conn: ConnId) -> Option<&Server> {
        let only = match (self.outbox.scope_of(conn), self.upstreams.servers.as_slice()) {
            (Some(scope), _) => self.upstreams.server(scope.only()?),
            (None, [only]) if only.server.transparent => Some(only),
            (None, _) => None,
        }?;
        Some(self.upstreams.state_for(only, self.outbox.identity(conn)?, self.era_of(conn)))
    }

    /// Servers that the peer of a connection sees.
    pub(crate) fn seen_servers(&self, conn: ConnId) -> impl Iterator<Item = &Server> {
        let identity = self.outbox.identity_of(conn);
        let scope = self.outbox.scope_of(conn);
        let era = self.era_of(conn);
        let all = self.upstreams.servers.iter();
        all.filter(move |server| is_permitted(server, self.outbox.identity(conn), scope))
            .map(move |server| self.upstreams.state_for(server, &identity, era))
    }
}

/// Whether a peer sees a server: it may use it, and the server is in the scope of its connection.
fn is_permitted(server: &Server, peer: Option<&Identity>, scope: Option<&Scope>) -> bool {
    let is_within = scope.is_none_or(|scope| scope.has(&server.server.name));
    is_within && server.server.allow.permits(peer.unwrap_or(&Identity::Anonymous))
}

/// The strings of an array; `None` if it is none, or has something else.
fn texts(array: &str) -> Option<Vec<Box<str>>> {
    if !array.starts_with('[') {
        return None;
    }
    let text = |element: &str| serde_json::from_str::<String>(element).ok().map(Into::into);
    elements(array).into_iter().map(text).collect()
}
