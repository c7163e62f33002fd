//! The login of a person: a code with PKCE, redirected to a free port of this machine (RFC 7636,
//! 8252).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::discovery::{Found, discover};
use super::login_file::Login;
use super::reach::{Reach, decode, form};
use super::source::prefers_form;
use super::token_request::{Client, request};

/// Path that the browser is redirected to.
const CALLBACK: &str = "/callback";
/// Bytes of the head of a request of the browser.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long one connection of a browser may take.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Connections of browsers at once: they open some in advance.
const CONNECTIONS_MAX: usize = 16;
/// Pause between two looks whether the login was given up.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A client of authorization servers, as far as it is configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientId {
    /// Its id, from a registration by hand.
    pub(crate) id: Option<String>,
    pub(crate) secret: Option<String>,
    /// URL of a document that describes it.
    pub(crate) metadata: Option<String>,
}

/// A login that has begun: a person has to open its address.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Address at the authorization server.
    pub(crate) address: String,
    url: String,
    reach: Reach,
    found: Found,
    client: ClientId,
    redirect: String,
    state: String,
    verifier: String,
    listener: TcpListener,
}

/// The parameters of a redirect.
type Redirected = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
}

impl Pending {
    /// Begins a login at a server.
    ///
    /// # Errors
    /// The part that is missing or wrong, and its place.
    pub(crate) fn begin(
        url: &str,
        reach: Reach,
        configured: ClientId,
        scopes: &[String],
    ) -> Result<Self, String> {
        let found = discover(url, &reach)?;
        let server = &found.authorization;
        let issuer = &server.issuer;
        if !server.code_challenge_methods_supported.iter().any(|method| method == "S256") {
            return Err(format!(
                "{issuer} does not say that it knows PKCE (S256), which is needed"
            ));
        }
        let place = server.authorization_endpoint.as_ref();
        let place = place.ok_or_else(|| format!("{issuer} has no authorization endpoint"))?;
        // A page is opened in the browser of this user, so it must be one of the web.
        if !place.starts_with("https://") {
            reach.server(place).map(drop)?;
        }
        let failed = |why| format!("no port of this machine can be listened at: {why}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let redirect = format!("http://127.0.0.1:{port}{CALLBACK}");
        let client = client(configured, &found, &redirect, &reach)?;
        let word = || format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let (state, verifier) = (word(), word());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let scope = match scopes.is_empty() {
            true => found.scope.clone().unwrap_or_default(),
            false => scopes.join(" "),
        };
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", client.id.as_deref().unwrap_or_default()),
            ("redirect_uri", &redirect),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", &state),
            ("resource", &found.resource),
        ];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let joint = if place.contains('?') { '&' } else { '?' };
        let address = format!("{place}{joint}{}", form(&fields));
        let url = url.to_owned();
        Ok(Self { address, url, reach, found, client, redirect, state, verifier, listener })
    }

    /// Waits for the redirect of the browser, until the time is over or `is_over` says so.
    ///
    /// # Errors
    /// If nothing came, or the login was refused.
    pub(crate) fn wait(
        &self,
        until: Instant,
        mut is_over: impl FnMut() -> Option<Redirect>,
    ) -> Result<String, String> {
        self.listener.set_nonblocking(true).map_err(|why| why.to_string())?;
        let (found, redirects) = channel();
        let open = Arc::new(AtomicUsize::new(0));
        while Instant::now() < until {
            match self.listener.accept() {
                Ok((stream, _)) if open.load(Ordering::Relaxed) < CONNECTIONS_MAX => {
                    open.fetch_add(1, Ordering::Relaxed);
                    let (found, state) = (found.clone(), self.state.clone());
                    let served = Arc::clone(&open);
                    let started = thread::Builder::new().name("login".into()).spawn(move || {
                        serve(stream, &state, &found);
                        served.fetch_sub(1, Ordering::Relaxed);
                    });
                    if started.is_err() {
                        open.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                Ok(_) => {}
                Err(_) => thread::sleep(LOOK_EVERY),
            }
            let typed = match is_over() {
                None => None,
                Some(Redirect::Stopped) => return Err("given up".to_owned()),
                Some(Redirect::Typed(text)) => Some(parameters(&text)),
            };
            if let Some(redirected) = typed.or_else(|| redirects.try_recv().ok()) {
                return self.code(redirected);
            }
        }
        Err("the login was not finished in time".to_owned())
    }

    /// The code of a redirect.
    fn code(&self, mut redirected: Redirected) -> Result<String, String> {
        if redirected.get("state") != Some(&self.state) {
            return Err("the redirect belongs to another login".to_owned());
        }
        let server = &self.found.authorization;
        let told = redirected.get("iss");
        let must_tell = server.authorization_response_iss_parameter_supported;
        if told.map_or(must_tell, |issuer| *issuer != server.issuer) {
            return Err(format!("the redirect is not of {}", server.issuer));
        }
        if let Some(error) = redirected.get("error") {
            let text = redirected.get("error_description").map_or("", String::as_str);
            return Err(format!("the login was refused: {error} {text}").trim_end().to_owned());
        }
        redirected.remove("code").ok_or_else(|| "the redirect has no code".to_owned())
    }

    /// Exchanges a code for tokens.
    ///
    /// # Errors
    /// If the authorization server refuses it.
    pub(crate) fn redeem(self, code: &str) -> Result<Login, String> {
        let server = self.found.authorization;
        let (id, secret) = (self.client.id.unwrap_or_default(), self.client.secret);
        let secret_in_form = prefers_form(&server.token_endpoint_auth_methods_supported);
        let client = Client { id: &id, secret: secret.as_deref(), in_form: secret_in_form };
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*self.redirect),
            ("code_verifier", &*self.verifier),
            ("resource", &*self.found.resource),
        ];
        let granted = request(&self.reach, &server.token_endpoint, client, &fields);
        let granted = granted.map_err(|why| format!("no token was granted: {}", why.text()))?;
        let mut login = Login {
            server: self.url,
            resource: self.found.resource,
            issuer: server.issuer,
            token_endpoint: server.token_endpoint,
            revocation_endpoint: server.revocation_endpoint,
            client_id: id,
            client_secret: secret,
            secret_in_form,
            access_token: String::new(),
            refresh_token: None,
            expires_at: None,
            granted_for: None,
            scope: None,
        };
        login.take(&granted);
        Ok(login)
    }
}

