//! Servers by URL: their places, limits and credentials.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ceased_transports::http::client::{Url, check_header};

use super::error::ConfigError;
use super::oauth::{Pem, TlsFiles};
use super::variables::Variables;
use crate::header_lines::header_lines;
use crate::owned_file::{self, Secrecy, Unfit};
use crate::remote::Protocol;

/// Bytes of a file with headers or a token.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// `oauth` of a server: the client that ceased is at the authorization server of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Oauth {
    /// Whether ceased obtains tokens as a program of its own instead of for a person.
    pub client_credentials: bool,
    /// Id of a registration by hand.
    pub client_id: Option<String>,
    /// File of the secret of that registration.
    pub client_secret_file: Option<PathBuf>,
    /// URL of a document that describes the client.
    pub client_metadata: Option<String>,
    /// Scopes to ask for, instead of those that the server names.
    pub scopes: Vec<String>,
}

/// The place of a server by URL, and its credentials.
#[derive(Clone, PartialEq)]
pub struct RemoteServer {
    /// URL as it was written.
    pub text: String,
    pub(crate) url: Url,
    pub(crate) protocol: Protocol,
    /// Headers of every request.
    pub headers: Variables,
    /// File of further headers, which are secret.
    pub headers_file: Option<PathBuf>,
    /// File of a bearer token.
    pub token_file: Option<PathBuf>,
    /// How tokens are obtained from its authorization server.
    pub oauth: Oauth,
    /// Headers from these files; `None` before they are read.
    pub(super) secrets: Option<Variables>,
    /// From the start of a connection to its first sent byte.
    pub connect_timeout: Duration,
    /// Longest time without a byte of the response to a request.
    pub read_timeout: Duration,
    /// Connections of one instance.
    pub max_connections: usize,
    /// Authorities that are trusted instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key of this side, for a server that asks for one.
    pub client: Option<TlsFiles>,
    /// Their content; `None` before they are read.
    pub(crate) pem: Option<Pem>,
    /// Whether a name may stand for an address of a private network.
    pub allow_private: bool,
}

impl fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteServer")
            .field("url", &self.text)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl RemoteServer {
    /// Every header, those of files included.
    ///
    /// # Errors
    /// If a file was not read.
    pub(crate) fn all_headers(&self) -> Result<Vec<(String, String)>, String> {
        let is_needed = self.headers_file.is_some();
        let secrets = match &self.secrets {
            Some(secrets) => &*secrets.0,
            None if is_needed => {
                return Err(format!(
                    "the files with credentials for {} were not read; load the configuration",
                    self.text
                ));
            }
            None => &[],
        };
        Ok(self.headers.0.iter().chain(secrets).cloned().collect())
    }

    /// Whether its headers have credentials, so that nothing else is its token.
    pub(crate) fn has_own_authorization(&self) -> bool {
        let secrets = self.secrets.as_ref();
        let mut names = self.headers.names().chain(secrets.into_iter().flat_map(Variables::names));
        names.any(|name| name.eq_ignore_ascii_case("authorization"))
    }

    /// Reads the files with credentials.
    pub(super) fn read_files(&mut self) -> Result<(), ConfigError> {
        let mut secrets = Vec::new();
        if let Some(path) = &self.headers_file {
            let lines = header_lines(&secret_text(path, "headers_file")?).map_err(|why| {
                let what = format!("cannot use the `headers_file`: {why}");
                ConfigError::of_file(path, what, "write `Name: value` lines")
            })?;
            for header in lines {
                secrets.push(fit(path, "headers_file", header)?);
            }
        }
        if let Some(path) = &self.token_file {
            let header =
                ("authorization".to_owned(), format!("Bearer {}", word(path, "token_file")?));
            let header = fit(path, "token_file", header)?;
            // Tokens are read again where they are refused, by a part that a program without TLS lacks.
            if cfg!(not(feature = "tls")) {
                secrets.push(header);
            }
        }
        if let Some(path) = &self.oauth.client_secret_file {
            word(path, "client_secret_file")?;
        }
        if let Some(files) = &self.client {
            let failed = |why| {
                let what = format!("cannot read `client_cert` and `client_key`: {why}");
                ConfigError::of_file(&files.cert, what, "check the paths and modes")
            };
            self.pem = Some(files.read().map_err(failed)?);
        }
        self.secrets = Some(Variables(secrets));
        Ok(())
    }
}

/// The only word of a file that only its owner reads.
fn word(path: &Path, key: &str) -> Result<String, ConfigError> {
    let text = secret_text(path, key)?;
    let word = text.trim();
    if word.is_empty() || word.contains(char::is_whitespace) {
        let what = format!("the `{key}` must have one word alone");
        return Err(ConfigError::of_file(path, what, "write the token or secret alone into it"));
    }
    Ok(word.to_owned())
}

/// The text of a file that only its owner reads.
fn secret_text(path: &Path, key: &str) -> Result<String, ConfigError> {
    let fail = |what: String, hint: &str| ConfigError::of_file(path, what, hint);
    let bytes =
        owned_file::read(path, Secrecy::Secret, FILE_BYTES_MAX).map_err(|unfit| match unfit {
            Unfit::Io(why) => fail(format!("cannot read the `{key}`: {why}"), "check the path"),
            Unfit::Refused { what, remedy } => {
                fail(format!("rejected the `{key}`: {what}"), &remedy)
            }
        })?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| fail(format!("the `{key}` is not UTF-8"), "save it as UTF-8"))
}

fn fit(
    path: &Path,
    key: &str,
    (name, value): (String, String),
) -> Result<(String, String), ConfigError> {
    match flaw(&name, &value) {
        None => Ok((name, value)),
        Some(why) => {
            let what = format!("the `{key}` has a header that cannot be sent: {why}");
            Err(ConfigError::of_file(path, what, "correct it"))
        }
    }
}

/// Headers that the transport itself writes.
const OWN: [&str; 8] = [
    "accept",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// Why a header cannot be one of each request.
pub(super) fn flaw(name: &str, value: &str) -> Option<String> {
    if OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Some(format!("{name:?} is written by the transport"));
    }
    check_header(name, value).err().map(|why| why.to_string())
}
