//! URLs of servers: `http://`, `https://`, and `unix:` for HTTP over a Unix socket.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// Longest URL, in bytes.
const URL_BYTES_MAX: usize = 8 * 1024;
/// Target of a `unix:` URL without one: the place of an MCP server over Streamable HTTP.
const UNIX_TARGET: &str = "/mcp";

/// The place that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A port of a host.
    Tcp {
        /// Name or address, in lower case and without brackets.
        host: String,
        /// Port.
        port: u16,
        /// Whether TLS is spoken there.
        is_tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// The place of the server.
    pub place: Place,
    /// Host and port as they are written, for the host header.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

/// Why a text is no URL of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlError {
    /// It begins with no scheme that is spoken.
    Scheme,
    /// It is longer than the limit.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It has other than visible ASCII characters.
    Characters,
    /// It has a user or a password.
    User,
    /// It has no host, or one that is neither a name nor an address.
    Host(String),
    /// Its port is no number from 1 to 65535.
    Port(String),
    /// It names no absolute path of a socket.
    Socket,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("must begin with http://, https:// or unix:/"),
            Self::TooLong { bytes } => {
                write!(f, "must have at most {URL_BYTES_MAX} bytes, not {bytes}")
            }
            Self::Characters => {
                f.write_str("must consist of visible ASCII characters, without backslashes")
            }
            Self::User => f.write_str("must have no user; pass credentials in a header"),
            Self::Host(found) if found.is_empty() => f.write_str("must have a host"),
            Self::Host(found) => write!(f, "{found:?} is neither a host name nor an address"),
            Self::Port(found) => write!(f, "{found:?} is no port"),
            Self::Socket => f.write_str("must name the absolute path of a socket, unix:/path"),
        }
    }
}

impl std::error::Error for UrlError {}

impl Url {
    /// Reads a URL. A fragment is left out. The path of a socket may have a target behind a colon:
    /// `unix:/run/server.sock:/mcp`.
    ///
    /// # Errors
    /// When it is no URL of a server.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong { bytes: text.len() });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err(UrlError::Characters);
        }
        let after = |scheme: &str| {
            text.get(..scheme.len()).filter(|it| it.eq_ignore_ascii_case(scheme))?;
            text.get(scheme.len()..)
        };
        if let Some(rest) = after("unix:") {
            return Self::unix(rest);
        }
        let (rest, is_tls) = match (after("http://"), after("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(UrlError::Scheme),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.starts_with('[') || host.ends_with(']') => {
                (host, self::port(port)?)
            }
            _ => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = self::host(host)?;
        let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let place = Place::Tcp { host, port, is_tls };
        Ok(Self { place, authority: authority.to_owned(), target })
    }

    fn unix(rest: &str) -> Result<Self, UrlError> {
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, target) = rest.rsplit_once(":/").unwrap_or((rest, ""));
        if !path.starts_with('/') {
            return Err(UrlError::Socket);
        }
        let target = match target {
            "" => UNIX_TARGET.to_owned(),
            target => format!("/{target}"),
        };
        let authority = "localhost".to_owned();
        Ok(Self { place: Place::Unix(path.into()), authority, target })
    }
}

fn port(text: &str) -> Result<u16, UrlError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_number && *port != 0);
    port.ok_or_else(|| UrlError::Port(text.to_owned()))
}

fn host(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Host(text.to_owned());
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(wrong)?;
        let address: Ipv6Addr = inner.parse().map_err(|_| wrong())?;
        return Ok(address.to_string());
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_of_name) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(wrong()),
    }
}
