//! One HTTP connection: the request that is being answered, and its deadlines.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, RequestId};
use ceased_core::rpc::error::{ErrorObject, code};
use ceased_core::time::Instant;
use ceased_process::JobId;
use ceased_transports::Peer as Origin;
use ceased_transports::http::sse::{self, EventId};
use ceased_transports::http::{
    Head, HttpConnection, HttpDate, HttpLimits, Phase, Request, Response, Status,
};

use super::access::{self, Caller, HeadPolicy, HttpRules, Wanted};
use super::answer;
use super::envelope::FrameKind;
use super::pages::{Health, Serves};
use super::view::{self, passes::Passes};
use crate::event_loop::state::party::Party;
use crate::peer_identity::InspectedPeer;

/// Unsent bytes of a connection past which no further frame is written to it.
const HIGH_WATER: usize = 256 * 1024;
/// Time without an answer after which a stream of events begins: a client can resume a stream, and
/// a proxy sees that the server is alive.
const SILENT_START: Duration = Duration::from_millis(500);
/// Interval of comments on a silent stream: common proxies close one after 60 seconds.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of comments to a client that has closed its side and may be gone.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a client to close its side after the last response.
const LINGER: Duration = Duration::from_secs(1);
/// Reason for the end of a stream whose token has expired.
const EXPIRED: &str = "the token of this request has expired: send it again with another one";
/// Time that a client waits before it connects again, in milliseconds.
const RETRY_MS: u64 = 1000;

/// An HTTP connection without its socket.
pub(crate) struct HttpPeer {
    http: HttpConnection,
    pub(crate) rules: Arc<HttpRules>,
    pub(crate) origin: Origin,
    inspected: Option<InspectedPeer>,
    /// Passes of the live view, of the daemon.
    passes: Arc<Mutex<Passes>>,
    /// Whether the daemon takes calls.
    health: Arc<Health>,
    caller: Option<Caller>,
    wrong_token: bool,
    exchange: Option<Box<Exchange>>,
    /// Time at which the token of the request under way is not accepted any more.
    pub(crate) expires: Option<Instant>,
    /// Engine connection of its requests of 2026-07-28, and their identity.
    pub(crate) stateless: Option<(ConnId, Caller)>,
    /// The client has closed its side.
    half_closed: bool,
    /// Its listener is gone: it closes after the response that is due.
    retired: bool,
    /// Response to the first bytes of a connection beyond a limit.
    rejection: Option<Box<Response>>,
    /// Party that it counts for since a head was accepted.
    pub(super) seat: Option<Party>,
    /// Reading was suspended; no event announces the rest of the input.
    unread: bool,
    /// Our side is closed; the rest of the input is discarded.
    lingers: bool,
    /// Time until which output is held back: a wrong token was presented.
    pub(crate) held_until: Option<Instant>,
    /// Since when output waits without progress.
    blocked_since: Option<Instant>,
    phase: Phase,
    /// Start of the phase, or time of the last output of a stream.
    since: Instant,
    /// Its entry among the deadlines.
    pub(super) due: Option<Instant>,
}

/// A request that is not answered yet.
pub(crate) struct Exchange {
    wanted: Wanted,
    pub(crate) subject: Subject,
}

/// The place that the frames of a response come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A request of 2026-07-28. `has_metadata`: its `_meta` has the required members.
    Stateless { request: RequestId, has_metadata: bool },
    /// A stream of a session.
    Stream { session: ConnId, stream: u64 },
    /// The stream of the live view, with the number of its latest request for the status, and
    /// whether that request waits for its answer.
    View { latest: i64, waits: bool },
}

/// Reason for which a deadline of a connection has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Nothing is to be done yet.
    No,
    /// The stream of events begins without an event.
    StartStream,
    /// The live view is due for the status.
    Refresh,
    /// A comment or an interim response shows whether the client is there.
    Probe,
    /// Output that was held back is to be sent.
    Release,
    /// The token of the request under way has expired.
    Expire,
    /// The connection is to be closed.
    Close,
}

