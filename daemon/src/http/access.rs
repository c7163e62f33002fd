//! Decision about a request by its head alone: path, method, Host, Origin, token, media types
//! (HTTP-01, HTTP-02, HTTP-03). Nothing is allocated for a request that is refused here.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ceased_core::identity::{Identity, Rights};
use ceased_core::policy::allow::Grants;
use ceased_transports::http::{Head, HeadCheck, Method, Response, Status};
use ceased_transports::{Address, Peer};

use super::pages::{self, Health, Serves};
use super::secure::Secure;
use super::signed::{Refusal, SignedToken, SignedTokens};
use super::view::{self, passes, passes::Passes};
use crate::access::{Access, Entry};
use crate::mcp_headers;
use crate::peer_identity::InspectedPeer;
use crate::safe_url::is_local_authority;
use crate::token_file::Token;

/// Path of the endpoint.
pub(crate) const PATH: &str = "/mcp";
/// Text of the response to a request without a token.
const NO_TOKEN: &str = "this listener requires a token: Authorization: Bearer TOKEN";
/// Methods of the endpoint.
pub(crate) const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// Request headers that a page may send, beside those of [`PARAMETER`].
const PAGE_HEADERS: &str = "authorization, content-type, accept, mcp-session-id, \
                            mcp-protocol-version, mcp-method, mcp-name, last-event-id, \
                            traceparent, tracestate, baggage";
/// Start of the names of headers that repeat arguments of a tool (HTTP-09).
const PARAMETER: &str = "mcp-param-";
/// Response headers that a page may read.
const PAGE_READS: &str = "mcp-session-id, mcp-protocol-version, www-authenticate";

/// Rules of a listener for HTTP.
#[derive(Debug)]
pub(crate) struct HttpRules {
    /// Address that the listener was asked for.
    pub(crate) address: Address,
    /// Access rule of the listener.
    pub(crate) access: Access,
    /// Origins of pages that may call, beside local ones: `scheme://host[:port]`.
    pub(crate) allow_origins: Arc<[String]>,
    /// Whether any Host is accepted: on a Unix socket, which no page can reach, and on an address
    /// of the network, where every request needs a token.
    pub(crate) any_host: bool,
    /// Time without a request or an open stream after which a session ends.
    pub(crate) session_idle: Duration,
    /// The same after the loss of the last connection of a session.
    pub(crate) gone: Duration,
    /// Time that a connection may be silent between two requests.
    pub(crate) keep_alive: Duration,
    /// Maximum number of sessions of one identity.
    pub(crate) sessions_per_identity: usize,
    /// Maximum number of connections of one party.
    pub(crate) connections_per_address: usize,
    /// Bytes of events of one session that are kept.
    pub(crate) replay_bytes: usize,
    /// Whether the live view is served.
    pub(crate) view: bool,
    /// The pages beside those of health.
    pub(crate) serves: Serves,
    /// Signed tokens that it takes.
    pub(crate) signed: Option<Arc<dyn SignedTokens>>,
    /// TLS of its connections.
    pub(crate) secure: Option<Secure>,
}

/// Identity of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Identity for the engine.
    pub(crate) identity: Identity,
    /// Rights under that identity.
    pub(crate) rights: Rights,
    /// Token that proved it, if one did.
    pub(crate) token: Option<Arc<Token>>,
    /// Set if a link of the live view proved it, which permits nothing but the view.
    pub(crate) view: Option<ViewGrant>,
    /// Name of the profile in the path.
    pub(crate) profile: Option<Box<str>>,
    /// Signed token that proved it, if one did.
    pub(crate) signed: Option<Arc<SignedToken>>,
}

/// Access by a link of the live view.
#[derive(Debug, Clone)]
pub(crate) struct ViewGrant {
    /// New token, for which the code of a link was exchanged.
    pub(crate) token: Option<Box<str>>,
}

impl Caller {
    pub(crate) const fn of(identity: Identity) -> Self {
        let (token, view, profile, signed) = (None, None, None, None);
        Self { identity, rights: Rights::Full, token, view, profile, signed }
    }

