//! Running jobs: starting and stopping tools, and their outcomes.

use super::server::Server;
use super::state::running_jobs::{Awaited, PendingStart, RunningCommand, StopEffect};

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::event::{Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, JobId, TaskId};
use ceased_core::json::raw::Json;
use ceased_core::outgoing::call::{Answer, AnswerTimeout, Caller, OutgoingRequest, Refusal};
use ceased_core::protocol::trace_context::TraceContext;
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Now;
use ceased_core::tool::{StopStep, Tool};
use rustix::process::geteuid;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::run_as;
use super::state::client_directory;
use crate::config::CommandTool;
use crate::process_ids::to_process;
use crate::tools::arguments::Arguments;
use crate::tools::cancel_token::CancelToken;
use crate::tools::catalog::{Payload, PayloadRun};
use crate::tools::command_result::Ended;
use crate::tools::handler::{Call, ToolError, outcome};
use crate::tools::run_command;
use crate::tools::worker_pool::Work;
use ceased_process::{Ending, Exit, Launch, Order, WorkingDir};

/// The variable that names the task a command is the work of. No configuration may set it.
const TASK: &str = "CEASED_TASK";

/// Variables of the trace context of a call (OBS-01).
pub(super) fn trace_variables(trace: &TraceContext) -> Vec<(OsString, OsString)> {
    let parent = trace.span.as_ref().map(|span| &*span.text);
    let pairs = [
        ("TRACEPARENT", parent),
        ("TRACESTATE", trace.state.as_deref()),
        ("BAGGAGE", trace.baggage.as_deref()),
    ];
    pairs.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect()
}

/// Id of the confirmation request; handlers count theirs from 1.
const CONFIRM: AskId = AskId::new(0);
/// The question where the client is. Commands ask nothing else.
const ROOTS: AskId = AskId::new(1);
/// Time limit for a client to report its roots; on timeout the working directory of its process is
/// used.
const ROOTS_WITHIN: Duration = Duration::from_secs(5);

impl Server {
    /// Starts a job, or requests confirmation first.
    pub(super) fn start(
        &mut self,
        now: Now,
        job: JobId,
        tool: Arc<Tool>,
        arguments: Json,
        task: Option<TaskId>,
    ) {
        let waited = self.engine.asked_at(job).map(|since| now.at - since).unwrap_or_default();
        let shown = (&*tool.name == run_command::NAME).then(|| run_command::shown(arguments.get()));
        let shown = shown.as_deref().unwrap_or(arguments.get());
        let times = (self.clock.to_system(now.at), waited);
        self.observer.calls.begin(job, &tool, shown, task, times);
        let Some(confirm) = Payload::of(&tool).and_then(|payload| payload.confirm.as_ref()) else {
            return self.begin(now, job, tool, arguments, task);
        };
        let request = match confirm.arguments.question(&confirm.question, arguments.get()) {
            Ok(question) => question_to_ask(&question),
            Err(why) => {
                let outcome = Outcome::Refused(ErrorObject::invalid_params(why));
                return self.done(now, job, outcome);
            }
        };
        let start = PendingStart { tool, arguments, task };
        self.jobs.await_answer(job, Awaited::Confirmation, start);
        let event = Event::Asked { job, ask: CONFIRM, conn: None, request };
        self.engine.handle(now, event, &mut self.actions);
    }

    /// Handles the response to a confirmation request: only an acceptance starts the job.
    pub(super) fn confirmed(&mut self, now: Now, caller: Caller, answer: &Answer) {
        let job = match caller {
            Caller::Job { job, ask: CONFIRM } => job,
            Caller::Job { job, ask: ROOTS } => return self.located(now, job, answer),
            Caller::Job { .. } | Caller::Host(_) => return,
        };
        let Some(start) = self.jobs.take_pending(job, Awaited::Confirmation) else { return };
        let outcome = match verdict(answer) {
            Verdict::Yes => {
                let PendingStart { tool, arguments, task } = start;
                return self.begin(now, job, tool, arguments, task);
            }
            Verdict::No(why) => outcome(Err(ToolError::Failed(why))),
            Verdict::Stopped => Outcome::Stopped,
        };
        self.observer.job_ends.note_unbegun(job);
        self.done(now, job, outcome);
    }

