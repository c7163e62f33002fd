//! Requests of HTTP: the session or engine connection that each belongs to.

use std::sync::Arc;

use ceased_core::event::Event;
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, RequestId};
use ceased_core::policy::access as decision;
use ceased_core::policy::allow::Grants;
use ceased_core::protocol::revision::{Batch, Dialect};
use ceased_core::protocol::role::Role;
use ceased_core::rpc::error::{ErrorObject, code};
use ceased_core::time::Now;
use ceased_transports::http::sse::EventId;
use ceased_transports::http::{Head, Method, Request, Response, Status};

use super::http_input::limit_error;
use super::server::Server;
use super::state::connections::Sending;
use super::state::record_limiter::RecordKind;
use super::state::shutdown::Stopping;
use crate::http::access::{Caller, HttpRules};
use crate::http::envelope::{self, Envelope, RequestEnvelope};
use crate::http::peer::{HttpPeer, Subject};
use crate::http::session::{Session, SessionId};
use crate::http::trace_headers::body_with_trace;
use crate::http::{access, answer, pages, routing, view};

/// Header with the id of a session.
const SESSION: &str = "mcp-session-id";
/// Header with the revision of a request.
const VERSION: &str = "mcp-protocol-version";

/// Message of a POST for a session.
struct Message {
    requests: Vec<RequestId>,
    is_batch: bool,
    is_initialize: bool,
    /// Whether requests may be gone without an answer after it (HTTP-07).
    may_cancel: bool,
}

impl Server {
    /// Handles a whole request: answers it, or begins the exchange that answers it.
    pub(super) fn on_http_request(
        &mut self,
        now: Now,
        conn: ConnId,
        request: Request,
        caller: Caller,
    ) {
        let Request { head, body } = request;
        let body = body_with_trace(&head, &body);
        if self.http.peer(conn).is_some_and(HttpPeer::serves_numbers) {
            return self.answer_with_numbers(now, conn);
        }
        let refused = match head.method {
            _ if !self.is_for(&caller) => Err(no_profile()),
            Method::Post => self.on_post(now, conn, &head, &body, caller),
            Method::Get if head.path() == view::EVENTS => self.on_view(now, conn, &head, caller),
            Method::Get => self.on_get(now, conn, &head, &caller),
            Method::Delete => self.on_delete(now, &head, &caller),
            // Answered by their heads.
            Method::Head | Method::Options | Method::Other => {
                Err(Response::new(Status::MethodNotAllowed).header("allow", access::METHODS))
            }
        };
        if let Err(response) = refused
            && let Some(peer) = self.http.peer_mut(conn)
        {
            peer.answer(&head, response);
        }
    }

    /// Whether the profile in the path of a request is there for its caller.
    fn is_for(&self, caller: &Caller) -> bool {
        let profiles = &self.settings.profiles;
        let seen_by = decision::Caller::new(&caller.identity, caller.grants(), profiles);
        caller.profile.as_deref().is_none_or(|name| seen_by.has_profile(name))
    }

    /// A session goes on with the token of this request.
    fn grant_session(&mut self, now: Now, key: ConnId, caller: &Caller) {
        let Some(session) = self.http.session_mut(key) else { return };
        let before = std::mem::replace(&mut session.signed, caller.signed.clone());
        let before = before.map_or_else(Grants::default, |signed| Grants::clone(&signed.grants));
        self.note_grants(now, key, caller, Some(&before));
    }

    fn check_called(
        &self,
        session: ConnId,
        caller: &Caller,
        called: Option<(String, Option<String>)>,
    ) -> Result<(), Response> {
        let Some((method, name)) = called else { return Ok(()) };
        self.check_scopes(session, caller, &method, name.as_deref())
    }