impl HttpPeer {
    pub(crate) fn new(
        rules: Arc<HttpRules>,
        origin: Origin,
        inspected: Option<InspectedPeer>,
        (passes, health): (Arc<Mutex<Passes>>, Arc<Health>),
        (limits, date): (HttpLimits, Arc<HttpDate>),
        now: Instant,
    ) -> Self {
        Self {
            http: HttpConnection::new(limits).with_date(date),
            rules,
            origin,
            inspected,
            passes,
            health,
            caller: None,
            wrong_token: false,
            exchange: None,
            expires: None,
            stateless: None,
            half_closed: false,
            retired: false,
            rejection: None,
            seat: None,
            unread: false,
            lingers: false,
            held_until: None,
            blocked_since: None,
            phase: Phase::Idle,
            since: now,
            due: None,
        }
    }
}

/// Connections beyond a limit.
impl HttpPeer {
    /// The job that its process is inside of.
    pub(crate) fn inside(&self) -> Option<JobId> {
        self.inspected.as_ref().and_then(|peer| peer.job)
    }

    /// Has the connection answer its first request with this response, whatever the request is.
    pub(crate) fn reject(mut self, response: Response) -> Self {
        self.rejection = Some(Box::new(response));
        self
    }

    pub(crate) const fn is_rejected(&self) -> bool {
        self.rejection.is_some()
    }
}

/// Input.
impl HttpPeer {
    /// Takes in bytes of the client.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if let Some(response) = &self.rejection {
            return self.http.give_up(response);
        }
        let (http, mut policy) = self.with_policy();
        http.receive(bytes, &mut policy);
    }

    /// Reads on in the bytes that arrived, after a response.
    pub(crate) fn advance(&mut self) {
        if self.retired {
            return self.http.close();
        }
        let (http, mut policy) = self.with_policy();
        http.advance(&mut policy);
    }

    /// Whether a decision on a head waits for the keys of an issuer.
    pub(crate) const fn is_held(&self) -> bool {
        self.http.is_held()
    }

    /// The keys of issuers have changed: reads on.
    pub(crate) fn release(&mut self) {
        self.http.release();
        self.advance();
    }

    /// The connection, and the check of its heads.
    fn with_policy(&mut self) -> (&mut HttpConnection, HeadPolicy<'_>) {
        let policy = HeadPolicy {
            rules: &self.rules,
            peer: &self.origin,
            inspected: self.inspected.as_ref(),
            passes: &self.passes,
            health: &self.health,
            caller: &mut self.caller,
            wrong_token: &mut self.wrong_token,
        };
        (&mut self.http, policy)
    }

    /// Whether it is one for the numbers of the daemon.
    pub(crate) fn serves_numbers(&self) -> bool {
        self.rules.serves == Serves::Numbers
    }

    /// The next whole request and its caller.
    pub(crate) fn take_request(&mut self) -> Option<(Request, Caller)> {
        let request = self.http.take_request()?;
        // The policy sets the caller before it lets a body through.
        let caller = self.caller.take();
        Some((request, caller.unwrap_or(Caller::of(Identity::Anonymous))))
    }

    /// Whether a wrong token was presented; the connection closes after its answer.
    pub(crate) fn take_wrong_token(&mut self) -> bool {
        let is_wrong = std::mem::take(&mut self.wrong_token);
        if is_wrong {
            self.http.close();
        }
        is_wrong
    }

    /// Whether the connection is to be read now. If not, it is [read later](Self::take_unread).
    pub(crate) fn wants_input(&mut self) -> bool {
        let wants = self.lingers || self.http.wants_input();
        self.unread |= !wants;
        wants
    }

    /// Whether there is input to look at that no event announces.
    pub(crate) fn take_unread(&mut self) -> bool {
        std::mem::take(&mut self.unread) || self.http.held_bytes() > 0
    }

    /// Bytes held of a request that has begun, and its start.
    pub(crate) fn partial(&self) -> (usize, Option<Instant>) {
        match self.http.phase() {
            Phase::Head | Phase::Body => (self.http.held_bytes(), Some(self.since)),
            Phase::Idle | Phase::Responding | Phase::Closing => (self.http.held_bytes(), None),
        }
    }

    /// Handles the end of the client's input. Returns whether the connection is of no use any
    /// more; otherwise the client may have closed only its side, and a probe is due.
    pub(crate) fn note_end_of_input(&mut self) -> bool {
        self.half_closed = true;
        let waits = self.exchange.is_some() || !self.http.pending().is_empty();
        self.lingers || !waits
    }

    /// Answers a client whose request did not arrive in time.
    pub(crate) fn give_up(&mut self) {
        let text = "the request did not arrive in time: limits.frame_time";
        self.refuse_body(&Response::text(Status::RequestTimeout, text));
    }

    /// Answers a request before its body has arrived, and closes the connection.
    pub(crate) fn refuse_body(&mut self, response: &Response) {
        self.http.give_up(response);
    }

    /// The caller of a request whose head was accepted and whose body arrives.
    pub(crate) fn caller_of_body(&self) -> Option<&Caller> {
        self.caller.as_ref().filter(|_| self.http.phase() == Phase::Body)
    }

    /// Whether it counts for this party.
    pub(crate) fn is_seated_as(&self, party: &Party) -> bool {
        self.seat.as_ref() == Some(party)
    }

    /// Since when it waits for another request with nothing to send.
    pub(super) fn kept_since(&self) -> Option<Instant> {
        let is_kept = self.exchange.is_none()
            && self.http.phase() == Phase::Idle
            && self.http.pending().is_empty();
        is_kept.then_some(self.since)
    }
}

