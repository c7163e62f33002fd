//! The client: one connection, and the calls on it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call_id::CallId;
use crate::decode::broken;
use crate::endpoint::Endpoint;
use crate::error::{Error, METHOD_NOT_FOUND, Refusal, RpcError};
use crate::message::Message;
use crate::message::Notification;
use crate::wait::Deadline;
use crate::wait::Interrupts;
use crate::wire::Wire;
use ceased_core::protocol::AUTHENTICATE;

/// The requested revision.
pub const PROTOCOL_VERSION: &str = "2025-11-25";
/// Older revisions that a server may select.
const OLDER_VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// Maximum number of unanswered calls; a daemon's default limit.
pub(crate) const CALLS_MAX: usize = 1024;
/// Time limit for sending a cancellation to a server that does not read.
const CANCEL_FLUSH: Duration = Duration::from_secs(5);

/// The part of the offers of a daemon that a connection is limited to.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// These servers.
    Servers(&'a [String]),
    /// The profile of this name.
    Profile(&'a str),
}

/// Settings of a client.
#[derive(Debug)]
pub struct Options {
    /// Timeout of [`Client::call`] and the handshake. Defaults to 30 seconds.
    pub timeout: Duration,
    /// Source of interrupts that end every wait early. Defaults to none.
    pub interrupts: Option<Interrupts>,
    /// Token for a listener that requires one, sent with `ceased/authenticate` before any other
    /// message.
    pub token: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), interrupts: None, token: None }
    }
}

/// The server's self-description.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// The negotiated revision.
    pub protocol_version: String,
    /// Its `serverInfo`. Untrusted text.
    pub info: Value,
    /// Its `capabilities`.
    pub capabilities: Value,
}

/// A connection to an MCP server, after the handshake.
///
/// ```no_run
/// use std::time::Duration;
///
/// use ceased_client::{Client, Endpoint, Options};
/// use serde_json::json;
///
/// let endpoint = Endpoint::Unix("/run/ceased/ceased.sock".into());
/// let mut client = Client::connect(&endpoint, Options::default())?;
/// let call = client.start_tool("build", &json!({"package": "core"}))?;
/// client.cancel(call, Some("not needed"))?;
/// client.flush(Duration::from_secs(1))?;
/// # Ok::<(), ceased_client::Error>(())
/// ```
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    /// Messages received after an answer, kept for the next wait.
    unhandled: VecDeque<Result<Message, Error>>,
    pub(crate) options: Options,
    last_call: u64,
    calls: BTreeMap<CallId, Call>,
    pub(crate) server: Server,
    late_answers: u64,
}

/// A pending call: sent, not cancelled, and not answered.
#[derive(Debug)]
struct Call {
    kind: Kind,
    answer: Option<Result<Box<RawValue>, RpcError>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Answered by a task; `notifications/cancelled` must not name it (CAN-05).
    CreatesTask,
}

impl Client {
    /// Connects and performs the handshake.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the connection fails; otherwise as [`Client::over`].
    pub fn connect(endpoint: &Endpoint, options: Options) -> Result<Self, Error> {
        Self::on(endpoint.open(options.timeout)?, options)
    }

    /// Performs the handshake over a connected socket.
    ///
    /// # Errors
    /// As [`Client::over`].
    pub fn on(socket: impl Into<OwnedFd>, options: Options) -> Result<Self, Error> {
        let socket = socket.into();
        let input = socket.try_clone().map_err(Error::Io)?;
        Self::over(input, socket, options)
    }

    /// Performs the handshake over a descriptor to read from and one to write to, such as the
    /// standard output and input of a child. Their blocking modes are unchanged.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the peer is not an MCP server or speaks no known revision,
    /// [`Error::Rpc`] if it rejects the handshake, [`Error::TimedOut`], [`Error::Interrupted`], or
    /// [`Error::Closed`].
    pub fn over(
        input: impl Into<OwnedFd>,
        output: impl Into<OwnedFd>,
        options: Options,
    ) -> Result<Self, Error> {
        let mut client = Self::silent(input.into(), output.into(), options)?;
        client.authenticate()?;
        client.handshake()?;
        Ok(client)
    }

