//! Running jobs: what a tool's payload is, how it is started and stopped, what comes of it.

use super::running_jobs::{AwaitingConfirmation, RunningJob};
use super::server::Server;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::event::{Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, JobId, TaskId};
use ceased_core::json::raw::Json;
use ceased_core::outgoing::call::{Answer, AnswerTimeout, Caller, OutgoingRequest};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Now;
use ceased_core::tool::{StopStep, Tool};
use rustix::process::geteuid;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::{client_directory, run_as};
use crate::config::CommandTool;
use crate::process_ids::to_process;
use crate::tools::arguments::Arguments;
use crate::tools::cancel_token::CancelToken;
use crate::tools::catalog::{Payload, PayloadRun};
use crate::tools::handler::{Call, Content, ToolError, ToolResult, outcome};
use crate::tools::worker_pool::Work;
use ceased_process::{Ending, Exit, Launch, Order, WorkingDir};

/// The variable that names the task a command is the work of. No configuration may set it.
const TASK: &str = "CEASED_TASK";

/// The question whether a job may run; handlers count theirs from 1.
const CONFIRM: AskId = AskId::new(0);
/// The question where the client is. Commands ask nothing else.
const ROOTS: AskId = AskId::new(1);
/// How long a client may take to tell its roots; its process has a directory, too.
const ROOTS_WITHIN: Duration = Duration::from_secs(5);

impl Server {
    /// Starts a job, or asks first.
    pub(super) fn start(
        &mut self,
        now: Now,
        job: JobId,
        tool: Arc<Tool>,
        arguments: Json,
        task: Option<TaskId>,
    ) {
        self.trail.calls.begin(job, &tool, arguments.get(), task);
        let Some(confirm) = Payload::of(&tool).and_then(|payload| payload.confirm.as_ref()) else {
            return self.begin(now, job, tool, arguments, task);
        };
        let request = match confirm.arguments.question(&confirm.question, arguments.get()) {
            Ok(question) => question_to_ask(&question),
            Err(why) => {
                let outcome = Outcome::Error(ErrorObject::invalid_params(why));
                return self.done(now, job, outcome);
            }
        };
        let unconfirmed = Box::new(AwaitingConfirmation { tool, arguments, task });
        self.runs.insert(job, RunningJob::Unconfirmed(unconfirmed));
        let event = Event::Asked { job, ask: CONFIRM, conn: None, request };
        self.engine.handle(now, event, &mut self.actions);
    }

