//! Tables of a server's state by audience.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::identity::Identity;
use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::policy::access::Item;
use crate::upstream::audience::ListAudience;
use crate::upstream::narrow::era_of;
use crate::upstream::server::UpstreamServer;
use crate::upstream::spoken::SpokenEra;
use crate::upstream::table::{KnownServer, Upstreams};

/// Audiences of one server that are kept at most; those without an instance are forgotten first.
const AUDIENCES_MAX: usize = 256;

impl Upstreams {
    /// A server as an audience knows it, or else as it is known to all.
    pub(crate) fn state(
        &self,
        name: &str,
        audience: Option<&ListAudience>,
    ) -> Option<&KnownServer> {
        let own = audience.and_then(|audience| self.personal.get(name)?.get(audience));
        own.or_else(|| self.server(name))
    }

    /// A server as an audience knows it, to be changed.
    pub(crate) fn state_mut(
        &mut self,
        name: &str,
        audience: Option<&ListAudience>,
    ) -> Option<&mut KnownServer> {
        let Some(audience) = audience else { return self.server_mut(name) };
        let common = self.server(name)?;
        let (server, known) = (Arc::clone(&common.server), common.manifest.clone());
        let instances = &self.instances;
        let states = self.personal.entry(server.name.clone()).or_default();
        if states.len() >= AUDIENCES_MAX && !states.contains_key(audience) {
            let has_none = |of: &ListAudience| {
                let mut all = instances.values().filter(|of| of.server == server);
                !all.any(|instance| instance.audience.as_ref() == Some(of))
            };
            let unused = states.keys().find(|of| has_none(of)).cloned();
            if let Some(unused) = unused {
                states.remove(&unused);
            }
        }
        Some(states.entry(audience.clone()).or_insert_with(|| {
            let mut state = KnownServer::new(server);
            if let Some(known) = known {
                state.take_manifest(known);
            }
            state
        }))
    }

    /// A server as the clients of an identity and era know it.
    pub(crate) fn state_for<'a>(
        &'a self,
        server: &'a KnownServer,
        identity: &Identity,
        era: SpokenEra,
    ) -> &'a KnownServer {
        let audience = ListAudience::of(&server.server, identity, era);
        self.state(&server.server.name, audience.as_ref()).unwrap_or(server)
    }

    /// A server as it is known to all, and to each audience that an identity belongs to; to every
    /// audience without one.
    pub(crate) fn states(
        &self,
        name: &str,
        of: Option<&Identity>,
    ) -> impl Iterator<Item = &KnownServer> {
        let personal = self.personal.get(name).into_iter().flatten();
        let personal =
            personal.filter(move |(audience, _)| of.is_none_or(|of| audience.identity == *of));
        self.server(name).into_iter().chain(personal.map(|(_, state)| state))
    }

    /// Forgets the failures of a server, of all audiences.
    pub(crate) fn forgive(&mut self, name: &str) {
        let personal = self.personal.get_mut(name).into_iter().flat_map(|all| all.values_mut());
        let common = self.servers.iter_mut().filter(|server| &*server.server.name == name);
        for state in common.chain(personal) {
            (state.failures, state.failure) = (0, None);
            (state.not_before, state.era) = (crate::time::Instant::ZERO, None);
        }
    }
}

/// The audience that a client of a server belongs to.
pub(super) fn audience_of(
    outbox: &Outbox,
    server: &UpstreamServer,
    client: ConnId,
) -> Option<ListAudience> {
    ListAudience::of(server, &outbox.identity_of(client), era_of(outbox, client))
}

/// The clients of an audience.
pub(super) fn clients_of(
    outbox: &Outbox,
    server: &UpstreamServer,
    audience: Option<&ListAudience>,
) -> Vec<ConnId> {
    let all = outbox.connections().iter();
    let is_one = |conn: ConnId| {
        let is_seen = outbox.caller(conn).sees(Item::Server(server));
        is_seen && audience_of(outbox, server, conn).as_ref() == audience
    };
    let own = all.filter(|(conn, _)| is_one(**conn));
    own.map(|(conn, _)| *conn).collect()
}