    /// Presents the token of `options` on a socket that is used otherwise afterwards.
    ///
    /// # Errors
    /// As [`Client::over`].
    pub fn introduce(socket: BorrowedFd<'_>, options: Options) -> Result<(), Error> {
        let dup = || socket.try_clone_to_owned().map_err(Error::Io);
        Self::silent(dup()?, dup()?, options)?.authenticate()
    }

    /// As [`Client::introduce`], and limits the connection to a part of the offers of the daemon.
    ///
    /// # Errors
    /// As [`Client::over`]; [`Error::Rpc`] if a server or the profile is unknown.
    pub fn introduce_to(
        socket: BorrowedFd<'_>,
        options: Options,
        part: Part<'_>,
    ) -> Result<(), Error> {
        let dup = || socket.try_clone_to_owned().map_err(Error::Io);
        let mut client = Self::silent(dup()?, dup()?, options)?;
        client.authenticate()?;
        let timeout = Some(client.options.timeout);
        let id = client.request("ceased/scope", Kind::Plain, |_| match part {
            Part::Servers(servers) => json!({"servers": servers}),
            Part::Profile(name) => json!({"profile": name}),
        })?;
        client.wait(id, timeout, &mut |_| {}).map(drop)
    }

    /// As [`Client::introduce`], and puts this agent of the daemon behind the connection: everything
    /// that is sent on it afterwards goes to a process of its own.
    ///
    /// # Errors
    /// As [`Client::over`]; [`Error::Rpc`] if the agent is unknown, or as many clients have it as may.
    pub fn introduce_to_agent(
        socket: BorrowedFd<'_>,
        options: Options,
        agent: &str,
    ) -> Result<(), Error> {
        let dup = || socket.try_clone_to_owned().map_err(Error::Io);
        let mut client = Self::silent(dup()?, dup()?, options)?;
        client.authenticate()?;
        let timeout = Some(client.options.timeout);
        let id = client.request("ceased/agent", Kind::Plain, |_| json!({"agent": agent}))?;
        client.wait(id, timeout, &mut |_| {}).map(drop)
    }

    /// A client that has sent nothing yet.
    fn silent(input: OwnedFd, output: OwnedFd, options: Options) -> Result<Self, Error> {
        let wire = Wire::new(input, output).map_err(Error::Io)?;
        let (server, calls, unhandled) = (Server::default(), BTreeMap::new(), VecDeque::new());
        Ok(Self { wire, unhandled, options, last_call: 0, calls, server, late_answers: 0 })
    }

    /// Presents the token, if configured.
    fn authenticate(&mut self) -> Result<(), Error> {
        let Some(token) = &self.options.token else { return Ok(()) };
        let params = json!({"token": token});
        let timeout = Some(self.options.timeout);
        let id = self.request(AUTHENTICATE, Kind::Plain, |_| params)?;
        self.wait(id, timeout, &mut |_| {}).map(drop)
    }

