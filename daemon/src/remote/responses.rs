//! Responses: their messages, their errors, and their ends.

use ceased_core::rpc::error::code;
use ceased_core::time::Instant;
use ceased_core::upstream::interface::{CancelFate, RemoteNews};
use ceased_transports::http::client::Part;

use super::endpoint::Protocol;
use super::exchange::{Exchange, SlotId};
use super::machine::{Effect, Remote};
use super::message::{Kind, Outgoing, error_answer, incoming};
use super::stream_state::Sse;
use super::tokens::UNAUTHORIZED;

/// Redirects of one request that are followed.
const REDIRECTS_MAX: u8 = 3;
/// Longest session id, which each request repeats.
const SESSION_BYTES_MAX: usize = 4096;
/// Bytes of an error text that are shown.
const SHOWN: usize = 200;

/// Whether a status says that nothing of a request was begun: it is refused for its form, its
/// credentials, its place or its rate. Others, such as 408, 409 and 422, can come after a part of the work.
const fn is_unbegun(status: u16) -> bool {
    matches!(status, 400 | 401 | 403..=407 | 411 | 413..=415 | 417 | 421 | 426 | 428 | 429 | 431)
}

impl Remote {
    /// Reads on in the response of a connection.
    pub(super) fn read_response(&mut self, slot: SlotId, read: Result<(), String>, now: Instant) {
        if let Some(state) = self.slots.get_mut(&slot)
            && !state.has_head
            && state.client.head().is_some()
        {
            state.has_head = true;
            self.take_head(slot, now);
        }
        while let Some(state) = self.slots.get_mut(&slot)
            && let Some(part) = state.client.next_part()
        {
            if let Some(events) = state.client.response().and_then(|response| response.events()) {
                state.last_id = events.last_id().map(str::to_owned);
                state.retry = events.retry();
            }
            self.take_part(slot, part, now);
        }
        let Some(state) = self.slots.get_mut(&slot) else { return };
        if let Some(events) = state.client.response().and_then(|response| response.events()) {
            // A stream may begin with an id alone.
            state.last_id = events.last_id().map(str::to_owned);
            state.retry = events.retry();
        }
        let is_whole = state.client.response().is_some_and(|response| response.is_whole());
        if is_whole || read.is_err() {
            self.settle(slot, read, now);
        }
    }

    fn take_head(&mut self, slot: SlotId, now: Instant) {
        let Some(state) = self.slots.get(&slot) else { return };
        let is_good = matches!(state.status(), 200..=299);
        let session = state.client.head().and_then(|head| head.header("mcp-session-id"));
        let session = session.filter(|id| id.len() <= SESSION_BYTES_MAX).map(str::to_owned);
        let Some(Exchange::Post { message, .. }) = &state.exchange else { return };
        match message.kind {
            Kind::Call { id, is_initialize: true } if is_good => {
                (self.session, self.initialize) = (session, Some(id));
            }
            Kind::Cancel { id } if state.status() != UNAUTHORIZED => {
                let fate = if is_good { CancelFate::Told } else { CancelFate::Failed };
                self.tell_fate(id, fate);
            }
            Kind::Call { .. } | Kind::Cancel { .. } | Kind::Initialized | Kind::Notice => {}
        }
        if is_good {
            // The request is with the server: its cancel may follow.
            self.release_cancels_of(slot, now);
        }
    }

