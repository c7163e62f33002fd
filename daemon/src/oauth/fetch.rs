//! Reads of key sets: from a file, from a URL, or by the metadata of the issuer.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::key_set::KeySet;
use crate::issuer_metadata::metadata_urls;
use crate::owned_file::{self, Secrecy};
use crate::safe_url::is_safe_url;
use ceased_client::web::{Fetch, HttpServer};
use ceased_core::protocol::trace_context::hex;

/// Time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of metadata and of a key set.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a file of authorities that are compared: those of all public ones are a quarter of it.
const AUTHORITIES_BYTES_MAX: u64 = 1024 * 1024;

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

/// The file of the authorities that an issuer is trusted by, and its content: keys that others
/// vouched for are not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Authorities {
    pub(super) file: PathBuf,
    digest: String,
}

impl Authorities {
    /// Those of a file. One that cannot be read has no authority; the read of keys says why.
    pub(super) fn of(file: &Path) -> Self {
        let mut content = Vec::new();
        if let Ok(opened) = File::open(file) {
            let _ = opened.take(AUTHORITIES_BYTES_MAX).read_to_end(&mut content);
        }
        Self { file: file.to_owned(), digest: digest_of(&content) }
    }
}

/// The start of the SHA-256 of a text, in hexadecimal digits.
fn digest_of(text: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    hex(digest.as_ref().get(..16).unwrap_or_default())
}

/// A set, and its text.
pub(super) type Read = (KeySet, Vec<u8>);

impl Source {
    /// Reads the set. `ca_file`: the authorities that its server is trusted by.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn read(&self, ca_file: Option<&Path>) -> Result<Read, String> {
        match self {
            Self::File(path) => {
                let bytes = owned_file::read(path, Secrecy::Public, DOCUMENT_BYTES_MAX as u64);
                let bytes = bytes.map_err(|why| format!("{}: {why}", path.display()))?;
                let set = KeySet::read(&bytes);
                Ok((set.map_err(|why| format!("{}: {why}", path.display()))?, bytes))
            }
            Self::Url(url) => read_set(url, ca_file),
            Self::Metadata(issuer) => read_set(&keys_of(issuer, ca_file)?, ca_file),
        }
    }

    /// A name for the keys of an issuer that come from here by these authorities, for a file; `None`
    /// where they are one.
    pub(super) fn file_name(&self, issuer: &str, ca: Option<&Authorities>) -> Option<String> {
        let place = match self {
            Self::Metadata(_) => "",
            Self::Url(url) => url,
            Self::File(_) => return None,
        };
        let trusted = ca.map(|ca| format!("\n{}", ca.digest)).unwrap_or_default();
        let text = format!("{issuer}\n{place}{trusted}");
        Some(digest_of(text.as_bytes()) + ".json")
    }
}

/// The URL of the key set of an issuer.
fn keys_of(issuer: &str, ca_file: Option<&Path>) -> Result<String, String> {
    let mut failure = String::new();
    for url in metadata_urls(issuer) {
        let read = get(&url, ca_file).and_then(|body| {
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

fn read_set(url: &str, ca_file: Option<&Path>) -> Result<Read, String> {
    let body = get(url, ca_file).map_err(|why| format!("{url}: {why}"))?;
    let set = KeySet::read(&body).map_err(|why| format!("{url}: {why}"))?;
    Ok((set, body))
}

/// The body at a URL. Redirects are not followed.
fn get(url: &str, ca_file: Option<&Path>) -> Result<Vec<u8>, String> {
    let server = HttpServer::trusting(url, ca_file)?;
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
