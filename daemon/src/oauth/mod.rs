//! The resource server of a listener for HTTP: signed tokens of other issuers (AUTH-01, AUTH-02).
//!
//! ```text
//!   token ──► jwt: bounds, header, issuer ──► issuer_keys: the key ──► jwt: signature, claims
//!                                                  ▲
//!                         a thread: fetch ── key_set
//! ```
//!
//! The loop checks tokens with keys that are there; keys are read on a thread of their own.

mod fetch;
mod issuer_keys;
mod jwt;
mod kept_keys;
mod key_set;
mod resource;
mod ring_provider;

pub(crate) use resource::ResourceServer;
