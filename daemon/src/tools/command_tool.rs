//! A command as a tool, made in Rust.

use std::path::PathBuf;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::policy::allow::Allow;
use ceased_core::tool::{BadTool, BadToolKind, OnDisconnect, TaskSupport, Tool, ToolHints};

use super::arguments::{Arguments, CommandTemplate, CwdTemplate, SchemaError, Template};
use super::catalog;
use super::name::{DEFAULT_HEARTBEAT, NAME_HINT, is_name};
use crate::config::command_defaults::{KILL_GRACE, MAX_OUTPUT, NO_INPUT, TIMEOUT};
use crate::config::{self, ClientRoots, EnvFile, Inherit, Output, ProgressPattern, Run, RunAs};
use ceased_process::{Bounds, Isolation};

/// Builder of a tool that is a command: each call starts it, and a cancel ends all its processes.
///
/// Elements of the command may have placeholders for arguments, `{name}`, which the schema declares
/// as properties; `{{` and `}}` are braces. The program is no placeholder. Defaults are those of
/// `[[tool]]` in `config.toml`, whose keys have the names of the methods.
///
/// ```
/// use ceased::{CommandTool, Daemon};
///
/// let test = CommandTool::new(["cargo", "test", "--package={package}"])
///     .name("test")
///     .description("Runs the tests of a package")
///     .input_schema(r#"{"type": "object", "properties": {"package": {"type": "string"}}}"#)
///     .cwd("/srv/project")
///     .build()?;
/// let daemon = Daemon::new().tool(test);
/// # Ok::<(), ceased::BadTool>(())
/// ```
///
/// A program with command tools calls [`guard::init`](crate::process::guard::init) first in its
/// `main`.
#[must_use]
#[derive(Debug, Clone)]
pub struct CommandTool {
    name: String,
    program: String,
    elements: Vec<String>,
    title: Option<String>,
    description: Option<String>,
    input_schema: String,
    output_schema: Option<String>,
    cwd: Option<(PathBuf, String)>,
    client_roots: Option<ClientRoots>,
    env: Vec<(String, String)>,
    env_file: Option<PathBuf>,
    inherit: Inherit,
    stdin: Option<String>,
    progress: Option<String>,
    confirm: Option<String>,
    lock: Option<String>,
    output: Output,
    max_output: usize,
    text_limit: usize,
    run_as: Option<RunAs>,
    isolation: Isolation,
    bounds: Bounds,
    kill_grace: Duration,
    timeout: Duration,
    heartbeat: Option<Duration>,
    on_disconnect: OnDisconnect,
    max_running: Option<usize>,
    task_support: TaskSupport,
    read_only: bool,
    hints: ToolHints,
    icon: Option<String>,
    allow: Allow,
}