    fn begin(
        &mut self,
        now: Now,
        job: JobId,
        tool: Arc<Tool>,
        arguments: Json,
        task: Option<TaskId>,
    ) {
        let started = match Payload::of(&tool).map(|payload| &payload.run) {
            Some(PayloadRun::Handler(run)) => {
                let token = CancelToken::default();
                self.jobs.start_handler(job, token.clone());
                let call = Call { id: job, task, arguments };
                self.pool.submit(Work { run: Arc::clone(run), call, token });
                Ok(())
            }
            Some(PayloadRun::Command { command, .. }) if command.client_roots.is_some() => {
                return self.locate(now, job, tool, arguments, task);
            }
            Some(PayloadRun::Command { command, arguments: rules }) => {
                self.launch(job, &tool, (command, rules), &arguments, (task, None))
            }
            None => {
                let message = format!("the tool {:?} has nothing behind it", tool.name);
                Err(Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message)))
            }
        };
        if let Err(outcome) = started {
            self.not_started(now, job, outcome);
        }
    }

    /// Asks the client of a job where it is, before the job runs there.
    fn locate(
        &mut self,
        now: Now,
        job: JobId,
        tool: Arc<Tool>,
        arguments: Json,
        task: Option<TaskId>,
    ) {
        let start = PendingStart { tool, arguments, task };
        self.jobs.await_answer(job, Awaited::Roots, start);
        let answer_timeout =
            AnswerTimeout { timeout: ROOTS_WITHIN, extend_on_progress: false, cap: ROOTS_WITHIN };
        let request = OutgoingRequest {
            key: None,
            method: "roots/list".into(),
            params: None,
            answer_timeout: Some(answer_timeout),
            task: None,
        };
        // A client without roots is not asked, which the engine says at once.
        let conn = self.engine.connection(job);
        let event = Event::Asked { job, ask: ROOTS, conn, request };
        self.engine.handle(now, event, &mut self.actions);
    }

    /// A client has told its roots, or has none: its job runs in the first one, or in the directory
    /// of its process.
    fn located(&mut self, now: Now, job: JobId, answer: &Answer) {
        let Some(start) = self.jobs.take_pending(job, Awaited::Roots) else { return };
        let PendingStart { tool, arguments, task } = start;
        let payload = Payload::of(&tool).map(|payload| &payload.run);
        let Some(PayloadRun::Command { command, arguments: rules }) = payload else { return };
        let place = match answer {
            Answer::Cancelled => Err(Outcome::Stopped),
            Answer::Result(_)
            | Answer::Error(_)
            | Answer::Unusable(_)
            | Answer::Refused(_)
            | Answer::TimedOut
            | Answer::Lost => {
                let dir = client_directory::of_roots(answer).or_else(|| self.client_directory(job));
                self.place(job, command, dir)
                    .map_err(|why| outcome(Err(ToolError::Failed(why.into()))))
            }
        };
        match place {
            Ok(place) => {
                let place = (task, Some(place));
                if let Err(outcome) = self.launch(job, &tool, (command, rules), &arguments, place) {
                    self.not_started(now, job, outcome);
                }
            }
            Err(outcome) => {
                self.observer.job_ends.note_unbegun(job);
                self.done(now, job, outcome);
            }
        }
    }

    /// The directory of the process that a job came from.
    fn client_directory(&self, job: JobId) -> Option<PathBuf> {
        let conn = self.engine.connection(job)?;
        let now = || client_directory::of_process(self.connections.origin(conn)?);
        self.client_directories.get(conn).cloned().or_else(now)
    }

    /// Where a job runs whose client is in `dir`.
    fn place(
        &self,
        job: JobId,
        command: &CommandTool,
        dir: Option<PathBuf>,
    ) -> Result<WorkingDir, String> {
        let (owner, us) = (self.engine.owner(job), geteuid().as_raw());
        let caller = match owner {
            Some(Identity::User(uid)) => Some(*uid),
            Some(Identity::Token(_) | Identity::Subject(_) | Identity::Anonymous) | None => None,
        };
        let runs_as = run_as::user(command.run_as, owner, us)?.unwrap_or(us);
        let users = client_directory::Users { caller, us, runs_as };
        let roots = command.client_roots.clone().unwrap_or_default();
        client_directory::place(dir, &roots, command.run_as, users)
    }

    /// Hands the handler calls of this turn to the worker threads.
    pub(super) fn dispatch(&mut self, now: Now) {
        let Err((error, works)) = self.pool.dispatch(now.at) else { return };
        let message = format!("cannot create a thread for the tool: {error}");
        for work in works {
            let error = ErrorObject::new(code::INTERNAL_ERROR, message.clone());
            self.not_started(now, work.call.id, Outcome::Error(error));
        }
    }

    pub(super) fn not_started(&mut self, now: Now, job: JobId, outcome: Outcome) {
        self.jobs.end(job);
        self.observer.job_ends.note_unbegun(job);
        self.end_output(now, job);
        self.done(now, job, outcome);
    }

    fn launch(
        &mut self,
        job: JobId,
        tool: &Arc<Tool>,
        (command, rules): (&CommandTool, &Arguments),
        arguments: &Json,
        (task, cwd): (Option<TaskId>, Option<WorkingDir>),
    ) -> Result<(), Outcome> {
        let filled = match command.is_given {
            true => run_command::command(arguments.get(), command.isolation),
            false => command.template.fill(rules, Some(arguments.get())),
        };
        let filled = filled.map_err(|why| Outcome::Refused(ErrorObject::invalid_params(why)))?;
        let (owner, us) = (self.engine.owner(job), geteuid().as_raw());
        let user = match command.is_given {
            true => run_as::caller(owner, us),
            false => run_as::user(command.run_as, owner, us),
        };
        let user = user.map_err(|why| Outcome::Error(ErrorObject::new(code::FORBIDDEN, why)))?;
        let internal = |why| Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, why));
        let env = filled.env.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.jobs.start_command(job, Arc::clone(tool));
        let output = command.output_options();
        self.begin_output(job, task, tool, &output);
        let task = task.map(|task| (TASK.into(), task.to_string().into()));
        let trace = self.engine.trace(job).map(|trace| trace_variables(trace)).unwrap_or_default();
        let launch = Launch {
            job: to_process(job),
            argv: filled.argv,
            cwd: cwd.or(filled.cwd),
            env: command
                .variables()
                .map_err(internal)?
                .into_iter()
                .chain(env)
                .chain(task)
                .chain(trace)
                .collect(),
            inherit: command.inherit.clone(),
            stdin: filled.stdin,
            pipes: None,
            user,
            isolation: command.isolation,
            bounds: command.bounds,
            output,
        };
        self.supervisor
            .order(Order::Launch(Box::new(launch)))
            .map_err(|gone| internal(gone.to_string()))?;
        self.pass_lease_on();
        Ok(())
    }

    /// Takes a step towards the end of a job.
    pub(super) fn stop(&mut self, job: JobId, step: StopStep, why: StopReason) {
        self.observer.calls.note_step(job, step.as_str());
        match self.jobs.stop(job, step, why) {
            StopEffect::None => {}
            StopEffect::Terminate => self.order(Order::Terminate(to_process(job))),
            StopEffect::Kill => self.order(Order::Kill(to_process(job))),
        }
    }
}

