//! Reads of key sets: from a file, from a URL, or by the metadata of the issuer.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::key_set::KeySet;
use crate::issuer_metadata::metadata_urls;
use crate::owned_file::{self, Secrecy};
use crate::safe_url::is_safe_url;
use ceased_client::web::{Fetch, HttpServer};

/// Time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of metadata and of a key set.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// The place of the keys of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The metadata of this issuer name it.
    Metadata(String),
    /// A URL.
    Url(String),
    /// A file.
    File(PathBuf),
}

impl Source {
    /// Reads the set.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn read(&self) -> Result<KeySet, String> {
        match self {
            Self::File(path) => {
                let bytes = owned_file::read(path, Secrecy::Public, DOCUMENT_BYTES_MAX as u64);
                let bytes = bytes.map_err(|why| format!("{}: {why}", path.display()))?;
                KeySet::read(&bytes).map_err(|why| format!("{}: {why}", path.display()))
            }
            Self::Url(url) => read_set(url),
            Self::Metadata(issuer) => read_set(&keys_of(issuer)?),
        }
    }
}

/// The URL of the key set of an issuer.
fn keys_of(issuer: &str) -> Result<String, String> {
    let mut failure = String::new();
    for url in metadata_urls(issuer) {
        let read = get(&url).and_then(|body| {
            let metadata: Value = serde_json::from_slice(&body).map_err(|why| why.to_string())?;
            // RFC 8414: metadata of another issuer could name keys of an attacker.
            if metadata["issuer"].as_str() != Some(issuer) {
                return Err(format!("it names the issuer {}, not {issuer:?}", metadata["issuer"]));
            }
            let keys = metadata["jwks_uri"].as_str().ok_or("it names no jwks_uri")?;
            match is_safe_url(keys) {
                true => Ok(keys.to_owned()),
                false => Err(format!("its jwks_uri {keys:?} is not https")),
            }
        });
        match read {
            Ok(keys) => return Ok(keys),
            Err(why) if failure.is_empty() => failure = format!("{url}: {why}"),
            Err(_) => {}
        }
    }
    Err(failure)
}

fn read_set(url: &str) -> Result<KeySet, String> {
    let body = get(url).map_err(|why| format!("{url}: {why}"))?;
    KeySet::read(&body).map_err(|why| format!("{url}: {why}"))
}

/// The body at a URL. Redirects are not followed.
fn get(url: &str) -> Result<Vec<u8>, String> {
    let server = HttpServer::trusting(url, None)?;
    let headers = [("accept", "application/json")];
    let until = Instant::now() + TIMEOUT;
    let (headers, body_bytes) = (&headers, DOCUMENT_BYTES_MAX);
    let fetch = Fetch { method: "GET", headers, body: "", body_bytes, until };
    let fetched = fetch.from(&server).map_err(|why| why.to_string())?;
    match fetched.head.status {
        200 => Ok(fetched.body),
        status => Err(format!("it answers with {status}")),
    }
}
