//! A session with a subject: its process, its pipe, and everything that it said.

use std::time::{Duration, Instant};

use ceased_process::stdio_pipes;
use serde_json::{Value, json};

use super::arena::Job;
use super::context::Context;
use super::era::{Era, TASKS};
use super::options::ToolCall;
use super::pipe::{Pipe, Received};
use super::text;

/// Why a session could not go on.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) String);

/// A session.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) job: Job<'a>,
    pub(crate) pipe: Pipe,
    context: &'a Context,
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
    pub(crate) fn silent(context: &'a Context, era: Era) -> Result<Self, Trouble> {
        let failed = |why: std::io::Error| Trouble(format!("no pipes can be made: {why}"));
        let (own, theirs) = stdio_pipes().map_err(failed)?;
        let job = context.arena.start(&context.options.command, theirs);
        let pipe = Pipe::new(own.stdout, own.stdin).map_err(failed)?;
        let (log, greeting) = (Vec::new(), Value::Null);
        Ok(Self { job, pipe, context, era, last_id: 0, declares_tasks: false, log, greeting })
    }

    /// Starts the command and performs the handshake of the revision.
    pub(crate) fn start(context: &'a Context) -> Result<Self, Trouble> {
        Self::start_in(context, context.facts().era.clone())
    }

    /// As [`Session::start`], in this era.
    pub(crate) fn start_in(context: &'a Context, era: Era) -> Result<Self, Trouble> {
        let mut session = Self::silent(context, era)?;
        let id = json!("greeting");
        let hello = session.hello(&id);
        session.say(&hello)?;
        let answer = session.answer(&id)?;
        if let Some(error) = answer.get("error") {
            return Err(Trouble(format!("the handshake is refused: {}", text::message(error))));
        }
        session.greeting = answer["result"].clone();
        session.finish_handshake()?;
        Ok(session)
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
    pub(crate) fn finish_handshake(&mut self) -> Result<(), Trouble> {
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

    pub(crate) const fn timeout(&self) -> Duration {
        self.context.options.timeout
    }

    fn until(&self) -> Instant {
        Instant::now() + self.timeout()
    }

    /// An id that was not used yet.
    pub(crate) fn next_id(&mut self) -> Value {
        self.last_id += 1;
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
    pub(crate) fn say(&mut self, lines: &str) -> Result<(), Trouble> {
        self.say_bytes(format!("{lines}\n").as_bytes())
    }

    /// As [`Session::say`], bytes as they are.
    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let until = self.until();
        if self.pipe.send(bytes, until, true).is_empty() {
            return Ok(());
        }
        let gone = self.job.exits(Instant::now() + Duration::from_millis(200));
        Err(Trouble(match gone {
            true => format!("the server is gone: {}", self.job.told()),
            false => format!("the server does not read its input within {:?}", self.timeout()),
        }))
    }

    /// Handles the next message; false if nothing came.
    fn step(&mut self, until: Instant) -> Result<bool, Trouble> {
        match self.pipe.receive(until) {
            Received::TimedOut => Ok(false),
            Received::Closed => {
                self.job.is_gone(Instant::now() + Duration::from_millis(500));
                Err(Trouble(format!("the server has closed its output: {}", self.job.told())))
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
    pub(crate) fn watch(&mut self, until: Instant) -> Result<(), Trouble> {
        while self.step(until)? {}
        Ok(())
    }

    /// Reads until `found` or the time limit; false if nothing was found.
    pub(crate) fn watch_for(
        &mut self,
        within: Duration,
        found: impl Fn(&Self) -> bool,
    ) -> Result<bool, Trouble> {
        let until = Instant::now() + within;
        while !found(self) {
            if !self.step(until)? {
                return Ok(found(self));
            }
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
    pub(crate) fn answer(&mut self, id: &Value) -> Result<Value, Trouble> {
        let timeout = self.timeout();
        self.watch_for(timeout, |session| !session.answers(id).is_empty())?;
        let answer = self.answers(id).first().map(|answer| (*answer).clone());
        answer.ok_or_else(|| Trouble(format!("no answer to request {id} within {timeout:?}")))
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Trouble> {
        let id = self.next_id();
        let request = self.request(&id, method, params);
        self.say(&request)?;
        self.answer(&id)
    }

    /// Sends a ping and waits for its answer.
    pub(crate) fn check_alive(&mut self) -> Result<(), Trouble> {
        let id = json!(format!("ping-{}", self.next_id()));
        let ping = self.ping(&id);
        self.say(&ping)?;
        self.answer(&id).map(drop)
    }
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