/// Responding.
impl HttpPeer {
    /// Notes the request that is to be answered by frames.
    pub(crate) fn begin_exchange(&mut self, head: &Head, subject: Subject) {
        self.exchange = Some(Box::new(Exchange { wanted: Wanted::of(head), subject }));
    }

    pub(crate) fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_deref()
    }

    /// Whether the connection takes another frame.
    pub(crate) fn has_room(&self) -> bool {
        self.http.pending().len() < HIGH_WATER
    }

    pub(crate) const fn is_streaming(&self) -> bool {
        self.http.is_streaming()
    }

    /// Answers a request that has no exchange.
    pub(crate) fn answer(&mut self, head: &Head, response: Response) {
        self.http.respond(&access::with_page_headers(response, head));
    }

    /// Ends the exchange with a response. Does nothing once a stream has begun.
    pub(crate) fn respond(&mut self, response: Response) {
        if self.http.is_streaming() {
            return;
        }
        if let Some(exchange) = self.exchange.take() {
            self.http.respond(&exchange.wanted.with_page_headers(response));
        }
    }

    /// Ends the exchange with a frame of the engine as the whole response. Does nothing once a
    /// stream has begun.
    pub(crate) fn respond_json(
        &mut self,
        status: Status,
        header: Option<(&'static str, String)>,
        frame: &[u8],
    ) {
        if self.http.is_streaming() {
            return;
        }
        if let Some(exchange) = self.exchange.take() {
            let mut head = Response::json(status, Vec::new());
            if let Some((name, value)) = header {
                head = head.header(name, value);
            }
            self.http.respond_with(&exchange.wanted.with_page_headers(head), frame);
        }
    }

    pub(crate) fn accepts_json(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.wanted.json)
    }

    pub(crate) fn accepts_events(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.wanted.events)
    }

    /// Begins a stream of events, with a header of its own, and with an event that a client can
    /// resume at (HTTP-06).
    pub(crate) fn start_events(
        &mut self,
        header: Option<(&'static str, String)>,
        priming: Option<EventId>,
    ) {
        let Some(exchange) = self.exchange.as_deref().filter(|_| !self.http.is_streaming()) else {
            return;
        };
        let mut head = answer::stream_head();
        if let Some((name, value)) = header {
            head = head.header(name, value);
        }
        self.http.start_stream(&exchange.wanted.with_page_headers(head));
        let mut text = Vec::new();
        match priming {
            Some(id) => {
                sse::write_retry(&mut text, RETRY_MS);
                sse::write_event(&mut text, Some(&id.to_string()), b"");
            }
            None => sse::write_comment(&mut text),
        }
        self.http.write_stream(&text);
    }

    /// Writes one event.
    pub(crate) fn write_event(&mut self, id: Option<EventId>, frame: &[u8]) {
        let mut text = Vec::with_capacity(frame.len() + 64);
        sse::write_event(&mut text, id.map(|id| id.to_string()).as_deref(), frame);
        self.http.write_stream(&text);
    }

    /// Ends the stream, and with it the exchange.
    pub(crate) fn end_events(&mut self) {
        self.http.end_stream();
        self.exchange = None;
    }

    /// Begins the stream of the live view.
    /// `token`: the token that its link was exchanged for.
    pub(crate) fn begin_view(&mut self, head: &Head, token: Option<&str>) {
        self.begin_exchange(head, Subject::View { latest: 0, waits: false });
        self.start_events(token.map(|token| (view::TOKEN_HEADER, token.to_owned())), None);
    }

    /// The next request for the status of the live view, and its engine connection; `None` while
    /// one waits for its answer.
    pub(crate) fn next_status_request(&mut self) -> Option<(ConnId, String)> {
        let engine = self.stateless.as_ref()?.0;
        let exchange = self.exchange.as_deref_mut()?;
        let Subject::View { latest, waits: waits @ false } = &mut exchange.subject else {
            return None;
        };
        *waits = true;
        *latest += 1;
        Some((engine, view::status_request(*latest)))
    }

    /// Ends the stream of the live view if its listener does not serve it any more.
    pub(crate) fn end_unserved_view(&mut self) {
        let exchange = self.exchange.as_deref().map(|exchange| &exchange.subject);
        if !self.rules.view && matches!(exchange, Some(Subject::View { .. })) {
            self.end_events();
        }
    }

    /// Takes a frame of the engine connection of its requests of 2026-07-28. `of`: the request that
    /// the frame belongs to.
    pub(crate) fn take_stateless(&mut self, of: Option<&RequestId>, frame: &[u8]) {
        if let Some(Exchange { subject: Subject::View { latest, waits }, .. }) =
            self.exchange.as_deref_mut()
        {
            if of == Some(&RequestId::Number(*latest)) {
                *waits = false;
                self.write_event(None, frame);
            }
            return;
        }
        let Some(Exchange { subject: Subject::Stateless { request, has_metadata }, .. }) =
            self.exchange.as_deref()
        else {
            return;
        };
        // A frame of no request has no place: this revision has no requests of the server.
        if of != Some(request) {
            return;
        }
        let kind = FrameKind::of(frame);
        let has_metadata = *has_metadata;
        match kind {
            FrameKind::Other if !self.accepts_events() => return,
            FrameKind::Result | FrameKind::Error(_)
                if !self.is_streaming() && self.accepts_json() =>
            {
                let status = match kind {
                    FrameKind::Error(code) => answer::status_of(code, has_metadata),
                    FrameKind::Result | FrameKind::Other => Status::Ok,
                };
                return self.respond_json(status, None, frame);
            }
            FrameKind::Other | FrameKind::Result | FrameKind::Error(_) => {}
        }
        self.start_events(None, None);
        self.write_event(None, frame);
        if kind != FrameKind::Other {
            self.end_events();
        }
    }

    /// Ends the connection after its output; a stream that has not ended stays without an end.
    pub(crate) fn close(&mut self) {
        self.exchange = None;
        self.http.close();
    }

    /// AUTH-03: the token of the request under way has expired. Tells the client so, and closes the
    /// connection: a stream of a session can be resumed with another token.
    pub(crate) fn expire(&mut self) {
        self.expires = None;
        if !self.http.is_streaming() {
            let challenge = self
                .rules
                .signed
                .as_ref()
                .map(|signed| signed.challenge(Some(("invalid_token", EXPIRED)), None));
            let response = Response::text(Status::Unauthorized, EXPIRED);
            self.http.close_after_response();
            self.respond(response.header("www-authenticate", challenge.unwrap_or_default()));
            return;
        }
        let mut text = format!(": {EXPIRED}\n\n").into_bytes();
        let subject = self.exchange.as_deref().map(|exchange| &exchange.subject);
        let answered = match subject {
            Some(Subject::Stateless { request, .. }) => Some(json_of(request)),
            Some(Subject::Stream { .. } | Subject::View { .. }) | None => None,
        };
        if let Some(id) = &answered {
            let error = ErrorObject::new(code::FORBIDDEN, EXPIRED);
            sse::write_event(&mut text, None, &answer::error(Status::Ok, id, &error).body);
        }
        self.http.write_stream(&text);
        if answered.is_some() {
            self.end_events();
        }
        self.http.close();
    }

    /// Closes the connection after the response that is due: its listener is gone.
    pub(crate) fn retire(&mut self) {
        self.retired = true;
        if self.http.phase() == Phase::Idle {
            self.http.close();
        }
    }

    /// Whether our side is to be closed now, after the last output.
    pub(crate) fn begin_linger(&mut self) -> bool {
        let begins = !self.lingers && self.http.is_over();
        self.lingers |= begins;
        begins
    }

    pub(crate) const fn is_half_closed(&self) -> bool {
        self.half_closed
    }

    /// Whether the client has closed its side and everything it asked for is answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.half_closed && self.exchange.is_none() && self.http.phase() == Phase::Idle
    }

    /// The output.
    pub(crate) const fn output(&mut self) -> &mut HttpConnection {
        &mut self.http
    }

    /// Whether the connection has nothing to send or to end until its request is answered.
    pub(crate) fn awaits_answer(&self) -> bool {
        let is_open = self.http.phase() == Phase::Responding && !self.half_closed;
        is_open && self.exchange.is_some() && !self.has_output()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.http.pending().is_empty()
    }

    /// Notes that output waits. Returns whether that is news.
    pub(crate) fn note_blocked(&mut self, now: Instant, progress: bool) {
        if progress || self.blocked_since.is_none() {
            self.blocked_since = Some(now);
        }
    }

    pub(crate) const fn note_unblocked(&mut self) {
        self.blocked_since = None;
    }
}

