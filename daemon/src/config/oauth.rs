//! Keys of a listener about signed tokens and TLS.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::owned_file::{self, Secrecy};

/// Size limit of a file with a certificate or key.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// Signed tokens of a listener (AUTH-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuth {
    /// Address of the protected resource.
    pub resource: String,
    /// Issuers of its tokens; at least one.
    pub issuers: Vec<String>,
    /// Audiences of tokens that are for it; at least one.
    pub audience: Vec<String>,
    /// Keys of the issuers; as their metadata name them if `None`.
    pub jwks: Option<Jwks>,
    /// Certificates of the authorities that the issuers are trusted by; those of the system if `None`.
    pub ca_file: Option<PathBuf>,
    /// Scopes that every request needs.
    pub scopes: Vec<Box<str>>,
    /// Claim with the groups of the subject.
    pub groups_claim: String,
}

/// Place of a key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Jwks {
    /// A URL.
    Url(String),
    /// A file.
    File(PathBuf),
}

/// Certificate and key of one side of TLS, in PEM format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    /// Its certificate, with those of intermediate authorities behind it.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

/// The content of such files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pem {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// Why one cannot be read, with its path.
    pub(crate) fn read(&self) -> Result<Pem, String> {
        let read = |path: &Path, secrecy| {
            owned_file::read(path, secrecy, PEM_BYTES_MAX)
                .map_err(|why| format!("{}: {why}", path.display()))
        };
        let (cert, key) = (&self.cert, &self.key);
        Ok(Pem { cert: read(cert, Secrecy::Public)?, key: read(key, Secrecy::Secret)? })
    }
}
