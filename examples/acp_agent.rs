//! An ACP agent on standard input and output. Each session runs one prompt turn at a time and
//! streams it word by word. `session/cancel` ends a turn with its own answer; `$/cancel_request`
//! ends it with error -32800. A prompt that begins with `ask` first asks the client for permission;
//! cancelling the prompt cancels that question too.
//!
//! ```sh
//! cargo run --example acp_agent <<'END'
//! {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}
//! {"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}
//! END
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ceased_core::acp::protocol::{AcpForm, AcpRole, AcpServices, HostStopReason, Offer, Speaker};
use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{AfterInput, Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, IdSource, JobId};
use ceased_core::json::raw::Json;
use ceased_core::outgoing::call::{Answer, Caller, OutgoingRequest};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::settings::Settings;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::{Catalog, StopPolicy, StopStep, Tool};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The only peer.
const CLIENT: ConnId = ConnId::new(1);
/// Delay between two words.
const PACE: Duration = Duration::from_millis(30);

struct Random;

impl IdSource for Random {
    fn uuid(&mut self) -> uuid::Uuid {
        uuid::Uuid::new_v4()
    }
}

/// Messages from the other threads to the engine's thread.
enum Report {
    Line(Vec<u8>),
    EndOfInput,
    Said(JobId, String),
    Asks(JobId, OutgoingRequest),
    Done(JobId, Outcome),
}

/// Messages from the engine's thread to the thread of a turn.
enum Word {
    Stop(StopReason),
    Answer(Answer),
}

/// A running prompt turn.
struct Turn {
    session: String,
    words: Sender<Word>,
}

struct Agent {
    engine: Engine,
    start: std::time::Instant,
    reports: Sender<Report>,
    turns: BTreeMap<JobId, Turn>,
    sessions: u64,
    over: bool,
}

fn main() -> io::Result<()> {
    let service =
        |name: &str| Tool::new(name, StopPolicy::Handler { abandon_after: Duration::from_secs(2) });
    let services = Catalog::new(["initialize", "session/new", "session/prompt"].map(service))
        .map_err(io::Error::other)?;
    let agent = Offer { services, notifications: ["session/cancel".into()].into() };
    let acp = AcpServices { agent, client: Offer::default() };
    let settings = Settings { acp, ..Settings::default() };
    let (reports, inbound) = channel();
    let mut agent = Agent {
        engine: Engine::new(Arc::new(settings), Box::new(Random)),
        start: std::time::Instant::now(),
        reports: reports.clone(),
        turns: BTreeMap::new(),
        sessions: 0,
        over: false,
    };
    thread::spawn(move || read_lines(&reports));
    agent.run(&inbound)
}

fn read_lines(reports: &Sender<Report>) {
    for line in io::stdin().lock().split(b'\n') {
        match line {
            Ok(line) if line.trim_ascii().is_empty() => {}
            Ok(line) => drop(reports.send(Report::Line(line.trim_ascii().to_vec()))),
            Err(_) => break,
        }
    }
    // The send fails only when the main thread has ended.
    let _ = reports.send(Report::EndOfInput);
}

