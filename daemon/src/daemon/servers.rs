//! Servers of a configuration as the engine takes them. A reload hands over the same value for an
//! entry that has not changed, so that its instances go on.

use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex, PoisonError};

use ceased_client::proxy::Route;
use ceased_core::policy::allow::RunsFor;
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_process::Launch;
#[cfg(feature = "tls")]
use ceased_transports::http::client::Place;
#[cfg(feature = "tls")]
use ceased_transports::tls::{RootsError, TlsConfig};
use rustix::process::geteuid;

use crate::config::{self, Config, prefix_of};
#[cfg(feature = "tls")]
use crate::credentials::login_place::{LoginPlace, LoginTarget};
#[cfg(feature = "tls")]
use crate::credentials::reach::Reach;
#[cfg(feature = "tls")]
use crate::credentials::source::{Credentials, Program};
use crate::remote::{Bearers, Endpoint};
use crate::tools::runs_for::runs_for;
use crate::tools::upstream_launch::UpstreamLaunch;

/// Servers in use, by their configuration and their prefix beside the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownServers(Arc<Mutex<Vec<Known>>>);

#[derive(Debug)]
struct Known {
    server: config::Server,
    prefix: String,
    upstream: Arc<UpstreamServer>,
}

impl KnownServers {
    /// The servers of a configuration: those in use where nothing has changed, else new ones.
    ///
    /// # Errors
    /// If an `env_file` was not read.
    pub(crate) fn of(&self, config: &Config) -> Result<Vec<Arc<UpstreamServer>>, String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The engine has the servers in use, and forgets those that a reload has changed. A
        // configuration that was read and not applied leaves some that are only here.
        known.retain(|known| Arc::strong_count(&known.upstream) > 1);
        let mut servers = Vec::new();
        for server in &config.servers {
            let prefix = prefix_of(server, config.servers.len(), &config.tools);
            let same = |known: &&Known| known.server == *server && known.prefix == prefix;
            let upstream = match known.iter().find(same) {
                Some(known) => Arc::clone(&known.upstream),
                None => {
                    let upstream = Arc::new(upstream(server, &prefix, &config.daemon.state_dir)?);
                    let (server, upstream_kept) = (server.clone(), Arc::clone(&upstream));
                    known.push(Known { server, prefix, upstream: upstream_kept });
                    upstream
                }
            };
            servers.push(upstream);
        }
        Ok(servers)
    }
}

/// The agents of a configuration as the engine takes them. A client that has one keeps it: a reload
/// gives other clients the new one.
///
/// # Errors
/// If an `env_file` was not read.
pub(crate) fn agents(config: &Config) -> Result<Vec<Arc<UpstreamServer>>, String> {
    config.agents.iter().map(|agent| Ok(Arc::new(supervised(agent)?))).collect()
}

fn supervised(agent: &config::Agent) -> Result<UpstreamServer, String> {
    let mut launch = Launch::new(agent.command.iter());
    launch.cwd = agent.launch.cwd.clone().map(Into::into);
    launch.inherit = agent.launch.inherit.clone();
    launch.env = agent.launch.variables()?;
    launch.isolation = agent.launch.isolation;
    launch.bounds = agent.launch.bounds;
    Ok(UpstreamServer {
        start_timeout: agent.start_timeout,
        // The client decides how long the agent lives.
        idle_exit: None,
        timeout: None,
        max_instances: agent.max_instances,
        max_instances_per_identity: agent.max_instances_per_identity,
        watchdogs: agent.watchdogs,
        cancel_grace: agent.cancel_grace,
        kill_grace: agent.kill_grace,
        drain: agent.drain,
        on_ignored_cancel: agent.on_ignored_cancel,
        allow: agent.allow.clone(),
        payload: UpstreamLaunch { launch, run_as: agent.launch.run_as }.into_payload(),
        ..UpstreamServer::new(&agent.name)
    })
}

