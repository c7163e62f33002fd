//! Manifests of upstream servers: read when a configuration is taken over, and kept when they
//! change (UPS-09).

use ceased_core::event::Event;
use ceased_core::time::Now;
use ceased_core::upstream::interface::UpstreamEvent;
use ceased_core::upstream::manifest::Manifest;
use ceased_core::upstream::server::UpstreamServer;

use super::server::Server;
use crate::remote::Endpoint;
use crate::store::manifests;
use crate::tools::upstream_launch::UpstreamLaunch;

/// Key of the files of a server; `None` for one without a command.
fn key(server: &UpstreamServer) -> Option<String> {
    if let Some(endpoint) = Endpoint::of(server) {
        return Some(manifests::key_of_url(&format!("{:?}", endpoint.url)));
    }
    let how = UpstreamLaunch::of(server)?;
    Some(manifests::key(&how.launch, &format!("{:?}", how.run_as)))
}

impl Server {
    /// Hands the kept manifests of the servers in the settings to the engine.
    pub(super) fn load_manifests(&mut self, now: Now) {
        let Some(kept) = &self.upstreams.manifests else { return };
        for server in &self.settings.servers {
            for manifest in key(server).map(|key| kept.load(&key)).unwrap_or_default() {
                let known = UpstreamEvent::Known { server: &server.name, manifest: &manifest };
                self.engine.handle(now, Event::Upstream(known), &mut self.actions);
            }
        }
    }

    /// Keeps a manifest. Without a state directory, as for `ceased wrap`, nothing is kept.
    pub(super) fn save_manifest(&mut self, server: &UpstreamServer, manifest: Manifest) {
        if let (Some(kept), Some(key)) = (&mut self.upstreams.manifests, key(server)) {
            kept.save(key, manifest);
        }
    }
}