impl Agent {
    fn run(&mut self, inbound: &Receiver<Report>) -> io::Result<()> {
        let (form, side) = (AcpForm::Published, AcpRole::Agent);
        let opened = Event::OpenedAcp { conn: CLIENT, identity: Identity::Anonymous, form, side };
        self.handle(opened)?;
        while !self.over {
            let wait = self.engine.deadline().map(|(due, _)| due.since(self.now().at));
            let report = match wait {
                Some(wait) => inbound.recv_timeout(wait),
                None => inbound.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match report {
                Ok(report) => {
                    self.take(report)?;
                    self.handle(Event::Turn)?;
                }
                Err(RecvTimeoutError::Timeout) => self.handle(Event::Tick)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    fn now(&self) -> Now {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { at: Instant::from_nanos(nanos), wall: Wall::from_millis(0) }
    }

    fn take(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Line(frame) => self.handle(Event::Frame { conn: CLIENT, frame: &frame }),
            Report::EndOfInput => {
                let then = AfterInput::AnswerWithin(Duration::ZERO);
                self.handle(Event::Finished { conn: CLIENT, then })
            }
            Report::Said(job, text) => {
                let Some(turn) = self.turns.get(&job) else { return Ok(()) };
                let content = json!({"type": "text", "text": text});
                let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
                let params = raw(&json!({"sessionId": turn.session, "update": update}))?;
                let (from, params) = (Speaker::Job(job), Some(&*params));
                self.handle(Event::Notify { from, method: "session/update", params })
            }
            Report::Asks(job, request) => {
                self.handle(Event::Asked { job, ask: AskId::new(1), conn: None, request })
            }
            Report::Done(job, outcome) => {
                self.turns.remove(&job);
                self.handle(Event::Done { job, outcome })
            }
        }
    }

    fn handle(&mut self, event: Event<'_>) -> io::Result<()> {
        let mut actions = Vec::new();
        self.engine.handle(self.now(), event, &mut actions);
        for action in actions {
            self.act(action)?;
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> io::Result<()> {
        match action {
            Action::Start { job, tool, arguments, .. } => {
                self.begin(job, &tool.name, &arguments)?;
            }
            Action::Stop { job, step: StopStep::Abandon, .. } => drop(self.turns.remove(&job)),
            Action::Stop { job, why, .. } => self.say(job, Word::Stop(why)),
            Action::Tell { caller: Caller::Job { job, .. }, answer } => {
                self.say(job, Word::Answer(answer));
            }
            Action::Notified { params, .. } => self.cancel_session(params.as_deref())?,
            Action::Flush { .. } => self.flush()?,
            Action::Close { .. } | Action::Exit => {
                self.flush()?;
                self.over = true;
            }
            Action::Tell { caller: Caller::Host(_), .. }
            | Action::TellProgress { .. }
            | Action::RefuseCancel { .. }
            | Action::CollectHostStatus { .. }
            | Action::ReadOutput(_)
            | Action::Operate { .. }
            // This agent has no durable tasks.
            | Action::Store { .. }
            | Action::Load { .. }
            | Action::LookUp(_)
            | Action::Upstream(_)
            | Action::Audit(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(queue) = self.engine.send_queue(CLIENT) else { return Ok(()) };
        let mut stdout = io::stdout().lock();
        queue.runs().try_for_each(|run| stdout.write_all(run))?;
        let sent = queue.len();
        queue.advance(sent);
        stdout.flush()
    }

    fn begin(&mut self, job: JobId, method: &str, arguments: &Json) -> io::Result<()> {
        let arguments: Value = serde_json::from_str(arguments.get())?;
        let outcome = match method {
            "initialize" => Outcome::Result(
                raw(&json!({
                    "protocolVersion": 1, "agentCapabilities": {}, "authMethods": [],
                }))?
                .into(),
            ),
            "session/new" => {
                self.sessions += 1;
                Outcome::Result(
                    raw(&json!({"sessionId": format!("session-{}", self.sessions)}))?.into(),
                )
            }
            _ => match self.prompt(job, &arguments) {
                Ok(()) => return Ok(()),
                Err(error) => Outcome::Error(error),
            },
        };
        self.handle(Event::Done { job, outcome })
    }

    fn prompt(&mut self, job: JobId, arguments: &Value) -> Result<(), ErrorObject> {
        let session = arguments["sessionId"].as_str().unwrap_or_default().to_owned();
        let number = session.strip_prefix("session-").and_then(|number| number.parse().ok());
        if !number.is_some_and(|number: u64| (1..=self.sessions).contains(&number)) {
            return Err(ErrorObject::invalid_params(format!("there is no session {session:?}")));
        }
        if self.turns.values().any(|turn| turn.session == session) {
            return Err(ErrorObject::invalid_params(format!("{session:?} has a turn already")));
        }
        let blocks = arguments["prompt"].as_array().map_or(&[][..], Vec::as_slice);
        let text: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let (words, inbox) = channel();
        let (reports, text, name) = (self.reports.clone(), text.join(" "), session.clone());
        thread::spawn(move || {
            let outcome = turn(job, &name, &text, &reports, &inbox);
            let failed =
                |error: io::Error| Outcome::Error(ErrorObject::new(-32603, error.to_string()));
            // The send fails only when the main thread has ended.
            let _ = reports.send(Report::Done(job, outcome.unwrap_or_else(failed)));
        });
        self.turns.insert(job, Turn { session, words });
        Ok(())
    }

    fn say(&self, job: JobId, word: Word) {
        if let Some(turn) = self.turns.get(&job) {
            // A turn that has just ended no longer receives.
            let _ = turn.words.send(word);
        }
    }

    /// `session/cancel`: the turn of the session ends with its own answer (ACP-12).
    fn cancel_session(&mut self, params: Option<&RawValue>) -> io::Result<()> {
        let params: Value = serde_json::from_str(params.map_or("null", RawValue::get))?;
        let of_session = |turn: &Turn| params["sessionId"] == turn.session;
        let job = self.turns.iter().find(|(_, turn)| of_session(turn)).map(|(job, _)| *job);
        match job {
            Some(job) => self.handle(Event::CancelJob { job, cause: HostStopReason::Feature }),
            None => Ok(()),
        }
    }
}

/// One prompt turn: repeats the prompt unless it is cancelled or not permitted.
fn turn(
    job: JobId,
    session: &str,
    text: &str,
    reports: &Sender<Report>,
    inbox: &Receiver<Word>,
) -> io::Result<Outcome> {
    let ended = |reason: &str| Ok(Outcome::Result(raw(&json!({"stopReason": reason}))?.into()));
    // After any other reason the core writes the answer.
    let stopped = |why| match matches!(why, StopReason::Feature) {
        true => ended("cancelled"),
        false => Ok(Outcome::Stopped),
    };
    if let Some(what) = text.strip_prefix("ask ") {
        let option = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
        let call = json!({"toolCallId": "words", "title": what});
        let params = json!({"sessionId": session, "toolCall": call, "options": [option]});
        let method = "session/request_permission".into();
        let request = OutgoingRequest {
            key: None,
            method,
            params: Some(raw(&params)?),
            answer_timeout: None,
            task: None,
        };
        let _ = reports.send(Report::Asks(job, request));
        let mut stop = None;
        // Stopping the turn cancels the question; the client still answers it.
        let answer = loop {
            match inbox.recv() {
                Ok(Word::Stop(why)) => stop = Some(why),
                Ok(Word::Answer(answer)) => break answer,
                Err(_) => return Ok(Outcome::Stopped),
            }
        };
        if let Some(why) = stop {
            return stopped(why);
        }
        if !matches!(answer, Answer::Result(result) if result.get().contains("\"selected\"")) {
            return ended("refusal");
        }
    }
    for word in text.split_inclusive(' ') {
        let _ = reports.send(Report::Said(job, word.to_owned()));
        match inbox.recv_timeout(PACE) {
            Ok(Word::Stop(why)) => return stopped(why),
            Err(RecvTimeoutError::Disconnected) => return Ok(Outcome::Stopped),
            Ok(Word::Answer(_)) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    ended("end_turn")
}

fn raw(value: &Value) -> io::Result<Box<RawValue>> {
    Ok(to_raw_value(value)?)
}
