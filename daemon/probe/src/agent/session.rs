//! A connection to an agent: its process, its pipe, and everything that it said.

use std::time::{Duration, Instant};

use ceased_process::stdio_pipes;
use serde_json::{Value, json};

use super::context::{Context, V2};
use crate::arena::Job;
use crate::finding::SessionError;
use crate::life::Life;
use crate::pipe::{Pipe, Received};
use crate::session::notification;
use crate::text;

/// Time after which a turn without a sign of life counts as begun.
const BEGUN: Duration = Duration::from_millis(700);
/// Method of an extension that no agent has.
const PING: &str = "_ceased.dev/ping";
/// The question that a client answers with `cancelled` once the turn is cancelled.
const QUESTION: &str = "session/request_permission";

/// A turn.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// Id of the prompt.
    pub(super) id: Value,
    /// The ACP session.
    pub(super) session: String,
    /// Messages received before it.
    mark: usize,
}

/// End of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// With this reason.
    Reason(String),
    /// The prompt was answered with this error.
    Refused(Value),
    /// Answered with something else.
    Odd(Value),
}

impl End {
    pub(super) fn is_cancelled(&self) -> bool {
        *self == Self::Reason("cancelled".to_owned())
    }

    /// Whether it is the error of a cancelled request.
    pub(super) fn is_request_cancelled(&self) -> bool {
        matches!(self, Self::Refused(error) if error["code"] == -32800)
    }

    /// The end, for evidence.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Reason(reason) => format!("stopReason {}", text::short(reason)),
            Self::Refused(error) => format!("error {}", text::message(error)),
            Self::Odd(answer) => format!("answer {}", text::message(answer)),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) job: Job<'a>,
    pub(super) pipe: Pipe,
    context: &'a Context,
    life: Life,
    pub(super) version: u64,
    last_id: i64,
    /// Every message received, with its time.
    pub(super) log: Vec<(Instant, Value)>,
    /// Ids of questions that are not answered yet.
    questions: Vec<Value>,
    /// Permits the tools of the agent; otherwise questions wait for a cancel.
    permits: bool,
}

impl<'a> Session<'a> {
    /// Starts the agent, without a handshake.
    pub(super) fn silent(context: &'a Context, version: u64) -> Result<Self, SessionError> {
        let failed = |why: std::io::Error| SessionError(format!("no pipes can be made: {why}"));
        let (own, theirs) = stdio_pipes().map_err(failed)?;
        let job = context.arena.start(&context.options.command, theirs);
        let pipe = Pipe::new(own.stdout, own.stdin, context.options.output_max).map_err(failed)?;
        let (log, questions) = (Vec::new(), Vec::new());
        let life = Life::new(context.options.timeout);
        Ok(Self { job, pipe, context, life, version, last_id: 0, log, questions, permits: false })
    }

    /// Starts the agent and initializes it.
    pub(super) fn start(context: &'a Context) -> Result<Self, SessionError> {
        Self::start_in(context, context.version())
    }

    /// As [`Session::start`], in this version.
    pub(super) fn start_in(context: &'a Context, version: u64) -> Result<Self, SessionError> {
        let mut session = Self::silent(context, version)?;
        session.greet()?;
        Ok(session)
    }

    /// Initializes the agent; returns the result.
    pub(super) fn greet(&mut self) -> Result<Value, SessionError> {
        let id = json!("greeting");
        let hello = self.hello(&id, self.version);
        self.say(&hello)?;
        let answer = self.answer(&id)?;
        match answer.get("error") {
            Some(why) => {
                Err(SessionError(format!("initialize is refused: {}", text::message(why))))
            }
            None => Ok(answer["result"].clone()),
        }
    }

    /// Whether the agent has failed without a message.
    pub(super) fn has_failed(&mut self) -> bool {
        self.log.is_empty() && self.job.fails()
    }

    /// The first request, for this version.
    pub(super) fn hello(&self, id: &Value, version: u64) -> String {
        let info = json!({"name": "ceased-probe", "version": env!("CARGO_PKG_VERSION")});
        let params = match version == V2 {
            true => json!({"protocolVersion": version, "capabilities": {}, "info": info}),
            false => json!({
                "protocolVersion": version,
                "clientCapabilities": {},
                "clientInfo": info,
            }),
        };
        request(id, "initialize", &params)
    }