    /// Groups and scopes of its token.
    pub(crate) fn grants(&self) -> &Grants {
        self.signed.as_ref().map_or(Grants::NONE, |signed| &signed.grants)
    }
}

/// Check of the heads of one connection.
pub(crate) struct HeadPolicy<'a> {
    /// Access rules of the listener.
    pub(crate) rules: &'a HttpRules,
    /// Peer of the connection.
    pub(crate) peer: &'a Peer,
    /// Identity and rights of the peer, where its process was inspected.
    pub(crate) inspected: Option<&'a InspectedPeer>,
    /// Passes of the live view.
    pub(crate) passes: &'a Mutex<Passes>,
    /// Whether the daemon takes calls.
    pub(crate) health: &'a Health,
    /// Identity of the request whose head was accepted last.
    pub(crate) caller: &'a mut Option<Caller>,
    /// Whether a wrong token was presented; the connection is closed then.
    pub(crate) wrong_token: &'a mut bool,
}

impl HeadCheck for HeadPolicy<'_> {
    fn waits(&mut self, head: &Head) -> bool {
        let token = head.header("authorization").and_then(bearer);
        let signed = self.rules.signed.as_ref();
        token.zip(signed).is_some_and(|(token, signed)| signed.waits(token))
    }

    fn check(&mut self, head: &Head) -> Option<Response> {
        // No web page may read these: it would learn that there is a daemon here.
        if let Some(response) = self.health.answer(head) {
            return Some(response);
        }
        if self.rules.serves == Serves::Numbers {
            return pages::check_numbers(head).err();
        }
        // AUTH-01: without authentication, and for every page.
        if let Some(metadata) = self.rules.signed.as_ref().and_then(|it| it.metadata(head.path())) {
            return Some(pages::public(metadata, head));
        }
        match self.accept(head) {
            Ok(caller) => {
                *self.caller = Some(caller);
                None
            }
            Err(response) => Some(with_page_headers(response, head)),
        }
    }
}

