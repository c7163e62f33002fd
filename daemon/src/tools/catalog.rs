//! Conversion of configured and programmed tools to those of the engine.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::policy::allow::{Allow, RunsFor};
use ceased_core::tool::{
    ArgumentCheck, BadTool, BadToolKind, Catalog, OnDisconnect, StopPolicy, TaskSupport, Tool,
    ToolHints,
};
use rustix::process::geteuid;

use crate::config::{self, CommandTool, OnEnd, Output, Run};
use crate::tools::arguments::{Arguments, SchemaError, Template};
use crate::tools::call_latency::HandlerRun;
use crate::tools::command_result::EXIT_SCHEMA;
use crate::tools::handler::{Calling, Handler, Work};
use crate::tools::name::{DEFAULT_HEARTBEAT, NAME_HINT, is_name};
use crate::tools::runs_for::runs_for;

/// Default time a handler has to react to its cancel token before it is abandoned.
pub const DEFAULT_ABANDON_AFTER: Duration = Duration::from_secs(10);

/// The server's data for running a tool; the payload of its [`Tool`].
pub(crate) struct Payload {
    pub(crate) run: PayloadRun,
    /// Confirmation to request before the tool runs.
    pub(crate) confirm: Option<Confirm>,
    /// Command after the end of a call, in place of the daemon's.
    pub(crate) on_end: Option<OnEnd>,
}

impl Payload {
    /// The payload of a tool of this server.
    pub(crate) fn of(tool: &Tool) -> Option<&Self> {
        tool.payload.as_ref()?.downcast_ref()
    }
}

/// The command of a tool, if it is one.
pub(crate) fn command_of(tool: &Tool) -> Option<&CommandTool> {
    match &Payload::of(tool)?.run {
        PayloadRun::Command { command, .. } => Some(command),
        PayloadRun::Handler(_) => None,
    }
}

/// A question to ask before a tool runs.
pub(crate) struct Confirm {
    pub(crate) question: Template,
    pub(crate) arguments: Arguments,
}

/// Implementation of a tool.
pub(crate) enum PayloadRun {
    /// A Rust function.
    Handler(Arc<HandlerRun>),
    /// A command.
    Command {
        /// The command.
        command: Box<CommandTool>,
        /// Schema of its arguments.
        arguments: Arguments,
    },
}

/// The check of a call's arguments against their schema.
struct BySchema(Arguments);

impl ArgumentCheck for BySchema {
    fn check<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        self.0.accept(arguments)
    }
}

/// Creates a check of arguments against their schema.
pub(crate) fn by_schema(arguments: Arguments) -> Box<dyn ArgumentCheck> {
    Box::new(BySchema(arguments))
}

/// Builder of a tool that is a Rust function.
///
/// ```
/// use ceased::{HandlerTool, Job, ToolResult};
///
/// let tool = HandlerTool::new("greet", |job: &Job| {
///     job.token().check()?;
///     Ok(ToolResult::text("hello"))
/// })
/// .description("Greets")
/// .build()?;
/// # Ok::<(), ceased::BadTool>(())
/// ```
pub struct HandlerTool {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: String,
    output_schema: Option<String>,
    hints: ToolHints,
    icon: Option<String>,
    allow: Allow,
    task_support: TaskSupport,
    timeout: Option<Duration>,
    abandon_after: Duration,
    heartbeat: Option<Duration>,
    on_disconnect: OnDisconnect,
    read_only: bool,
    asks_first: bool,
    handler: Arc<dyn Work>,
}

