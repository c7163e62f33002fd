//! One instance of a server by URL: its connections, its session, and messages that wait.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::ids::CallId;
use ceased_core::time::Instant;
use ceased_core::upstream::interface::{CancelFate, RemoteNews};
use ceased_transports::Output;
use ceased_transports::http::client::{ClientLimits, ClientRequest};

use super::bearer::Bearer;
use super::endpoint::{Endpoint, Protocol};
use super::exchange::{Exchange, Slot, SlotId};
use super::message::{Kind, Outgoing};
use super::stream_state::{Listen, Resume, Sse};
use crate::mcp_headers;

/// How long a connection without an exchange is kept. Usual servers close one after 5 s, and a
/// request that crosses the close is lost.
const KEPT: Duration = Duration::from_secs(3);
/// Connections beyond the limit for cancels, other notifications and answers: they wait for no call.
const CONTROL: usize = 8;
/// From the last byte of a request to its cancel, unless the response begins before: the two take
/// different ways.
const SETTLED: Duration = Duration::from_millis(50);
/// How long the end of a session may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Order for the event loop.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Connect, for this slot.
    Open(SlotId),
    /// The slot has output.
    Write(SlotId),
    /// Close the connection of the slot, which is none of the instance any more.
    Close(SlotId),
    /// A message for the engine, in one line.
    Frame(Vec<u8>),
    /// News for the engine.
    News(RemoteNews<'static>),
    /// Ask the source of the token, and tell when it has answered.
    AskForToken,
    /// The instance has ended.
    Over,
}

/// A cancel that waits until its request is with the server.
#[derive(Debug)]
struct HeldCancel {
    call: u64,
    /// `None` before the request is sent.
    due: Option<Instant>,
    message: Outgoing,
}

/// One instance of a server by URL.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) bearer: Bearer,
    limits: ClientLimits,
    pub(super) slots: BTreeMap<SlotId, Slot>,
    next_slot: SlotId,
    /// Messages that were not sent, in order.
    pub(super) waiting: VecDeque<Outgoing>,
    cancels: Vec<HeldCancel>,
    /// `notifications/initialized` is under way: later messages rest on it.
    pub(super) is_held: bool,
    /// The path that is posted to; another one after a redirect.
    pub(super) target: String,
    pub(super) session: Option<String>,
    /// The request `initialize`.
    pub(super) initialize: Option<u64>,
    /// Revision of the session.
    pub(super) version: Option<String>,
    pub(super) is_session_lost: bool,
    pub(super) sse: Sse,
    pub(super) listen: Listen,
    pub(super) resumes: Vec<Resume>,
    /// Calls whose answers come on the stream of HTTP+SSE.
    pub(super) streamed: BTreeSet<u64>,
    /// The latest end, while the instance ends.
    pub(super) ending: Option<Instant>,
    pub(super) effects: Vec<Effect>,
}

impl Remote {
    /// An instance without a connection, whose messages have at most this many bytes.
    pub(crate) fn new(endpoint: Arc<Endpoint>, bearer: Bearer, message_bytes: usize) -> Self {
        let (body_bytes, event_bytes) = (message_bytes, message_bytes);
        Self {
            limits: ClientLimits { body_bytes, event_bytes, ..ClientLimits::default() },
            slots: BTreeMap::new(),
            next_slot: 0,
            waiting: VecDeque::new(),
            cancels: Vec::new(),
            is_held: false,
            target: endpoint.url.target.clone(),
            session: None,
            initialize: None,
            version: None,
            is_session_lost: false,
            sse: match endpoint.protocol {
                Protocol::Sse => Sse::Wanted,
                Protocol::Auto | Protocol::Streamable => Sse::Off,
            },
            listen: Listen::default(),
            resumes: Vec::new(),
            streamed: BTreeSet::new(),
            ending: None,
            effects: Vec::new(),
            endpoint,
            bearer,
        }
    }

    /// Takes the orders since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes a message of the engine.
    pub(crate) fn send(&mut self, message: Outgoing, now: Instant) {
        match message.kind {
            Kind::Cancel { id } => self.cancel(id, message, now),
            Kind::Call { id, .. } if self.ending.is_some() || self.is_session_lost => {
                self.lose(id, true, "its session has ended");
            }
            Kind::Call { .. } | Kind::Initialized | Kind::Notice => {
                self.waiting.push_back(message);
            }
        }
        self.pump(now);
    }

