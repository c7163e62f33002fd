//! Manifests of upstream servers: read when a configuration is taken over, and kept when they
//! change (UPS-09).

use std::os::unix::ffi::OsStrExt as _;

use ceased_core::event::Event;
use ceased_core::time::Now;
use ceased_core::upstream::approval::Approval;
use ceased_core::upstream::interface::UpstreamEvent;
use ceased_core::upstream::manifest::Manifest;
use ceased_core::upstream::server::{Pin, UpstreamServer};

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

/// Key of the approvals of a server; `None` for one without a command.
fn approval_key(server: &UpstreamServer) -> Option<String> {
    if let Some(endpoint) = Endpoint::of(server) {
        let url = format!("{:?}", endpoint.url);
        return Some(manifests::approval_key(&server.name, &[url.as_bytes()], ""));
    }
    let UpstreamLaunch { launch, run_as } = UpstreamLaunch::of(server)?;
    let cwd = format!("{:?}", launch.cwd);
    let argv = launch.argv.iter().map(|text| text.as_bytes());
    let program: Vec<&[u8]> = [cwd.as_bytes()].into_iter().chain(argv).collect();
    Some(manifests::approval_key(&server.name, &program, &format!("{run_as:?}")))
}

impl Server {
    /// Hands the kept approvals and manifests of the servers in the settings to the engine.
    pub(super) fn load_manifests(&mut self, now: Now) {
        let Some(kept) = &self.upstreams.manifests else { return };
        for server in &self.settings.servers {
            let pinned = approval_key(server).filter(|_| server.pin != Pin::Off);
            for approval in pinned.map(|key| kept.load_approvals(&key)).unwrap_or_default() {
                let event =
                    UpstreamEvent::Approved { server: &server.name, approval: approval.as_ref() };
                self.engine.handle(now, Event::Upstream(event), &mut self.actions);
            }
            for manifest in key(server).map(|key| kept.load(&key)).unwrap_or_default() {
                let known = UpstreamEvent::Known { server: &server.name, manifest: &manifest };
                self.engine.handle(now, Event::Upstream(known), &mut self.actions);
            }
        }
    }

    /// Keeps a manifest. Without a state directory, as for `ceased wrap`, nothing is kept.
    pub(super) fn save_manifest(&mut self, server: &UpstreamServer, manifest: Manifest) {
        if let (Some(kept), Some(key)) = (&mut self.upstreams.manifests, key(server)) {
            kept.save(&key, manifest);
        }
    }

    /// Keeps approved tools. Without a state directory they last as long as the process.
    pub(super) fn save_approval(&mut self, server: &UpstreamServer, approval: Box<Approval>) {
        if let (Some(kept), Some(key)) = (&mut self.upstreams.manifests, approval_key(server)) {
            kept.save_approval(&key, &server.name, approval);
        }
    }
}