    /// AUTH-01: a token that lacks a scope for a request is told so before a stream begins.
    fn check_scopes(
        &self,
        engine: ConnId,
        caller: &Caller,
        method: &str,
        name: Option<&str>,
    ) -> Result<(), Response> {
        let Some(signed) = &caller.signed else { return Ok(()) };
        let lacking = self.engine.lacking_scopes(engine, method, name);
        if lacking.is_empty() {
            return Ok(());
        }
        // The client asks for a token with these scopes alone: the present ones are among them.
        let mut scopes: Vec<Box<str>> = signed.grants.scopes.iter().cloned().collect();
        scopes.extend(lacking);
        let rules = self.http.rules_of(engine);
        match rules.as_ref().and_then(|rules| rules.signed.as_ref()) {
            Some(signed) => Err(access::lacking_scopes(&**signed, &scopes)),
            None => Ok(()),
        }
    }

    /// Lets the engine decide by the groups, scopes and profile of a caller, if they are others than
    /// before.
    fn note_grants(&mut self, now: Now, conn: ConnId, caller: &Caller, before: Option<&Grants>) {
        let is_known = match before {
            Some(before) => before == caller.grants(),
            None => caller.grants() == Grants::NONE && caller.profile.is_none(),
        };
        if !is_known {
            self.grant(now, conn, caller);
        }
    }

    fn grant(&mut self, now: Now, conn: ConnId, caller: &Caller) {
        let signed = caller.signed.as_ref();
        let grants = signed.map_or_else(Arc::default, |signed| Arc::clone(&signed.grants));
        let granted = Event::Granted { conn, grants, profile: caller.profile.clone() };
        self.engine.handle(now, granted, &mut self.actions);
    }

    /// Answers with the numbers and closes the connection: a peer gets one page, and all peers of a
    /// turn the same, so that requests sent ahead cost the loop nothing.
    fn answer_with_numbers(&mut self, now: Now, conn: ConnId) {
        let is_current = self.numbers.as_ref().is_some_and(|(at, _)| *at == now.at);
        if !is_current {
            self.numbers = Some((now.at, pages::numbers(self.snapshot().prometheus())));
        }
        if let (Some(peer), Some((_, page))) = (self.http.peer_mut(conn), &self.numbers) {
            peer.output().close_after_response();
            peer.output().respond(page);
        }
    }

    /// Handles a POST.
    ///
    /// # Errors
    /// The response, if the POST needs no answer of the engine.
    fn on_post(
        &mut self,
        now: Now,
        conn: ConnId,
        head: &Head,
        body: &[u8],
        caller: Caller,
    ) -> Result<(), Response> {
        let envelope = Envelope::read(body, self.settings.limits.depth_max);
        let has_session = head.has(SESSION);
        if caller.view.is_some() {
            check_view_request(&envelope)?;
        }
        let is_stateless = match &envelope {
            Envelope::Request(request) => {
                request.stateless.is_some() || (!has_session && names_stateless(head))
            }
            Envelope::Notification { .. }
            | Envelope::Response
            | Envelope::Batch { .. }
            | Envelope::Invalid(_) => !has_session && names_stateless(head),
        };
        if is_stateless {
            return self.on_stateless_post(now, conn, head, body, envelope, caller);
        }
        let called = called(&envelope, &caller, body);
        let message = match envelope {
            Envelope::Invalid(error) => return Err(bad(&error)),
            Envelope::Request(request) if request.id == RequestId::Null => {
                let text = "the id of a request is a string or an integer";
                return Err(bad(&ErrorObject::new(code::INVALID_REQUEST, text)));
            }
            Envelope::Request(request) if request.method == "initialize" && !has_session => {
                return self.begin_session(now, conn, head, body, request.id, caller);
            }
            Envelope::Request(request) if !has_session => return Err(without_session(&request)),
            Envelope::Request(request) => Message {
                requests: vec![request.id],
                is_batch: false,
                is_initialize: false,
                may_cancel: false,
            },
            Envelope::Notification { method } => Message {
                requests: Vec::new(),
                is_batch: false,
                is_initialize: false,
                may_cancel: method == "notifications/cancelled",
            },
            Envelope::Response => Message {
                requests: Vec::new(),
                is_batch: false,
                is_initialize: false,
                may_cancel: false,
            },
            Envelope::Batch { is_valid: false, .. } => {
                let text = "a batch has at least one message, and JSON-RPC messages alone";
                return Err(bad(&ErrorObject::new(code::INVALID_REQUEST, text)));
            }
            Envelope::Batch { requests, .. } => {
                Message { requests, is_batch: true, is_initialize: false, may_cancel: true }
            }
        };
        let session = self.session_of(head, &caller)?;
        self.check_batch(session, message.is_batch)?;
        self.grant_session(now, session, &caller);
        self.check_called(session, &caller, called)?;
        self.hand_to_session(now, conn, session, head, body, message)
    }