    /// A requestor was asked whether a job may run: anything but its yes means that it does not.
    pub(super) fn confirmed(&mut self, now: Now, caller: Caller, answer: &Answer) {
        let job = match caller {
            Caller::Job { job, ask: CONFIRM } => job,
            Caller::Job { job, ask: ROOTS } => return self.located(now, job, answer),
            Caller::Job { .. } | Caller::Host(_) => return,
        };
        let Some(RunningJob::Unconfirmed(unconfirmed)) = self.runs.remove(&job) else { return };
        let outcome = match verdict(answer) {
            Verdict::Yes => {
                let AwaitingConfirmation { tool, arguments, task } = *unconfirmed;
                return self.begin(now, job, tool, arguments, task);
            }
            Verdict::No(why) => outcome(Err(ToolError::Failed(why))),
            Verdict::Stopped => Outcome::Stopped,
        };
        self.trail.note_unbegun(job);
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
                self.runs.insert(job, RunningJob::Handler(token.clone()));
                let call = Call { id: job, task, arguments };
                self.pool.submit(Work { run: Arc::clone(run), call, token });
                Ok(())
            }
            Some(PayloadRun::Command { command, .. }) if command.client_roots.is_some() => {
                return self.locate(now, job, tool, arguments, task);
            }
            Some(PayloadRun::Command { command, arguments: rules }) => {
                self.launch(job, command, rules, &arguments, task, None)
            }
            None => {
                let message = format!("the tool {:?} has nothing behind it", tool.name);
                Err(ErrorObject::new(code::INTERNAL_ERROR, message))
            }
        };
        if let Err(error) = started {
            self.not_started(now, job, error);
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
        let held = Box::new(AwaitingConfirmation { tool, arguments, task });
        self.runs.insert(job, RunningJob::Locating(held));
        let patience =
            AnswerTimeout { timeout: ROOTS_WITHIN, extend_on_progress: false, cap: ROOTS_WITHIN };
        let request = OutgoingRequest {
            method: "roots/list".into(),
            params: None,
            patience: Some(patience),
            task: None,
        };
        // A client without roots is not asked, which the engine says at once.
        let conn = self.engine.connection(job);
        let event = Event::Asked { job, ask: ROOTS, conn, request };
        self.engine.handle(now, event, &mut self.actions);
    }

    /// A client has told its roots, or has none: its job runs in the first one, or in the directory of
    /// its process.
    fn located(&mut self, now: Now, job: JobId, answer: &Answer) {
        let Some(RunningJob::Locating(held)) = self.runs.remove(&job) else { return };
        let AwaitingConfirmation { tool, arguments, task } = *held;
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
                if let Err(error) = self.launch(job, command, rules, &arguments, task, Some(place))
                {
                    self.not_started(now, job, error);
                }
            }
            Err(outcome) => {
                self.trail.note_unbegun(job);
                self.done(now, job, outcome);
            }
        }
    }

    /// The directory of the process that a job came from.
    fn client_directory(&self, job: JobId) -> Option<PathBuf> {
        let conn = self.engine.connection(job)?;
        let now = || client_directory::of_process(self.links.get(&conn)?.link.peer());
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
            Some(Identity::Token(_) | Identity::Anonymous) | None => None,
        };
        let runs_as = run_as::user(command.run_as, owner, us)?.unwrap_or(us);
        let users = client_directory::Users { caller, us, runs_as };
        let roots = command.client_roots.clone().unwrap_or_default();
        client_directory::place(dir, &roots, command.run_as, users)
    }

    /// Hands the handlers' calls of this turn to the worker threads.
    pub(super) fn dispatch(&mut self, now: Now) {
        let Err((error, works)) = self.pool.dispatch(now.at) else { return };
        let message = format!("no thread could be started for the tool: {error}");
        for work in works {
            let error = ErrorObject::new(code::INTERNAL_ERROR, message.clone());
            self.not_started(now, work.call.id, error);
        }
    }

    pub(super) fn not_started(&mut self, now: Now, job: JobId, error: ErrorObject) {
        self.runs.remove(&job);
        self.trail.note_unbegun(job);
        let outcome = Outcome::Error(error);
        self.done(now, job, outcome);
    }

    fn launch(
        &mut self,
        job: JobId,
        command: &CommandTool,
        rules: &Arguments,
        arguments: &Json,
        task: Option<TaskId>,
        cwd: Option<WorkingDir>,
    ) -> Result<(), ErrorObject> {
        let filled = command
            .template
            .fill(rules, Some(arguments.get()))
            .map_err(ErrorObject::invalid_params)?;
        let owner = self.engine.owner(job);
        let user = run_as::user(command.run_as, owner, geteuid().as_raw())
            .map_err(|why| ErrorObject::new(code::FORBIDDEN, why))?;
        let internal = |why| ErrorObject::new(code::INTERNAL_ERROR, why);
        let env = filled.env.into_iter().map(|(name, value)| (name.into(), value.into()));
        let task = task.map(|task| (TASK.into(), task.to_string().into()));
        self.runs.insert(job, RunningJob::Command(None));
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
                .collect(),
            inherit: command.inherit.clone(),
            stdin: filled.stdin,
            user,
            isolation: command.isolation,
            output: command.output_options(),
        };
        self.supervisor
            .order(Order::Launch(Box::new(launch)))
            .map_err(|gone| ErrorObject::new(code::INTERNAL_ERROR, gone.to_string()))
    }

    pub(super) fn stop(&mut self, job: JobId, step: StopStep, why: StopReason) {
        match (self.runs.get_mut(&job), step) {
            (
                Some(RunningJob::Handler(token)),
                StopStep::Flag | StopStep::Terminate | StopStep::Kill,
            ) => {
                token.cancel();
            }
            (Some(RunningJob::Handler(_)), StopStep::Abandon) => {
                self.runs.remove(&job);
                self.trail.abandoned.insert(job);
            }
            (Some(RunningJob::Command(stopped)), StopStep::Flag | StopStep::Terminate) => {
                *stopped = Some(why);
                self.order(Order::Terminate(to_process(job)));
            }
            (Some(RunningJob::Command(stopped)), StopStep::Kill | StopStep::Abandon) => {
                *stopped = Some(why);
                self.order(Order::Kill(to_process(job)));
            }
            (Some(RunningJob::Outlasting), _) => self.order(Order::Kill(to_process(job))),
            // It was told that its question is cancelled, and ends by that.
            (Some(RunningJob::Unconfirmed(_) | RunningJob::Locating(_)), _) => {}
            // It has ended, and its report is on the way.
            (None, _) => {}
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
        method: "elicitation/create".into(),
        params: to_raw_value(&params).ok(),
        patience: None,
        task: None,
    }
}

