//! `[[listen]]`: listeners and their access rules.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::check::{Checker, Key};
use super::defaults::{
    CONNECTIONS_PER_ADDRESS, GONE, KEEP_ALIVE, MODE_DEFAULT, REPLAY_BYTES, SESSION_IDLE,
    SESSIONS_PER_IDENTITY,
};
use super::error::line_of;
use super::kinds::{Bytes, Choice, Count, FilePath, Flag, GIB, HOUR, Kind, MS, Time};
use super::table::Part;
use super::{HttpListen, Listen, identities, listen_access, raw};
use crate::accounts;

/// Maximum length of a socket path: the kernel's limit without the NUL.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;
#[derive(Clone, Copy, PartialEq)]
enum Transport {
    Unix,
    Tcp,
    Stdio,
    Http,
}

/// All listeners of the file, or the default one.
pub(super) fn listeners(raw: &[(usize, raw::Listen)], check: &mut Checker<'_>) -> Vec<Listen> {
    let mut listeners: Vec<(usize, Listen)> = Vec::new();
    for (at, raw) in raw {
        let Some(listen) = listener(*at, raw, check) else { continue };
        let twin = listeners.iter().find(|(_, other)| collide(other, &listen));
        if let Some((other, _)) = twin {
            let line = line_of(check.text, *other);
            let what = format!("this [[listen]] is the same as the one in line {line}");
            check.problem(*at, what, "leave one of them out");
        }
        listeners.push((*at, listen));
    }
    if raw.is_empty() {
        let default = Listen::default_in(check.environment);
        if let Listen::Unix { path, .. } = &default {
            fits(path, 0, check);
        }
        return vec![default];
    }
    listeners.into_iter().map(|(_, listen)| listen).collect()
}

/// Whether both cannot be bound at once.
fn collide(one: &Listen, other: &Listen) -> bool {
    match (one.socket(), other.socket()) {
        (Listen::Unix { path: one, .. }, Listen::Unix { path: other, .. }) => one == other,
        (Listen::Tcp { address: one, .. }, Listen::Tcp { address: other, .. }) => {
            one == other && one.port() != 0
        }
        (Listen::Stdio, Listen::Stdio) => true,
        (Listen::Unix { .. } | Listen::Tcp { .. } | Listen::Stdio | Listen::Http(_), _) => false,
    }
}

fn listener(at: usize, raw: &raw::Listen, check: &mut Checker<'_>) -> Option<Listen> {
    if !raw.transport.is_some() {
        let hint = "write transport = \"unix\", \"tcp\", \"http\" or \"stdio\"";
        check.missing(at, "this [[listen]] has no `transport`", hint);
        return None;
    }
    let transports = Choice(&[
        ("unix", Transport::Unix),
        ("tcp", Transport::Tcp),
        ("http", Transport::Http),
        ("stdio", Transport::Stdio),
    ]);
    let transport = raw.transport.read(&transports, check)?;
    refuse_foreign_keys(transport, raw, check);
    match transport {
        Transport::Unix => unix_listener(at, raw, check),
        Transport::Tcp => tcp_listener(at, raw, false, check),
        Transport::Stdio => Some(Listen::Stdio),
        Transport::Http => http_listener(at, raw, check),
    }
}

