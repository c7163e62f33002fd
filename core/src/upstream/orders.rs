//! Restarts of servers by an operator.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::InstanceId;
use crate::upstream::audience::ListAudience;
use crate::upstream::gateway::Gateway;
use crate::upstream::spoken::SpokenEra;
use crate::upstream::table::{Instance, InstanceKey};

impl Gateway<'_> {
    /// New requests of a server go to fresh instances; those that it has finish theirs (UPS-06). A
    /// server that failed to start may start again at once. Returns the number of its instances.
    pub(crate) fn restart(&mut self, name: &str) -> usize {
        let Some(server) = self.upstreams.server(name) else { return 0 };
        let server = Arc::clone(&server.server);
        self.upstreams.forgive(name);
        let open: Vec<(InstanceId, InstanceKey, SpokenEra, Option<ListAudience>)> = self
            .upstreams
            .instances
            .iter()
            .filter(|(_, instance)| instance.server == server && instance.is_open())
            .map(|(id, of)| (*id, of.key.clone(), of.era, of.audience.clone()))
            .collect();
        for (id, key, era, audience) in &open {
            if let Some(state) = self.upstreams.server_mut(name) {
                state.counts.note_restart();
            }
            self.drain_instance(*id, "an operator restarted it");
            let is_free = self.find_instance(&server, key, *era).is_none();
            let has_room = self.upstreams.count(name) < server.max_instances.max(1);
            if *key != InstanceKey::Call && is_free && has_room {
                let audience = audience.clone();
                let instance = Instance::new(Arc::clone(&server), key.clone(), *era);
                self.upstreams.insert(Instance { audience, ..instance });
            }
        }
        self.start_queued();
        self.keep_warm(&server);
        open.len()
    }
}