/// Deadlines.
impl HttpPeer {
    /// Notes the start of a phase, or output of a stream.
    pub(crate) fn note_phase(&mut self, now: Instant, wrote: bool) {
        let phase = self.http.phase();
        let begins =
            phase != self.phase && !matches!((self.phase, phase), (Phase::Head, Phase::Body));
        if begins || wrote {
            self.since = now;
        }
        self.phase = phase;
    }

    /// Time of the next [`overdue`](Self::overdue).
    pub(crate) fn deadline(&self, write_stall: Duration) -> Option<Instant> {
        let expires = self.expires.filter(|_| self.exchange.is_some());
        self.phase_deadline(write_stall).into_iter().chain(expires).min()
    }

    fn phase_deadline(&self, write_stall: Duration) -> Option<Instant> {
        if self.held_until.is_some() {
            return self.held_until;
        }
        if let Some(since) = self.blocked_since {
            return Some(since + write_stall);
        }
        match self.http.phase() {
            Phase::Idle if self.is_rejected() => Some(self.since + LINGER),
            Phase::Idle => Some(self.since + self.rules.keep_alive),
            // Limited as every incomplete message.
            Phase::Head | Phase::Body => None,
            Phase::Closing => Some(self.since + LINGER),
            Phase::Responding if self.is_view_due() => Some(self.since + view::INTERVAL),
            Phase::Responding if self.half_closed => Some(self.since + PROBE_INTERVAL),
            Phase::Responding if self.http.is_streaming() => Some(self.since + COMMENT_INTERVAL),
            Phase::Responding if self.accepts_events() => Some(self.since + SILENT_START),
            Phase::Responding => None,
        }
    }

