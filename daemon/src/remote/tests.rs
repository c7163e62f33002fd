//! Instances of servers by URL, driven by hand: bytes in, bytes out, and the clock.

use std::sync::Arc;
use std::time::Duration;

use ceased_client::proxy::Route;
use ceased_core::time::Instant;
use ceased_core::upstream::interface::{CancelFate, RemoteNews};
use ceased_transports::http::client::Url;
use serde_json::{Value, json};

use super::bearer::Bearer;
use super::endpoint::{Bearers, Endpoint, Protocol};
use super::{Effect, Outgoing, Remote, SlotId};

const MS: Duration = Duration::from_millis(1);
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn endpoint(protocol: Protocol) -> Endpoint {
    let url = Url::parse("http://127.0.0.1:1/mcp").unwrap();
    Endpoint {
        route: Route::to(&url),
        url,
        headers: Vec::new(),
        protocol,
        connect_timeout: Duration::from_secs(10),
        read_timeout: Duration::from_secs(20),
        max_connections: 8,
        allow_private: false,
        #[cfg(feature = "tls")]
        tls: None,
        #[cfg(feature = "tls")]
        credentials: None,
        bearers: Bearers::default(),
    }
}

struct Kit {
    remote: Remote,
    now: Instant,
    frames: Vec<Value>,
    news: Vec<RemoteNews<'static>>,
    opened: Vec<SlotId>,
    closed: Vec<SlotId>,
}

impl Kit {
    fn new(protocol: Protocol) -> Self {
        let remote = Remote::new(Arc::new(endpoint(protocol)), Bearer::new(false), 1 << 20);
        let (now, frames, news) = (Instant::ZERO, Vec::new(), Vec::new());
        Self { remote, now, frames, news, opened: Vec::new(), closed: Vec::new() }
    }

    /// One whose session is begun, with its connection.
    fn in_session() -> (Self, SlotId) {
        let mut kit = Self::new(Protocol::Streamable);
        kit.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}));
        let slot = kit.opened[0];
        assert!(kit.sent(slot).starts_with("POST /mcp HTTP/1.1\r\n"));
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}"#;
        kit.answer(slot, "200 OK", "mcp-session-id: s\r\n", answer);
        kit.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert!(kit.sent(slot).contains("mcp-session-id: s\r\n"));
        kit.answer(slot, "202 Accepted", "", "");
        (kit, slot)
    }

    fn look(&mut self) {
        for effect in self.remote.take_effects() {
            match effect {
                Effect::Open(slot) => self.opened.push(slot),
                Effect::Close(slot) => self.closed.push(slot),
                Effect::Frame(frame) => self.frames.push(serde_json::from_slice(&frame).unwrap()),
                Effect::News(news) => self.news.push(news),
                Effect::Write(_) | Effect::AskForToken | Effect::Over => {}
            }
        }
    }

    fn send(&mut self, message: &Value) {
        self.remote.send(Outgoing::read(message.to_string().as_bytes()).unwrap(), self.now);
        self.look();
    }

    fn call(&mut self, id: u64) {
        let params = json!({"name": "t", "arguments": {}});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    fn cancel(&mut self, id: u64) {
        let params = json!({"requestId": id});
        let method = "notifications/cancelled";
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// The request that a connection sends.
    fn sent(&mut self, slot: SlotId) -> String {
        let output = self.remote.output(slot).unwrap();
        let bytes = output.pending().to_vec();
        output.advance(bytes.len());
        self.remote.note_sent(slot, self.now);
        self.look();
        String::from_utf8(bytes).unwrap()
    }

    fn receive(&mut self, slot: SlotId, text: &str) {
        self.remote.receive(slot, text.as_bytes(), self.now);
        self.look();
    }

    fn answer(&mut self, slot: SlotId, status: &str, headers: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}");
        self.receive(slot, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()));
    }

    fn end(&mut self, slot: SlotId, why: Option<&str>) {
        self.remote.closed(slot, why, self.now);
        self.look();
    }

    /// The clock goes on to the next deadline, and the time until then.
    fn wait(&mut self) -> Duration {
        let at = self.remote.deadline().unwrap().max(self.now);
        let waited = at.since(self.now);
        self.now = at;
        self.remote.tick(at);
        self.look();
        waited
    }

    fn newest(&self) -> SlotId {
        *self.opened.last().unwrap()
    }
}

