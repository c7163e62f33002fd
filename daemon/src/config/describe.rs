//! Text description of a configuration with all defaults.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::bounds::describe_bounds;
use super::describe_access::{describe_allow, describe_profile};
use super::describe_agent::describe_agent;
use super::describe_server::describe_server;
use super::forms::Disconnect;
use super::kinds::Kind;
use super::launch::{describe_inherited, describe_user};
use super::units::{heartbeat, show_duration, show_size};
use super::{
    CommandTool, Config, Daemon, Fleet, Level, Listen, OAuth, Otlp, Output, Run, Tool, Users,
};
use ceased_client::printable::clean;

impl Listen {
    /// Describes the transport and address in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Unix { path, mode, group, allow } => {
                let mut line = format!("unix {} mode {mode:04o}", path.display());
                if let Some(gid) = group {
                    // Writing to a String cannot fail.
                    let _ = write!(line, " group {gid}");
                }
                if let Some(Users { users, groups }) = allow {
                    let _ = write!(line, ", for uids {users:?} and gids {groups:?} only");
                }
                line
            }
            Self::Tcp { address, token_file: None, anonymous: true } => {
                format!("tcp {address}, open to all users of this machine")
            }
            Self::Tcp { address, token_file: None, anonymous: false } => format!("tcp {address}"),
            Self::Tcp { address, token_file: Some(path), anonymous } => {
                let others = if *anonymous { ", and to all users of this machine" } else { "" };
                format!("tcp {address}, open to the tokens of {}{others}", path.display())
            }
            Self::Stdio => "stdio".into(),
            Self::Http(http) => {
                let mut line = format!("http on {}", http.socket.describe());
                if !http.allow_origins.is_empty() {
                    let _ = write!(line, ", for pages of {}", http.allow_origins.join(", "));
                }
                if let Some(tls) = &http.tls {
                    let _ = write!(line, ", TLS with {}", tls.cert.display());
                }
                if let Some(OAuth { resource, issuers, audience, .. }) = http.oauth.as_deref() {
                    let (issuers, audience) = (issuers.join(", "), audience.join(", "));
                    let _ = write!(line, ", {resource} for tokens of {issuers} for {audience}");
                }
                line
            }
        }
    }
}

