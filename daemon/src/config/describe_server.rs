//! Text description of a server, as printed by `ceased check`. Values of variables may be secrets
//! and are not shown.

use ceased_core::tool::TaskSupport;
use ceased_core::upstream::server::{OnIgnoredCancel, Share, StartWhen};

use super::Config;
use super::describe_access::describe_allow;
use super::oauth::TlsFiles;
use super::remote_server::RemoteServer;
use super::server::{Server, prefix_of};
use super::units::{heartbeat, show_duration};

impl Server {
    /// The settings of the server, a line each.
    #[cfg(feature = "cli")]
    pub(crate) fn settings_in_words(&self, config: &Config) -> Vec<String> {
        describe_server(self, config).into_iter().skip(1).map(|(_, text)| text).collect()
    }
}

/// Name and command, then the other settings.
pub(super) fn describe_server(server: &Server, config: &Config) -> Vec<(String, String)> {
    let mut rows = vec![(format!("server {}", server.name), server.runs())];
    let mut more = |text: String| rows.push((String::new(), text));
    more(format!("prefix {:?}", prefix_of(server, config.servers.len(), &config.tools)));
    more(format!("revision {}", server.revision.as_str()));
    let share = match server.share {
        Share::Connection => "share connection".to_owned(),
        Share::Identity => "share identity".to_owned(),
        Share::Call => format!("share call, warm {}", server.warm),
    };
    let start = match server.start {
        StartWhen::Lazy => "lazy",
        StartWhen::Eager => "eager",
    };
    let (max, own) = (server.max_instances, server.max_instances_per_identity);
    more(format!("{share}, start {start}"));
    more(format!("max_instances {max}, max_instances_per_identity {own}"));
    let show = |most: Option<usize>, default: &str| {
        most.map_or_else(|| default.to_owned(), |it| it.to_string())
    };
    let all = show(server.places.max, "as workers");
    let own = show(server.places.per_identity, "as workers_per_identity");
    more(format!("max_running {all}, max_running_per_identity {own}"));
    let idle = server.idle_exit.map_or_else(|| "off".to_owned(), show_duration);
    let start_timeout = show_duration(server.start_timeout);
    more(format!("start_timeout {start_timeout}, idle_exit {idle}"));
    let calls = server.max_calls.map_or_else(|| "no limit".to_owned(), |max| max.to_string());
    let (timeout, drain) = (show_duration(server.timeout), show_duration(server.drain));
    let task = server.task_support.map_or("as the server declares", TaskSupport::as_str);
    more(format!("task {task}, timeout {timeout}, max_calls {calls}, drain {drain}"));
    more(format!("heartbeat {}, pin {}", heartbeat(server.heartbeat), server.pin.as_str()));
    let [cancel, kill] = [server.cancel_grace, server.kill_grace].map(show_duration);
    let ignored = match server.on_ignored_cancel {
        OnIgnoredCancel::Replace => "replace",
        OnIgnoredCancel::Leave => "leave",
    };
    more(format!("cancel_grace {cancel}, kill_grace {kill}, on_ignored_cancel {ignored}"));
    match &server.remote {
        Some(remote) => describe_remote(remote, &mut more),
        None => server.launch.describe(&mut more),
    }
    let patterns = |all: &[Box<str>]| all.join(" ");
    if !server.filter.only.is_empty() {
        more(format!("tools {}", patterns(&server.filter.only)));
    }
    if !server.filter.hide.is_empty() {
        more(format!("hide {}", patterns(&server.filter.hide)));
    }
    for (tool, question) in &server.confirm {
        more(format!("confirm {tool} {question:?}"));
    }
    describe_allow(&server.allow, &mut more);
    rows
}

/// Limits and credentials of a server by URL.
fn describe_remote(remote: &RemoteServer, more: &mut impl FnMut(String)) {
    let [connect, read] = [remote.connect_timeout, remote.read_timeout].map(show_duration);
    let max = remote.max_connections;
    more(format!("connect_timeout {connect}, read_timeout {read}, max_connections {max}"));
    let names: Vec<&str> = remote.headers.names().collect();
    if !names.is_empty() {
        more(format!("headers {}", names.join(" ")));
    }
    let files = [
        ("headers_file", &remote.headers_file),
        ("token_file", &remote.token_file),
        ("ca_file", &remote.ca_file),
    ];
    for (key, path) in files {
        if let Some(path) = path {
            more(format!("{key} {}", path.display()));
        }
    }
    if let Some(TlsFiles { cert, key }) = &remote.client {
        more(format!("client_cert {}, client_key {}", cert.display(), key.display()));
    }
    let oauth = &remote.oauth;
    if oauth.client_credentials {
        more("oauth grant client_credentials".into());
    }
    let texts = [("client_id", &oauth.client_id), ("client_metadata", &oauth.client_metadata)];
    for (key, text) in texts {
        if let Some(text) = text {
            more(format!("oauth {key} {text}"));
        }
    }
    if let Some(path) = &oauth.client_secret_file {
        more(format!("oauth client_secret_file {}", path.display()));
    }
    if !oauth.scopes.is_empty() {
        more(format!("oauth scopes {}", oauth.scopes.join(" ")));
    }
    if remote.allow_private {
        more("allow_private true".into());
    }
}