    /// HTTP-03: batches belong to 2025-03-26.
    fn check_batch(&self, session: ConnId, is_batch: bool) -> Result<(), Response> {
        let dialect = self.engine.session_dialect(session);
        if !is_batch || dialect.is_some_and(|dialect| dialect.batch == Batch::Accept) {
            return Ok(());
        }
        let text = "this session has no batches: send one message in each POST";
        Err(bad(&ErrorObject::new(code::INVALID_REQUEST, text)))
    }

    /// Hands a message of a session to the engine.
    fn hand_to_session(
        &mut self,
        now: Now,
        conn: ConnId,
        key: ConnId,
        head: &Head,
        body: &[u8],
        message: Message,
    ) -> Result<(), Response> {
        let Message { requests, is_batch, is_initialize, may_cancel } = message;
        let Some(session) = self.http.session_mut(key) else { return Err(no_session()) };
        session.touch(now.at);
        session.bytes.0 += body.len() as u64;
        session.had_cancel |= may_cancel;
        // RPC-02: the first request with this id is not touched, and keeps its stream.
        if let Some(id) = requests.iter().find(|id| session.has_request(id)) {
            let text = format!("the id {id:.64} is still in flight");
            return Err(bad(&ErrorObject::new(code::INVALID_REQUEST, text)));
        }
        let awaits = !requests.is_empty();
        if awaits {
            let stream = session.add_post(requests, is_batch, is_initialize, conn);
            if let Some(peer) = self.http.peer_mut(conn) {
                let subject = Subject::Stream { session: key, stream };
                peer.begin_exchange(head, subject);
            }
        }
        self.engine.handle(now, Event::Frame { conn: key, frame: body }, &mut self.actions);
        if may_cancel {
            // The engine writes nothing for a cancelled request, whose stream ends nevertheless.
            self.connections.note_output(key, Sending::More);
        }
        if awaits { Ok(()) } else { Err(Response::new(Status::Accepted)) }
    }

    /// Begins a session with its `initialize` (HTTP-04).
    fn begin_session(
        &mut self,
        now: Now,
        conn: ConnId,
        head: &Head,
        body: &[u8],
        id: RequestId,
        caller: Caller,
    ) -> Result<(), Response> {
        let Some(peer) = self.http.peer(conn) else { return Err(no_session()) };
        let (rules, origin, inside) = (Arc::clone(&peer.rules), peer.origin.clone(), peer.inside());
        if self.stopping != Stopping::No {
            let error = ErrorObject::new(code::SHUTTING_DOWN, "the daemon is shutting down");
            return Err(answer::error(Status::Unavailable, "null", &error));
        }
        self.make_room_for_session(now, conn, (&caller.identity, caller.rights), &rules)?;
        let key = self.connections.next_id();
        let (identity, rights) = (caller.identity.clone(), caller.rights);
        let session =
            Session::new((SessionId::new(), self.http.node.clone()), caller.clone(), rules, now.at);
        self.http.add_session(key, session);
        self.record_connect(now, key, &identity, &origin, inside, caller.signed.clone());
        let share = self.settings.limits.held_bytes_per_identity_max;
        let opened = Event::Opened { conn: key, identity, rights, role: Role::Server };
        self.engine.handle(now, opened, &mut self.actions);
        self.note_grants(now, key, &caller, None);
        if let Some((session, account)) = self.http.session_mut(key).zip(self.engine.account(key)) {
            session.keep_within(account, share);
        }
        let message =
            Message { requests: vec![id], is_batch: false, is_initialize: true, may_cancel: false };
        self.hand_to_session(now, conn, key, head, body, message)
    }