impl HandlerTool {
    /// A tool without arguments, without task support, and without a timeout.
    pub fn new(name: impl Into<String>, handler: impl Handler) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: r#"{"type":"object","additionalProperties":false}"#.into(),
            output_schema: None,
            hints: ToolHints::default(),
            icon: None,
            allow: Allow::Everyone,
            task_support: TaskSupport::Forbidden,
            timeout: None,
            abandon_after: DEFAULT_ABANDON_AFTER,
            heartbeat: Some(DEFAULT_HEARTBEAT),
            on_disconnect: OnDisconnect::Cancel,
            read_only: false,
            asks_first: false,
            handler: Arc::new(Calling(handler)),
        }
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description for models.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the JSON Schema of the arguments: JSON text of an object with `"type": "object"`.
    #[must_use]
    pub fn input_schema(mut self, json: impl Into<String>) -> Self {
        self.input_schema = json.into();
        self
    }

    /// The JSON Schema of its structured content: JSON text of an object with `"type": "object"`.
    /// Clients may insist that every result that is no error matches it.
    #[must_use]
    pub fn output_schema(mut self, json: impl Into<String>) -> Self {
        self.output_schema = Some(json.into());
        self
    }

    /// Hints for clients: whether it may destroy something, whether a second call changes nothing
    /// more, whether it reaches things outside of the machine.
    #[must_use]
    pub const fn hints(mut self, hints: ToolHints) -> Self {
        self.hints = hints;
        self
    }

    /// A picture for people: an `https:` or `data:` URI.
    #[must_use]
    pub fn icon(mut self, uri: impl Into<String>) -> Self {
        self.icon = Some(uri.into());
        self
    }

    /// The identities that may use it; for others it does not exist. Everyone, if not said.
    #[must_use]
    pub fn allow(mut self, identities: impl IntoIterator<Item = Identity>) -> Self {
        self.allow = Allow::only(identities);
        self
    }

    /// Whether it runs as a task.
    #[must_use]
    pub const fn task_support(mut self, support: TaskSupport) -> Self {
        self.task_support = support;
        self
    }

    /// Sets the time after which a call is cancelled.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time the handler has to react to its cancelled token; defaults to
    /// [`DEFAULT_ABANDON_AFTER`]. After that its thread is abandoned and counted.
    #[must_use]
    pub const fn abandon_after(mut self, abandon_after: Duration) -> Self {
        self.abandon_after = abandon_after;
        self
    }

    /// Sets the maximum interval of progress notifications to a client that requested progress;
    /// defaults to 10 s. `None`: only progress [reported](crate::Job::progress) by the handler is
    /// sent.
    #[must_use]
    pub const fn heartbeat(mut self, heartbeat: Option<Duration>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets the effect of a disconnect on a plain call; the default cancels it.
    #[must_use]
    pub const fn on_disconnect(mut self, policy: OnDisconnect) -> Self {
        self.on_disconnect = policy;
        self
    }

    /// Declares that the tool has no side effects; clients see `readOnlyHint`. With a store, a task
    /// of this tool runs while its record is being written, and its result is discarded if the
    /// write fails; a short call is written once instead of twice.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Lets the handler ask before its call becomes a task, by [`Job::become_task`], where the server
    /// decides that (2026-07-28): the questions are then inputs of the call itself.
    ///
    /// [`Job::become_task`]: crate::Job::become_task
    #[must_use]
    pub const fn asks_first(mut self) -> Self {
        self.asks_first = true;
        self
    }

    /// Builds the tool.
    ///
    /// # Errors
    /// [`BadTool`] if MCP does not allow the name, or the schema cannot describe a tool's
    /// arguments. Without the feature `schema` also if the schema is not plain, with
    /// [`BadToolKind::UnsupportedSchema`]: a tool is never offered unchecked.
    pub fn build(self) -> Result<Tool, BadTool> {
        if !is_name(&self.name) {
            return Err(BadTool::new(self.name, NAME_HINT, BadToolKind::Invalid));
        }
        let arguments = match Arguments::new(&self.input_schema) {
            Ok(arguments) => arguments,
            Err(error) => {
                let kind = match error {
                    SchemaError::Unsupported => BadToolKind::UnsupportedSchema,
                    SchemaError::Invalid(_) => BadToolKind::Invalid,
                };
                return Err(BadTool::new(self.name, error.to_string(), kind));
            }
        };
        Ok(Tool {
            name: self.name.into(),
            title: self.title.map(Into::into),
            description: self.description.map(Into::into),
            input_schema: arguments.schema().get().into(),
            output_schema: self.output_schema.map(Into::into),
            task_support: self.task_support,
            timeout: self.timeout,
            stop_policy: StopPolicy::Handler { abandon_after: self.abandon_after },
            heartbeat: self.heartbeat,
            read_only: self.read_only,
            hints: self.hints,
            icon: self.icon.map(Into::into),
            on_disconnect: self.on_disconnect,
            allow: self.allow,
            runs_for: RunsFor::Everyone,
            check: Some(Box::new(BySchema(arguments))),
            asks_first: self.asks_first,
            max_running: None,
            lock: None,
            route: None,
            payload: payload(PayloadRun::Handler(HandlerRun::new(self.handler)), None),
        })
    }
}

