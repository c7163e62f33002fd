//! Keys of a listener about signed tokens and TLS.

use std::path::PathBuf;

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

/// Certificate and key of a listener, in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, with those of intermediate authorities behind it.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}