impl HeadPolicy<'_> {
    /// The part of the live view that a request names.
    fn part(&self, head: &Head) -> Option<view::Part> {
        self.rules.view.then(|| view::Part::at(head.path())).flatten()
    }

    fn accept(&mut self, head: &Head) -> Result<Caller, Response> {
        self.rules.check_origin(head)?;
        if let Some(part) = self.part(head) {
            part.check(head, accepts_events(head))?;
            return self.identify(head);
        }
        let Some(profile) = profile_of(head.path()) else {
            let text = format!("the endpoint of this server is {PATH}, or {PATH}/PROFILE");
            return Err(Response::text(Status::NotFound, &text));
        };
        match head.method {
            Method::Options => {
                return Err(Response::new(Status::NoContent).header("allow", METHODS));
            }
            Method::Head | Method::Other => {
                let response = Response::text(Status::MethodNotAllowed, "use POST");
                return Err(response.header("allow", METHODS));
            }
            Method::Get | Method::Post | Method::Delete => {}
        }
        let caller = self.identify(head)?;
        if head.method == Method::Post {
            check_media_types(head)?;
        }
        Ok(Caller { profile: profile.map(Into::into), ..caller })
    }

    /// HTTP-02: the identity of a request, by the token of its head or by the socket.
    fn identify(&mut self, head: &Head) -> Result<Caller, Response> {
        let token = head.header("authorization").and_then(bearer);
        if let Some(secret) = token.filter(|token| passes::is_pass(token)) {
            return self.identify_by_link(head, secret);
        }
        let access = match self.rules.access.decide(self.peer) {
            Entry::As(identity) => {
                return Ok(self.inspected.map_or(
                    Caller::of(identity),
                    |InspectedPeer { identity, rights, .. }| Caller {
                        rights: *rights,
                        ..Caller::of(identity.clone())
                    },
                ));
            }
            Entry::Refuse(why) => return Err(Response::text(Status::Forbidden, &why)),
            Entry::Authenticate(access) => access,
        };
        if !head.has("authorization") && access.anonymous {
            return Ok(Caller::of(Identity::Anonymous));
        }
        match token.and_then(|token| access.tokens.find(token)) {
            Some(token) => Ok(Caller {
                token: Some(Arc::clone(token)),
                ..Caller::of(Identity::Token(Arc::clone(token.name())))
            }),
            None => match (self.rules.signed.clone(), token) {
                (Some(signed), Some(token)) => {
                    let scopes = scopes_of_call(&*signed, head);
                    self.identify_signed(&*signed, token, scopes.as_deref())
                }
                (Some(signed), None) => {
                    *self.wrong_token = head.has("authorization");
                    let response = Response::text(Status::Unauthorized, NO_TOKEN);
                    let scopes = scopes_of_call(&*signed, head);
                    let challenge = signed.challenge(None, scopes.as_deref());
                    Err(response.header("www-authenticate", challenge))
                }
                (None, _) => {
                    *self.wrong_token = head.has("authorization");
                    let response = Response::text(Status::Unauthorized, NO_TOKEN);
                    let challenge = if *self.wrong_token {
                        "Bearer realm=\"ceased\", error=\"invalid_token\""
                    } else {
                        "Bearer realm=\"ceased\""
                    };
                    Err(response.header("www-authenticate", challenge))
                }
            },
        }
    }

    /// AUTH-01: the identity by a signed token, or the challenge.
    fn identify_signed(
        &mut self,
        signed: &dyn SignedTokens,
        token: &str,
        scopes: Option<&[Box<str>]>,
    ) -> Result<Caller, Response> {
        let refusal = match signed.check(token) {
            Ok(token) => {
                let identity = Identity::Subject(Arc::clone(&token.subject));
                return Ok(Caller { signed: Some(Arc::new(token)), ..Caller::of(identity) });
            }
            Err(refusal) => refusal,
        };
        let unauthorized = |why: &str| {
            let challenge = signed.challenge(Some(("invalid_token", why)), scopes);
            Response::text(Status::Unauthorized, why).header("www-authenticate", challenge)
        };
        match refusal {
            Refusal::Invalid(why) => {
                *self.wrong_token = true;
                Err(unauthorized(why))
            }
            // A client asks for another one, and is not held up.
            Refusal::Expired => Err(unauthorized("the token has expired")),
            Refusal::NoKeys => {
                let text = "the keys of the issuer of this token cannot be read now";
                Err(Response::text(Status::Unavailable, text).header("retry-after", "5"))
            }
            Refusal::Scopes(scopes) => Err(lacking_scopes(signed, &scopes)),
        }
    }
}

/// AUTH-01: the scopes of a call, by the headers that repeat its tool; `None` for another request, and
/// for one of a revision without these headers.
fn scopes_of_call(signed: &dyn SignedTokens, head: &Head) -> Option<Vec<Box<str>>> {
    let is_call = head.header("mcp-method") == Some("tools/call");
    let name = head.header("mcp-name").filter(|_| is_call)?;
    let name = mcp_headers::decode(name)?;
    Some(signed.scopes_of(&name))
}

/// The response to a request whose token lacks scopes (AUTH-01).
pub(crate) fn lacking_scopes(signed: &dyn SignedTokens, scopes: &[Box<str>]) -> Response {
    let why = "the token lacks a scope that this request needs";
    let challenge = signed.challenge(Some(("insufficient_scope", why)), Some(scopes));
    let text = format!("{why}: {}", scopes.join(" "));
    Response::text(Status::Forbidden, &text).header("www-authenticate", challenge)
}

