//! Servers by URL: their places, limits and credentials.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ceased_transports::http::client::{Url, check_header};

use super::error::ConfigError;
use super::variables::Variables;
use crate::owned_file::{self, Secrecy, Unfit};
use crate::remote::Protocol;

/// Bytes of a file with headers or a token.
const FILE_BYTES_MAX: u64 = 64 * 1024;

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
        let is_needed = self.headers_file.is_some() || self.token_file.is_some();
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

    /// Reads the files with credentials.
    pub(super) fn read_files(&mut self) -> Result<(), ConfigError> {
        let mut secrets = Vec::new();
        if let Some(path) = &self.headers_file {
            for line in secret_text(path, "headers_file")?.lines().map(str::trim) {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let Some((name, value)) = line.split_once(':') else {
                    let what = "a line of the `headers_file` has no colon".to_owned();
                    return Err(ConfigError::of_file(path, what, "write `Name: value` lines"));
                };
                let header = (name.trim().to_owned(), value.trim().to_owned());
                secrets.push(fit(path, "headers_file", header)?);
            }
        }
        if let Some(path) = &self.token_file {
            let text = secret_text(path, "token_file")?;
            let token = text.trim();
            if token.is_empty() || token.contains(char::is_whitespace) {
                let what = "the `token_file` has no token".to_owned();
                return Err(ConfigError::of_file(path, what, "write the token alone into it"));
            }
            let header = ("authorization".to_owned(), format!("Bearer {token}"));
            secrets.push(fit(path, "token_file", header)?);
        }
        self.secrets = Some(Variables(secrets));
        Ok(())
    }
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
