//! The settings of one server by URL: payload of an
//! [`UpstreamServer`](ceased_core::upstream::server::UpstreamServer).

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ceased_client::proxy::Route;
use ceased_core::identity::Identity;
use ceased_core::upstream::server::UpstreamServer;
use ceased_transports::http::client::Url;
#[cfg(feature = "tls")]
use ceased_transports::tls::TlsConfig;

use super::bearer::Bearer;
#[cfg(feature = "tls")]
use crate::credentials::source::Credentials;

/// Tokens of identities that are kept, beyond those in use.
const BEARERS_KEPT: usize = 64;

/// Transport in which a server by URL is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Streamable HTTP, and HTTP+SSE if the server refuses it.
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// The settings of one server by URL.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) url: Url,
    /// The way there.
    pub(crate) route: Route,
    /// Headers of every request. Their values may be secret.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) protocol: Protocol,
    /// From the start of a connection to its first sent byte.
    pub(crate) connect_timeout: Duration,
    /// Longest time without a byte of the response to a request.
    pub(crate) read_timeout: Duration,
    /// Connections with requests, of one instance.
    pub(crate) max_connections: usize,
    /// Whether a name may stand for an address of a private network (REM-05).
    pub(crate) allow_private: bool,
    /// Authorities that are trusted, for `https://`.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<TlsConfig>,
    /// Where its tokens come from; `None` if its headers are all that it is given.
    #[cfg(feature = "tls")]
    pub(crate) credentials: Option<Credentials>,
    /// Tokens, by the identity that an instance works for.
    pub(crate) bearers: Bearers,
}

/// Tokens of a server, by the identity that an instance works for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bearers(Arc<Mutex<BTreeMap<Option<Identity>, Bearer>>>);

impl Bearers {
    /// The token for an identity.
    fn of(&self, identity: Option<&Identity>, has_source: bool) -> Bearer {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > BEARERS_KEPT {
            all.retain(|_, bearer| bearer.is_shared());
        }
        let found = all.entry(identity.cloned()).or_insert_with(|| Bearer::new(has_source));
        found.clone()
    }

    /// The tokens that are known.
    pub(crate) fn all(&self) -> Vec<(Option<Identity>, Bearer)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(identity, bearer)| (identity.clone(), bearer.clone())).collect()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The token with which an instance works for an identity.
    pub(crate) fn bearer(&self, identity: Option<&Identity>) -> Bearer {
        #[cfg(feature = "tls")]
        let has_source = self.credentials.is_some();
        #[cfg(not(feature = "tls"))]
        let has_source = false;
        self.bearers.of(identity, has_source)
    }

    /// As the payload of a server.
    pub(crate) fn into_payload(self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self))
    }

    /// The payload of a server, if it is reached by a URL.
    pub(crate) fn of(server: &UpstreamServer) -> Option<Arc<Self>> {
        Arc::clone(server.payload.as_ref()?).downcast().ok()
    }
}
