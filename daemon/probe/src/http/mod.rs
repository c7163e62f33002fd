//! Streamable HTTP of both eras, as the probe needs it: each message has a connection of its own,
//! messages may be malformed, and streams can be closed at any time.

mod exchange;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ceased_client::io::poll;
use ceased_transports::http::client::ResponseHead;
use rustix::event::PollFd;
use serde_json::{Value, json};

use super::era::{Era, STATELESS};
use super::pipe::Received;
use super::room::Room;
use super::text;
use ceased_client::web::HttpServer;
use exchange::Exchange;

/// Exchanges at once.
const OPEN_MAX: usize = 64;
/// Time after which a request without a response is with the server.
const SETTLED: Duration = Duration::from_millis(50);
/// Time for the cancels and the end of a session that is dropped.
const FAREWELL: Duration = Duration::from_secs(1);
/// Texts kept that are no message.
const GARBAGE_MAX: usize = 8;

/// A response, up to its end or its first message.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: ResponseHead,
    pub(crate) body: String,
}

impl Reply {
    /// The status.
    pub(crate) const fn status(&self) -> u16 {
        self.head.status
    }

    /// The body as JSON; null if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Status and body, for evidence.
    pub(crate) fn told(&self) -> String {
        match self.body.trim() {
            "" => format!("{}", self.status()),
            body => format!("{} {}", self.status(), text::short(body)),
        }
    }
}

/// Headers of a request, each with its name in lower case.
pub(crate) type Headers = Vec<(String, String)>;

/// A client.
#[derive(Debug)]
pub(crate) struct Http {
    server: HttpServer,
    /// Headers of every request.
    extra: Headers,
    is_stateless: bool,
    /// Session id, once `initialize` is answered.
    pub(crate) session: Option<String>,
    version: Option<String>,
    open: Vec<Exchange>,
    ready: VecDeque<Value>,
    /// Bytes that may still be received.
    room: Room,
    /// Texts that are no message.
    pub(crate) garbage: Vec<String>,
    /// The reason for which the last message could not be sent.
    pub(crate) failure: Option<String>,
    /// The reason for which a response without an answer has ended.
    pub(crate) broken: Option<String>,
    /// Whether a request was refused for its credentials.
    pub(crate) is_denied: bool,
}

impl Http {
    /// A client of a server, without a request yet. It takes no more than `max` bytes.
    pub(crate) fn new(server: HttpServer, extra: Headers, era: &Era, max: u64) -> Self {
        let is_stateless = matches!(era, Era::Stateless);
        Self {
            server,
            extra,
            is_stateless,
            session: None,
            version: is_stateless.then(|| STATELESS.to_owned()),
            open: Vec::new(),
            ready: VecDeque::new(),
            room: Room::new(max),
            garbage: Vec::new(),
            failure: None,
            broken: None,
            is_denied: false,
        }
    }

    /// Headers of a POST of this message.
    pub(crate) fn headers(&self, message: &Value) -> Headers {
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        if let Some(session) = &self.session {
            add("mcp-session-id", session);
        }
        if let Some(version) = &self.version {
            add("mcp-protocol-version", version);
        }
        let method = message["method"].as_str();
        if let (true, Some(method)) = (self.is_stateless, method) {
            add("mcp-method", method);
            let member = match method {
                "tools/call" | "prompts/get" => "name",
                "resources/read" => "uri",
                _ => "taskId",
            };
            if let Some(name) = message["params"][member].as_str() {
                add("mcp-name", name);
            }
        }
        headers
    }

    /// The bytes of a request.
    pub(crate) fn draft(
        &self,
        method: &str,
        headers: &Headers,
        body: &str,
    ) -> Result<Vec<u8>, String> {
        let all = headers.iter().chain(&self.extra);
        let all: Vec<(&str, &str)> = all.map(|(name, value)| (&**name, &**value)).collect();
        self.server.request(method, &all, body).map_err(|why| why.to_string())
    }