    /// REM-02: closes the response of a request without a session; else the server is told.
    fn cancel(&mut self, id: u64, message: Outgoing, now: Instant) {
        let is_of = |it: &Outgoing| matches!(it.kind, Kind::Call { id: call, .. } if call == id);
        if let Some(at) = self.waiting.iter().position(is_of) {
            self.waiting.remove(at);
            return self.tell_fate(id, CancelFate::Unsent);
        }
        if self.cancel_resumed(id) {
            return self.waiting.push_front(message);
        }
        let Some((slot, state)) = self.slots.iter_mut().find(|(_, it)| it.call == Some(id)) else {
            // Its answer has arrived, or comes on the stream of HTTP+SSE.
            if self.version.is_some() {
                self.waiting.push_front(message);
            }
            return;
        };
        let slot = *slot;
        state.is_cancelled = true;
        let is_modern = state.is_modern;
        if !state.has_sent {
            self.close(slot);
            return self.tell_fate(id, CancelFate::Unsent);
        }
        if is_modern {
            self.close(slot);
            return self.tell_fate(id, CancelFate::StreamClosed);
        }
        let due = if state.has_head { Some(now) } else { state.is_sent().then(|| now + SETTLED) };
        self.cancels.push(HeldCancel { call: id, due, message });
        self.release_cancels(now);
    }

    fn release_cancels(&mut self, now: Instant) {
        let is_due = |held: &mut HeldCancel| held.due.is_some_and(|due| due <= now);
        let due: Vec<HeldCancel> = self.cancels.extract_if(.., is_due).collect();
        self.waiting.extend(due.into_iter().map(|held| held.message));
    }

    /// Forgets the cancels of a call that the server has not begun.
    pub(super) fn drop_cancels_of(&mut self, call: u64) {
        self.cancels.retain(|held| held.call != call);
        self.waiting.retain(|message| message.kind != Kind::Cancel { id: call });
    }

    /// The request of a connection is with the server: its cancel may follow.
    pub(super) fn release_cancels_of(&mut self, slot: SlotId, now: Instant) {
        let call = self.slots.get(&slot).and_then(|state| state.call);
        for held in self.cancels.iter_mut().filter(|held| Some(held.call) == call) {
            held.due = Some(now);
        }
        self.release_cancels(now);
    }

    /// Nothing more of a call is of use.
    pub(crate) fn forget(&mut self, call: u64, now: Instant) {
        self.resumes.retain(|resume| resume.call != call);
        let slot = self.slots.iter().find(|(_, it)| it.call == Some(call));
        if let Some(slot) = slot.map(|(slot, _)| *slot) {
            self.close(slot);
        }
        self.pump(now);
    }

    /// Ends the instance: the session, if there is one, then every connection.
    pub(crate) fn end(&mut self, now: Instant) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(now + FAREWELL);
        self.waiting.clear();
        self.cancels.clear();
        self.resumes.clear();
        if self.session.is_none() || self.is_session_lost || self.sse.is_on() {
            return self.finish();
        }
        let slot = self.open_slot(now);
        self.request(slot, Exchange::Delete, now);
    }

    /// The end of an instance.
    pub(super) fn finish(&mut self) {
        let all: Vec<SlotId> = self.slots.keys().copied().collect();
        all.into_iter().for_each(|slot| self.close(slot));
        self.effects.push(Effect::Over);
    }

    pub(super) fn tell_fate(&mut self, call: u64, fate: CancelFate) {
        let call = CallId::new(call);
        self.effects.push(Effect::News(RemoteNews::Cancel { call, fate }));
    }

    pub(super) fn lose(&mut self, call: u64, is_unbegun: bool, why: &str) {
        let (call, why) = (CallId::new(call), Cow::Owned(why.to_owned()));
        self.effects.push(Effect::News(RemoteNews::CallLost { call, is_unbegun, why }));
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, slot: SlotId) {
        if let Some(gone) = self.slots.remove(&slot) {
            if let Some(call) = gone.call {
                self.cancels.retain(|held| held.call != call);
            }
            self.effects.push(Effect::Close(slot));
        }
    }
}

/// Sending.
impl Remote {
    /// Sends messages that wait, as far as there are connections for them.
    pub(super) fn pump(&mut self, now: Instant) {
        if self.ending.is_some() {
            return;
        }
        if self.waiting.is_empty() || self.waits_for_token(now) {
            return;
        }
        if self.sse == Sse::Wanted {
            self.begin_sse(now);
        }
        while let Some(at) = self.next_waiting() {
            let Some(message) = self.waiting.remove(at) else { return };
            let slot = match self.idle_slot() {
                Some(slot) => slot,
                None => self.open_slot(now),
            };
            self.is_held |= message.kind == Kind::Initialized;
            self.request(slot, Exchange::Post { message, redirects: 0 }, now);
        }
    }

