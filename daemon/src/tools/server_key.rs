//! Keys of the files that are kept of a server.

use std::os::unix::ffi::OsStrExt as _;

use ceased_core::upstream::server::UpstreamServer;

use crate::remote::Endpoint;
use crate::store::manifests;
use crate::tools::upstream_launch::UpstreamLaunch;

/// Key of the manifests of a server; `None` for one without a command.
pub(crate) fn server_key(server: &UpstreamServer) -> Option<String> {
    if let Some(endpoint) = Endpoint::of(server) {
        return Some(manifests::key_of_url(&format!("{:?}", endpoint.url)));
    }
    let how = UpstreamLaunch::of(server)?;
    Some(manifests::key(&how.launch, &format!("{:?}", how.run_as)))
}

/// Key of the approvals of a server; `None` for one without a command.
pub(crate) fn approval_key(server: &UpstreamServer) -> Option<String> {
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