    /// Sends a request as it is, and waits for its response, or for the first message in it.
    pub(crate) fn fetch(&mut self, bytes: Vec<u8>, until: Instant) -> Result<Reply, String> {
        let mut exchange = Exchange::begin(&self.server, bytes, until)
            .map_err(|why| format!("no connection: {why}"))?;
        let mut texts = Vec::new();
        while texts.is_empty() && !exchange.is_over() && Instant::now() < until {
            wait(&[&exchange], until);
            exchange.turn();
            texts.extend(exchange.take_texts());
        }
        let body = texts.join("\n");
        match exchange.head() {
            Some(head) if exchange.is_over() || !body.is_empty() => {
                Ok(Reply { head: head.clone(), body })
            }
            Some(head) => Err(format!("the response with status {} does not end", head.status)),
            None => Err(exchange.failure.unwrap_or_else(|| "no response".to_owned())),
        }
    }

    /// Posts a message as it is, and waits for its response.
    pub(crate) fn post(&mut self, message: &Value, until: Instant) -> Result<Reply, String> {
        let bytes = self.draft("POST", &self.headers(message), &message.to_string())?;
        self.fetch(bytes, until)
    }

    /// Ends the session.
    pub(crate) fn delete(&mut self, until: Instant) -> Result<Reply, String> {
        let bytes = self.draft("DELETE", &self.headers(&Value::Null), "")?;
        self.fetch(bytes, until)
    }

    /// Whether a message is there that was not taken yet.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The fact that the server has written too much, if it has.
    pub(crate) fn flood(&self) -> Option<String> {
        self.room.flood()
    }

    /// Whether the response to a request is open.
    pub(crate) fn is_open(&self, id: &Value) -> bool {
        self.open.iter().any(|it| it.id.as_ref() == Some(id))
    }

    /// Closes the connection of a request, without a cancel.
    pub(crate) fn hang_up(&mut self, id: &Value) {
        self.open.retain(|it| it.id.as_ref() != Some(id));
    }

    /// Closes every connection.
    pub(crate) fn hang_up_all(&mut self) {
        self.open.clear();
    }