impl CommandTool {
    /// A tool that runs a program with arguments, without inputs. Its name is that of the program
    /// unless [`name`](Self::name) sets another.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let mut words = command.into_iter().map(Into::into);
        let program: String = words.next().unwrap_or_default();
        Self {
            name: program.rsplit('/').next().unwrap_or_default().to_owned(),
            program,
            elements: words.collect(),
            title: None,
            description: None,
            input_schema: NO_INPUT.to_owned(),
            output_schema: None,
            cwd: None,
            client_roots: None,
            env: Vec::new(),
            env_file: None,
            inherit: Inherit::default(),
            stdin: None,
            progress: None,
            confirm: None,
            lock: None,
            output: Output::default(),
            max_output: MAX_OUTPUT,
            text_limit: config::Daemon::default().text_limit,
            run_as: None,
            isolation: Isolation::default(),
            bounds: Bounds::default(),
            kill_grace: KILL_GRACE,
            timeout: TIMEOUT,
            heartbeat: Some(DEFAULT_HEARTBEAT),
            on_disconnect: OnDisconnect::Cancel,
            max_running: None,
            task_support: TaskSupport::Forbidden,
            read_only: false,
            hints: ToolHints::default(),
            icon: None,
            allow: Allow::Everyone,
        }
    }

    /// Sets the name: 1 to 128 of `A-Z a-z 0-9 _ . -`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the display name.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description for models.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the JSON Schema of the arguments: JSON text of an object with `"type": "object"`.
    pub fn input_schema(mut self, json: impl Into<String>) -> Self {
        self.input_schema = json.into();
        self
    }

    /// Sets the output that a result shows; the default is standard output and standard error in
    /// the order they came.
    pub const fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Sets the JSON Schema of the object that the command prints, with [`Output::Json`].
    pub fn output_schema(mut self, json: impl Into<String>) -> Self {
        self.output_schema = Some(json.into());
        self
    }

    /// Sets the bytes of output that are kept of each stream.
    pub const fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes;
        self
    }

    /// Sets the bytes of output that a result shows as text.
    pub const fn text_limit(mut self, bytes: usize) -> Self {
        self.text_limit = bytes;
        self
    }

    /// Sets the working directory; the default is that of the daemon.
    pub fn cwd(self, path: impl Into<PathBuf>) -> Self {
        self.cwd_below(path, "")
    }

    /// Sets a working directory with placeholders below a fixed one, which arguments cannot leave.
    pub fn cwd_below(mut self, base: impl Into<PathBuf>, rest: impl Into<String>) -> Self {
        self.cwd = Some((base.into(), rest.into()));
        self
    }

    /// Runs the command in the directory of the client, which must be below one of these.
    pub fn cwd_of_client<P: Into<PathBuf>>(mut self, roots: impl IntoIterator<Item = P>) -> Self {
        let listed = roots.into_iter().map(Into::into).collect();
        self.client_roots = Some(ClientRoots { listed, home: None });
        self
    }

    /// Sets a variable of the environment; placeholders are filled in its value.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets a file of further variables, `NAME=value` lines, which is read by [`build`](Self::build).
    pub fn env_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.env_file = Some(path.into());
        self
    }

    /// Sets the variables that are inherited from the daemon; the default are a few that every
    /// program needs.
    pub fn inherit(mut self, inherit: Inherit) -> Self {
        self.inherit = inherit;
        self
    }

    /// Sets the text of standard input, with placeholders; the default is empty.
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Sets the regular expression that reads progress from output, with the groups `done` and
    /// `total`.
    pub fn progress(mut self, pattern: impl Into<String>) -> Self {
        self.progress = Some(pattern.into());
        self
    }

    /// Sets a question to the user, with placeholders, that is answered before the command runs.
    pub fn confirm(mut self, question: impl Into<String>) -> Self {
        self.confirm = Some(question.into());
        self
    }

    /// Sets the name of a lock, with placeholders: calls with the same one run one after the other.
    pub fn lock(mut self, name: impl Into<String>) -> Self {
        self.lock = Some(name.into());
        self
    }

    /// Sets the number of calls that run at once; the default is that of the daemon.
    pub const fn max_running(mut self, calls: usize) -> Self {
        self.max_running = Some(calls);
        self
    }

    /// Sets the user of the process. A daemon of root refuses calls of a tool without one.
    pub const fn run_as(mut self, user: RunAs) -> Self {
        self.run_as = Some(user);
        self
    }

    /// Sets the isolation from other processes of the same user.
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets bounds on memory, processes and CPU time of a call.
    pub const fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets the time from SIGTERM to SIGKILL.
    pub const fn kill_grace(mut self, grace: Duration) -> Self {
        self.kill_grace = grace;
        self
    }

    /// Sets the time after which a call is cancelled.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the maximum interval of progress notifications; `None`: only progress of the command.
    pub const fn heartbeat(mut self, heartbeat: Option<Duration>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets the effect of a disconnect on a plain call; the default cancels it.
    pub const fn on_disconnect(mut self, policy: OnDisconnect) -> Self {
        self.on_disconnect = policy;
        self
    }

    /// Sets whether it runs as a task.
    pub const fn task_support(mut self, support: TaskSupport) -> Self {
        self.task_support = support;
        self
    }

    /// Declares that the command has no side effects.
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Sets further hints for clients.
    pub const fn hints(mut self, hints: ToolHints) -> Self {
        self.hints = hints;
        self
    }

    /// Sets a picture for people: an `https:` or `data:` URI.
    pub fn icon(mut self, uri: impl Into<String>) -> Self {
        self.icon = Some(uri.into());
        self
    }

    /// Sets the identities that may use it; for others it does not exist. The default is everyone.
    pub fn allow(mut self, identities: impl IntoIterator<Item = Identity>) -> Self {
        self.allow = Allow::only(identities);
        self
    }

    /// Builds the tool.
    ///
    /// # Errors
    /// [`BadTool`] for a name that MCP does not allow, an empty command, a schema that cannot
    /// describe arguments, a placeholder that the schema does not declare, a bad pattern of
    /// progress, and a file of variables that cannot be read. Without the feature `schema` also if
    /// a schema is not plain.
    pub fn build(self) -> Result<Tool, BadTool> {
        let name = self.name.clone();
        let invalid = |why: String| BadTool::new(name.clone(), why, BadToolKind::Invalid);
        if !is_name(&name) {
            return Err(invalid(NAME_HINT.to_owned()));
        }
        let schema = |text: &str| {
            Arguments::new(text).map_err(|error| {
                let kind = match error {
                    SchemaError::Unsupported => BadToolKind::UnsupportedSchema,
                    SchemaError::Invalid(_) => BadToolKind::Invalid,
                };
                BadTool::new(name.clone(), error.to_string(), kind)
            })
        };
        let arguments = schema(&self.input_schema)?;
        let output_schema = self.output_schema.as_deref().map(schema).transpose()?;
        let template = self.template(&arguments).map_err(invalid)?;
        let text = |text: &Option<String>| {
            text.as_ref().map(|text| checked(text, &arguments)).transpose().map_err(invalid)
        };
        let (confirm, lock) = (text(&self.confirm)?, text(&self.lock)?);
        let progress = self.progress.as_deref().map(ProgressPattern::new).transpose();
        let env_file = self.env_file.map(EnvFile::load).transpose();
        let command = config::CommandTool {
            template,
            is_given: false,
            kill_grace: self.kill_grace,
            max_output: self.max_output,
            run_as: self.run_as,
            isolation: self.isolation,
            bounds: self.bounds,
            inherit: self.inherit,
            env_file: env_file.map_err(|why| invalid(why.to_string()))?,
            progress: progress.map_err(invalid)?,
            output: self.output,
            output_schema,
            text_limit: self.text_limit,
            client_roots: self.client_roots,
        };
        Ok(catalog::configured(&config::Tool {
            name: self.name,
            title: self.title,
            description: self.description,
            run: Run::Command(Box::new(command)),
            read_only: self.read_only,
            hints: self.hints,
            icon: self.icon,
            task_support: self.task_support,
            timeout: self.timeout,
            arguments: arguments.clone(),
            confirm,
            heartbeat: self.heartbeat,
            on_disconnect: self.on_disconnect,
            allow: self.allow,
            max_running: self.max_running,
            lock,
            on_end: None,
        }))
    }

    fn template(&self, arguments: &Arguments) -> Result<CommandTemplate, String> {
        if self.program.is_empty() || self.program.contains('\0') {
            return Err("the command names no program".to_owned());
        }
        let read = |text: &String| checked(text, arguments);
        let elements = self.elements.iter().map(read).collect::<Result<_, _>>()?;
        let env = self.env.iter().map(|(name, value)| Ok((name.clone(), read(value)?)));
        let cwd = self.cwd.as_ref().map(|(base, rest)| {
            let base = std::path::absolute(base).map_err(|why| why.to_string())?;
            Ok::<_, String>(CwdTemplate { base, rest: read(rest)? })
        });
        Ok(CommandTemplate {
            program: (&self.program).into(),
            elements,
            cwd: cwd.transpose()?,
            env: env.collect::<Result<_, String>>()?,
            stdin: self.stdin.as_ref().map(read).transpose()?,
        })
    }
}

/// A template whose arguments are declared.
fn checked(text: &str, arguments: &Arguments) -> Result<Template, String> {
    let template = Template::parse(text)?;
    let undeclared =
        template.arguments().find(|name| !arguments.declared().iter().any(|it| it == name));
    match undeclared {
        Some(name) => Err(format!(
            "{text:?} mentions {{{name}}}, which the schema does not declare; write {{{{ and }}}} \
             for braces themselves"
        )),
        None => Ok(template),
    }
}
