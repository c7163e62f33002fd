//! Credentials for servers by URL: where the token of a server comes from, its renewal before it
//! expires, and the login of a person (OAuth 2.1 with PKCE, RFC 8252, 8414, 8707, 9207 and 9728).
//!
//! Everything here may wait, and runs on threads of its own or in a command.

#[cfg(feature = "cli")]
pub(crate) mod authorize;
mod challenge;
mod discovery;
pub(crate) mod login_file;
pub(crate) mod login_place;
pub(crate) mod reach;
pub(crate) mod source;
mod token_request;