    /// Permits everything that the agent asks for from now on.
    pub(super) const fn permit(&mut self) {
        self.permits = true;
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.context.options.timeout
    }

    pub(super) const fn window(&self) -> Duration {
        self.context.options.window
    }

    /// An id that was not used yet.
    pub(super) fn next_id(&mut self) -> Value {
        self.last_id += 1;
        json!(self.last_id)
    }

    /// Opens an ACP session.
    pub(super) fn open(&mut self) -> Result<String, SessionError> {
        let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let params = json!({"cwd": cwd.to_string_lossy(), "mcpServers": []});
        let id = self.next_id();
        self.say(&request(&id, "session/new", &params))?;
        let answer = self.answer(&id)?;
        match answer["result"]["sessionId"].as_str() {
            Some(name) => Ok(name.to_owned()),
            None => Err(SessionError(format!("no session is opened: {}", text::message(&answer)))),
        }
    }

    /// The line of a prompt, and its turn.
    pub(super) fn prompt(&mut self, session: &str, prompt: &str) -> (Turn, String) {
        let id = self.next_id();
        let block = json!({"type": "text", "text": prompt});
        let params = json!({"sessionId": session, "prompt": [block]});
        let line = request(&id, "session/prompt", &params);
        (Turn { id, session: session.to_owned(), mark: self.log.len() }, line)
    }

    /// Begins a turn, and waits for its first sign of life.
    pub(super) fn begin(&mut self, session: &str, prompt: &str) -> Result<Turn, SessionError> {
        let (turn, line) = self.prompt(session, prompt);
        self.say(&line)?;
        self.watch_for(BEGUN, |it| it.shows(&turn) || it.end(&turn).is_some())?;
        match self.end(&turn) {
            None => Ok(turn),
            Some(end) => Err(SessionError(format!(
                "the turn ends by itself with {}; give a prompt that takes longer with --prompt",
                end.told()
            ))),
        }
    }

    /// Begins a turn in a session of its own.
    pub(super) fn begin_long(&mut self) -> Result<Turn, SessionError> {
        let name = self.open()?;
        let prompt = self.context.options.prompt.clone();
        self.begin(&name, &prompt)
    }

    /// Whether the agent has said something about the turn.
    fn shows(&self, turn: &Turn) -> bool {
        self.log.iter().skip(turn.mark).any(|(_, it)| {
            it.get("method").is_some() && it["params"]["sessionId"] == turn.session.as_str()
        })
    }

    /// The end of a turn, if it has ended.
    pub(super) fn end(&self, turn: &Turn) -> Option<End> {
        let answer = self.answers(&turn.id).first().map(|answer| (*answer).clone());
        if let Some(error) = answer.as_ref().and_then(|it| it.get("error")) {
            return Some(End::Refused(error.clone()));
        }
        if self.version == V2 {
            let messages = self.log.iter().skip(turn.mark).map(|(_, message)| message);
            return messages.filter_map(|it| idle(it, &turn.session)).next().map(End::Reason);
        }
        let answer = answer?;
        Some(match answer["result"]["stopReason"].as_str() {
            Some(reason) => End::Reason(reason.to_owned()),
            None => End::Odd(answer),
        })
    }

    /// Waits for the end of a turn until the time limit.
    pub(super) fn ends(&mut self, turn: &Turn) -> Result<Option<End>, SessionError> {
        let timeout = self.timeout();
        self.watch_for(timeout, |it| it.end(turn).is_some())?;
        Ok(self.end(turn))
    }

    /// Cancels the turn, and answers its questions, as a client must.
    pub(super) fn cancel(&mut self, turn: &Turn) -> Result<(), SessionError> {
        self.say(&cancel_turn(&turn.session))?;
        self.answer_questions()
    }

    /// Answers the open questions with `cancelled`.
    pub(super) fn answer_questions(&mut self) -> Result<(), SessionError> {
        for id in std::mem::take(&mut self.questions) {
            let outcome = json!({"outcome": {"outcome": "cancelled"}});
            self.say(&json!({"jsonrpc": "2.0", "id": id, "result": outcome}).to_string())?;
        }
        Ok(())
    }