/// Links of the live view.
impl HeadPolicy<'_> {
    /// HTTP-02: the identity of a browser that opened a link of the view. The page of this very
    /// origin sends it, in a browser on this machine, where the Unix socket gave the link.
    fn identify_by_link(&mut self, head: &Head, secret: &str) -> Result<Caller, Response> {
        let part = self.part(head);
        let is_cancel = head.path() == PATH && head.method == Method::Post;
        if !is_cancel && part.is_none() {
            let text = "a link of the live view permits its stream and cancels alone";
            return Err(Response::text(Status::Forbidden, text));
        }
        if !self.rules.view || !self.is_of_own_page(head) {
            let text = "a link of the live view is for its page in a browser on this machine";
            return Err(Response::text(Status::Forbidden, text));
        }
        let (mut passes, now) =
            (self.passes.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if let Some((identity, rights)) = passes.identity(secret, now) {
            let view = Some(ViewGrant { token: None });
            return Ok(Caller { rights, view, ..Caller::of(identity) });
        }
        let exchanged = part.and_then(|_| passes.exchange(secret, now));
        let Some(((identity, rights), token)) = exchanged else {
            *self.wrong_token = true;
            let text = "this link of the live view has been used or has ended: `ceased view` \
                        prints another";
            return Err(Response::text(Status::Unauthorized, text));
        };
        let view = Some(ViewGrant { token: Some(token.into()) });
        Ok(Caller { rights, view, ..Caller::of(identity) })
    }

    fn is_of_own_page(&self, head: &Head) -> bool {
        let is_local = match self.peer {
            Peer::Tcp { addr } => addr.ip().to_canonical().is_loopback(),
            Peer::Unix { .. } | Peer::Stdio { .. } | Peer::Child { .. } => false,
        };
        let is_same_site = head.header("sec-fetch-site").is_none_or(|site| site == "same-origin");
        let is_same_origin = match head.header("origin") {
            Some(origin) => origin
                .split_once("://")
                .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(&head.host)),
            None => !head.has("origin"),
        };
        is_local && is_local_authority(&head.host) && is_same_site && is_same_origin
    }
}

impl HttpRules {
    /// HTTP-02: a page of a foreign origin, or one whose name was pointed at this machine (DNS
    /// rebinding), is refused.
    fn check_origin(&self, head: &Head) -> Result<(), Response> {
        if !self.any_host && !is_local_authority(&head.host) && !self.allows_host(&head.host) {
            let text = "the Host of this request is not this machine: name 127.0.0.1 or localhost, \
                        or list the origin in allow_origins";
            return Err(Response::text(Status::Forbidden, text));
        }
        let Some(origin) = head.header("origin") else {
            return if head.has("origin") { Err(foreign_page()) } else { Ok(()) };
        };
        // On an address of the network the page at / has the origin by which its user names this
        // machine. Another page does not know the token.
        let is_own = self.any_host
            && head.has("authorization")
            && origin.split_once("://").is_some_and(|(_, it)| it.eq_ignore_ascii_case(&head.host));
        if is_own || self.allows(origin) { Ok(()) } else { Err(foreign_page()) }
    }

    fn allows(&self, origin: &str) -> bool {
        let local = origin.split_once("://").is_some_and(|(scheme, authority)| {
            matches!(scheme, "http" | "https") && is_local_authority(authority)
        });
        local || self.allow_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    fn allows_host(&self, host: &str) -> bool {
        let hosts = self.allow_origins.iter().filter_map(|origin| origin.split_once("://"));
        hosts.map(|(_, authority)| authority).any(|allowed| allowed.eq_ignore_ascii_case(host))
    }
}

/// The profile that the path of an endpoint names; `None` if it is no endpoint.
fn profile_of(path: &str) -> Option<Option<&str>> {
    match path.strip_prefix(PATH)? {
        "" => Some(None),
        rest => rest.strip_prefix('/').filter(|name| !name.is_empty()).map(Some),
    }
}

/// The refusal of a page of another origin.
fn foreign_page() -> Response {
    let text = "pages of this origin may not call: list it in allow_origins";
    Response::text(Status::Forbidden, text)
}

/// Token of an `Authorization` header.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// HTTP-03: a body is JSON, and the client takes JSON or a stream of events.
fn check_media_types(head: &Head) -> Result<(), Response> {
    let media_type = head.header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let text = "a message has the content type application/json";
        return Err(Response::text(Status::UnsupportedMediaType, text));
    }
    if !accepts(head, "application/json") && !accepts_events(head) {
        let text = "answers are application/json or text/event-stream: accept both";
        return Err(Response::text(Status::NotAcceptable, text));
    }
    Ok(())
}