impl Level {
    /// Configuration name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Config {
    /// Describes listeners, limits, and every tool with its command line; ends with a newline.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut rows = Vec::new();
        for tool in &self.tools {
            rows.extend(describe_tool(tool, &self.daemon));
        }
        for server in &self.servers {
            rows.extend(describe_server(server, self));
        }
        for agent in &self.agents {
            rows.extend(describe_agent(agent));
        }
        rows.extend(self.profiles.iter().flat_map(describe_profile));
        if self.tools.is_empty() && self.servers.is_empty() && self.agents.is_empty() {
            rows.push(("tools".into(), "none: no tool is configured".into()));
        }
        rows.extend(self.settings_in_words());
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        let mut text = String::new();
        for (name, value) in rows {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:width$}  {}", clean(&value));
        }
        text
    }

    /// All that this configuration says beside the defaults, `usual`: the commands that it runs,
    /// with their environment, and the places where it listens and writes.
    #[cfg(feature = "cli")]
    pub(crate) fn differences_in_words(&self, usual: &Self) -> Vec<(String, String)> {
        let usual = usual.settings_in_words();
        let mut rows = self.settings_in_words();
        rows.retain(|row| !usual.contains(row));
        rows.extend(self.tools.iter().flat_map(|tool| describe_tool(tool, &self.daemon)));
        rows.extend(self.servers.iter().flat_map(|server| describe_server(server, self)));
        rows.extend(self.agents.iter().flat_map(describe_agent));
        rows.extend(self.profiles.iter().flat_map(describe_profile));
        rows
    }

    /// Names and values of the settings but for tools; a row without a name continues the one before.
    pub(crate) fn settings_in_words(&self) -> Vec<(String, String)> {
        let listen = self.listen.iter().map(|listen| ("listen", listen.describe()));
        let sections = [
            self.daemon.rows(),
            self.limits.rows(),
            self.tasks.rows(),
            self.log.rows(),
            self.metrics.rows(),
            self.alerts.rows(),
            vec![("start_at_once", self.start_at_once.to_string())],
            self.otlp.as_ref().map(Otlp::rows).unwrap_or_default(),
            self.fleet.as_ref().map(Fleet::rows).unwrap_or_default(),
        ];
        let rows = listen.chain(sections.into_iter().flatten());
        rows.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Tool {
    /// The program and arguments that it runs, with their inputs in braces; or the builtin.
    #[must_use]
    pub fn runs(&self) -> String {
        match &self.run {
            Run::Builtin(builtin) => format!("builtin {}", builtin.name()),
            Run::Command(command) => argv(command),
        }
    }
}

impl Tool {
    /// The settings of the tool, a line each.
    #[cfg(feature = "cli")]
    pub(crate) fn settings_in_words(&self, daemon: &Daemon) -> Vec<String> {
        describe_tool(self, daemon).into_iter().skip(1).map(|(_, text)| text).collect()
    }
}

/// Describes one tool: its name and command, then its other settings.
fn describe_tool(tool: &Tool, daemon: &Daemon) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut more = |text: String| rows.push((String::new(), text));
    let bounds =
        format!("task {}, timeout {}", tool.task_support.as_str(), show_duration(tool.timeout));
    let runs = match &tool.run {
        Run::Builtin(builtin) => {
            more(bounds);
            format!("builtin {}", builtin.name())
        }
        Run::Command(command) => {
            let grace = show_duration(command.kill_grace);
            more(format!("{bounds}, kill_grace {grace}, max_output {}", size(command.max_output)));
            describe_command(command, &mut more);
            argv(command)
        }
    };
    if tool.read_only && matches!(tool.run, Run::Command(_)) {
        more("read-only".into());
    }
    if tool.heartbeat != daemon.heartbeat {
        more(format!("heartbeat {}", heartbeat(tool.heartbeat)));
    }
    if tool.on_disconnect != daemon.on_disconnect {
        more(format!("on_disconnect {}", Disconnect.show(&tool.on_disconnect).unwrap_or_default()));
    }
    if let Some(question) = &tool.confirm {
        more(format!("confirm {:?}", question.to_string()));
    }
    if let Some(max) = tool.max_running {
        more(format!("max_running {max}"));
    }
    if let Some(lock) = &tool.lock {
        more(format!("lock {:?}", lock.to_string()));
    }
    describe_allow(&tool.allow, &mut more);
    more(format!("input {}", tool.arguments.schema().get()));
    rows.insert(0, (format!("tool {}", tool.name), runs));
    rows
}

/// Describes the environment of a command, as far as it is configured.
fn describe_command(command: &CommandTool, more: &mut impl FnMut(String)) {
    let template = &command.template;
    if let Some(cwd) = &template.cwd {
        // Without parts such as `.`.
        let path: PathBuf = cwd.base.join(cwd.rest.to_string()).components().collect();
        more(format!("cwd {}", path.display()));
    }
    if command.client_roots.is_some() {
        more("cwd client".into());
    }
    describe_user(command.run_as, command.isolation, more);
    describe_bounds(&command.bounds, more);
    describe_inherited(&command.inherit, more);
    match command.output {
        Output::Combined => {}
        Output::Stdout => more("output stdout".into()),
        Output::Json => more("output json".into()),
        Output::Content => more("output content".into()),
    }
    if let Some(progress) = &command.progress {
        more(format!("progress {progress}"));
    }
    if let Some(file) = &command.env_file {
        more(format!("env_file {}", file.path.display()));
    }
    for (name, value) in &template.env {
        more(format!("env {name}={:?}", value.to_string()));
    }
    if let Some(stdin) = &template.stdin {
        more(format!("stdin {:?}", stdin.to_string()));
    }
}

/// The command line with its placeholders, as an array like in the file.
fn argv(command: &CommandTool) -> String {
    let program = command.template.program.to_string_lossy().into_owned();
    let elements = command.template.elements.iter().map(ToString::to_string);
    format!("{:?}", std::iter::once(program).chain(elements).collect::<Vec<_>>())
}

fn size(bytes: usize) -> String {
    show_size(bytes as u64)
}