    /// Sends lines, each as a message. Returns the rest that could not be sent in time.
    pub(crate) fn send<'b>(&mut self, lines: &'b [u8], until: Instant) -> &'b [u8] {
        let mut rest = lines;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (line, more) = rest.split_at(end);
            if let Ok(message) = serde_json::from_slice(line)
                && let Err(why) = self.send_message(&message, until)
            {
                self.failure = Some(why);
                return rest;
            }
            rest = more;
        }
        rest
    }

    fn send_message(&mut self, message: &Value, until: Instant) -> Result<(), String> {
        let is_request = message.get("method").is_some() && message.get("id").is_some();
        if message["method"] == "notifications/cancelled" && self.cancel(message, until) {
            return Ok(());
        }
        self.make_room(until)?;
        if !is_request {
            // Later messages may rest on it.
            return self.post(message, until).map(drop);
        }
        let bytes = self.draft("POST", &self.headers(message), &message.to_string())?;
        let mut exchange = Exchange::begin(&self.server, bytes, until)
            .map_err(|why| format!("no connection: {why}"))?;
        exchange.id = message.get("id").cloned();
        exchange.is_initialize = message["method"] == "initialize";
        self.open.push(exchange);
        Ok(())
    }

    /// Prepares a cancel: in an era without sessions the end of the stream is the cancel, and
    /// nothing has to be sent; else the request has to be with the server before its cancel.
    fn cancel(&mut self, message: &Value, until: Instant) -> bool {
        let id = message["params"].get("requestId").cloned();
        let place = |it: &Self| it.open.iter().position(|open| open.id.is_some() && open.id == id);
        let is_settled = |open: &Exchange| {
            let sent = open.is_sent() && open.begun.elapsed() >= SETTLED;
            sent || open.head().is_some()
        };
        while let Some(open) = place(self).and_then(|at| self.open.get(at)) {
            let now = Instant::now();
            if is_settled(open) || now >= until {
                break;
            }
            self.turn(until.min(now + SETTLED));
        }
        let Some(at) = place(self) else { return false };
        if self.is_stateless {
            self.open.remove(at);
            return true;
        }
        if let Some(open) = self.open.get_mut(at) {
            open.is_cancelled = true;
        }
        false
    }

    /// Makes room for an exchange: the oldest answered or cancelled one has its connection closed, or
    /// another has to end.
    fn make_room(&mut self, until: Instant) -> Result<(), String> {
        let is_done = |open: &Exchange| open.is_cancelled || open.is_answered;
        while self.open.len() >= OPEN_MAX {
            if let Some(at) = self.open.iter().position(is_done) {
                self.open.remove(at);
            } else if Instant::now() < until {
                self.turn(until);
            } else {
                return Err(format!("{OPEN_MAX} requests have no response"));
            }
        }
        Ok(())
    }

    /// The next message, until then.
    pub(crate) fn receive(&mut self, until: Instant) -> Received {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Received::Message(message);
            }
            if self.flood().is_some() {
                return Received::Closed;
            }
            if until <= Instant::now() {
                return Received::TimedOut;
            }
            self.turn(until);
        }
    }

    /// Waits once for any exchange, and takes the bytes that have come.
    fn turn(&mut self, until: Instant) {
        let all: Vec<&Exchange> = self.open.iter().collect();
        wait(&all, until);
        let mut open = std::mem::take(&mut self.open);
        for exchange in &mut open {
            if self.room.take(exchange.turn()) {
                self.harvest(exchange);
            }
        }
        open.retain(|exchange| !exchange.is_over());
        if self.flood().is_some() {
            open.clear();
        }
        self.open = open;
    }

    /// Takes the messages of an exchange.
    fn harvest(&mut self, exchange: &mut Exchange) {
        let status = exchange.status();
        self.is_denied |= matches!(status, 401 | 403);
        for text in exchange.take_texts() {
            if !self.room.take_values(text.as_bytes()) {
                return;
            }
            match serde_json::from_str::<Value>(&text) {
                Ok(Value::Array(batch)) => {
                    for message in batch {
                        self.accept(exchange, message);
                    }
                }
                Ok(message @ Value::Object(_)) => self.accept(exchange, message),
                Ok(_) | Err(_) if status >= 400 => self.refused(exchange, status, &text),
                Ok(_) | Err(_) => self.refuse(&text),
            }
        }
        if exchange.is_over() && status >= 400 {
            self.refused(exchange, status, "");
        }
        // A cut behind the answer breaks nothing.
        if let (Some(why), false) = (&exchange.failure, exchange.is_answered) {
            self.broken = Some(why.clone());
        }
    }

    fn accept(&mut self, exchange: &mut Exchange, mut message: Value) {
        let names = |name: &str| message.get(name).is_some_and(|it| !it.is_null());
        if !["method", "id", "error"].into_iter().any(names) {
            let text = message.to_string();
            return match exchange.status() {
                status @ 400.. => self.refused(exchange, status, &text),
                _ => self.refuse(&text),
            };
        }
        if message.get("method").is_none() {
            if message.get("id").is_none_or(Value::is_null) {
                // An error of the transport; it belongs to the request of the exchange.
                message["id"] = exchange.id.clone().unwrap_or_default();
            }
            exchange.is_answered |= message.get("id") == exchange.id.as_ref();
            if exchange.is_initialize {
                let header = exchange.head().and_then(|it| it.header("mcp-session-id"));
                self.session = header.map(str::to_owned);
                self.version = message["result"]["protocolVersion"].as_str().map(str::to_owned);
            }
        }
        self.ready.push_back(message);
    }

    /// Makes an error of a status without a message, for a request that was not cancelled.
    fn refused(&mut self, exchange: &mut Exchange, status: u16, body: &str) {
        if exchange.is_answered || exchange.is_cancelled {
            return;
        }
        exchange.is_answered = true;
        let said = format!("HTTP status {status} {}", text::short(body));
        let error = json!({"code": 0, "message": said.trim_end()});
        self.ready.push_back(json!({"jsonrpc": "2.0", "id": exchange.id, "error": error}));
    }

    fn refuse(&mut self, text: &str) {
        if self.garbage.len() < GARBAGE_MAX {
            self.garbage.push(text::short(text));
        }
    }
}

impl Drop for Http {
    /// Cancels running requests, and ends the session: the server may go on.
    fn drop(&mut self) {
        let until = Instant::now() + FAREWELL;
        let ids: Vec<Value> = self.open.iter().filter_map(|it| it.id.clone()).collect();
        self.open.clear();
        if self.session.is_none() {
            return;
        }
        for id in ids {
            let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": {"requestId": id}});
            if self.post(&message, until).is_err() {
                return;
            }
        }
        let _ = self.delete(until);
    }
}

/// Waits until one of the exchanges can go on.
fn wait(exchanges: &[&Exchange], until: Instant) {
    let mut fds: Vec<PollFd<'_>> =
        exchanges.iter().map(|it| PollFd::new(*it, it.interest())).collect();
    let _ = poll(&mut fds, Some(until));
}