/// The tools and servers of a daemon.
///
/// # Errors
/// [`BadTool`] for a tool without a handler or command, and for tools that the engine rejects.
pub(crate) fn catalog(tools: Vec<Tool>) -> Result<Catalog, BadTool> {
    if let Some(alien) = tools.iter().find(|tool| Payload::of(tool).is_none()) {
        let why = "it has no handler: create it with `HandlerTool` or `CommandTool`";
        return Err(BadTool::new(&*alien.name, why, BadToolKind::Invalid));
    }
    Catalog::new(tools)
}

pub(crate) fn payload(
    run: PayloadRun,
    confirm: Option<Confirm>,
) -> Option<Arc<dyn Any + Send + Sync>> {
    Some(Arc::new(Payload { run, confirm, on_end: None }))
}

/// The schema of the structured content of a configured tool.
fn output_schema(tool: &config::Tool) -> Option<&str> {
    match &tool.run {
        Run::Builtin(_) => None,
        Run::Command(command) => match command.output {
            Output::Combined | Output::Stdout | Output::Content => Some(EXIT_SCHEMA),
            Output::Json => command.output_schema.as_ref().map(|schema| schema.schema().get()),
        },
    }
}

/// A tool that is a command, with the schema of its arguments.
///
/// # Errors
/// If the schema is not plain, and the feature `schema` is off.
pub(crate) fn command(
    name: &str,
    schema: &str,
    kill_grace: Duration,
    command: CommandTool,
) -> Result<Tool, SchemaError> {
    let arguments = Arguments::new(schema)?;
    let run = PayloadRun::Command { command: Box::new(command), arguments: arguments.clone() };
    Ok(Tool {
        input_schema: schema.into(),
        check: Some(Box::new(BySchema(arguments))),
        payload: payload(run, None),
        ..Tool::new(name, StopPolicy::Command { kill_grace })
    })
}

/// A tool of a configuration, for a server.
#[must_use]
pub(crate) fn configured(tool: &config::Tool) -> Tool {
    let (stop_policy, run, runs_for) = match &tool.run {
        Run::Builtin(builtin) => {
            let run = PayloadRun::Handler(HandlerRun::new(Arc::new(Calling(*builtin))));
            let policy = StopPolicy::Handler { abandon_after: DEFAULT_ABANDON_AFTER };
            (policy, run, RunsFor::Everyone)
        }
        Run::Command(command) => (
            StopPolicy::Command { kill_grace: command.kill_grace },
            PayloadRun::Command { command: command.clone(), arguments: tool.arguments.clone() },
            runs_for(command.run_as, geteuid().as_raw()),
        ),
    };
    Tool {
        name: tool.name.as_str().into(),
        title: tool.title.as_deref().map(Into::into),
        description: tool.description.as_deref().map(Into::into),
        input_schema: tool.arguments.schema().get().into(),
        output_schema: output_schema(tool).map(Into::into),
        task_support: tool.task_support,
        timeout: Some(tool.timeout),
        stop_policy,
        heartbeat: tool.heartbeat,
        read_only: tool.read_only,
        hints: tool.hints,
        icon: tool.icon.as_deref().map(Into::into),
        on_disconnect: tool.on_disconnect,
        allow: tool.allow.clone(),
        runs_for,
        max_running: tool.max_running,
        lock: tool.lock.as_ref().map(|lock| lock.to_string().into()),
        check: Some(Box::new(BySchema(tool.arguments.clone()))),
        asks_first: false,
        route: None,
        payload: Some(Arc::new(Payload {
            run,
            confirm: tool
                .confirm
                .clone()
                .map(|question| Confirm { question, arguments: tool.arguments.clone() }),
            on_end: tool.on_end.clone(),
        })),
    }
}
