//! Running jobs: what a tool's payload is, how it is started and stopped, what comes of it.

use std::sync::Arc;

use ceased_core::action::Why;
use ceased_core::event::{Event, Outcome};
use ceased_core::id::{JobId, TaskId};
use ceased_core::message::{ErrorObject, code};
use ceased_core::time::Now;
use ceased_core::tool::{Step, Tool};
use serde_json::json;
use serde_json::value::RawValue;

use super::Server;
use crate::arguments::Arguments;
use crate::config::CommandTool;
use crate::handler::{Content, Job, ToolResult, outcome};
use crate::pool::Work;
use crate::process::{Ending, Exit, Launch, Order};
use crate::token::CancelToken;
use crate::tools::Payload;

/// A job under way.
pub(super) enum Run {
    /// On a worker thread.
    Handler(CancelToken),
    /// A command; why it was told to stop, if it was.
    Command(Option<Why>),
}

impl Server {
    pub(super) fn start(
        &mut self,
        now: Now,
        job: JobId,
        tool: &Tool,
        arguments: Box<RawValue>,
        task: Option<TaskId>,
    ) {
        let payload = tool.payload.as_ref().and_then(|payload| payload.downcast_ref::<Payload>());
        let started = match payload {
            Some(Payload::Handler(handler)) => {
                let token = CancelToken::default();
                self.runs.insert(job, Run::Handler(token.clone()));
                let reports = self.reports.clone();
                let handler = Arc::clone(handler);
                let work = Work { handler, job: Job { id: job, task, arguments, token, reports } };
                self.pool.submit(work).map_err(|error| {
                    let message = format!("no thread could be started for the tool: {error}");
                    ErrorObject::new(code::INTERNAL_ERROR, message)
                })
            }
            Some(Payload::Command { command, arguments: rules }) => {
                self.launch(job, command, rules, &arguments, task)
            }
            None => {
                let message = format!("the tool {:?} has nothing behind it", tool.name);
                Err(ErrorObject::new(code::INTERNAL_ERROR, message))
            }
        };
        if let Err(error) = started {
            self.runs.remove(&job);
            let outcome = Outcome::Error(error);
            self.engine.handle(now, Event::Done { job, outcome }, &mut self.actions);
        }
    }

    fn launch(
        &mut self,
        job: JobId,
        command: &CommandTool,
        rules: &Arguments,
        arguments: &RawValue,
        task: Option<TaskId>,
    ) -> Result<(), ErrorObject> {
        let filled = command
            .template
            .fill(rules, Some(arguments.get()))
            .map_err(ErrorObject::invalid_params)?;
        self.runs.insert(job, Run::Command(None));
        let launch = Launch {
            job,
            argv: filled.argv,
            cwd: filled.cwd,
            env: filled.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            stdin: filled.stdin,
            output_bytes_max: command.max_output,
            task,
        };
        self.supervisor
            .order(Order::Launch(Box::new(launch)))
            .map_err(|gone| ErrorObject::new(code::INTERNAL_ERROR, gone.to_string()))
    }

    pub(super) fn stop(&mut self, job: JobId, step: Step, why: Why) {
        match (self.runs.get_mut(&job), step) {
            (Some(Run::Handler(token)), Step::Flag | Step::Terminate | Step::Kill) => {
                token.cancel();
            }
            (Some(Run::Handler(_)), Step::Abandon) => {
                self.runs.remove(&job);
            }
            (Some(Run::Command(stopped)), Step::Flag | Step::Terminate) => {
                *stopped = Some(why);
                self.order(Order::Terminate(job));
            }
            (Some(Run::Command(stopped)), Step::Kill | Step::Abandon) => {
                *stopped = Some(why);
                self.order(Order::Kill(job));
            }
            // It has ended, and its report is on the way.
            (None, _) => {}
        }
    }
}

impl Server {
    fn order(&self, order: Order) {
        if let Err(gone) = self.supervisor.order(order) {
            tracing::error!("{gone}");
        }
    }
}

/// What the engine is told about the end of a command.
pub(super) fn command_outcome(run: Option<Run>, ending: Ending) -> Outcome {
    let why = match run {
        Some(Run::Command(why)) => why,
        Some(Run::Handler(_)) | None => None,
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
fn command_result(exit: &Exit, why: Option<Why>) -> ToolResult {
    let (stdout, stderr) = (exit.stdout.text(), exit.stderr.text());
    let timed_out = why == Some(Why::TimedOut);
    let is_error = exit.code != Some(0) || timed_out;
    let mut content = vec![Content::Text { text: stdout.clone() }];
    if is_error {
        content.push(Content::Text { text: summary(exit, timed_out, &stderr) });
    }
    let mut structured = json!({
        "exitCode": exit.code,
        "signal": exit.signal,
        "stdout": stdout,
        "stderr": stderr,
        "durationMs": u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
        "truncated": exit.stdout.cut() > 0 || exit.stderr.cut() > 0,
    });
    if timed_out && let Some(members) = structured.as_object_mut() {
        members.insert("timedOut".into(), true.into());
    }
    ToolResult { content, structured_content: Some(structured), is_error }
}

fn summary(exit: &Exit, timed_out: bool, stderr: &str) -> String {
    let how = match (timed_out, exit.code, exit.signal) {
        (true, ..) => "timed out and was stopped".to_owned(),
        (false, Some(code), _) => format!("exited with code {code}"),
        (false, None, Some(signal)) => format!("was ended by signal {signal}"),
        (false, None, None) => "ended in an unknown way".to_owned(),
    };
    let stderr = stderr.trim();
    if stderr.is_empty() { how } else { format!("{how}: {stderr}") }
}