/// Whether the client takes a stream of events.
pub(crate) fn accepts_events(head: &Head) -> bool {
    accepts(head, "text/event-stream")
}

/// Whether the client takes this media type. A request without `Accept` takes every one.
pub(crate) fn accepts(head: &Head, wanted: &str) -> bool {
    if !head.has("accept") {
        return true;
    }
    let group = wanted.split('/').next().unwrap_or_default();
    head.all("accept").flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default();
        let is_refused = parts.any(|parameter| {
            let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
        });
        let is_match = range == "*/*"
            || range.eq_ignore_ascii_case(wanted)
            || range.strip_suffix("/*").is_some_and(|it| it.eq_ignore_ascii_case(group));
        is_match && !is_refused
    })
}

/// Lets a page of an accepted origin read the response, unless the response is of the live view:
/// that is for its own page.
pub(crate) fn with_page_headers(response: Response, head: &Head) -> Response {
    let refused = response.status == Status::Forbidden && !is_challenge(&response);
    let Some(origin) = page_of(head).filter(|_| !refused) else { return response };
    let response = let_read(response, origin);
    if head.method != Method::Options {
        return response;
    }
    response
        .header("access-control-allow-methods", METHODS)
        .header("access-control-allow-headers", page_headers(head))
        .header("access-control-max-age", "600")
}

/// Names of the request headers that a page may send: of the parameter headers those it asks for,
/// since each tool has its own.
fn page_headers(head: &Head) -> Cow<'static, str> {
    let is_token = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let asked = head.all("access-control-request-headers").flat_map(|names| names.split(','));
    let asked = asked.map(|name| name.trim().to_ascii_lowercase());
    let asked = asked.filter(|name| name.len() > PARAMETER.len() && is_token(name));
    let mut names = Cow::Borrowed(PAGE_HEADERS);
    for name in asked.filter(|name| name.starts_with(PARAMETER)) {
        names.to_mut().extend([", ", &name]);
    }
    names
}

/// The origin of a page that may read the response to a request, if the request is of one.
fn page_of(head: &Head) -> Option<&str> {
    head.header("origin").filter(|_| view::Part::at(head.path()).is_none())
}

/// Whether a response asks for another token, which the page of an accepted origin may read.
fn is_challenge(response: &Response) -> bool {
    response.headers.iter().any(|(name, _)| *name == "www-authenticate")
}

fn let_read(response: Response, origin: &str) -> Response {
    response
        .header("access-control-allow-origin", origin.to_owned())
        .header("access-control-expose-headers", PAGE_READS)
        .header("vary", "origin")
}

/// Form of the response that a request asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The client takes JSON.
    pub(crate) json: bool,
    /// The client takes a stream of events.
    pub(crate) events: bool,
    /// Origin of the page that reads the response.
    page: Option<Box<str>>,
}

impl Wanted {
    /// The form that the head of a request asks for.
    pub(crate) fn of(head: &Head) -> Self {
        Self {
            json: accepts(head, "application/json"),
            events: accepts_events(head),
            page: page_of(head).map(Box::from),
        }
    }

    /// Lets the page of the request read the response.
    pub(crate) fn with_page_headers(&self, response: Response) -> Response {
        match &self.page {
            Some(origin) if response.status != Status::Forbidden || is_challenge(&response) => {
                let_read(response, origin)
            }
            Some(_) | None => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_authorities() {
        for (authority, local) in [
            ("localhost", true),
            ("LOCALHOST:80", true),
            ("127.0.0.1:7412", true),
            ("127.9.9.9", true),
            ("[::1]:80", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("evil.example:80", false),
            ("localhost:80:80", false),
            ("localhost:", false),
            ("[::1", false),
            ("[::1]evil", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(is_local_authority(authority), local, "{authority:?}");
        }
    }
}