/// A server of a configuration as the engine takes it.
fn upstream(
    server: &config::Server,
    prefix: &str,
    state_dir: &Path,
) -> Result<UpstreamServer, String> {
    let payload = match &server.remote {
        Some(remote) => endpoint(remote, &server.name, state_dir)?.into_payload(),
        None => launch(server)?.into_payload(),
    };
    let confirm = server.confirm.iter();
    Ok(UpstreamServer {
        prefix: prefix.into(),
        revision: server.revision.clone(),
        share: server.share,
        warm: server.warm,
        start: server.start,
        start_timeout: server.start_timeout,
        idle_exit: server.idle_exit,
        max_instances: server.max_instances,
        max_instances_per_identity: server.max_instances_per_identity,
        places: server.places,
        max_calls: server.max_calls,
        timeout: Some(server.timeout),
        heartbeat: server.heartbeat,
        cancel_grace: server.cancel_grace,
        kill_grace: server.kill_grace,
        drain: server.drain,
        on_ignored_cancel: server.on_ignored_cancel,
        task_support: server.task_support,
        pin: server.pin,
        filter: server.filter.clone(),
        allow: server.allow.clone(),
        runs_for: server_runs_for(server),
        confirm: confirm.map(|(tool, text)| (tool.as_str().into(), text.as_str().into())).collect(),
        is_remote: server.remote.is_some(),
        payload,
        ..UpstreamServer::new(&server.name)
    })
}

/// Callers as which a server can run. An instance for single calls starts without a caller.
fn server_runs_for(server: &config::Server) -> RunsFor {
    match (&server.remote, server.share, runs_for(server.launch.run_as, geteuid().as_raw())) {
        (Some(_), _, _) | (None, _, RunsFor::Everyone) => RunsFor::Everyone,
        (None, Share::Call, RunsFor::Users | RunsFor::User(_) | RunsFor::None) => RunsFor::None,
        (None, Share::Connection | Share::Identity, some) => some,
    }
}

fn launch(server: &config::Server) -> Result<UpstreamLaunch, String> {
    let mut launch = Launch::new(server.command.iter());
    launch.cwd = server.launch.cwd.clone().map(Into::into);
    launch.inherit = server.launch.inherit.clone();
    launch.env = server.launch.variables()?;
    launch.isolation = server.launch.isolation;
    launch.bounds = server.launch.bounds;
    Ok(UpstreamLaunch { launch, run_as: server.launch.run_as })
}

/// A server by URL.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "tokens are part of tls"))]
fn endpoint(
    remote: &config::RemoteServer,
    name: &str,
    state_dir: &Path,
) -> Result<Endpoint, String> {
    Ok(Endpoint {
        headers: remote.all_headers()?,
        route: Route::to(&remote.url),
        url: remote.url.clone(),
        protocol: remote.protocol,
        connect_timeout: remote.connect_timeout,
        read_timeout: remote.read_timeout,
        max_connections: remote.max_connections,
        allow_private: remote.allow_private,
        #[cfg(feature = "tls")]
        tls: tls_of(remote)?,
        #[cfg(feature = "tls")]
        credentials: credentials(remote, name, state_dir),
        bearers: Bearers::default(),
    })
}

/// The source of the tokens of a server by URL, unless its headers have credentials.
#[cfg(feature = "tls")]
fn credentials(remote: &config::RemoteServer, name: &str, state_dir: &Path) -> Option<Credentials> {
    if let Some(path) = &remote.token_file {
        return Some(Credentials::File(path.clone()));
    }
    if remote.has_own_authorization() || matches!(remote.url.place, Place::Unix(_)) {
        return None;
    }
    let reach =
        Reach::of(&remote.url, remote.ca_file.clone(), remote.client.clone(), remote.allow_private);
    let (url, oauth) = (remote.text.clone(), &remote.oauth);
    match (&oauth.client_id, &oauth.client_secret_file) {
        (Some(id), Some(secret)) if oauth.client_credentials => {
            let (client_id, secret_file) = (id.clone(), secret.clone());
            let scopes = oauth.scopes.clone();
            let program = Program { url, client_id, secret_file, scopes, reach };
            Some(Credentials::Program(Box::new(program)))
        }
        (Some(_) | None, _) => {
            let (target, state_dir) = (login_target(remote, name), state_dir.to_owned());
            Some(Credentials::Logins(Box::new(LoginPlace { target, state_dir, reach })))
        }
    }
}

