//! Servers by URL: the keys of `[[server]]` that go with `url`, checked.

use std::time::Duration;

use ceased_core::upstream::spoken::Revision;
use ceased_transports::http::client::{Place, Url};

use super::check::{Checker, Key};
use super::entry::Entry;
use super::json::Ordered;
use super::kinds::{Choice, Count, FilePath, Flag, HOUR, Kind, MS, Time};
use super::oauth::TlsFiles;
use super::raw;
use super::remote_server::{Oauth, RemoteServer, flaw};
use super::table::Part;
use super::values::Text;
use super::variables::Variables;
use crate::remote::Protocol;

/// From the start of a connection to its first sent byte.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without a byte of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Connections of one instance.
const CONNECTIONS: usize = 64;
const CONNECTIONS_MAX: u64 = 4096;

/// The reason for which a key has no meaning for a server by URL.
const OF_COMMANDS: &str = "it starts no process here";

/// The part of a server that goes with `url`, and its revision; `None` if it has none.
pub(super) fn remote(
    raw: &raw::Server,
    check: &mut Checker<'_>,
) -> Option<(RemoteServer, Revision)> {
    let text = raw.remote.url.as_ref()?;
    for (name, at) in keys_of_commands(raw) {
        let what = format!("`{name}` in [[server]] has no meaning for a server with `url`");
        check.problem(at, what, format!("{OF_COMMANDS}: leave the key out"));
    }
    if let Some(at) = raw.revision.at() {
        let what = "`revision` in [[server]] has no meaning for a server with `url`";
        check.problem(at, what, "write `protocol`");
    }
    let url = match Url::parse(text.get_ref()) {
        Ok(url) => {
            let is_tls = matches!(url.place, Place::Tcp { is_tls: true, .. });
            let lacks = is_tls && check.lacks_tls(text.span().start, "a server by https://");
            (!lacks).then_some(url)
        }
        Err(why) => {
            let written = format!("{:?}", text.get_ref());
            check.bad_value(raw.remote.url.key(), text.span().start, &written, format!("it {why}"));
            None
        }
    };
    let (revision, protocol) = protocol(raw, check);
    let server = RemoteServer {
        text: text.get_ref().clone(),
        headers: headers(&raw.remote.headers, check),
        headers_file: raw.remote.headers_file.read(&FilePath, check),
        token_file: raw.remote.token_file.read(&FilePath, check),
        oauth: oauth(raw, check),
        secrets: None,
        protocol,
        connect_timeout: raw.remote.connect_timeout.or(CONNECT_TIMEOUT, &Time(MS..=HOUR), check),
        read_timeout: raw.remote.read_timeout.or(READ_TIMEOUT, &Time(MS..=24 * HOUR), check),
        max_connections: raw.remote.max_connections.or(
            CONNECTIONS,
            &Count(1..=CONNECTIONS_MAX),
            check,
        ),
        ca_file: raw.remote.ca_file.read(&FilePath, check),
        client: identity(raw, check),
        pem: None,
        allow_private: raw.remote.allow_private.or(false, &Flag, check),
        url: url?,
    };
    Some((server, revision))
}

/// Reports the keys that have a meaning with `url` alone.
pub(super) fn refuse_keys_of_urls(raw: &raw::Server, check: &mut Checker<'_>) {
    for (name, at) in raw.remote.written() {
        let what = format!("`{name}` in [[server]] has a meaning with `url` alone");
        check.problem(at, what, "write the `url` of the server, or leave the key out");
    }
}

/// The certificate of this side and its key.
fn identity(raw: &raw::Server, check: &mut Checker<'_>) -> Option<TlsFiles> {
    let (cert, key) = (&raw.remote.client_cert, &raw.remote.client_key);
    let (at, has, lacks) = match (cert.at(), key.at()) {
        (Some(_), Some(_)) => {
            let cert = cert.read(&FilePath, check);
            return Some(TlsFiles { key: key.read(&FilePath, check)?, cert: cert? });
        }
        (Some(at), None) => (at, "client_cert", "client_key"),
        (None, Some(at)) => (at, "client_key", "client_cert"),
        (None, None) => return None,
    };
    let what = format!("`{has}` in [[server]] has no meaning without `{lacks}`");
    check.problem(at, what, format!("write `{lacks}`: a file in PEM format"));
    None
}

