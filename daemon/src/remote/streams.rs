//! Streams that outlast a request: the one for messages of the server, those that are resumed, and
//! HTTP+SSE.

use ceased_core::time::Instant;
use ceased_core::upstream::interface::RemoteNews;
use ceased_transports::http::client::Url;

use super::exchange::{Exchange, SlotId};
use super::machine::{Effect, Remote};
use super::stream_state::{Resume, Sse, wait};

/// How often the stream of one call is resumed without a new event.
const RESUMES_MAX: u32 = 5;
/// How often the stream of the server is asked for again without an event.
const LISTENS_MAX: u32 = 10;

impl Remote {
    /// Asks for the stream of messages of the server.
    pub(super) fn listen(&mut self, now: Instant) {
        self.listen.due = None;
        let slot = self.open_slot(now);
        self.request(slot, Exchange::Listen, now);
    }

    /// Begins HTTP+SSE.
    pub(super) fn begin_sse(&mut self, now: Instant) {
        self.sse = Sse::Awaited;
        self.listen(now);
    }

    /// The stream tells where to post.
    pub(super) fn take_endpoint(&mut self, slot: SlotId, data: &[u8], now: Instant) {
        let text = String::from_utf8_lossy(data);
        self.listen.is_repeated = false;
        match self.same_origin(text.trim()) {
            Some(target) => self.sse = Sse::At(target),
            None => {
                // REM-05
                let why = "the stream has messages posted to another origin, which is refused";
                return self.closed(slot, Some(why), now);
            }
        }
        self.pump(now);
    }

    /// The path of a URL of the same origin.
    pub(super) fn same_origin(&self, location: &str) -> Option<String> {
        let own = &self.endpoint.url;
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(location.to_owned());
        }
        if location.starts_with('?') {
            let path = own.target.split('?').next().unwrap_or_default();
            return Some(format!("{path}{location}"));
        }
        if !location.contains(':') && !location.starts_with("//") {
            let (folder, _) = own.target.rsplit_once('/')?;
            return Some(format!("{folder}/{location}"));
        }
        let other = Url::parse(location).ok()?;
        (other.place == own.place).then_some(other.target)
    }

    /// An event has arrived on a stream.
    pub(super) fn note_event(&mut self, slot: SlotId) {
        let Some(state) = self.slots.get(&slot) else { return };
        match &state.exchange {
            Some(Exchange::Listen) => {
                (self.listen.attempts, self.listen.is_repeated) = (0, false);
                self.listen.last_id.clone_from(&state.last_id);
            }
            Some(Exchange::Resume { call }) => {
                for resume in self.resumes.iter_mut().filter(|resume| resume.call == *call) {
                    resume.attempts = 0;
                    if let Some(id) = &state.last_id {
                        resume.last_id.clone_from(id);
                    }
                }
            }
            Some(Exchange::Post { .. } | Exchange::Delete) | None => {}
        }
    }

    /// The stream for messages of the server has ended, or there is none.
    pub(super) fn listen_ended(&mut self, slot: SlotId, why: &str, now: Instant) {
        let Some(state) = self.slots.get(&slot) else { return };
        let (status, retry) = (state.status(), state.retry);
        let wants_token = self.wants_better_token(slot, now);
        if self.sse == Sse::Awaited && wants_token && !self.listen.is_repeated {
            self.listen.is_repeated = true;
            self.sse = Sse::Wanted;
            return;
        }
        if self.sse.is_on() {
            return self.sse_ended(status, why);
        }
        if status == 404 && self.session.is_some() {
            return self.lose_session();
        }
        let may_come_again = matches!(status, 0 | 200..=299 | 429 | 500..) || wants_token;
        self.listen.attempts += 1;
        if may_come_again && self.listen.attempts < LISTENS_MAX && self.ending.is_none() {
            self.listen.due = Some(now + wait(retry, self.listen.attempts));
        }
    }

    /// The stream of HTTP+SSE has ended, and its session with it.
    fn sse_ended(&mut self, status: u16, why: &str) {
        let why = match status {
            0 => why.to_owned(),
            200..=299 => format!("the stream of the server has ended: {why}"),
            401 => {
                let remedy = self.remedy_for_token();
                format!("the server answers HTTP 401{remedy}")
            }
            _ => format!(
                "it answers POST with an error and GET with HTTP {status}, so it speaks neither \
                 Streamable HTTP nor HTTP+SSE"
            ),
        };
        let is_begun = matches!(self.sse, Sse::At(_));
        self.sse = Sse::Wanted;
        let waiting = std::mem::take(&mut self.waiting);
        for call in waiting.iter().filter_map(|message| message.call()) {
            self.lose(call, true, &why);
        }
        if is_begun {
            self.lose_session();
        }
        for call in std::mem::take(&mut self.streamed) {
            self.lose(call, false, &why);
        }
    }

    /// The stream of a call broke, and can be resumed. False if it was resumed too often.
    pub(super) fn resume_later(&mut self, slot: SlotId, now: Instant) -> bool {
        let Some(state) = self.slots.get(&slot) else { return false };
        let Some(call) = state.call else { return false };
        let (retry, is_cancelled) = (state.retry, state.is_cancelled);
        if let Some(resume) = self.resumes.iter_mut().find(|resume| resume.call == call) {
            resume.attempts += 1;
            resume.due = Some(now + wait(retry, resume.attempts));
            return resume.attempts < RESUMES_MAX;
        }
        let Some(last_id) = state.last_id.clone() else { return false };
        let due = Some(now + wait(retry, 0));
        self.resumes.push(Resume { call, last_id, due, attempts: 0, is_cancelled });
        true
    }

    /// A call whose stream is resumed is cancelled. False if it is none.
    pub(super) fn cancel_resumed(&mut self, call: u64) -> bool {
        let Some(resume) = self.resumes.iter_mut().find(|resume| resume.call == call) else {
            return false;
        };
        resume.is_cancelled = true;
        for slot in self.slots.values_mut().filter(|slot| slot.call == Some(call)) {
            slot.is_cancelled = true;
        }
        true
    }

    /// Asks for the streams whose time has come.
    pub(super) fn resume_due(&mut self, now: Instant) {
        if self.listen.due.is_some_and(|due| due <= now) {
            self.listen(now);
        }
        let is_due = |resume: &&mut Resume| resume.due.is_some_and(|due| due <= now);
        let due: Vec<(u64, bool)> = { self.resumes.iter_mut().filter(is_due) }
            .map(|resume| {
                resume.due = None;
                (resume.call, resume.is_cancelled)
            })
            .collect();
        for (call, is_cancelled) in due {
            let slot = self.open_slot(now);
            self.request(slot, Exchange::Resume { call }, now);
            if let Some(state) = self.slots.get_mut(&slot) {
                state.is_cancelled = is_cancelled;
            }
        }
    }

    /// The server has forgotten the session (REM-04).
    pub(super) fn lose_session(&mut self) {
        if self.is_session_lost || self.ending.is_some() {
            return;
        }
        self.is_session_lost = true;
        self.effects.push(Effect::News(RemoteNews::SessionLost));
        let waiting = std::mem::take(&mut self.waiting);
        for call in waiting.iter().filter_map(|message| message.call()) {
            self.lose(call, true, "its session was forgotten");
        }
    }
}