/// What an answer means for a job that waits to be confirmed.
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
            Ok(_) => Verdict::No("not run: the requestor did not confirm it".into()),
            Err(error) => Verdict::No(format!("not run: the answer is unreadable: {error}").into()),
        },
        Answer::Error(error) => {
            Verdict::No(format!("not run: asking for confirmation failed: {}", error.get()).into())
        }
        Answer::Refused(refusal) => Verdict::No(
            format!("not run: it needs confirmation, and the client cannot be asked: {refusal}")
                .into(),
        ),
        Answer::TimedOut | Answer::Lost | Answer::Unusable(_) => {
            Verdict::No("not run: nobody confirmed it".into())
        }
        Answer::Cancelled => Verdict::Stopped,
    }
}

/// What the engine is told about a command that outlasts SIGKILL.
pub(super) fn unfinished(run: Option<&mut RunningJob>, exit: &Exit) -> Outcome {
    let Some(run) = run else { return Outcome::Stopped };
    match std::mem::replace(run, RunningJob::Outlasting) {
        RunningJob::Command(why) => outcome(Ok(command_result(exit, why))),
        RunningJob::Handler(_)
        | RunningJob::Outlasting
        | RunningJob::Unconfirmed(_)
        | RunningJob::Locating(_) => Outcome::Stopped,
    }
}

/// What the engine is told about the end of a command.
pub(super) fn command_outcome(run: Option<RunningJob>, ending: Ending) -> Outcome {
    let why = match run {
        Some(RunningJob::Command(why)) => why,
        Some(RunningJob::Outlasting) => return Outcome::Stopped,
        Some(RunningJob::Handler(_) | RunningJob::Unconfirmed(_) | RunningJob::Locating(_))
        | None => None,
    };
    match ending {
        Ending::NotStarted(reason) => Outcome::Error(ErrorObject::new(
            code::INTERNAL_ERROR,
            format!("the tool could not be started: {reason}"),
        )),
        Ending::Exited(exit) => outcome(Ok(command_result(&exit, why))),
    }
}

/// The result of a command: standard output for a model, everything for a program.
fn command_result(exit: &Exit, why: Option<StopReason>) -> ToolResult {
    let (stdout, stderr) = (exit.stdout.text(), exit.stderr.text());
    let stopped = match why {
        Some(StopReason::TimedOut) => Some(("timedOut", "timed out and was stopped")),
        // The requestor of the stop gets no answer, so another identity asked for it.
        Some(StopReason::Requested) => {
            Some(("cancelled", "was cancelled, and not by its requestor"))
        }
        Some(
            StopReason::Disconnected
            | StopReason::Shutdown
            | StopReason::Expired
            | StopReason::LeftBehind
            | StopReason::Unanswered
            | StopReason::Unstored
            | StopReason::Feature
            | StopReason::Limit
            | StopReason::Host,
        )
        | None => None,
    };
    let is_error = exit.code != Some(0) || stopped.is_some();
    let mut content = vec![Content::Text { text: stdout.clone() }];
    if is_error {
        let text = summary(exit, stopped.map(|(_, how)| how), &stderr);
        content.push(Content::Text { text });
    }
    let left = exit.survivors.filter(|left| *left > 0);
    if let Some(left) = left {
        let text = format!("{left} of its processes cannot be ended and may still run");
        content.push(Content::Text { text });
    }
    let mut structured = json!({
        "exitCode": exit.code,
        "signal": exit.signal,
        "stdout": stdout,
        "stderr": stderr,
        "durationMs": u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
        "truncated": exit.stdout.cut() > 0 || exit.stderr.cut() > 0,
    });
    if let (Some((member, _)), Some(members)) = (stopped, structured.as_object_mut()) {
        members.insert(member.into(), true.into());
    }
    if let (Some(left), Some(members)) = (left, structured.as_object_mut()) {
        members.insert("survivors".into(), left.into());
    }
    ToolResult { content, structured_content: Some(structured), is_error }
}

fn summary(exit: &Exit, stopped: Option<&str>, stderr: &str) -> String {
    let how = match (stopped, exit.code, exit.signal) {
        (Some(how), ..) => how.to_owned(),
        (None, Some(code), _) => format!("exited with code {code}"),
        (None, None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None, None) if exit.survivors.is_some_and(|left| left > 0) => {
            "was stopped".to_owned()
        }
        (None, None, None) => "ended in an unknown way".to_owned(),
    };
    let stderr = stderr.trim();
    if stderr.is_empty() { how } else { format!("{how}: {stderr}") }
}