    fn take_part(&mut self, slot: SlotId, part: Part, now: Instant) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        let is_good = matches!(state.status(), 200..=299);
        match part {
            Part::Body(body) if is_good => self.deliver(slot, &body),
            Part::Body(body) => state.body = body,
            Part::Event(event) => {
                let is_endpoint = event.kind == "endpoint" && self.sse.is_on();
                if is_endpoint {
                    return self.take_endpoint(slot, &event.data, now);
                }
                self.note_event(slot);
                if is_good && matches!(&*event.kind, "" | "message") {
                    self.deliver(slot, &event.data);
                }
            }
        }
    }

    /// Hands messages of a server to the engine.
    fn deliver(&mut self, slot: SlotId, text: &[u8]) {
        for message in incoming(text) {
            let Some(state) = self.slots.get_mut(&slot) else { return };
            if message.answers.is_some() && message.answers == state.call {
                state.is_answered = true;
            }
            if message.answers.is_some() && message.answers == self.initialize {
                self.version = message.version;
            }
            if let Some(call) = message.answers.filter(|_| self.sse.is_on()) {
                self.streamed.remove(&call);
            }
            self.effects.push(Effect::Frame(message.frame));
        }
    }

    /// The exchange on a connection is over: its response is whole, or it cannot be read further.
    pub(super) fn settle(&mut self, slot: SlotId, read: Result<(), String>, now: Instant) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        let Some(exchange) = state.exchange.take() else { return self.close(slot) };
        let why = read.as_ref().err().cloned().unwrap_or_else(|| "it has ended".to_owned());
        match exchange {
            Exchange::Listen => self.listen_ended(slot, &why, now),
            Exchange::Delete => {
                if matches!(state.status(), 200..=299) {
                    self.effects.push(Effect::News(RemoteNews::SessionEnded));
                }
                return self.finish();
            }
            Exchange::Resume { call } => self.stream_ended(slot, call, true, read, now),
            Exchange::Post { message, redirects } => {
                self.settle_post(slot, message, redirects, read, now);
            }
        }
        self.end_exchange(slot, now);
        self.pump(now);
    }

    fn settle_post(
        &mut self,
        slot: SlotId,
        message: Outgoing,
        redirects: u8,
        read: Result<(), String>,
        now: Instant,
    ) {
        let Some(state) = self.slots.get(&slot) else { return };
        let status = state.status();
        if matches!(status, 301 | 302 | 307 | 308) && read.is_ok() {
            return self.redirect(slot, message, redirects, now);
        }
        let Some(message) = self.keep_refused(slot, message, now) else { return };
        let is_refused = matches!(status, 400..=499) && self.names_lost_session(slot);
        if let (true, Kind::Call { id, .. }) = (is_unbegun(status), message.kind) {
            self.drop_refused_cancel(slot, id);
        }
        let Some(state) = self.slots.get(&slot) else { return };
        match message.kind {
            Kind::Call { id, .. } => match status {
                200..=299 if self.sse.is_on() => {
                    self.streamed.insert(id);
                }
                200..=299 => self.stream_ended(slot, id, false, read, now),
                0 => {
                    let (is_unbegun, why) = (!state.has_sent, read.err().unwrap_or_default());
                    self.lose(id, is_unbegun, &self.about(&why));
                }
                _ if is_refused => {
                    self.lose_session();
                    self.lose(id, true, "its session was forgotten");
                }
                _ => self.refuse(slot, id, message, now),
            },
            Kind::Cancel { id } if matches!(status, 0 | UNAUTHORIZED) => {
                self.tell_fate(id, CancelFate::Failed);
            }
            Kind::Initialized => {
                self.is_held = false;
                if !self.sse.is_on() && self.version.is_some() {
                    self.listen(now);
                }
            }
            Kind::Cancel { .. } | Kind::Notice => {}
        }
        if is_refused {
            self.lose_session();
        }
    }

    /// The server has not begun a call, so that it knows none to cancel (REM-02).
    fn drop_refused_cancel(&mut self, slot: SlotId, call: u64) {
        if self.slots.get(&slot).is_some_and(|state| state.is_cancelled) {
            self.drop_cancels_of(call);
            self.tell_fate(call, CancelFate::Unsent);
        }
    }

    /// A failure as a clause that names the server.
    fn about(&self, why: &str) -> String {
        format!("{} ({})", why, self.endpoint.url.authority)
    }

    /// Whether a response says that the server does not know the session. Some servers answer 400
    /// after a restart.
    fn names_lost_session(&self, slot: SlotId) -> bool {
        let Some(state) = self.slots.get(&slot).filter(|_| self.session.is_some()) else {
            return false;
        };
        if state.is_initialize || state.is_modern {
            return false;
        }
        let own = incoming(&state.body).iter().any(|it| it.answers.is_some());
        let text = String::from_utf8_lossy(&state.body).to_ascii_lowercase();
        match state.status() {
            404 => !own,
            400 => !own && (text.contains("session") || text.contains("not initialized")),
            _ => false,
        }
    }

    /// The response to a call has ended without its answer, unless that has arrived.
    fn stream_ended(
        &mut self,
        slot: SlotId,
        call: u64,
        is_resumed: bool,
        read: Result<(), String>,
        now: Instant,
    ) {
        let Some(state) = self.slots.get(&slot) else { return };
        if state.is_answered {
            self.resumes.retain(|resume| resume.call != call);
            return;
        }
        let is_cancelled = state.is_cancelled;
        let is_modern = state.is_modern;
        if is_cancelled && read.is_ok() {
            self.resumes.retain(|resume| resume.call != call);
            return self.tell_fate(call, CancelFate::StreamEnded);
        }
        let is_refused = is_resumed
            && matches!(state.status(), 400..=499)
            && !self.wants_better_token(slot, now);
        if !is_modern && !is_refused && self.resume_later(slot, now) {
            return;
        }
        self.resumes.retain(|resume| resume.call != call);
        let why = match read {
            Err(why) => why,
            Ok(()) if is_refused => "the rest of its stream is not kept".to_owned(),
            Ok(()) => "the response has ended without an answer".to_owned(),
        };
        self.lose(call, false, &self.about(&why));
    }

    /// REM-05: a redirect is followed within the origin alone.
    fn redirect(&mut self, slot: SlotId, message: Outgoing, redirects: u8, now: Instant) {
        let Some(state) = self.slots.get(&slot) else { return };
        let location = state.client.head().and_then(|head| head.header("location"));
        let location = location.unwrap_or_default().to_owned();
        let keeps_method = matches!(state.status(), 307 | 308);
        let is_cancelled = state.is_cancelled;
        let target = self.same_origin(&location).filter(|_| keeps_method);
        match (target, message.kind) {
            (Some(target), Kind::Call { id, .. }) if is_cancelled => {
                self.target = target;
                self.drop_refused_cancel(slot, id);
            }
            (Some(target), _) if redirects < REDIRECTS_MAX => {
                self.target = target;
                let slot = self.open_slot(now);
                let exchange = Exchange::Post { message, redirects: redirects + 1 };
                self.request(slot, exchange, now);
            }
            (_, Kind::Call { id, .. }) => {
                let location: String = location.chars().take(SHOWN).collect();
                let why = format!(
                    "it redirects to {location:?}, which is not followed: write the address of the \
                     server itself as `url`"
                );
                let answer = error_answer(id, code::INTERNAL_ERROR, &why);
                self.effects.push(Effect::Frame(answer));
            }
            (_, Kind::Initialized) => self.is_held = false,
            (_, Kind::Cancel { .. } | Kind::Notice) => {}
        }
    }

    /// A call is answered with an error of HTTP.
    fn refuse(&mut self, slot: SlotId, id: u64, message: Outgoing, now: Instant) {
        let Some(state) = self.slots.get(&slot) else { return };
        let (status, body) = (state.status(), &state.body);
        let answers = incoming(body);
        if let Some(own) = answers.into_iter().find(|it| it.is_error && it.answers == Some(id)) {
            return self.effects.push(Effect::Frame(own.frame));
        }
        let told: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let error = told.as_ref().and_then(|told| told.get("error"));
        let is_initialize = state.is_initialize;
        let is_old = matches!(status, 400 | 404 | 405) && error.is_none_or(|it| !it.is_object());
        let may_fall_back = self.endpoint.protocol == Protocol::Auto && self.sse == Sse::Off;
        if is_initialize && is_old && may_fall_back {
            // REM-01: a server of 2024-11-05 takes no POST there.
            self.waiting.push_front(message);
            return self.begin_sse(now);
        }
        if state.is_cancelled && !is_unbegun(status) {
            // It can be the answer of a proxy: the cancel establishes its own fate (REM-03).
            return self.lose(id, false, &format!("the answer is HTTP {status}"));
        }
        let code = error.and_then(|error| error.get("code")?.as_i64());
        let text = error.and_then(|error| Some(error.get("message")?.as_str()?.to_owned()));
        let text = text.unwrap_or_else(|| {
            let text = String::from_utf8_lossy(body);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        let text: String = text.chars().take(SHOWN).collect();
        let colon = if text.is_empty() { "" } else { ": " };
        let remedy = match status {
            UNAUTHORIZED => self.remedy_for_token(),
            403 => "; it refuses these credentials: look at `token_file` and `headers`".to_owned(),
            _ if is_unbegun(status) => String::new(),
            _ => "; the outcome of the call is unknown".to_owned(),
        };
        let why = format!("the server answers HTTP {status}{colon}{text}{remedy}");
        let answer = error_answer(id, code.unwrap_or(code::INTERNAL_ERROR), &why);
        self.effects.push(Effect::Frame(answer));
    }
}
