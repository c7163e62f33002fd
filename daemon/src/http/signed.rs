//! Signed tokens of a listener: the interface of the resource server behind it (AUTH-01).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::policy::allow::Grants;
use ceased_transports::http::Response;

/// A token that was accepted.
#[derive(Debug)]
pub(crate) struct SignedToken {
    /// Issuer and subject, as the identity has them.
    pub(crate) subject: Arc<str>,
    /// Its groups and scopes.
    pub(crate) grants: Arc<Grants>,
    /// Time from its check until it is not accepted any more.
    pub(crate) valid_for: Duration,
    /// Its client.
    pub(crate) client: Option<Box<str>>,
    /// Its own id.
    pub(crate) id: Option<Box<str>>,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is wrong, for this reason.
    Invalid(&'static str),
    /// It was good until it expired.
    Expired,
    /// The keys of its issuer are not known now.
    NoKeys,
    /// It lacks these scopes, which every request needs.
    Scopes(Vec<Box<str>>),
}

/// Work for a thread of its own.
pub(crate) type Fetch = Box<dyn FnOnce() + Send>;

/// The resource server of a listener.
pub(crate) trait SignedTokens: fmt::Debug + Send + Sync {
    /// Whether the decision on a token waits for the keys of its issuer, which are being read.
    fn waits(&self, token: &str) -> bool;

    /// Checks a token.
    ///
    /// # Errors
    /// Why it is not accepted.
    fn check(&self, token: &str) -> Result<SignedToken, Refusal>;

    /// The metadata of the protected resource, if it is at this path.
    fn metadata(&self, path: &str) -> Option<Response>;

    /// The challenge of a response, for an error and scopes that are needed.
    fn challenge(&self, error: Option<(&str, &str)>, scopes: Option<&[Box<str>]>) -> String;

    /// Scopes that a call of this tool needs, those of every request among them.
    fn scopes_of(&self, tool: &str) -> Vec<Box<str>>;

    /// Keys that are to be read.
    fn take_fetches(&self) -> Vec<Fetch>;
}
