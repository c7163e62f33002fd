//! Eras: the form in which a server is spoken to, a session or requests that carry their own
//! metadata, and the first message to a process of it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::{ConnId, InstanceId};
use crate::protocol::revision::{Dialect, MCP_2026_07_28};
use crate::upstream::gateway::Gateway;
use crate::upstream::narrow::era_of;
use crate::upstream::server::UpstreamServer;
use crate::upstream::spoken::{Revision, SpokenEra};
use crate::upstream::table::{Instance, InstanceKey, InstancePhase};

impl Gateway<'_> {
    /// The era in which a new instance for requests of a client is wanted.
    ///
    /// On an instance that several clients share, only a request of 2026-07-28 names the
    /// capabilities of its client, so that one can be asked (UPS-12).
    pub(crate) fn wanted_era(&self, key: &InstanceKey, client: ConnId) -> SpokenEra {
        match key {
            InstanceKey::Client(_) | InstanceKey::Call => era_of(self.outbox, client),
            InstanceKey::Owner(_) => SpokenEra::Modern,
        }
    }

    /// The era of the first message to a process of a server.
    pub(crate) fn opening_era(&self, server: &UpstreamServer, wanted: SpokenEra) -> SpokenEra {
        match &server.revision {
            Revision::Stateless => SpokenEra::Modern,
            Revision::Session | Revision::Exactly(_) => SpokenEra::Session,
            Revision::Auto => {
                self.upstreams.server(&server.name).and_then(|state| state.era).unwrap_or(wanted)
            }
        }
    }

    /// The revision that an instance is asked for in `initialize`.
    pub(crate) fn asked_revision(&self, instance: &Instance) -> &'static str {
        let newest = Dialect::NEWEST_WITH_INITIALIZE;
        let asked = match (&instance.server.revision, &instance.key) {
            (Revision::Exactly(revision), _) => Dialect::find(revision),
            (_, InstanceKey::Client(client))
                if era_of(self.outbox, *client) == SpokenEra::Session =>
            {
                self.outbox.connection(*client).map(|peer| peer.dialect)
            }
            (_, InstanceKey::Client(_) | InstanceKey::Owner(_) | InstanceKey::Call) => None,
        };
        asked.unwrap_or(newest).revision
    }

    /// The era of an instance after its handshake.
    pub(crate) fn settled_era(&self, instance: &Instance) -> Option<SpokenEra> {
        let conn = instance.conn.filter(|_| instance.is_in_session())?;
        Some(match self.outbox.dialect(conn) == &MCP_2026_07_28 {
            true => SpokenEra::Modern,
            false => SpokenEra::Session,
        })
    }

    /// Whether the requests of a client reach a server in the revision without sessions.
    pub(crate) fn reaches_stateless(&self, server: &Arc<UpstreamServer>, client: ConnId) -> bool {
        let key = self.key_of(server, client, &self.outbox.identity_of(client));
        let wanted = self.wanted_era(&key, client);
        let instance = self.find_instance(server, &key, wanted);
        let instance = instance.and_then(|id| self.upstreams.instances.get(&id));
        let settled = instance.and_then(|instance| self.settled_era(instance));
        settled.unwrap_or_else(|| self.opening_era(server, wanted)) == SpokenEra::Modern
    }

    /// The open instance of a server for these requests. An instance for a single call is one whose
    /// era is that of the call's client, as far as the server has both.
    pub(crate) fn find_instance(
        &self,
        server: &UpstreamServer,
        key: &InstanceKey,
        wanted: SpokenEra,
    ) -> Option<InstanceId> {
        let opening = self.opening_era(server, wanted);
        let fits = |instance: &Instance| {
            instance.era == wanted || self.opening_era(server, instance.era) == opening
        };
        self.upstreams
            .open_for(server, key)
            .find(|(_, instance)| *key != InstanceKey::Call || fits(instance))
            .map(|(id, _)| id)
    }

    /// A client that has made requests without a session begins one: its own instances without
    /// sessions give way to others, since a server could not ask it through them.
    pub(crate) fn renew_own_instances(&mut self, client: ConnId) {
        let own = self.upstreams.instances.iter().filter(|(_, instance)| {
            instance.key == InstanceKey::Client(client)
                && instance.is_open()
                && self.opening_era(&instance.server, SpokenEra::Session) == SpokenEra::Session
                && self.opening_era(&instance.server, instance.era) == SpokenEra::Modern
        });
        let own: Vec<InstanceId> = own.map(|(id, _)| *id).collect();
        for id in own {
            let Some(instance) = self.upstreams.instances.get_mut(&id) else { continue };
            instance.era = SpokenEra::Session;
            if let Some(audience) = &mut instance.audience {
                audience.era = SpokenEra::Session;
            }
            match instance.phase {
                InstancePhase::Queued | InstancePhase::Starting => {}
                InstancePhase::Probing | InstancePhase::Initializing => self.start_again(id),
                InstancePhase::Ready | InstancePhase::Draining | InstancePhase::Ending => {
                    self.drain_instance(id, "its client has begun a session");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_written_alike() {
        for word in Revision::words() {
            assert_eq!(Revision::of(word).as_ref().map(Revision::as_str), Some(word));
        }
        assert_eq!(Revision::words().count(), 7);
        assert_eq!(Revision::of("2024-10-07"), None);
    }
}
