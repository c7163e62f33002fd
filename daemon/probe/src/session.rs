//! A session with a subject: its process, its transport, and everything that it said.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use ceased_client::io::{poll, read};
use ceased_process::{OwnPipes, Process, stdio_pipes};
use rustix::event::{PollFd, PollFlags};
use serde_json::{Value, json};

use super::arena::Job;
use super::channel::Channel;
use super::context::Context;
use super::era::{Era, TASKS};
use super::finding::SessionError;
use super::http::Http;
use super::life::Life;
use super::options::ToolCall;
use super::pipe::{Pipe, Received};
use super::target::{Port, Target, command_at};
use super::text;
use ceased_client::web::{HttpServer, connect};

/// Time between two attempts to connect to a server that starts.
const DIAL_AGAIN: Duration = Duration::from_millis(20);

/// A session.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    // Ended first: a channel that is dropped ends its session at a server that goes on.
    job: Option<Job<'a>>,
    pub(crate) channel: Channel,
    /// Standard input and output of a command with another transport.
    _own: Option<OwnPipes>,
    /// Released after the end of the server.
    _port: Option<Port>,
    context: &'a Context,
    life: Life,
    era: Era,
    last_id: i64,
    declares_tasks: bool,
    /// Every message received, with its time.
    pub(crate) log: Vec<(Instant, Value)>,
    /// The answer to `initialize` or `server/discover`.
    pub(crate) greeting: Value,
}

impl<'a> Session<'a> {
    /// Starts the command, without a handshake.
    pub(crate) fn silent(context: &'a Context, era: Era) -> Result<Self, SessionError> {
        let options = &context.options;
        match Self::open(context, era.clone()) {
            // Another program may have taken the free port before the server did.
            Err(_) if options.target.has_port() && !options.command.is_empty() => {
                Self::open(context, era)
            }
            result => result,
        }
    }

    fn open(context: &'a Context, era: Era) -> Result<Self, SessionError> {
        let failed = |why: io::Error| SessionError(format!("no pipes can be made: {why}"));
        // A subject without a port in its address needs no network, and has its command as it is.
        let held = match context.options.target.has_port() {
            true => {
                Some(Port::free().map_err(|why| SessionError(format!("no port is free: {why}")))?)
            }
            false => None,
        };
        let port = held.as_ref().map_or(0, |it| it.number);
        let command = match &held {
            Some(_) => command_at(&context.options.command, port),
            None => context.options.command.clone(),
        };
        let (mut job, mut own) = (None, None);
        if !command.is_empty() {
            refuse_stranger(context, &era, port)?;
            let (pipes, theirs) = stdio_pipes().map_err(failed)?;
            job = Some(context.arena.start(&command, theirs));
            own = Some(pipes);
        }
        let channel = match (context.options.target.at(port), own.take()) {
            (Target::Stdio, Some(pipes)) => Channel::Lines(
                Pipe::new(pipes.stdout, pipes.stdin, context.options.output_max).map_err(failed)?,
            ),
            (Target::Stdio, None) => return Err(SessionError("there is no command".to_owned())),
            (target, pipes) => {
                own = pipes.map(drained).transpose().map_err(failed)?;
                dial(context, &era, &target, job.as_mut())?
            }
        };
        let (log, greeting, last_id, declares_tasks) = (Vec::new(), Value::Null, 0, false);
        let (_own, _port, life) = (own, held, Life::new(context.options.timeout));
        Ok(Self {
            job,
            channel,
            _own,
            _port,
            context,
            life,
            era,
            last_id,
            declares_tasks,
            log,
            greeting,
        })
    }

    /// Starts the command and performs the handshake of the revision.
    pub(crate) fn start(context: &'a Context) -> Result<Self, SessionError> {
        Self::start_in(context, context.facts().era.clone())
    }

    /// As [`Session::start`], in this era.
    pub(crate) fn start_in(context: &'a Context, era: Era) -> Result<Self, SessionError> {
        let mut session = Self::silent(context, era)?;
        session.greet()?;
        Ok(session)
    }

    /// Performs the handshake of the revision.
    pub(crate) fn greet(&mut self) -> Result<(), SessionError> {
        let id = json!("greeting");
        let hello = self.hello(&id);
        self.say(&hello)?;
        let answer = self.answer(&id)?;
        if let Some(error) = answer.get("error") {
            return Err(SessionError(format!(
                "the handshake is refused: {}",
                text::message(error)
            )));
        }
        self.greeting = answer["result"].clone();
        self.finish_handshake()
    }

    /// Whether the command has failed without a message.
    pub(crate) fn has_failed(&mut self) -> bool {
        self.log.is_empty() && self.job.as_mut().is_some_and(Job::fails)
    }