/// REM-04: the stream for messages of the server is asked for again behind its last event, after
/// the time that the server says.
#[test]
fn stream_of_the_server_is_asked_for_again() {
    let (mut kit, _) = Kit::in_session();
    let listen = kit.newest();
    let asked = kit.sent(listen);
    assert!(asked.starts_with("GET /mcp ") && !asked.contains("last-event-id"), "{asked}");
    let change = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    kit.receive(listen, &format!("{STREAM}id: e7\nretry: 1500\ndata: {change}\n\n"));
    assert_eq!(kit.frames.last().unwrap()["method"], "notifications/tools/list_changed");
    kit.end(listen, Some("cut"));
    while kit.newest() == listen {
        kit.wait();
    }
    assert_eq!(kit.now.since(Instant::ZERO), 1500 * MS);
    let again = kit.newest();
    let asked = kit.sent(again);
    assert!(asked.contains("last-event-id: e7\r\n"), "{asked}");
    // A server without such a stream is asked no more.
    kit.answer(again, "405 No", "", "");
    while kit.remote.deadline().is_some() {
        kit.wait();
    }
    assert_eq!(kit.newest(), again);
}

/// A call without a byte for `read_timeout` fails, and its server is told once.
#[test]
fn silent_call_is_given_up_and_cancelled() {
    let (mut kit, slot) = Kit::in_session();
    let listen = kit.newest();
    kit.sent(listen);
    kit.answer(listen, "405 No", "", "");
    kit.call(2);
    kit.sent(slot);
    kit.receive(slot, STREAM);
    kit.now = kit.now + Duration::from_secs(15);
    kit.receive(slot, ": alive\n\n");
    let mut waited = Duration::ZERO;
    while !kit.closed.contains(&slot) {
        waited += kit.wait();
    }
    assert_eq!(waited, Duration::from_secs(20));
    let lost = |news: &RemoteNews<'_>| {
        matches!(news, RemoteNews::CallLost { is_unbegun: false, why, .. }
            if why.contains("no byte within read_timeout"))
    };
    assert!(kit.news.iter().any(lost), "{:?}", kit.news);
    let told = kit.newest();
    let sent = kit.sent(told);
    assert!(
        sent.contains("notifications/cancelled") && sent.contains(r#""requestId":2"#),
        "{sent}"
    );
}

/// REM-02: a cancel that waits until its call is with the server is posted once a response begins, also if
/// nothing else happens.
#[test]
fn cancel_is_posted_when_the_response_begins() {
    let (mut kit, slot) = Kit::in_session();
    kit.call(2);
    kit.sent(slot);
    kit.cancel(2);
    let before = kit.newest();
    kit.receive(slot, STREAM);
    assert_ne!(kit.newest(), before, "nothing is posted");
    let told = kit.newest();
    let sent = kit.sent(told);
    assert!(sent.contains("notifications/cancelled"), "{sent}");
    kit.answer(told, "202 Accepted", "", "");
    assert_eq!(kit.news.iter().filter_map(fate).collect::<Vec<_>>(), [CancelFate::Told]);
}