    /// Ends the session of the identity whose client has been away longest, while the identity or
    /// the daemon has as many as it may have. Clients seldom end their sessions.
    fn make_room_for_session(
        &mut self,
        now: Now,
        conn: ConnId,
        (identity, rights): (&Identity, Rights),
        rules: &HttpRules,
    ) -> Result<(), Response> {
        loop {
            let limit = if self.http.sessions_of(identity) >= rules.sessions_per_identity {
                ("sessions_per_identity", rules.sessions_per_identity)
            } else if let Some(limit) = self.engine.connection_limit(identity, rights) {
                (limit.name, limit.max)
            } else {
                return Ok(());
            };
            let engine = &self.engine;
            let is_quiet = |key: ConnId| !engine.has_open_requests(key);
            if let Some(oldest) = self.http.longest_away(identity, is_quiet) {
                tracing::debug!(session = %oldest, limit = limit.0, "session ended for a new one");
                self.end_session(now, oldest);
                continue;
            }
            let error = limit_error(limit.0, limit.1, "end a session with DELETE");
            if let Some(origin) = self.http.peer(conn).map(|peer| peer.origin.clone()) {
                let (identity, kind) = (identity.clone(), RecordKind::Limit(limit.0));
                self.record_refusal(now, Some(conn), identity, &origin, kind, &error.message);
            }
            return Err(answer::error(Status::Unavailable, "null", &error));
        }
    }

    /// The session that a request names.
    fn session_of(&self, head: &Head, caller: &Caller) -> Result<ConnId, Response> {
        // HTTP-05
        if head.has(VERSION)
            && head.header(VERSION).is_none_or(|version| Dialect::find(version).is_none())
        {
            let text = "the MCP-Protocol-Version of this request is not supported";
            return Err(answer::refusal(Status::BadRequest, text));
        }
        if !head.has(SESSION) {
            let text = "Mcp-Session-Id is missing: begin a session with initialize";
            return Err(answer::refusal(Status::BadRequest, text));
        }
        let id = head.header(SESSION).unwrap_or_default();
        self.http.find_session(id, caller).ok_or_else(|| match self.http.other_node(id) {
            Some((there, here)) => session_elsewhere(there, here),
            None => no_session(),
        })
    }

    /// Handles a GET: a stream for messages that belong to no request, or for the missed events of
    /// another stream (HTTP-06).
    fn on_get(
        &mut self,
        now: Now,
        conn: ConnId,
        head: &Head,
        caller: &Caller,
    ) -> Result<(), Response> {
        if !head.has(SESSION) {
            return Err(post_alone());
        }
        let key = self.session_of(head, caller)?;
        if !access::accepts_events(head) {
            let text = "a GET is answered by text/event-stream: accept that";
            return Err(answer::refusal(Status::NotAcceptable, text));
        }
        let last = match (head.has("last-event-id"), head.header("last-event-id")) {
            (false, _) => None,
            (true, text) => {
                let id = text.and_then(EventId::read);
                Some(id.ok_or_else(|| {
                    let text = "the Last-Event-ID is not an id of this server";
                    answer::refusal(Status::BadRequest, text)
                })?)
            }
        };
        let touched = self.http.open_get(key, conn, head, last, now.at);
        let Some(touched) = touched else {
            let text = "the events behind this Last-Event-ID are not kept any more";
            return Err(answer::refusal(Status::BadRequest, text));
        };
        for other in touched.into_iter().filter(|other| *other != conn) {
            self.finish_http_output(now, other);
        }
        self.http.schedule_session(key);
        self.connections.note_output(key, Sending::More);
        Ok(())
    }

    /// Handles a DELETE, which ends a session.
    fn on_delete(&mut self, now: Now, head: &Head, caller: &Caller) -> Result<(), Response> {
        if !head.has(SESSION) {
            return Err(post_alone());
        }
        let key = self.session_of(head, caller)?;
        self.end_session(now, key);
        Err(Response::new(Status::NoContent))
    }
}