    /// Whether a question is open.
    pub(super) const fn has_question(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Sends lines in one write.
    pub(super) fn say(&mut self, lines: &str) -> Result<(), SessionError> {
        let until = self.life.until();
        if self.pipe.send(format!("{lines}\n").as_bytes(), until, true).is_empty() {
            return Ok(());
        }
        if let Some(flood) = self.pipe.flood() {
            return Err(SessionError(format!("the agent {flood}")));
        }
        self.life.clip(until).map_err(SessionError)?;
        let gone = self.job.exits(Instant::now() + Duration::from_millis(200));
        Err(SessionError(match gone {
            true => format!("the agent is gone: {}", self.job.told()),
            false => format!("the agent does not read its input within {:?}", self.timeout()),
        }))
    }

    /// Handles the next message; false if nothing came.
    fn step(&mut self, until: Instant) -> Result<bool, SessionError> {
        let until = self.life.clip(until).map_err(SessionError)?;
        match self.pipe.receive(until) {
            Received::TimedOut => Ok(false),
            Received::Closed => {
                if let Some(flood) = self.pipe.flood() {
                    return Err(SessionError(format!("the agent {flood}")));
                }
                self.job.is_gone(Instant::now() + Duration::from_millis(500));
                Err(SessionError(format!("the agent has closed its output: {}", self.job.told())))
            }
            Received::Message(message) => {
                let id = message.get("id").filter(|id| !id.is_null()).cloned();
                if let (Some(method), Some(id)) = (message["method"].as_str(), id) {
                    match method == QUESTION && !self.permits {
                        true => self.questions.push(id),
                        false => self.say(&reply(method, &id, &message["params"]))?,
                    }
                }
                self.log.push((Instant::now(), message));
                Ok(true)
            }
        }
    }

    /// Reads for a time.
    pub(super) fn watch(&mut self, time: Duration) -> Result<(), SessionError> {
        let until = Instant::now() + time;
        while self.step(until)? {}
        Ok(())
    }

    /// Reads until `found` or the time limit; false if nothing was found.
    pub(super) fn watch_for(
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
            while self.pipe.has_ready() && self.step(until)? {}
        }
        Ok(true)
    }

    /// The answers to an id so far.
    pub(super) fn answers(&self, id: &Value) -> Vec<&Value> {
        let messages = self.log.iter().map(|(_, message)| message);
        messages.filter(|it| it.get("method").is_none() && it.get("id") == Some(id)).collect()
    }

    /// Waits for the answer to an id.
    pub(super) fn answer(&mut self, id: &Value) -> Result<Value, SessionError> {
        let timeout = self.timeout();
        self.watch_for(timeout, |session| !session.answers(id).is_empty())?;
        let answer = self.answers(id).first().map(|answer| (*answer).clone());
        answer.ok_or_else(|| SessionError(format!("no answer to request {id} within {timeout:?}")))
    }

    /// Sends a request of an unknown extension, which every agent answers; returns the answer.
    pub(super) fn ping(&mut self) -> Result<Value, SessionError> {
        let id = json!(format!("ping-{}", self.next_id()));
        self.say(&ping(&id))?;
        self.answer(&id)
    }
}

/// The stop reason, if this message reports the end of foreground work.
fn idle(message: &Value, session: &str) -> Option<String> {
    let update = &message["params"]["update"];
    let is_end = message["params"]["sessionId"] == session
        && update["sessionUpdate"] == "state_update"
        && update["state"] == "idle";
    is_end.then(|| update["stopReason"].as_str().map(str::to_owned)).flatten()
}

/// The answer to a request of an agent.
fn reply(method: &str, id: &Value, params: &Value) -> String {
    if method != QUESTION {
        let error = json!({"code": -32601, "message": "a probe does not do this"});
        return json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
    }
    let options = params["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let allows = |option: &&Value| option["kind"] == "allow_once";
    let chosen = options.iter().find(allows).or_else(|| options.first());
    let outcome = match chosen {
        Some(option) => json!({"outcome": "selected", "optionId": option["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}).to_string()
}

/// A request as a line.
pub(super) fn request(id: &Value, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// A request of an unknown extension as a line.
pub(super) fn ping(id: &Value) -> String {
    request(id, PING, &json!({}))
}

/// `session/cancel` as a line.
pub(super) fn cancel_turn(session: &str) -> String {
    notification("session/cancel", &json!({"sessionId": session}))
}

/// `$/cancel_request` as a line.
pub(super) fn cancel_request(id: &Value) -> String {
    notification("$/cancel_request", &json!({"requestId": id}))
}
