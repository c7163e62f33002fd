//! Connections that see some servers alone, and the server that shows through to one.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::connection::Phase;
use crate::identity::Identity;
use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Params};
use crate::upstream::rewrite::elements;
use crate::upstream::scope::Scope;
use crate::upstream::spoken::Era;
use crate::upstream::table::{Server, Upstreams};

/// The era of a client: that of its session, or of the requests that it makes without one.
pub(crate) fn era_of(outbox: &Outbox, client: ConnId) -> Era {
    match outbox.connection(client).map(|peer| peer.phase) {
        Some(Phase::Fresh) => Era::Modern,
        Some(Phase::Ready) | None => Era::Session,
    }
}

impl Upstreams {
    /// `ceased/scope`: limits a connection to some servers, before its handshake.
    pub(crate) fn narrow(
        &self,
        outbox: &mut Outbox,
        conn: ConnId,
        params: Option<&Params<'_>>,
    ) -> Result<(), ErrorObject> {
        let [names] = params::find(params, ["servers"])?;
        let names = names.and_then(|names| texts(names.get()));
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let message = "params.servers must be an array of names of servers";
            return Err(ErrorObject::invalid_params(message));
        };
        // TSK-39: a server that a peer may not use is for it as if it were not there.
        let identity = outbox.identity_of(conn);
        let offered = self.servers.iter();
        let offered = offered.filter(|server| server.server.allow.permits(&identity));
        let offered: Vec<&str> = offered.map(|server| &*server.server.name).collect();
        if let Some(unknown) = names.iter().find(|name| !offered.contains(&&***name)) {
            let unknown = outbox.clean(unknown);
            let there = match offered.is_empty() {
                true => String::from("none is offered to you"),
                false => alloc::format!("there are {}", offered.join(", ")),
            };
            let message = alloc::format!("there is no server {unknown:?}; {there}");
            return Err(ErrorObject::invalid_params(message));
        }
        if let Some(connection) = outbox.connection_mut(conn) {
            connection.scope = Some(Box::new(Scope(names)));
        }
        Ok(())
    }

    /// The server that shows through to a connection: the only one that there is, if it is
    /// transparent, or the only one of the connection's scope.
    pub(crate) fn shown_through(&self, outbox: &Outbox, conn: ConnId) -> Option<&Server> {
        let only = match (outbox.scope_of(conn), self.servers.as_slice()) {
            (Some(scope), _) => self.server(scope.only()?),
            (None, [only]) if only.server.transparent => Some(only),
            (None, _) => None,
        }?;
        Some(self.state_for(only, outbox.identity(conn)?, era_of(outbox, conn)))
    }

    /// Servers that the peer of a connection sees.
    pub(super) fn seen_servers(
        &self,
        outbox: &Outbox,
        conn: ConnId,
    ) -> impl Iterator<Item = &Server> {
        let identity = outbox.identity_of(conn);
        let scope = outbox.scope_of(conn);
        let era = era_of(outbox, conn);
        let all = self.servers.iter();
        all.filter(move |server| is_permitted(server, outbox.identity(conn), scope))
            .map(move |server| self.state_for(server, &identity, era))
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