/// A browser with a link of the view reads the view and cancels jobs. It calls nothing as its user.
fn check_view_request(envelope: &Envelope) -> Result<(), Response> {
    let Envelope::Request(request) = envelope else { return Err(beyond_view()) };
    let may_call = request.stateless.is_some() && view::METHODS.contains(&&*request.method);
    if may_call { Ok(()) } else { Err(beyond_view()) }
}

fn beyond_view() -> Response {
    answer::refusal(
        Status::Forbidden,
        "a link of the live view permits ceased/cancel and tasks/cancel alone",
    )
}

/// Requests of 2026-07-28.
impl Server {
    fn on_stateless_post(
        &mut self,
        now: Now,
        conn: ConnId,
        head: &Head,
        body: &[u8],
        envelope: Envelope,
        caller: Caller,
    ) -> Result<(), Response> {
        let invalid = |text: &'static str| Err(bad(&ErrorObject::new(code::INVALID_REQUEST, text)));
        let request = match envelope {
            Envelope::Request(request) => request,
            Envelope::Invalid(error) => return Err(bad(&error)),
            // MOD-06: the end of the response stream is the cancel, and a posted
            // notifications/cancelled has no effect.
            Envelope::Notification { .. } => return Err(Response::new(Status::Accepted)),
            Envelope::Response => {
                return invalid("this revision has no requests of the server, so no responses");
            }
            Envelope::Batch { .. } => {
                return invalid("this revision has no batches: send one message in each POST");
            }
        };
        if request.id == RequestId::Null {
            return invalid("the id of a request is a string or an integer");
        }
        if request.stateless.is_none() {
            return Err(without_metadata(&request));
        }
        let refused = |error: &ErrorObject| {
            let status = answer::status_of(error.code, request.has_metadata());
            answer::error(status, &request.token, error)
        };
        if request.stateless.as_ref().is_some_and(|it| it.version.is_some()) {
            routing::check(head, &request).map_err(|error| refused(&error))?;
        }
        let engine = self.stateless_connection(now, conn, caller)?;
        self.check_parameter_headers(head, &request, engine).map_err(|error| refused(&error))?;
        if let Some((_, caller)) = self.http.peer(conn).and_then(|peer| peer.stateless.as_ref()) {
            self.check_scopes(engine, caller, &request.method, request.name())?;
        }
        if let Some(peer) = self.http.peer_mut(conn) {
            let subject =
                Subject::Stateless { has_metadata: request.has_metadata(), request: request.id };
            peer.begin_exchange(head, subject);
        }
        self.engine.handle(now, Event::Frame { conn: engine, frame: body }, &mut self.actions);
        Ok(())
    }

    /// Handles a request for the stream of the live view.
    fn on_view(
        &mut self,
        now: Now,
        conn: ConnId,
        head: &Head,
        mut caller: Caller,
    ) -> Result<(), Response> {
        let token = caller.view.as_mut().and_then(|view| view.token.take());
        self.stateless_connection(now, conn, caller)?;
        if let Some(peer) = self.http.peer_mut(conn) {
            peer.begin_view(head, token.as_deref());
        }
        self.ask_for_status(now, conn);
        Ok(())
    }

    /// HTTP-09: checks the headers that repeat arguments of a tool.
    fn check_parameter_headers(
        &self,
        head: &Head,
        request: &RequestEnvelope,
        engine: ConnId,
    ) -> Result<(), ErrorObject> {
        let Some(name) = request.name().filter(|_| request.method == "tools/call") else {
            return Ok(());
        };
        match self.engine.input_schema(name, engine) {
            Some(schema) => routing::check_parameters(head, schema, request),
            None => Ok(()),
        }
    }