/// Reports keys that have no meaning for the transport.
fn refuse_foreign_keys(transport: Transport, raw: &raw::Listen, check: &mut Checker<'_>) {
    let (unix, tcp, http) = match transport {
        Transport::Unix => (true, false, false),
        Transport::Tcp => (false, true, false),
        Transport::Stdio => (false, false, false),
        // With a path it listens on a Unix socket.
        Transport::Http => (raw.unix.path.is_some(), !raw.unix.path.is_some(), true),
    };
    for (part, allowed, owner) in [
        (&raw.unix as &dyn Part, unix, "unix"),
        (&raw.tcp, tcp, "tcp"),
        (&raw.http, http, "http"),
        (&raw.tls, http && tcp, "http"),
        (&raw.tokens, http && tcp, "http"),
    ] {
        for (name, at) in part.written().into_iter().filter(|_| !allowed) {
            let transport = written_text(raw.transport.as_ref());
            let what = if http {
                let socket = if unix { "a Unix socket" } else { "an address" };
                format!("`{name}` in [[listen]] has no meaning for http on {socket}")
            } else {
                format!("`{name}` in [[listen]] has no meaning for transport {transport}")
            };
            let hint = match (http, owner) {
                (true, "unix") => "it belongs to a listener with a `path`; leave it out".to_owned(),
                (true, _) => "it belongs to a listener with an `address`; leave it out".to_owned(),
                (false, _) => format!("it belongs to transport \"{owner}\"; leave it out"),
            };
            check.problem(at, what, hint);
        }
    }
}

/// A listener for Streamable HTTP, on a Unix socket if it has a path.
fn http_listener(at: usize, raw: &raw::Listen, check: &mut Checker<'_>) -> Option<Listen> {
    let socket = match raw.unix.path.is_some() {
        true => unix_listener(at, raw, check),
        false => tcp_listener(at, raw, true, check),
    };
    let mut allow_origins = Vec::new();
    for written in raw.http.allow_origins.elements() {
        let text = written.get_ref();
        if is_origin(text) {
            allow_origins.push(text.to_ascii_lowercase());
            continue;
        }
        let hint = "it takes origins such as \"https://app.example.com\" or \"http://host:8080\", \
                    without a path";
        check.bad_value(
            raw.http.allow_origins.key(),
            written.span().start,
            &format!("{text:?}"),
            hint,
        );
    }
    let (times, counts) = (Time(MS..=24 * HOUR), Count(1..=100_000));
    let http = &raw.http;
    Some(Listen::Http(HttpListen {
        socket: Box::new(socket?),
        allow_origins,
        session_idle: http.session_idle.or(SESSION_IDLE, &times, check),
        gone: http.gone.or(GONE, &times, check),
        keep_alive: http.keep_alive.or(KEEP_ALIVE, &times, check),
        sessions_per_identity: http.sessions_per_identity.or(SESSIONS_PER_IDENTITY, &counts, check),
        connections_per_address: http.connections_per_address.or(
            CONNECTIONS_PER_ADDRESS,
            &counts,
            check,
        ),
        replay_bytes: http.replay_bytes.or(REPLAY_BYTES, &Bytes(0..=GIB), check),
        view: http.view.or(true, &Flag, check),
        oauth: listen_access::oauth(raw, check).map(Box::new),
        tls: listen_access::tls(raw, check),
    }))
}

/// Whether a text is an origin as browsers send it: a scheme, a host, and perhaps a port.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    is_scheme && !authority.is_empty() && authority.bytes().all(is_host)
}

fn unix_listener(at: usize, raw: &raw::Listen, check: &mut Checker<'_>) -> Option<Listen> {
    let path = match raw.unix.path.is_some() {
        false => check.environment.socket(),
        true => raw.unix.path.read(&FilePath, check)?,
    };
    fits(&path, raw.unix.path.at().unwrap_or(at), check);
    let mode = match raw.unix.mode.is_some() {
        false => MODE_DEFAULT,
        true => raw.unix.mode.read(&Permissions, check)?,
    };
    let group = match raw.unix.group.as_ref() {
        None => None,
        Some(group) => {
            Some(identities::found(raw.unix.group.key(), group, accounts::group, check)?)
        }
    };
    let allow = identities::users(&raw.unix, check);
    Some(Listen::Unix { path, mode, group, allow })
}

/// The permission bits of a socket.
struct Permissions;