    /// The position of the next message that may be sent now.
    fn next_waiting(&self) -> Option<usize> {
        if self.sse.is_awaited() {
            return None;
        }
        let is_counted = |slot: &&Slot| !matches!(slot.exchange, Some(Exchange::Listen));
        let open = self.slots.values().filter(is_counted).count();
        let max = self.endpoint.max_connections;
        let has_idle = self.idle_slot().is_some();
        self.waiting.iter().position(|message| match message.kind {
            Kind::Call { .. } => !self.is_held && (has_idle || open < max),
            Kind::Cancel { .. } => has_idle || open < max + CONTROL,
            Kind::Initialized | Kind::Notice => !self.is_held && (has_idle || open < max + CONTROL),
        })
    }

    fn idle_slot(&self) -> Option<SlotId> {
        let is_idle = |slot: &Slot| slot.exchange.is_none() && slot.client.is_idle();
        self.slots.iter().find(|(_, slot)| is_idle(slot)).map(|(slot, _)| *slot)
    }

    pub(super) fn open_slot(&mut self, now: Instant) -> SlotId {
        self.next_slot += 1;
        self.slots.insert(self.next_slot, Slot::new(self.limits, now));
        self.effects.push(Effect::Open(self.next_slot));
        self.next_slot
    }

    /// Begins an exchange on a connection.
    pub(super) fn request(&mut self, slot: SlotId, exchange: Exchange, now: Instant) {
        let Some(mut state) = self.slots.remove(&slot) else { return };
        let own = self.headers(&exchange);
        let (authorization, token) = self.bearer.header();
        let authorization = authorization.as_deref().map(|value| ("authorization", value));
        let headers: Vec<(&str, &str)> = { own.iter() }
            .map(|(name, value)| (*name, &**value))
            .chain(authorization)
            .chain(exchange.parameters().iter().map(|(name, value)| (&**name, &**value)))
            .chain(self.endpoint.route.header(&self.endpoint.url))
            .chain(self.endpoint.headers.iter().map(|(name, value)| (&**name, &**value)))
            .collect();
        let (method, target, body): (_, &str, &[u8]) = match &exchange {
            Exchange::Post { message, .. } => {
                ("POST", self.sse.target(&self.target), &message.body)
            }
            Exchange::Listen | Exchange::Resume { .. } => ("GET", &self.target, &[]),
            Exchange::Delete => ("DELETE", &self.target, &[]),
        };
        let target = &*self.endpoint.route.target(&self.endpoint.url, target);
        let authority = &*self.endpoint.url.authority;
        let request =
            ClientRequest { method, target, authority, headers: &headers, body, keep_alive: true };
        let sent = state.client.send(&request);
        state.begin(exchange, now);
        state.token = token;
        self.slots.insert(slot, state);
        match sent {
            Ok(()) => self.effects.push(Effect::Write(slot)),
            Err(why) => self.settle(slot, Err(why.to_string()), now),
        }
    }

    fn headers(&self, exchange: &Exchange) -> Vec<(&'static str, Cow<'_, str>)> {
        let mut headers: Vec<(&str, Cow<'_, str>)> = Vec::new();
        let mut session = self.session.as_deref();
        let mut version = self.version.as_deref().map(Cow::Borrowed);
        match exchange {
            Exchange::Post { message, .. } => {
                headers.push(("content-type", "application/json".into()));
                headers.push(("accept", "application/json, text/event-stream".into()));
                if matches!(message.kind, Kind::Call { is_initialize: true, .. }) {
                    (session, version) = (None, None);
                }
                if let Some(described) = &message.described {
                    version = Some(described.version.clone().into());
                    headers.push(("mcp-method", described.method.clone().into()));
                    if let Some(name) = &described.name {
                        headers.push(("mcp-name", mcp_headers::encode(name).into_owned().into()));
                    }
                }
            }
            Exchange::Listen => {
                headers.push(("accept", "text/event-stream".into()));
                let last_id = self.listen.last_id.as_ref();
                headers.extend(last_id.map(|id| ("last-event-id", id.clone().into())));
            }
            Exchange::Resume { call } => {
                headers.push(("accept", "text/event-stream".into()));
                let resume = self.resumes.iter().find(|resume| resume.call == *call);
                headers.extend(resume.map(|it| ("last-event-id", it.last_id.clone().into())));
            }
            Exchange::Delete => {}
        }
        headers.extend(session.map(|session| ("mcp-session-id", session.into())));
        headers.extend(version.map(|version| ("mcp-protocol-version", version)));
        headers
    }

    /// The output of a connection.
    pub(crate) fn output(&mut self, slot: SlotId) -> Option<&mut dyn Output> {
        self.slots.get_mut(&slot).map(|slot| &mut slot.client as &mut dyn Output)
    }

    /// Whether nothing was sent on a connection yet, so that another address can be tried.
    pub(crate) fn is_fresh(&self, slot: SlotId) -> bool {
        self.slots.get(&slot).is_some_and(|slot| !slot.is_connected)
    }

    /// Whether the bytes of the request were handed over, but not noted as sent.
    pub(crate) fn is_handed_over(&self, slot: SlotId) -> bool {
        let state = self.slots.get(&slot);
        state.is_some_and(|it| {
            it.exchange.is_some() && !it.has_sent && it.client.pending().is_empty()
        })
    }

    /// Whether a connection has output.
    pub(crate) fn has_output(&self, slot: SlotId) -> bool {
        self.slots.get(&slot).is_some_and(|slot| !slot.client.pending().is_empty())
    }

    /// A connection has taken bytes of its request.
    pub(crate) fn note_sent(&mut self, slot: SlotId, now: Instant) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        (state.has_sent, state.since, state.is_connected) = (true, now, true);
        if state.is_sent() {
            let call = state.call;
            for held in self.cancels.iter_mut().filter(|held| Some(held.call) == call) {
                held.due.get_or_insert(now + SETTLED);
            }
        }
    }
}