impl Server {
    pub(super) fn order(&self, order: Order) {
        if let Err(gone) = self.supervisor.order(order) {
            tracing::error!("{gone}");
        }
    }
}

/// An elicitation without fields: the requestor accepts, declines or cancels.
fn question_to_ask(question: &str) -> OutgoingRequest {
    let params = json!({
        "message": question,
        "requestedSchema": {"type": "object", "properties": {}},
    });
    OutgoingRequest {
        key: None,
        method: "elicitation/create".into(),
        params: to_raw_value(&params).ok(),
        answer_timeout: None,
        task: None,
    }
}

/// Meaning of a response for a job that waits for confirmation.
enum Verdict {
    Yes,
    No(Cow<'static, str>),
    Stopped,
}

fn verdict(answer: &Answer) -> Verdict {
    #[derive(Deserialize)]
    struct Elicited<'a> {
        #[serde(borrow)]
        action: Cow<'a, str>,
    }
    match answer {
        Answer::Result(result) => match serde_json::from_str::<Elicited<'_>>(result.get()) {
            Ok(elicited) if elicited.action == "accept" => Verdict::Yes,
            Ok(_) => Verdict::No("not run: the requestor did not confirm the call".into()),
            Err(error) => {
                Verdict::No(format!("not run: cannot parse the response: {error}").into())
            }
        },
        Answer::Error(error) => {
            Verdict::No(format!("not run: the confirmation request failed: {}", error.get()).into())
        }
        Answer::Refused(refusal @ Refusal::TooMany) => {
            Verdict::No(format!("not run: {refusal}").into())
        }
        Answer::Refused(refusal) => Verdict::No(
            format!(
                "not run: the tool needs confirmation, which the client does not support: {refusal}"
            )
            .into(),
        ),
        Answer::TimedOut => Verdict::No("not run: the requestor did not answer in time".into()),
        Answer::Lost | Answer::Unusable(_) => {
            Verdict::No("not run: the call was not confirmed".into())
        }
        Answer::Cancelled => Verdict::Stopped,
    }
}

impl Server {
    /// Outcome of a command that outlasts SIGKILL.
    pub(super) fn unfinished(&mut self, job: JobId, exit: &Exit) -> Outcome {
        match self.jobs.outlast(job) {
            Some(command) => self.command_result(job, &command, exit),
            None => Outcome::Stopped,
        }
    }

    /// Outcome of a command that has ended.
    pub(super) fn command_outcome(
        &self,
        job: JobId,
        command: Option<RunningCommand>,
        ending: Ending,
    ) -> Outcome {
        match (ending, command) {
            // TOOL-01: another argument or another directory may help.
            (Ending::NotStarted(reason), _) => Outcome::Refused(ErrorObject::new(
                code::INTERNAL_ERROR,
                format!("the tool could not be started: {reason}"),
            )),
            (Ending::Exited(exit), Some(command)) => self.command_result(job, &command, &exit),
            (Ending::Exited(_), None) => Outcome::Stopped,
        }
    }

    fn command_result(&self, job: JobId, run: &RunningCommand, exit: &Exit) -> Outcome {
        let Some(PayloadRun::Command { command, .. }) =
            Payload::of(&run.tool).map(|payload| &payload.run)
        else {
            return Outcome::Stopped;
        };
        // A job that is gone from the engine has no reader.
        let Some(dialect) = self.engine.dialect_of(job) else { return Outcome::Stopped };
        let has_socket = self.listeners.accepts_callers();
        let (tool, why) = (&*run.tool.name, run.stopped);
        let ended = Ended { job, tool, command, why, dialect, has_socket };
        outcome(Ok(ended.result(exit)))
    }
}
