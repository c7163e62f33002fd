//! The authorization server of a server: its challenge, its metadata (RFC 9728), and those of the
//! authorization server (RFC 8414, OpenID Connect Discovery).

use ceased_transports::http::client::{Place, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::challenge::{self, Challenge};
use super::reach::Reach;
use crate::issuer_metadata::metadata_urls;
use ceased_client::web::Fetch;

/// A request that a server answers with its challenge, if it wants a token.
const KNOCK: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"ceased","version":"0"}}}"#;
/// Bytes of the answer to it.
const KNOCK_BYTES_MAX: usize = 256 * 1024;
/// How long the server may take.
const KNOCK_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Metadata of a server (RFC 9728).
#[derive(Debug, Deserialize)]
struct Resource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// Metadata of an authorization server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AuthorizationServer {
    pub(super) issuer: String,
    #[serde(default)]
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: String,
    #[serde(default)]
    pub(super) registration_endpoint: Option<String>,
    #[serde(default)]
    pub(super) revocation_endpoint: Option<String>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    /// Whether it takes the URL of a document as the id of a client.
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    /// Whether its redirects name it (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// The place of logins for a server.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(super) authorization: AuthorizationServer,
    /// Identifier of the server there (RFC 8707).
    pub(super) resource: String,
    /// Scopes that the server asks for.
    pub(super) scope: Option<String>,
}

/// Finds the authorization server of a server.
///
/// # Errors
/// The part that is missing or wrong, and its place.
pub(crate) fn discover(url: &str, reach: &Reach) -> Result<Found, String> {
    let parsed = Url::parse(url).map_err(|why| format!("{url:?} {why}"))?;
    let Place::Tcp { is_tls, .. } = &parsed.place else {
        return Err(format!("{url:?} is a Unix socket, which needs no login"));
    };
    let origin = format!("{}://{}", if *is_tls { "https" } else { "http" }, parsed.authority);
    let path = parsed.target.split('?').next().unwrap_or_default().trim_end_matches('/');
    let challenge = knock(url, reach)?;
    let places = match &challenge.resource_metadata {
        Some(place) => vec![place.clone()],
        None => {
            let well_known = format!("{origin}/.well-known/oauth-protected-resource");
            vec![format!("{well_known}{path}"), well_known]
        }
    };
    let resource: Option<Resource> = first(&places, reach)?;
    let Some(resource) = resource else {
        // A server of 2025-03-26 is its own authorization server.
        let authorization = metadata(&origin, reach)?.ok_or_else(|| {
            format!("{url} names no authorization server: {} has no metadata", places.join(" nor "))
        })?;
        return Ok(Found { authorization, resource: url.to_owned(), scope: challenge.scope });
    };
    if !covers(&resource.resource, &parsed, *is_tls) {
        return Err(format!(
            "the metadata of {url} are those of another server, {:?}",
            resource.resource
        ));
    }
    let issuer = resource.authorization_servers.first();
    let issuer =
        issuer.ok_or_else(|| format!("the metadata of {url} name no authorization server"))?;
    let authorization = metadata(issuer, reach)?
        .ok_or_else(|| format!("{issuer} has no metadata of an authorization server"))?;
    let all = resource.scopes_supported.join(" ");
    let scope = challenge.scope.or_else(|| Some(all).filter(|all| !all.is_empty()));
    Ok(Found { authorization, resource: resource.resource, scope })
}

/// The challenge of a server that is asked without a token.
fn knock(url: &str, reach: &Reach) -> Result<Challenge, String> {
    let server = reach.own_server(url)?;
    let headers =
        [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let until = std::time::Instant::now() + KNOCK_WITHIN;
    let (method, body_bytes) = ("POST", KNOCK_BYTES_MAX);
    let fetch = Fetch { method, headers: &headers, body: KNOCK, body_bytes, until };
    let answer = fetch.head_from(&server).map_err(|why| format!("{url}: {why}"))?;
    if matches!(answer.status, 200..=299) {
        return Err(format!("{url} answers without a token: it needs no login"));
    }
    Ok(challenge::read(answer.all("www-authenticate")))
}

/// Whether the identifier of a server stands for this URL: it is the same, or one above it.
fn covers(resource: &str, url: &Url, is_tls: bool) -> bool {
    let Ok(named) = Url::parse(resource) else { return false };
    let Place::Tcp { is_tls: is_named_tls, .. } = &named.place else { return false };
    if named.place != url.place || *is_named_tls != is_tls {
        return false;
    }
    let target = url.target.split('?').next().unwrap_or_default();
    let above = named.target.trim_end_matches('/');
    let rest = target.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The metadata of an authorization server; `None` if it has none.
fn metadata(issuer: &str, reach: &Reach) -> Result<Option<AuthorizationServer>, String> {
    let whole = issuer.trim_end_matches('/');
    let places = metadata_urls(issuer);
    let Some(found) = first::<AuthorizationServer>(&places, reach)? else { return Ok(None) };
    if found.issuer.trim_end_matches('/') != whole {
        return Err(format!(
            "the metadata of {issuer} are those of another authorization server, {:?}",
            found.issuer
        ));
    }
    Ok(Some(found))
}

/// The first of these documents that there is.
fn first<T: DeserializeOwned>(places: &[String], reach: &Reach) -> Result<Option<T>, String> {
    for place in places {
        let answer = reach.get(place)?;
        match answer.head.status {
            200..=299 => {
                let read = serde_json::from_slice(&answer.body);
                return read.map(Some).map_err(|why| format!("{place} is not as expected: {why}"));
            }
            400..=499 => {}
            status => return Err(format!("{place} answers HTTP {status}")),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_covers_its_own_urls_alone() {
        let stands = |resource: &str, url: &str| {
            let url = Url::parse(url).unwrap();
            let is_tls = matches!(&url.place, Place::Tcp { is_tls: true, .. });
            covers(resource, &url, is_tls)
        };
        for (resource, url) in [
            ("https://h/mcp", "https://h/mcp"),
            ("https://h/mcp/", "https://h/mcp"),
            ("https://h", "https://h/mcp"),
            ("https://H:443/a", "https://h/a/b?c"),
        ] {
            assert!(stands(resource, url), "{resource} {url}");
        }
        for (resource, url) in [
            ("https://h/mc", "https://h/mcp"),
            ("https://h/other", "https://h/mcp"),
            ("https://evil/mcp", "https://h/mcp"),
            ("http://h/mcp", "https://h/mcp"),
            ("nonsense", "https://h/mcp"),
        ] {
            assert!(!stands(resource, url), "{resource} {url}");
        }
    }
}