    /// The first request.
    pub(crate) fn hello(&self, id: &Value) -> String {
        let params = match &self.era {
            Era::Stateless => return self.request(id, "server/discover", json!({})),
            Era::Session(version) => json!({
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "ceased-probe", "version": env!("CARGO_PKG_VERSION")},
            }),
        };
        self.request(id, "initialize", params)
    }

    /// Ends the handshake once the first request is answered.
    pub(crate) fn finish_handshake(&mut self) -> Result<(), SessionError> {
        match self.era {
            Era::Stateless => Ok(()),
            Era::Session(_) => self.say(&notification("notifications/initialized", &json!({}))),
        }
    }

    /// Declares the tasks extension in every further request.
    pub(crate) const fn declare_tasks(&mut self, declares: bool) {
        self.declares_tasks = declares;
    }

    /// The era that it speaks.
    pub(crate) const fn era(&self) -> &Era {
        &self.era
    }

    /// The processes of the server. The table of checks asks for a command where they are needed.
    pub(crate) fn job(&mut self) -> Result<&mut Job<'a>, SessionError> {
        self.job.as_mut().ok_or_else(|| SessionError("there is no command".to_owned()))
    }

    /// The HTTP client below. The table of checks asks for it.
    pub(crate) fn http(&mut self) -> Result<&mut Http, SessionError> {
        match &mut self.channel {
            Channel::Http(http) => Ok(http),
            Channel::Lines(_) => Err(SessionError("this is no HTTP".to_owned())),
        }
    }

    /// Live processes, if a command was started.
    pub(crate) fn processes(&self) -> Vec<Process> {
        self.job.as_ref().map(Job::processes).unwrap_or_default()
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.job.as_ref().and_then(Job::cpu)
    }

    fn told(&self) -> String {
        self.job.as_ref().map_or_else(|| "its processes are not known".to_owned(), Job::told)
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.context.options.timeout
    }

    pub(crate) fn until(&self) -> Instant {
        self.life.until()
    }

    /// An id that was not used yet.
    pub(crate) fn next_id(&mut self) -> Value {
        self.last_id += 1;
        json!(self.last_id)
    }

    /// The id that was made last.
    pub(crate) fn last_id(&self) -> Value {
        json!(self.last_id)
    }

    /// A request as a line.
    pub(crate) fn request(&self, id: &Value, method: &str, mut params: Value) -> String {
        if matches!(self.era, Era::Stateless) {
            let declared = match self.declares_tasks {
                true => json!({"extensions": {TASKS: {}}}),
                false => json!({}),
            };
            self.era.describe(&mut params, &declared);
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    /// A call of a tool as a line, with its id as the progress token.
    pub(crate) fn call(&self, id: &Value, call: &ToolCall) -> String {
        let params = json!({"name": call.name, "arguments": call.arguments,
            "_meta": {"progressToken": id}});
        self.request(id, "tools/call", params)
    }

    /// A request that every server answers at once.
    pub(crate) fn ping(&self, id: &Value) -> String {
        match self.era {
            Era::Session(_) => self.request(id, "ping", json!({})),
            Era::Stateless => self.request(id, "server/discover", json!({})),
        }
    }

    /// Sends lines in one write.
    pub(crate) fn say(&mut self, lines: &str) -> Result<(), SessionError> {
        self.say_bytes(format!("{lines}\n").as_bytes())
    }

    /// As [`Session::say`], bytes as they are.
    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let until = self.until();
        if self.channel.send(bytes, until, true).is_empty() {
            return Ok(());
        }
        if let Some(flood) = self.channel.flood() {
            return Err(SessionError(format!("the server {flood}")));
        }
        self.life.clip(until).map_err(SessionError)?;
        let within = Instant::now() + Duration::from_millis(200);
        let gone = self.job.as_mut().is_some_and(|job| job.exits(within));
        Err(SessionError(match (gone, self.channel.failure()) {
            (true, _) => format!("the server is gone: {}", self.told()),
            (false, Some(why)) => why.to_owned(),
            (false, None) => {
                format!("the server does not read its input within {:?}", self.timeout())
            }
        }))
    }

    /// Handles the next message; false if nothing came.
    fn step(&mut self, until: Instant) -> Result<bool, SessionError> {
        let until = self.life.clip(until).map_err(SessionError)?;
        match self.channel.receive(until) {
            Received::TimedOut => Ok(false),
            Received::Closed => {
                if let Some(flood) = self.channel.flood() {
                    return Err(SessionError(format!("the server {flood}")));
                }
                if let Some(job) = &mut self.job {
                    job.is_gone(Instant::now() + Duration::from_millis(500));
                }
                Err(SessionError(format!("the server has closed its output: {}", self.told())))
            }
            Received::Message(message) => {
                let asked = (message.get("method"), message.get("id"));
                if let (Some(method), Some(id)) = asked {
                    let reply = reply(method, id);
                    self.say(&reply)?;
                }
                self.log.push((Instant::now(), message));
                Ok(true)
            }
        }
    }

    /// Reads until then.
    pub(crate) fn watch(&mut self, until: Instant) -> Result<(), SessionError> {
        while self.step(until)? {}
        Ok(())
    }

    /// Reads until `found` or the time limit; false if nothing was found.
    pub(crate) fn watch_for(
        &mut self,
        within: Duration,
        found: impl Fn(&Self) -> bool,
    ) -> Result<bool, SessionError> {
        let until = Instant::now() + within;
        while !found(self) {
            if !self.step(until)? {
                return Ok(found(self));
            }
            // Searching the log after each message would take ever longer under a flood.
            while self.channel.has_ready() && self.step(until)? {}
        }
        Ok(true)
    }

    /// The answers to an id so far.
    pub(crate) fn answers(&self, id: &Value) -> Vec<&Value> {
        let answers = self.log.iter().map(|(_, message)| message);
        answers.filter(|it| it.get("method").is_none() && it.get("id") == Some(id)).collect()
    }

    /// The progress of a call so far, with its times.
    pub(crate) fn progress(&self, token: &Value) -> Vec<Instant> {
        let is_progress = |message: &Value| {
            message["method"] == "notifications/progress"
                && &message["params"]["progressToken"] == token
        };
        self.log.iter().filter(|(_, message)| is_progress(message)).map(|(at, _)| *at).collect()
    }

    /// Waits for the answer to an id.
    pub(crate) fn answer(&mut self, id: &Value) -> Result<Value, SessionError> {
        let timeout = self.timeout();
        self.watch_for(timeout, |session| !session.answers(id).is_empty())?;
        let answer = self.answers(id).first().map(|answer| (*answer).clone());
        answer.ok_or_else(|| {
            let why = self.channel.trouble().map(|why| format!(": {why}")).unwrap_or_default();
            SessionError(format!("no answer to request {id} within {timeout:?}{why}"))
        })
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, SessionError> {
        let id = self.next_id();
        let request = self.request(&id, method, params);
        self.say(&request)?;
        self.answer(&id)
    }

    /// Sends a ping and waits for its answer.
    pub(crate) fn check_alive(&mut self) -> Result<(), SessionError> {
        let id = json!(format!("ping-{}", self.next_id()));
        let ping = self.ping(&id);
        self.say(&ping)?;
        self.answer(&id).map(drop)
    }
}

/// Connects to a server, once it accepts.
fn dial(
    context: &Context,
    era: &Era,
    target: &Target,
    mut job: Option<&mut Job<'_>>,
) -> Result<Channel, SessionError> {
    let until = Instant::now() + context.options.timeout;
    loop {
        let why = match open(context, era, target, until) {
            Ok(channel) => return Ok(channel),
            Err(why) => why,
        };
        let Some(job) = job.as_mut() else {
            return Err(SessionError(format!("no connection: {why}")));
        };
        if why.kind() == io::ErrorKind::InvalidData {
            // Another attempt finds the same certificate.
            return Err(SessionError(format!("no connection: {why}")));
        }
        if job.exits(Instant::now() + DIAL_AGAIN) {
            job.is_gone(Instant::now() + DIAL_AGAIN);
            return Err(SessionError(format!("no connection: {why}; {}", job.told())));
        }
        if Instant::now() >= until {
            let within = context.options.timeout;
            return Err(SessionError(format!("no connection within {within:?}: {why}")));
        }
    }
}

/// Makes sure that no other server accepts at the address of one that is about to be started.
fn refuse_stranger(context: &Context, era: &Era, port: u16) -> Result<(), SessionError> {
    let target = context.options.target.at(port);
    let until = Instant::now() + context.options.timeout;
    match (target.is_stdio(), open(context, era, &target, until)) {
        (false, Ok(_)) => Err(SessionError(
            "another server accepts at this address; end it, or leave the command out".to_owned(),
        )),
        (true, _) | (false, Err(_)) => Ok(()),
    }
}

fn open(context: &Context, era: &Era, target: &Target, until: Instant) -> io::Result<Channel> {
    match target {
        Target::Url(url) => {
            let tls = context.options.tls.clone();
            let server = HttpServer::at(url, tls).map_err(io::Error::other)?;
            server.check(until)?;
            let headers = context.options.headers.clone();
            let max = context.options.output_max;
            Ok(Channel::Http(Box::new(Http::new(server, headers, era, max))))
        }
        Target::Socket(path) => {
            let socket = connect::unix(path.as_ref(), until)?;
            let input = OwnedFd::from(socket.try_clone()?);
            Ok(Channel::Lines(Pipe::new(input, socket.into(), context.options.output_max)?))
        }
        Target::Stdio => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Discards the output of a command, so that it never waits for a reader.
fn drained(pipes: OwnPipes) -> io::Result<OwnPipes> {
    let stdout = pipes.stdout.try_clone()?;
    let discard = move || {
        let mut piece = vec![0; 4096];
        loop {
            let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
            let waited = poll(&mut fds, None);
            let is_over = match read(stdout.as_fd(), &mut piece) {
                Ok(count) => count == Some(0),
                Err(_) => true,
            };
            if is_over || waited.is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("ceased-probe-out".to_owned()).spawn(discard)?;
    Ok(pipes)
}

/// The answer to a request of a server.
fn reply(method: &Value, id: &Value) -> String {
    if method == "ping" {
        return json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string();
    }
    let error = json!({"code": -32601, "message": "a probe does not do this"});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}

/// A notification as a line.
pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// A cancel as a line.
pub(crate) fn cancel(id: &Value) -> String {
    notification("notifications/cancelled", &json!({"requestId": id, "reason": "probe"}))
}
