//! Connections that see some servers alone, and the server that shows through to one.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::connection::SessionPhase;
use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::policy::access::Item;
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Params};
use crate::upstream::rewrite::elements;
use crate::upstream::scope::Scope;
use crate::upstream::spoken::SpokenEra;
use crate::upstream::table::{KnownServer, Upstreams};

/// The era of a client: that of its session, or of the requests that it makes without one.
pub(crate) fn era_of(outbox: &Outbox, client: ConnId) -> SpokenEra {
    match outbox.connection(client).map(|peer| peer.phase) {
        Some(SessionPhase::Fresh) => SpokenEra::Modern,
        Some(SessionPhase::Ready) | None => SpokenEra::Session,
    }
}

impl Upstreams {
    /// `ceased/scope`: limits a connection to some servers or to a profile, before its handshake.
    pub(crate) fn narrow(
        &self,
        outbox: &mut Outbox,
        conn: ConnId,
        params: Option<&Params<'_>>,
    ) -> Result<(), ErrorObject> {
        let [names, profile] = params::find(params, ["servers", "profile"])?;
        if let Some(profile) = profile {
            let profile = params::text("profile", Some(profile))?;
            return narrow_to_profile(outbox, conn, &profile);
        }
        let names = names.and_then(|names| texts(names.get()));
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let message = "params.servers must be an array of names of servers";
            return Err(ErrorObject::invalid_params(message));
        };
        // TSK-39: a server that a peer may not use is for it as if it were not there.
        let caller = outbox.caller(conn);
        let offered = self.servers.iter();
        let offered = offered.filter(|server| caller.sees(Item::Server(&server.server)));
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
            connection.scope = Some(Box::new(Scope::Servers(names)));
        }
        Ok(())
    }

    /// The server that shows through to a connection: the only one that there is, if it is
    /// transparent, or the only one of the connection's scope.
    pub(crate) fn shown_through(&self, outbox: &Outbox, conn: ConnId) -> Option<&KnownServer> {
        let only = match (outbox.scope_of(conn), self.servers.as_slice()) {
            (Some(scope @ Scope::Servers(_)), _) => self.server(scope.only()?),
            (Some(Scope::Profile(_)) | None, [only]) if only.server.transparent => Some(only),
            (Some(Scope::Profile(_)) | None, _) => None,
        }?;
        if !outbox.caller(conn).sees(Item::Server(&only.server)) {
            return None;
        }
        Some(self.state_for(only, outbox.identity(conn)?, era_of(outbox, conn)))
    }

    /// Servers that the peer of a connection sees.
    pub(super) fn seen_servers(
        &self,
        outbox: &Outbox,
        conn: ConnId,
    ) -> impl Iterator<Item = &KnownServer> {
        let caller = outbox.caller(conn);
        let era = era_of(outbox, conn);
        let all = self.servers.iter();
        all.filter(move |server| caller.sees(Item::Server(&server.server)))
            .map(move |server| self.state_for(server, caller.identity, era))
    }
}

/// Limits a connection to a profile.
fn narrow_to_profile(outbox: &mut Outbox, conn: ConnId, name: &str) -> Result<(), ErrorObject> {
    let caller = outbox.caller(conn);
    // TSK-39: a profile that is not for a peer is for it as if it were not there.
    if !caller.has_profile(name) {
        let offered: Vec<&str> = caller.own_profiles().map(|profile| &*profile.name).collect();
        let there = match offered.is_empty() {
            true => String::from("none is for you"),
            false => alloc::format!("there are {}", offered.join(", ")),
        };
        let message = alloc::format!("there is no profile {:?}; {there}", outbox.clean(name));
        return Err(ErrorObject::invalid_params(message));
    }
    if let Some(connection) = outbox.connection_mut(conn) {
        connection.scope = Some(Box::new(Scope::Profile(name.into())));
    }
    Ok(())
}

/// The strings of an array; `None` if it is none, or has something else.
fn texts(array: &str) -> Option<Vec<Box<str>>> {
    if !array.starts_with('[') {
        return None;
    }
    let text = |element: &str| serde_json::from_str::<String>(element).ok().map(Into::into);
    elements(array).into_iter().map(text).collect()
}