/// Receiving and time.
impl Remote {
    /// Takes bytes of a connection.
    pub(crate) fn receive(&mut self, slot: SlotId, bytes: &[u8], now: Instant) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        (state.since, state.is_connected) = (now, true);
        let read = state.client.receive(bytes).map_err(|why| why.to_string());
        if state.exchange.is_none() {
            return self.close(slot);
        }
        self.read_response(slot, read, now);
        // The head releases a cancel that has waited for it.
        self.pump(now);
    }

    /// The server has closed a connection, or it is lost for this reason.
    pub(crate) fn closed(&mut self, slot: SlotId, why: Option<&str>, now: Instant) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        let finished = state.client.finish().map_err(|why| why.to_string());
        let read = why.map_or(finished, |why| Err(why.to_owned()));
        match state.exchange.is_none() {
            true => self.close(slot),
            false => self.read_response(slot, read, now),
        }
        // Nothing more comes on it, whatever its response says.
        self.close(slot);
        self.pump(now);
    }

    /// Ends the exchange on a connection.
    pub(super) fn end_exchange(&mut self, slot: SlotId, now: Instant) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        if let Some(call) = state.call.take() {
            // The request is with the server, or will never be.
            for held in self.cancels.iter_mut().filter(|held| held.call == call) {
                held.due = Some(now);
            }
        }
        (state.exchange, state.since) = (None, now);
        if !state.client.is_idle() || self.ending.is_some() {
            self.close(slot);
        }
        self.release_cancels(now);
    }

    /// The time of the next deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let slots = self.slots.values().filter_map(|slot| self.slot_deadline(slot));
        let cancels = self.cancels.iter().filter_map(|held| held.due);
        let resumes = self.resumes.iter().filter_map(|resume| resume.due);
        let own = [self.ending, self.listen.due];
        slots.chain(cancels).chain(resumes).chain(own.into_iter().flatten()).min()
    }

    fn slot_deadline(&self, slot: &Slot) -> Option<Instant> {
        match &slot.exchange {
            _ if !slot.is_connected => Some(slot.since + self.endpoint.connect_timeout),
            None => Some(slot.since + KEPT),
            Some(Exchange::Listen) => None,
            Some(Exchange::Post { .. } | Exchange::Resume { .. } | Exchange::Delete) => {
                Some(slot.since + self.endpoint.read_timeout)
            }
        }
    }

    /// Takes the steps that are due.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.ending.is_some_and(|at| at <= now) {
            return self.finish();
        }
        let is_due = |slot: &Slot| self.slot_deadline(slot).is_some_and(|at| at <= now);
        let due: Vec<SlotId> =
            self.slots.iter().filter(|(_, it)| is_due(it)).map(|(slot, _)| *slot).collect();
        for slot in due {
            let why = match self.slots.get(&slot) {
                Some(state) if !state.is_connected => "no connection within connect_timeout",
                Some(_) | None => "no byte within read_timeout",
            };
            self.give_up(slot, why, now);
        }
        self.release_cancels(now);
        self.resume_due(now);
        self.pump(now);
    }

    /// Gives a connection up that does not go on. A call in a session is cancelled with it.
    fn give_up(&mut self, slot: SlotId, why: &str, now: Instant) {
        let Some(state) = self.slots.get(&slot) else { return };
        let is_in_session = self.session.is_some() || self.version.is_some();
        if let (Some(id), true) = (state.call, state.is_sent() && is_in_session) {
            let cancel = serde_json::json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": {"requestId": id, "reason": why},
            });
            // REM-02: a request that is given up is cancelled.
            self.waiting.extend(
                Outgoing::read(cancel.to_string().as_bytes())
                    .map(|message| Outgoing { kind: Kind::Notice, ..message }),
            );
        }
        self.closed(slot, Some(why), now);
    }
}