/// REM-02: a cancel of HTTP+SSE is posted to the place that its stream has named, and the answer
/// that comes all the same is that of the call.
#[test]
fn cancel_of_http_sse_is_posted() {
    let mut kit = Kit::new(Protocol::Sse);
    kit.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}));
    let stream = kit.newest();
    assert!(kit.sent(stream).starts_with("GET /mcp "));
    kit.receive(stream, &format!("{STREAM}event: endpoint\ndata: /post?s=1\n\n"));
    let post = kit.newest();
    assert!(kit.sent(post).starts_with("POST /post?s=1 "), "nothing is posted before");
    kit.answer(post, "202 Accepted", "", "");
    let begun = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"}}"#;
    kit.receive(stream, &format!("data: {begun}\n\n"));
    kit.call(2);
    kit.sent(post);
    kit.answer(post, "202 Accepted", "", "");
    kit.cancel(2);
    let sent = kit.sent(post);
    assert!(sent.starts_with("POST /post?s=1 ") && sent.contains(r#""requestId":2"#), "{sent}");
    kit.answer(post, "202 Accepted", "", "");
    let told =
        |news: &RemoteNews<'_>| matches!(news, RemoteNews::Cancel { fate: CancelFate::Told, .. });
    assert!(kit.news.iter().any(told), "{:?}", kit.news);
    assert!(!kit.closed.contains(&stream), "the stream is that of all");
    kit.receive(stream, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n");
    assert_eq!(kit.frames.last().unwrap()["id"], 2);
}

/// Responses are the same wherever their bytes are cut, in each form.
#[test]
fn answers_may_be_cut_at_every_byte() {
    let body = r#"{"jsonrpc":"2.0","id":2,"result":{"x":1}}"#;
    let length = body.len();
    let chunk = format!("data: {body}\n\n");
    for whole in [
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
        format!("{STREAM}: hi\r\n\r\nid: 1\r\ndata: {body}\r\n\r\n"),
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
             {:x}\r\n{chunk}\r\n0\r\n\r\n",
            chunk.len()
        ),
    ] {
        for cut in 1..whole.len() {
            let (mut kit, slot) = Kit::in_session();
            let before = kit.frames.len();
            kit.call(2);
            kit.sent(slot);
            let (first, second) = whole.split_at(cut);
            kit.receive(slot, first);
            if !kit.closed.contains(&slot) && kit.frames.len() == before {
                kit.receive(slot, second);
            }
            assert_eq!(kit.frames.len(), before + 1, "{cut}: {whole}");
            assert_eq!(kit.frames[before]["result"]["x"], 1);
            assert!(kit.news.is_empty(), "{cut}: {:?}", kit.news);
        }
    }
}

/// Half of a response that ends is no answer: its outcome is unknown, wherever it was cut.
#[test]
fn half_of_an_answer_is_none() {
    let body = r#"{"jsonrpc":"2.0","id":2,"result":{"x":1}}"#;
    let length = body.len();
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\ncontent-type: application/json\r\n\r\n{body}"
    );
    for cut in 1..whole.len() {
        let (mut kit, slot) = Kit::in_session();
        let before = kit.frames.len();
        kit.call(2);
        kit.sent(slot);
        kit.receive(slot, &whole[..cut]);
        kit.end(slot, None);
        assert_eq!(kit.frames.len(), before, "{cut}");
        let [RemoteNews::CallLost { is_unbegun: false, .. }] = kit.news.as_slice() else {
            panic!("{cut}: {:?}", kit.news)
        };
    }
}

/// REM-03: a refusal says that nothing was begun, and its cancel is of no use any more. Other statuses,
/// and answers of proxies, do not: the server is told.
#[test]
fn statuses_of_a_refusal_alone_say_that_nothing_was_begun() {
    for (status, is_unbegun) in [
        (400, true),
        (401, true),
        (403, true),
        (404, true),
        (413, true),
        (429, true),
        (408, false),
        (409, false),
        (422, false),
        (500, false),
        (502, false),
        (504, false),
    ] {
        let (mut kit, slot) = Kit::in_session();
        kit.call(2);
        kit.sent(slot);
        kit.cancel(2);
        // The cancel is held until the request is surely with the server.
        kit.answer(slot, &format!("{status} X"), "", "no");
        let fates: Vec<_> = kit.news.iter().filter_map(fate).collect();
        assert_eq!(fates.contains(&CancelFate::Unsent), is_unbegun, "{status}: {:?}", kit.news);
        let told = kit.opened.clone().into_iter().filter(|slot| !kit.closed.contains(slot));
        let told: Vec<String> =
            told.collect::<Vec<_>>().into_iter().map(|it| kit.sent(it)).collect();
        let is_told = told.iter().any(|sent| sent.contains("notifications/cancelled"));
        assert_eq!(is_told, !is_unbegun && status != 404, "{status}: {told:?}");
        let is_answered = kit.frames.iter().any(|frame| frame["id"] == 2);
        assert_eq!(is_answered, is_unbegun && status != 404, "{status}: {:?}", kit.frames);
    }
}

fn fate(news: &RemoteNews<'static>) -> Option<CancelFate> {
    match news {
        RemoteNews::Cancel { fate, .. } => Some(*fate),
        RemoteNews::CallLost { .. } | RemoteNews::SessionLost | RemoteNews::SessionEnded => None,
    }
}

/// A cancel that waits for a connection is dropped with the refusal of its call.
#[test]
fn cancel_of_a_refused_call_does_not_wait_on() {
    let (mut kit, slot) = Kit::in_session();
    kit.call(2);
    kit.sent(slot);
    (3..10).for_each(|id| kit.call(id));
    for _ in 0..8 {
        kit.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    }
    for slot in kit.opened.clone() {
        kit.sent(slot);
    }
    kit.cancel(2);
    // It may be sent from then on, but for a connection.
    kit.wait();
    kit.answer(slot, "403 X", "", "");
    assert_eq!(kit.news.iter().filter_map(fate).collect::<Vec<_>>(), [CancelFate::Unsent]);
    let later = kit.sent(slot);
    assert!(!later.contains("notifications/cancelled"), "{later}");
}