/// The facts that a login at a server needs.
#[cfg(feature = "tls")]
fn login_target(remote: &config::RemoteServer, name: &str) -> LoginTarget {
    let oauth = remote.oauth.clone();
    LoginTarget {
        server: name.to_owned(),
        url: remote.text.clone(),
        client_id: oauth.client_id,
        client_secret_file: oauth.client_secret_file,
        client_metadata: oauth.client_metadata,
        scopes: oauth.scopes,
        ca_file: remote.ca_file.clone(),
        client: remote.client.clone(),
        allow_private: remote.allow_private,
    }
}

/// The authorities that a server by `https://` is verified against.
#[cfg(feature = "tls")]
fn tls_of(remote: &config::RemoteServer) -> Result<Option<TlsConfig>, String> {
    static SYSTEM: OnceLock<TlsConfig> = OnceLock::new();
    let told = |why: RootsError| format!("server {}: {why}", remote.text);
    if !matches!(remote.url.place, Place::Tcp { is_tls: true, .. }) {
        return Ok(None);
    }
    let config = match (&remote.ca_file, SYSTEM.get()) {
        (Some(path), _) => TlsConfig::with_ca_file(path).map_err(told)?,
        (None, Some(known)) => known.clone(),
        (None, None) => {
            let found = TlsConfig::with_system_roots().map_err(told)?;
            SYSTEM.get_or_init(|| found).clone()
        }
    };
    let Some(pem) = &remote.pem else { return Ok(Some(config)) };
    let identified = config.identified(&pem.cert, &pem.key);
    identified.map(Some).map_err(|why| format!("`client_cert` of server {}: {why}", remote.text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TWO: &str = "[[server]]\nname = \"a\"\ncommand = [\"x\"]\n\
                       [[server]]\nname = \"b\"\ncommand = [\"y\"]\n";

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("F")).unwrap()
    }

    #[test]
    fn unchanged_servers_are_the_same_value_again() {
        let known = KnownServers::default();
        let first = known.of(&config(TWO)).unwrap();
        let again = known.of(&config(TWO)).unwrap();
        assert!(first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
        let changed = known.of(&config(&TWO.replace("\"y\"", "\"z\""))).unwrap();
        assert!(Arc::ptr_eq(&first[0], &changed[0]) && !Arc::ptr_eq(&first[1], &changed[1]));
    }

    /// A server whose prefix changes because another one comes or goes has other names of tools.
    #[test]
    fn server_with_another_prefix_is_another_value() {
        let known = KnownServers::default();
        let two = known.of(&config(TWO)).unwrap();
        let one = known.of(&config("[[server]]\nname = \"a\"\ncommand = [\"x\"]\n")).unwrap();
        assert_eq!((&*two[0].prefix, &*one[0].prefix), ("a_", ""));
        assert!(!Arc::ptr_eq(&two[0], &one[0]));
    }

    #[test]
    fn servers_of_a_configuration_that_was_not_applied_are_forgotten() {
        let known = KnownServers::default();
        let used = known.of(&config(TWO)).unwrap();
        drop(known.of(&config(&TWO.replace("\"y\"", "\"z\""))).unwrap());
        let again = known.of(&config(TWO)).unwrap();
        assert!(Arc::ptr_eq(&used[1], &again[1]));
        assert_eq!(known.0.lock().unwrap().len(), 2);
    }
}