    /// The engine connection of the requests of 2026-07-28 on an HTTP connection. A proxy may send
    /// requests of several callers on one connection; each has one of its own.
    fn stateless_connection(
        &mut self,
        now: Now,
        conn: ConnId,
        caller: Caller,
    ) -> Result<ConnId, Response> {
        let Some(peer) = self.http.peer(conn) else { return Err(no_session()) };
        let (origin, inside) = (peer.origin.clone(), peer.inside());
        let before = peer.stateless.as_ref().map(|(engine, known)| (*engine, known.clone()));
        if let Some((engine, known)) = &before
            && (&known.identity, known.rights) == (&caller.identity, caller.rights)
            && known.profile == caller.profile
            && self.engine.identity(*engine).is_some()
        {
            let engine = *engine;
            self.note_grants(now, engine, &caller, Some(known.grants()));
            self.http.set_stateless(conn, engine, caller);
            return Ok(engine);
        }
        if let Some((engine, _)) = before {
            self.http.forget_stateless(conn);
            self.close_engine_side(now, engine, (0, 0));
        }
        if let Some(limit) = self.engine.connection_limit(&caller.identity, caller.rights) {
            let error = limit.error();
            let (identity, kind) = (caller.identity, RecordKind::Limit(limit.name));
            self.record_refusal(now, Some(conn), identity, &origin, kind, &error.message);
            return Err(answer::error(Status::Unavailable, "null", &error));
        }
        let engine = self.connections.next_id();
        let (identity, rights) = (caller.identity.clone(), caller.rights);
        self.http.set_stateless(conn, engine, caller.clone());
        self.record_connect(now, engine, &identity, &origin, inside, caller.signed.clone());
        let opened = Event::Opened { conn: engine, identity, rights, role: Role::Stateless };
        self.engine.handle(now, opened, &mut self.actions);
        self.note_grants(now, engine, &caller, None);
        Ok(engine)
    }
}

/// Method and name of a request with a signed token, whose scopes are checked.
fn called(envelope: &Envelope, caller: &Caller, body: &[u8]) -> Option<(String, Option<String>)> {
    match envelope {
        Envelope::Request(request) if caller.signed.is_some() => {
            Some((request.method.clone(), envelope::name_of(body)))
        }
        Envelope::Request(_)
        | Envelope::Notification { .. }
        | Envelope::Response
        | Envelope::Batch { .. }
        | Envelope::Invalid(_) => None,
    }
}

/// Whether the headers name the revision without sessions.
fn names_stateless(head: &Head) -> bool {
    head.header(VERSION) == Some(routing::STATELESS)
}

fn bad(error: &ErrorObject) -> Response {
    answer::error(Status::BadRequest, "null", error)
}

fn no_profile() -> Response {
    answer::refusal(Status::NotFound, "there is no such profile for this caller: use /mcp")
}

fn no_session() -> Response {
    answer::refusal(Status::NotFound, "this session has ended: begin another with initialize")
}

/// A load balancer sent a request of a session to another node than the one that has the session.
fn session_elsewhere(there: &str, here: &str) -> Response {
    let text = format!(
        "this session belongs to the node {there:?} of the fleet, and this is {here:?}: if that node is gone, \
         begin another session with initialize, which finds your tasks; if not, the load balancer has to \
         send requests with an Mcp-Session-Id that begins with \"{there}.\" to that node"
    );
    answer::refusal(Status::NotFound, &text)
}

/// HTTP-01: without a session there is nothing to get or to delete.
fn post_alone() -> Response {
    let text = "without an Mcp-Session-Id use POST";
    answer::refusal(Status::MethodNotAllowed, text).header("allow", access::METHODS)
}

fn without_session(request: &RequestEnvelope) -> Response {
    match request.method.as_str() {
        "server/discover" | "subscriptions/listen" | "tasks/update" => without_metadata(request),
        _ => {
            let text = "Mcp-Session-Id is missing: begin a session with initialize";
            answer::error(
                Status::BadRequest,
                &request.token,
                &ErrorObject::new(code::INVALID_REQUEST, text),
            )
        }
    }
}

fn without_metadata(request: &RequestEnvelope) -> Response {
    let text = "params._meta[\"io.modelcontextprotocol/protocolVersion\"] must be a string";
    let error = ErrorObject::new(code::INVALID_PARAMS, text);
    answer::error(Status::BadRequest, &request.token, &error)
}