    fn handshake(&mut self) -> Result<(), Error> {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "ceased", "version": env!("CARGO_PKG_VERSION")},
        });
        let id = self.request("initialize", Kind::Plain, |_| params)?;
        let timeout = Some(self.options.timeout);
        let answer = self.wait(id, timeout, &mut |_| {})?;
        let mut answer = value(&answer)?;
        let version = answer["protocolVersion"].as_str().unwrap_or_default().to_owned();
        if version != PROTOCOL_VERSION && !OLDER_VERSIONS.contains(&version.as_str()) {
            return Err(Error::Protocol(format!(
                "the server speaks revision {version:?}; this client speaks {PROTOCOL_VERSION} and older"
            )));
        }
        self.server = Server {
            protocol_version: version,
            info: answer["serverInfo"].take(),
            capabilities: answer["capabilities"].take(),
        };
        self.notify("notifications/initialized", None)
    }

    /// The server's self-description.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Ends the connection and returns the source of interrupts, for another one.
    #[must_use]
    pub fn into_interrupts(self) -> Option<Interrupts> {
        self.options.interrupts
    }

    /// The source of interrupts given in the [`Options`].
    #[must_use]
    pub const fn interrupts(&self) -> Option<&Interrupts> {
        self.options.interrupts.as_ref()
    }

    /// Number of answers to cancelled calls, which were dropped (CAN-10).
    #[must_use]
    pub const fn late_answers(&self) -> u64 {
        self.late_answers
    }

    /// Sends a request and waits for its answer, up to the timeout of the [`Options`].
    /// Notifications received meanwhile are dropped, unlike with [`Client::send`] and
    /// [`Client::wait`].
    ///
    /// # Errors
    /// [`Error::Rpc`] if the server answers with an error. On [`Error::TimedOut`] and
    /// [`Error::Interrupted`] the request has been cancelled.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        value(&self.call_raw(method, params)?)
    }

    /// As [`Client::call`], returning the result as the server's JSON text.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_raw(&mut self, method: &str, params: Value) -> Result<Box<RawValue>, Error> {
        let id = self.send(method, params)?;
        let answer = self.wait(id, Some(self.options.timeout), &mut |_| {});
        if let Err(error @ (Error::TimedOut(_) | Error::Interrupted)) = answer {
            self.cancel(id, Some(&error.to_string()))?;
            return Err(error);
        }
        answer
    }

    /// Sends a request; [`Client::wait`] returns its answer. Does not block, so a long message may
    /// be sent only by the next wait.
    ///
    /// # Errors
    /// [`Error::Refused`] for `initialize`, for a message longer than `LINE_BYTES_MAX` and when
    /// 1024 calls are unanswered.
    pub fn send(&mut self, method: &str, params: Value) -> Result<CallId, Error> {
        if method == "initialize" {
            return Err(Refusal::Initialize.into());
        }
        self.request(method, Kind::Plain, |_| params)
    }

    /// Waits for the answer of `id`, at most `timeout`. Passes notifications received meanwhile to
    /// `sink`.
    ///
    /// # Errors
    /// [`Error::Rpc`] if the server answers with an error. After [`Error::TimedOut`] and
    /// [`Error::Interrupted`] the call continues: wait again, or [`cancel`](Client::cancel) it.
    pub fn wait(
        &mut self,
        id: CallId,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(&Notification),
    ) -> Result<Box<RawValue>, Error> {
        let deadline = Deadline::after(timeout);
        loop {
            let call = self.calls.get(&id).ok_or(Refusal::NotInProgress(id))?;
            if call.answer.is_some() {
                let answer = self.calls.remove(&id).and_then(|call| call.answer);
                return answer.expect("checked above").map_err(Error::Rpc);
            }
            self.check(&deadline)?;
            self.turn(deadline.at, Some(id), sink)?;
        }
    }

    /// Serves the connection for `time`: receives notifications and answers pings.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and errors of the connection.
    pub fn idle(
        &mut self,
        time: Duration,
        sink: &mut dyn FnMut(&Notification),
    ) -> Result<(), Error> {
        let deadline = Deadline::after(Some(time));
        loop {
            match self.check(&deadline) {
                Ok(()) => self.turn(deadline.at, None, sink)?,
                Err(Error::TimedOut(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Cancels a call with `notifications/cancelled` and forgets it; a late answer is dropped
    /// (CAN-10). MCP sends no answer to a cancelled request (CAN-08), so the end of its work is not
    /// reported.
    ///
    /// # Errors
    /// [`Error::Refused`], without sending, if the call is not in progress (CAN-02, CAN-03) or
    /// creates a task (CAN-05). [`Error::TimedOut`] if the server did not read it for five seconds.
    pub fn cancel(&mut self, id: CallId, reason: Option<&str>) -> Result<(), Error> {
        match self.calls.get(&id) {
            Some(Call { answer: None, kind: Kind::Plain }) => {}
            Some(Call { answer: None, kind: Kind::CreatesTask }) => {
                return Err(Refusal::CreatesTask(id).into());
            }
            Some(Call { answer: Some(_), .. }) | None => {
                return Err(Refusal::NotInProgress(id).into());
            }
        }
        self.calls.remove(&id);
        let mut params = json!({"requestId": id.0});
        if let Some(reason) = reason {
            params["reason"] = reason.into();
        }
        self.notify("notifications/cancelled", Some(params))?;
        self.flush(CANCEL_FLUSH)
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn notify(&mut self, method: &str, params: Option<Value>) -> Result<(), Error> {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        self.push(&message)
    }

    /// Waits until all pending messages are sent.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Interrupted`], and errors of the connection.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(Some(timeout));
        while self.wire.has_unsent() {
            self.check(&deadline)?;
            self.turn(deadline.at, None, &mut |_| {})?;
        }
        Ok(())
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        kind: Kind,
        params: impl FnOnce(CallId) -> Value,
    ) -> Result<CallId, Error> {
        if self.calls.len() >= CALLS_MAX {
            return Err(Refusal::TooManyCalls(CALLS_MAX).into());
        }
        let id = CallId(self.last_call + 1);
        self.push(&json!({"jsonrpc": "2.0", "id": id.0, "method": method, "params": params(id)}))?;
        self.last_call = id.0;
        self.calls.insert(id, Call { kind, answer: None });
        Ok(id)
    }

    fn push(&mut self, message: &Value) -> Result<(), Error> {
        self.wire.push(message.to_string().as_bytes())?;
        self.wire.send()
    }

    /// Checks deadline and interrupts. Only here is an interrupt taken: one that arrives together
    /// with an answer is left for the next wait.
    fn check(&self, deadline: &Deadline) -> Result<(), Error> {
        if self.options.interrupts.as_ref().is_some_and(Interrupts::take) {
            return Err(Error::Interrupted);
        }
        match deadline.at {
            Some(at) if at <= Instant::now() => Err(Error::TimedOut(deadline.after)),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits once and handles the received messages up to the answer to `awaited`. Later messages
    /// are kept for the next wait.
    fn turn(
        &mut self,
        deadline: Option<Instant>,
        awaited: Option<CallId>,
        sink: &mut dyn FnMut(&Notification),
    ) -> Result<(), Error> {
        if self.unhandled.is_empty() {
            let unhandled = &mut self.unhandled;
            self.wire.turn(deadline, self.options.interrupts.as_ref(), &mut |frame| {
                unhandled.extend(Message::read(&frame).transpose());
            })?;
        }
        // Handle all messages before reporting an error: a valid answer beside an invalid line
        // counts.
        let mut complaint = None;
        while let Some(message) = self.unhandled.pop_front() {
            let taken = message.and_then(|message| self.take(message, sink));
            complaint = complaint.or(taken.err());
            let awaited = awaited.and_then(|id| self.calls.get(&id));
            if awaited.is_some_and(|call| call.answer.is_some()) {
                break;
            }
        }
        complaint.map_or(Ok(()), Err)
    }

    fn take(&mut self, message: Message, sink: &mut dyn FnMut(&Notification)) -> Result<(), Error> {
        match message {
            Message::Note(note) => sink(&note),
            Message::Request { id, method } => return self.answer(&id, &method),
            // The error cannot be assigned to a call, and the pending one would wait forever.
            // Before the handshake it is a rejection of the connection, which a server may send
            // without reading a request.
            Message::Unassigned(error) if self.server.protocol_version.is_empty() => {
                return Err(Error::Rpc(error));
            }
            Message::Unassigned(error) => {
                let how = format!("the server could not read a message: {error}");
                return Err(Error::Protocol(how));
            }
            Message::Answer { id, outcome } => match self.calls.get_mut(&id) {
                Some(Call { answer: Some(_), .. }) => {
                    return Err(Error::Protocol(format!("two answers to request {id}")));
                }
                Some(call) => call.answer = Some(outcome),
                None if (1..=self.last_call).contains(&id.0) => self.late_answers += 1,
                None => {
                    return Err(Error::Protocol(format!(
                        "an answer to request {id}, which was never sent"
                    )));
                }
            },
        }
        Ok(())
    }

    /// Answers a request of the server: a ping; others are rejected.
    fn answer(&mut self, id: &RawValue, method: &str) -> Result<(), Error> {
        let outcome = if method == "ping" {
            r#""result":{}"#.to_owned()
        } else {
            let message = format!("this client does not implement {method:.80}");
            format!(r#""error":{}"#, json!({"code": METHOD_NOT_FOUND, "message": message}))
        };
        self.wire.push(format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id.get()).as_bytes())?;
        self.wire.send()
    }
}

/// Parses the text of an answer.
pub(crate) fn value(raw: &RawValue) -> Result<Value, Error> {
    serde_json::from_str(raw.get())
        .map_err(|why| broken(&format!("a result cannot be read ({why})"), raw.get().as_bytes()))
}
