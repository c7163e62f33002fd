//! `ceased call`: calls one tool and waits for its result, or for the end of its processes.

use std::io;
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use super::args::CallArgs;
use super::cancel::{Gone, Whose, announce, report, stop_call, wait_until_gone};
use super::display::Display;
use super::live_output::LiveOutput;
use super::{Backend, Exit, Failure, Io, arguments, discover, format};
use ceased_client::{CallId, Client, Error, INVALID_PARAMS, Task, TaskSupport, Tool};

/// Time to wait after a Ctrl-C for an immediate answer: the id of a task being created, or the
/// result of an ended one.
const DUE: Duration = Duration::from_secs(10);

/// Runs the command.
pub(super) fn call(
    args: &CallArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let (mut session, tool) = if args.detach {
        // A server in this process would end with it, and the task with the server.
        let mut session = discover::daemon(&args.daemon, io, backend)?;
        let tools = session.client.tools()?;
        let tool = tools.iter().find(|tool| tool.name == args.tool).cloned();
        (session, tool.ok_or_else(|| discover::missing(&args.tool, &tools))?)
    } else {
        discover::with_tool(&args.daemon, &args.tool, "running the tool", io, backend)?
    };
    let client = &mut session.client;
    if args.json_result {
        // Standard output has the result alone, as for a program that reads it.
        io.out_is_terminal = false;
    }
    let arguments = arguments::parse(&tool, &args.pairs, args.json.as_deref())?;
    let wants_task = args.task || args.detach;
    let output = CallOutput { timeout: args.timeout, detach: args.detach, json: args.json_result };
    match (tool.task_support, wants_task) {
        (TaskSupport::Forbidden, true) => Err(Failure::new(
            Exit::Usage,
            format!("{} cannot run as a task; leave out --task and --detach", tool.name),
        )),
        (TaskSupport::Forbidden | TaskSupport::Optional, false) => {
            plain(client, &Request::Tool { tool: &tool, arguments: &arguments }, output, io)
        }
        (TaskSupport::Required, false) => {
            io.say(&format!("{} runs as a task only; creating one", tool.name));
            let request = &Request::Tool { tool: &tool, arguments: &arguments };
            Follow { client, io, output, request }.task()
        }
        (TaskSupport::Optional | TaskSupport::Required, true) => {
            let request = &Request::Tool { tool: &tool, arguments: &arguments };
            Follow { client, io, output, request }.task()
        }
    }
}

/// Time limit and output of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOutput {
    pub(super) timeout: Option<Duration>,
    /// Whether only the id of the task is wanted.
    pub(super) detach: bool,
    /// Whether the result is printed as JSON.
    pub(super) json: bool,
}

/// The request that starts the work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request<'a> {
    /// A call of a tool.
    Tool { tool: &'a Tool, arguments: &'a Value },
    /// A command of this user, with the params of its request.
    Run { params: &'a Value },
}

impl Request<'_> {
    /// The name of the work in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tool { tool, .. } => tool.name.clone(),
            Self::Run { params } => {
                let program = params["command"][0].as_str().unwrap_or_default();
                program.rsplit('/').next().unwrap_or_default().to_owned()
            }
        }
    }

    pub(super) fn start(&self, client: &mut Client) -> Result<CallId, Error> {
        match self {
            Self::Tool { tool, arguments } => client.start_tool(&tool.name, arguments),
            Self::Run { params } => client.start_run(params),
        }
    }

    fn start_task(&self, client: &mut Client) -> Result<CallId, Error> {
        match self {
            Self::Tool { tool, arguments } => client.start_task(&tool.name, arguments, None),
            Self::Run { params } => client.start_run_task(params),
        }
    }
}

/// A call that something other than its answer has ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    User,
    Timeout(Duration),
}

impl Stop {
    /// Classifies the result of a wait: an answer, an interrupt, or a failure.
    pub(super) fn sort(
        answer: Result<Box<RawValue>, Error>,
    ) -> Result<Result<Box<RawValue>, Self>, Error> {
        match answer {
            Ok(answer) => Ok(Ok(answer)),
            Err(Error::Interrupted) => Ok(Err(Self::User)),
            Err(Error::TimedOut(after)) => Ok(Err(Self::Timeout(after))),
            Err(error) => Err(error),
        }
    }

    pub(super) fn reason(self, limit: Option<Duration>) -> String {
        match self {
            Self::User => "cancelled by the user".to_owned(),
            Self::Timeout(after) => {
                format!("timed out after {}", humantime::format_duration(limit.unwrap_or(after)))
            }
        }
    }

    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::User => Exit::Cancelled,
            Self::Timeout(_) => Exit::TimedOut,
        }
    }
}

/// Starts the work and waits for its answer, or for its end if it is cancelled.
fn plain(
    client: &mut Client,
    request: &Request<'_>,
    output: CallOutput,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
    let timeout = output.timeout;
    let call = request.start(client)?;
    let mut live = LiveOutput::of(Whose::Call(call), client, io);
    let answer = live.wait(client, call, timeout, Display::new(io, call, None));
    match Stop::sort(answer)? {
        Ok(result) if output.json => format::result_as_json(&result, io),
        Ok(result) => format::result_without(&result, &|at, text| live.has_shown(at, text), io),
        Err(stop) => {
            let reason = stop.reason(timeout);
            announce(&request.name(), &reason, io);
            let gone = if live.prepare_cancel(client) {
                client.cancel(call, Some(&reason))?;
                Gone::Left
            } else {
                stop_call(client, call, &reason, io)
            };
            if matches!(gone, Gone::Yes | Gone::StillThere(_)) && !output.json {
                live.print_rest(client, io);
            }
            report(&gone, client, io);
            Ok(stop.exit())
        }
    }
}

