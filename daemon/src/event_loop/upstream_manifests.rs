//! Manifests of upstream servers: read when a configuration is taken over, and kept when they
//! change (UPS-09).

use ceased_core::event::Event;
use ceased_core::time::Now;
use ceased_core::upstream::approval::Approval;
use ceased_core::upstream::interface::UpstreamEvent;
use ceased_core::upstream::manifest::Manifest;
use ceased_core::upstream::server::{Pin, UpstreamServer};

use super::server::Server;
use crate::tools::server_key::{approval_key, server_key};

impl Server {
    /// Hands the kept approvals and manifests of the servers in the settings to the engine.
    pub(super) fn load_manifests(&mut self, now: Now) {
        let Some(kept) = &self.manifests else { return };
        for server in &self.settings.servers {
            let pinned = approval_key(server).filter(|_| server.pin != Pin::Off);
            for approval in pinned.map(|key| kept.load_approvals(&key)).unwrap_or_default() {
                let event =
                    UpstreamEvent::Approved { server: &server.name, approval: approval.as_ref() };
                self.engine.handle(now, Event::Upstream(event), &mut self.actions);
            }
            for manifest in server_key(server).map(|key| kept.load(&key)).unwrap_or_default() {
                let known = UpstreamEvent::Known { server: &server.name, manifest: &manifest };
                self.engine.handle(now, Event::Upstream(known), &mut self.actions);
            }
        }
    }

    /// Keeps a manifest. Without a state directory, as for `ceased wrap`, nothing is kept.
    pub(super) fn save_manifest(&mut self, server: &UpstreamServer, manifest: Manifest) {
        if let (Some(kept), Some(key)) = (&mut self.manifests, server_key(server)) {
            kept.save(&key, manifest);
        }
    }

    /// Keeps approved tools. Without a state directory they last as long as the process.
    pub(super) fn save_approval(&mut self, server: &UpstreamServer, approval: Approval) {
        if let (Some(kept), Some(key)) = (&mut self.manifests, approval_key(server)) {
            kept.save_approval(&key, &server.name, approval);
        }
    }
}