/// The revision and the transport that `protocol` means.
fn protocol(raw: &raw::Server, check: &mut Checker<'_>) -> (Revision, Protocol) {
    let sse = Revision::of("2024-11-05").unwrap_or(Revision::Session);
    let stateless = Revision::of("2026-07-28").unwrap_or(Revision::Stateless);
    let known = Choice(&[
        ("auto", (Revision::Auto, Protocol::Auto)),
        ("2026-07-28", (stateless, Protocol::Streamable)),
        ("session", (Revision::Session, Protocol::Streamable)),
        ("sse", (sse, Protocol::Sse)),
    ]);
    raw.remote.protocol.or((Revision::Auto, Protocol::Auto), &known, check)
}

/// The client that ceased is at an authorization server.
fn oauth(raw: &raw::Server, check: &mut Checker<'_>) -> Oauth {
    let Some(written) = raw.remote.oauth.as_ref() else { return Oauth::default() };
    let (at, raw_oauth) = (written.span().start, written.get_ref());
    let of = |name| Key { table: "oauth of [[server]]", name };
    let grants = Choice(&[("login", false), ("client_credentials", true)]);
    let grant = raw_oauth.grant.as_ref();
    let client_credentials = grant.and_then(|grant| grants.parse(of("grant"), grant, check));
    let client_credentials = client_credentials.unwrap_or_default();
    let secret = raw_oauth.client_secret_file.as_ref();
    let client_secret_file = secret.and_then(|it| check.path(of("client_secret_file"), it));
    let text = |raw: &Option<Text>| raw.as_ref().map(|it| it.get_ref().clone());
    let (client_id, client_metadata) =
        (text(&raw_oauth.client_id), text(&raw_oauth.client_metadata));
    if raw.remote.token_file.is_some() {
        let what = "`oauth` in [[server]] has no meaning beside `token_file`";
        check.problem(at, what, "leave one of them out");
    }
    let has_client = client_id.is_some() && raw_oauth.client_secret_file.is_some();
    if client_credentials && !has_client {
        let what = "`grant` in oauth of [[server]] is \"client_credentials\" without a client";
        check.problem(at, what, "write `client_id` and `client_secret_file`");
    }
    if let Some(metadata) = raw_oauth.client_metadata.as_ref()
        && !metadata.get_ref().starts_with("https://")
    {
        let written = format!("{:?}", metadata.get_ref());
        let hint = "write the https:// URL of the document";
        check.bad_value(of("client_metadata"), metadata.span().start, &written, hint);
    }
    let scopes = raw_oauth.scopes.iter().flat_map(|scopes| scopes.get_ref());
    let scopes = scopes.map(|scope| scope.get_ref().clone()).collect();
    Oauth { client_credentials, client_id, client_secret_file, client_metadata, scopes }
}

fn headers(raw: &Entry<Ordered<Text>>, check: &mut Checker<'_>) -> Variables {
    let mut all = Vec::new();
    for (name, value) in raw.pairs() {
        let at = name.span().start;
        let (name, value) = (name.get_ref(), value.get_ref());
        match flaw(name, value) {
            None => all.push((name.clone(), value.clone())),
            Some(why) => {
                let what = format!("`headers` in [[server]] has one that cannot be sent: {why}");
                check.problem(at, what, "correct it, or leave it out");
            }
        }
    }
    Variables(all)
}

/// The written keys that are about processes, and their places.
fn keys_of_commands(raw: &raw::Server) -> Vec<(&'static str, usize)> {
    let mut found = raw.environment.written();
    found.extend(raw.confinement.written());
    raw.command.places("command", &mut found);
    raw.kill_grace.places("kill_grace", &mut found);
    found
}