/// A call as a task, followed to its end.
pub(super) struct Follow<'a, 'io> {
    pub(super) client: &'a mut Client,
    pub(super) io: &'a mut Io<'io>,
    pub(super) output: CallOutput,
    pub(super) request: &'a Request<'a>,
}

impl Follow<'_, '_> {
    /// Creates the task, and waits for its result unless it is detached.
    pub(super) fn task(&mut self) -> Result<Exit, Failure> {
        let deadline = self.output.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let creation = self.request.start_task(self.client)?;
        let (task, stop) = match self.created(creation)? {
            Created::Task(task) => (task, None),
            Created::Stopping(task, stop) => (task, Some(stop)),
            Created::Unknown(stop) => return Ok(stop.exit()),
        };
        if let Some(stop) = stop {
            let live = LiveOutput::of(Whose::Task(&task.id), self.client, self.io);
            return self.stop(&task, stop, None, live);
        }
        if self.output.detach {
            let said = if self.output.json {
                format::raw(task.raw.get(), self.io)
            } else {
                writeln!(self.io.out, "{}", format::clean(&task.id))
            };
            said.and_then(|()| self.io.out.flush()).map_err(|why| goes_on(&task, why))?;
            return Ok(Exit::Done);
        }
        self.io.say(&format!("task {}", task.id));
        let result = self.client.start_task_result(&task.id)?;
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let mut live = LiveOutput::of(Whose::Task(&task.id), self.client, self.io);
        let display = Display::new(self.io, creation, Some(&task.id));
        let answer = live.wait(self.client, result, left, display);
        let answer = Stop::sort(answer).map_err(|error| still_there(&task, error))?;
        match answer {
            Ok(answer) if self.output.json => format::result_as_json(&answer, self.io),
            Ok(answer) => {
                format::result_without(&answer, &|at, text| live.has_shown(at, text), self.io)
            }
            Err(stop) => {
                announce(&self.request.name(), &stop.reason(self.output.timeout), self.io);
                self.stop(&task, stop, Some(result), live)
            }
        }
    }

    /// Waits for the creation of the task. Before its id is known it cannot be cancelled (CAN-05),
    /// so an interrupt is handled afterwards.
    fn created(&mut self, creation: CallId) -> Result<Created, Failure> {
        let timeout = self.output.timeout;
        let mut display = Display::new(self.io, creation, None);
        let answer = self.client.wait(creation, timeout, &mut |note| display.show(note));
        drop(display);
        let stop = match Stop::sort(answer)? {
            Ok(answer) => return Ok(Created::Task(Task::created(&answer)?)),
            Err(stop) => stop,
        };
        announce(&self.request.name(), &stop.reason(timeout), self.io);
        match self.client.wait(creation, Some(DUE), &mut |_| {}) {
            Ok(answer) => Ok(Created::Stopping(Task::created(&answer)?, stop)),
            Err(error) => {
                self.io.say(&format!(
                    "the server's answer does not name the created task ({error}); see `ceased tasks`"
                ));
                Ok(Created::Unknown(stop))
            }
        }
    }

    /// Cancels the task and waits for the end of its work. `result` is the call that waits for it.
    fn stop(
        &mut self,
        task: &Task,
        stop: Stop,
        result: Option<CallId>,
        mut live: LiveOutput<'_>,
    ) -> Result<Exit, Failure> {
        let reason = stop.reason(self.output.timeout);
        let leaves = live.prepare_cancel(self.client);
        let gone = match self.client.cancel_task(&task.id, Some(&reason)) {
            Ok(_) if leaves => Gone::Left,
            Ok(_) => wait_until_gone(self.client, Whose::Task(&task.id), self.io),
            Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {
                return self.ended_before(task, result);
            }
            Err(Error::Interrupted) => Gone::Left,
            Err(error) => {
                self.io.say(&format!("task {} was not cancelled: {error}", task.id));
                return Ok(stop.exit());
            }
        };
        if matches!(gone, Gone::Yes | Gone::StillThere(_)) && !self.output.json {
            live.print_rest(self.client, self.io);
        }
        report(&gone, self.client, self.io);
        Ok(stop.exit())
    }

    fn ended_before(&mut self, task: &Task, result: Option<CallId>) -> Result<Exit, Failure> {
        self.io.say("too late to cancel: the task has ended");
        let result = match result {
            Some(result) => result,
            None => self.client.start_task_result(&task.id)?,
        };
        let answer = self.client.wait(result, Some(DUE), &mut |_| {})?;
        if self.output.json {
            return format::result_as_json(&answer, self.io);
        }
        format::result(&answer, self.io)
    }
}

/// Result of creating a task.
enum Created {
    Task(Task),
    /// The task exists, and is to be cancelled.
    Stopping(Task, Stop),
    /// Interrupted without knowing whether the task exists.
    Unknown(Stop),
}

/// Error after a failed write of the task's id, which no other process knows.
fn goes_on(task: &Task, why: io::Error) -> Failure {
    let Failure { exit, message } = Failure::from(why);
    let reason = if message.is_empty() { String::new() } else { format!("{message}; ") };
    Failure::new(exit, format!("{reason}task {} continues", task.id))
}

/// Error after a lost connection, which does not end the task.
fn still_there(task: &Task, error: Error) -> Failure {
    let is_lost = matches!(error, Error::Closed | Error::Io(_));
    let mut failure = Failure::from(error);
    if is_lost {
        failure.message =
            format!("{}; `ceased result {}` gets the result later", failure.message, task.id);
    }
    failure
}