/// A redirect that did not come from a browser here.
#[derive(Debug)]
pub(crate) enum Redirect {
    /// The person has given up.
    Stopped,
    /// The address that a browser elsewhere was redirected to.
    Typed(String),
}

/// The client of a login: configured, described by a document, or registered now.
fn client(
    configured: ClientId,
    found: &Found,
    redirect: &str,
    reach: &Reach,
) -> Result<ClientId, String> {
    let server = &found.authorization;
    if configured.id.is_some() {
        return Ok(configured);
    }
    if let Some(document) = &configured.metadata
        && server.client_id_metadata_document_supported
    {
        return Ok(ClientId { id: Some(document.clone()), ..ClientId::default() });
    }
    let Some(place) = &server.registration_endpoint else {
        return Err(format!(
            "{} registers no clients: register one there by hand, with the redirect \
             http://127.0.0.1{CALLBACK} on any port, and give its id with --client-id",
            server.issuer
        ));
    };
    let body = serde_json::json!({
        "client_name": "ceased",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    });
    let headers = [("content-type", "application/json"), ("accept", "application/json")];
    let answer = reach.send(place, "POST", &headers, &body.to_string())?;
    if !matches!(answer.head.status, 200..=299) {
        return Err(format!("{place} registers no client: HTTP {}", answer.head.status));
    }
    let registered: Registered = serde_json::from_slice(&answer.body)
        .map_err(|why| format!("{place} registers no client: {why}"))?;
    let (id, secret) = (Some(registered.client_id), registered.client_secret);
    Ok(ClientId { id, secret, metadata: None })
}

/// Answers a browser, and tells a redirect of this login.
fn serve(mut stream: TcpStream, state: &str, found: &Sender<Redirected>) {
    let until = Instant::now() + REQUEST_WITHIN;
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD_BYTES_MAX {
            return;
        }
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_read_timeout(Some(left));
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => head.extend(piece.iter().take(count)),
            Ok(_) | Err(_) => return,
        }
    }
    let text = String::from_utf8_lossy(&head);
    let target = text.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let query = target.and_then(|target| target.strip_prefix(CALLBACK)?.strip_prefix('?'));
    let redirected = query.map(|query| parameters(&format!("?{query}")));
    let own = redirected.filter(|it| it.get("state").is_some_and(|told| told == state));
    let (status, page) = match &own {
        Some(own) if own.contains_key("code") => {
            ("200 OK", "ceased is logged in. You can close this page.")
        }
        Some(_) => ("200 OK", "The login was refused. You can close this page."),
        None => ("404 Not Found", "There is nothing here."),
    };
    let length = page.len();
    let _ = stream.write_all(
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{page}"
        )
        .as_bytes(),
    );
    if let Some(own) = own {
        let _ = found.send(own);
    }
}

/// The parameters of the query of an address.
fn parameters(address: &str) -> Redirected {
    let query = address.trim().split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_an_address_are_read() {
        let read = parameters(" http://127.0.0.1:1/callback?code=a%20b&state=s&x#f \n");
        let told = [("code", "a b"), ("state", "s")];
        let told = told.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read, Redirected::from(told));
        assert!(parameters("nothing").is_empty());
    }
}