    /// Whether the live view waits for the time of its next request.
    fn is_view_due(&self) -> bool {
        let subject = self.exchange.as_deref().map(|exchange| &exchange.subject);
        matches!(subject, Some(Subject::View { waits: false, .. }))
    }

    /// The step that is due.
    pub(crate) fn overdue(&self, now: Instant, write_stall: Duration) -> Overdue {
        if self.deadline(write_stall).is_none_or(|at| at > now) {
            return Overdue::No;
        }
        match self.http.phase() {
            Phase::Responding
                if self.exchange.is_some() && self.expires.is_some_and(|at| at <= now) =>
            {
                Overdue::Expire
            }
            _ if self.held_until.is_some() => Overdue::Release,
            _ if self.blocked_since.is_some() => Overdue::Close,
            Phase::Idle | Phase::Closing => Overdue::Close,
            Phase::Responding if self.is_view_due() => Overdue::Refresh,
            Phase::Responding if self.http.is_streaming() => Overdue::Probe,
            Phase::Responding if self.accepts_events() => Overdue::StartStream,
            Phase::Responding => Overdue::Probe,
            Phase::Head | Phase::Body => Overdue::No,
        }
    }

    /// Writes a comment, or an interim response where no stream has begun.
    pub(crate) fn probe(&mut self) {
        if self.http.is_streaming() {
            let mut text = Vec::new();
            sse::write_comment(&mut text);
            self.http.write_stream(&text);
        } else {
            self.http.probe();
        }
    }
}

/// The id of a request as JSON text.
fn json_of(id: &RequestId) -> String {
    match id {
        RequestId::Text(text) => serde_json::Value::from(&**text).to_string(),
        RequestId::Number(_) | RequestId::Canonical(_) | RequestId::Null => id.to_string(),
    }
}