impl Kind<u32> for Permissions {
    type Written = raw::Mode;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<raw::Mode>,
        check: &mut Checker<'_>,
    ) -> Option<u32> {
        let text = &written.get_ref().0;
        let octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let bits = u32::from_str_radix(text, 8).ok().filter(|_| octal);
        let hint = match bits {
            Some(bits) if bits & !0o777 != 0 => "it takes permission bits only, up to \"0777\"",
            Some(bits) if bits & 0o600 != 0o600 => {
                "the daemon's user needs read and write permission: \"0600\""
            }
            Some(bits) => return Some(bits),
            None => "it takes octal digits such as \"0600\" or \"0660\"",
        };
        check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
        None
    }

    fn show(&self, value: &u32) -> Option<String> {
        Some(format!("{value:04o}"))
    }
}

/// Reports a path that is too long for a socket.
fn fits(path: &Path, at: usize, check: &mut Checker<'_>) {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let what = format!(
            "`path` in [[listen]] is {bytes} bytes long: {}",
            PathBuf::from(path).display()
        );
        let hint =
            format!("a socket's path takes at most {SOCKET_PATH_BYTES_MAX}; set a shorter one");
        check.problem(at, what, hint);
    }
}

/// A TCP listener. One for HTTP without a token file serves every user of this machine.
fn tcp_listener(
    at: usize,
    raw: &raw::Listen,
    is_http: bool,
    check: &mut Checker<'_>,
) -> Option<Listen> {
    let before = check.problems.len();
    let is_open = is_http && !raw.tcp.token_file.is_some() && !raw.tokens.issuer.is_some();
    let answers = Choice(&[("refuse", false), ("allow", true)]);
    let anonymous = raw.tcp.anonymous.or(is_open, &answers, check);
    let is_said = check.problems.len() == before;
    let token_file = match raw.tcp.token_file.is_some() {
        false => None,
        true => Some(raw.tcp.token_file.read(&FilePath, check)?),
    };
    let has_tokens = token_file.is_some() || raw.tokens.issuer.is_some();
    let address = address(at, raw, has_tokens && !anonymous, check);
    let address = address.filter(|_| is_said)?;
    if !anonymous && !has_tokens {
        let at = raw.tcp.anonymous.at().unwrap_or(at);
        let what = "this tcp [[listen]] would accept no peer: there is no `token_file`, and \
                    `anonymous` is \"refuse\"";
        let hint = "set a token_file, set anonymous = \"allow\" to accept all users of this \
                    machine, or use a unix listener";
        check.problem(at, what, hint);
        return None;
    }
    Some(Listen::Tcp { address, token_file, anonymous })
}

/// Checks the address of a TCP listener: it must be a loopback address unless all peers need a
/// token.
fn address(
    at: usize,
    raw: &raw::Listen,
    all_are_known: bool,
    check: &mut Checker<'_>,
) -> Option<SocketAddr> {
    let Some(written) = raw.tcp.address.as_ref() else {
        let (what, hint) = match raw.transport.as_ref().map(|it| it.get_ref().as_str()) {
            Some("http") => (
                "this http [[listen]] has neither `address` nor `path`",
                "write address = \"127.0.0.1:7412\"",
            ),
            _ => ("this tcp [[listen]] has no `address`", "write address = \"127.0.0.1:7411\""),
        };
        check.problem(at, what, hint);
        return None;
    };
    let hint = match written.get_ref().parse::<SocketAddr>() {
        Ok(address) if all_are_known || address.ip().to_canonical().is_loopback() => {
            return Some(address);
        }
        Ok(_) => {
            "clients on the network could call tools without a token; set a token_file and leave \
             `anonymous` at \"refuse\", or use a loopback address, 127.0.0.1 or [::1]"
        }
        Err(_) => "it takes an IP address and a port, such as \"127.0.0.1:7411\" or \"[::1]:7411\"",
    };
    check.bad_value(
        raw.tcp.address.key(),
        written.span().start,
        &written_text(Some(written)),
        hint,
    );
    None
}

/// A written string as quoted in a message.
fn written_text(text: Option<&raw::Text>) -> String {
    text.map_or_else(String::new, |text| format!("{:?}", text.get_ref()))
}
