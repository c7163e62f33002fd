//! Text description of a configuration with all defaults.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::bounds::describe_bounds;
use super::describe_access::{describe_allow, describe_profile};
use super::describe_agent::describe_agent;
use super::describe_server::describe_server;
use super::units::{heartbeat, show_duration, show_size};
use super::{
    CommandTool, Config, Daemon, Keeping, Level, Listen, OAuth, OnDisconnect, OnTtl, Output,
    RecordCalls, Run, RunAs, Tool, Users,
};
use crate::store::Damaged;
use ceased_client::printable::clean;
use ceased_process::Isolation;

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
        let (daemon, limits, tasks) = (&self.daemon, &self.limits, &self.tasks);
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, text: String| rows.push((name.to_owned(), text));
        for listen in &self.listen {
            row("listen", listen.describe());
        }
        row("workers", format!("{}, {} more may wait", daemon.workers, daemon.queue));
        row(
            "store",
            match daemon.store {
                Keeping::Auto => format!("{}, by `serve`", daemon.state_dir.display()),
                Keeping::Disk => daemon.state_dir.display().to_string(),
                Keeping::Memory => "none, tasks end with the daemon".into(),
            },
        );
        row("store_reserve", size(daemon.store_reserve));
        row("store_retry", show_duration(daemon.store_retry));
        row(
            "damaged_store",
            match daemon.damaged_store {
                Damaged::Refuse => "refuse".into(),
                Damaged::SetAside => "set_aside".into(),
            },
        );
        row("shutdown_grace", show_duration(daemon.shutdown_grace));
        row("eof_grace", show_duration(daemon.eof_grace));
        row("on_disconnect", on_disconnect(daemon.on_disconnect));
        row("isolation", isolation(daemon.isolation).into());
        let roots: Vec<String> =
            daemon.roots.iter().map(|root| root.display().to_string()).collect();
        if !roots.is_empty() {
            row("roots", roots.join(", "));
        }
        if daemon.allow_run {
            row("allow_run", "true".into());
        }
        if !daemon.operators.is_empty() {
            let names: Vec<String> = daemon.operators.iter().map(ToString::to_string).collect();
            row("operators", names.join(", "));
        }
        row("heartbeat", heartbeat(daemon.heartbeat));
        row("text_limit", size(daemon.text_limit));
        let texts = [("title", &daemon.title), ("website", &daemon.website)];
        for (name, text) in texts.into_iter().chain([("instructions", &daemon.instructions)]) {
            if let Some(text) = text {
                row(name, format!("{text:?}"));
            }
        }
        row("connections", limits.connections.to_string());
        row("message_bytes", size(limits.message_bytes));
        row("json_depth", limits.json_depth.to_string());
        row("inflight_per_connection", limits.inflight_per_connection.to_string());
        row("tasks_per_identity", limits.tasks_per_identity.to_string());
        row("stored_tasks_per_identity", limits.stored_tasks_per_identity.to_string());
        row("stored_bytes_per_identity", size(limits.stored_bytes_per_identity));
        row("resident_result_bytes", size(limits.resident_result_bytes));
        row("task_ops_per_second", limits.task_ops_per_second.to_string());
        row("operator_connections", limits.operator_connections.to_string());
        for (name, share) in [
            ("connections_per_identity", limits.connections_per_identity),
            ("workers_per_identity", limits.workers_per_identity),
        ] {
            if let Some(share) = share {
                row(name, share.to_string());
            }
        }
        if let Some(share) = limits.queue_per_identity {
            row("queue_per_identity", share.to_string());
        }
        let (keys, ttl) = (limits.idempotency_keys_per_identity, limits.idempotency_ttl);
        row("idempotency_keys", format!("{keys}, their answers for {}", show_duration(ttl)));
        row("output_bytes", size(limits.output_bytes));
        row("output_bytes_per_identity", size(limits.output_bytes_per_identity));
        row("write_buffer_bytes", size(limits.write_buffer_bytes));
        row("write_stall", show_duration(limits.write_stall));
        row("authenticate_within", show_duration(limits.authenticate_within));
        row("frame_time", show_duration(limits.frame_time));
        row("held_bytes", size(limits.held_bytes));
        if let Some(share) = limits.held_bytes_per_identity {
            row("held_bytes_per_identity", size(share));
        }
        row("partial_bytes", size(limits.partial_bytes));
        if let Some(share) = limits.partial_bytes_per_identity {
            row("partial_bytes_per_identity", size(share));
        }
        row("asks_per_job", limits.asks_per_job.to_string());
        let parked_for = show_duration(limits.parked_for);
        row(
            "parked",
            format!("{} calls an identity, for {parked_for}", limits.parked_per_identity),
        );
        let (subscriptions, tasks_each) =
            (limits.subscriptions_per_connection, limits.tasks_per_subscription);
        row("subscriptions", format!("{subscriptions} a connection, {tasks_each} tasks each"));
        row("default_ttl", show_duration(tasks.default_ttl));
        row("max_ttl", show_duration(tasks.max_ttl));
        row("anonymous_ttl", show_duration(tasks.anonymous_ttl));
        let late = show_duration(tasks.late_result);
        row(
            "on_ttl",
            match tasks.on_ttl {
                OnTtl::Finish => format!("finish, the result is kept for {late}"),
                OnTtl::Stop => "stop".into(),
            },
        );
        row("poll_interval", show_duration(tasks.poll_interval));
        row("page_size", tasks.page_size.to_string());
        row("status_notifications", tasks.status_notifications.to_string());
        let level = self.log.level.map_or("info, with stdio warn", Level::name);
        row("log level", level.into());
        row(
            "audit",
            self.log.audit.as_ref().map_or("none".into(), |path| path.display().to_string()),
        );
        let calls = match self.log.calls {
            RecordCalls::None => "none",
            RecordCalls::Names => "names",
            RecordCalls::Arguments => "arguments",
        };
        row("recorded calls", format!("{calls}, redacted: {}", self.log.redact.join(" ")));
        if let Some(listen) = &self.metrics.listen {
            row("metrics", listen.to_string());
        }
        let alerts = &self.alerts;
        let (slow, window) = (show_duration(alerts.slow_stop), show_duration(alerts.window));
        row("alerts", format!("{} % of a limit, stops slower than {slow}", alerts.high_water));
        let (unknown, fast) = (alerts.unknown_tasks, alerts.fast_polls);
        row("", format!("{unknown} unknown tasks, {fast} fast polls within {window}"));
        row("start_at_once", self.start_at_once.to_string());
        rows.into_iter().chain(self.ends_in_words()).collect()
    }

    /// The settings of calls that have ended.
    fn ends_in_words(&self) -> Vec<(String, String)> {
        let (daemon, log) = (&self.daemon, &self.log);
        let kept = format!("{} for {}", log.ended_calls, show_duration(log.ended_for));
        let mut rows = vec![("ended_calls".to_owned(), kept)];
        let mut row = |name: &str, text: String| rows.push((name.to_owned(), text));
        if let Some(otlp) = &self.otlp {
            row("otlp", format!("{}, as {:?}", otlp.endpoint, otlp.service_name));
        }
        if let Some(fleet) = &self.fleet {
            let lease = show_duration(fleet.lease);
            row("fleet", format!("node {:?}, lease {lease}", fleet.name));
        }
        if !daemon.on_end.is_empty() {
            row("on_end", daemon.on_end.elements().join(" "));
            row("on_end_after", show_duration(daemon.on_end_after));
            row("on_end_timeout", show_duration(daemon.on_end_timeout));
            row("on_end_running", daemon.on_end_running.to_string());
        }
        rows
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
        more(format!("on_disconnect {}", on_disconnect(tool.on_disconnect)));
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

pub(super) const fn isolation(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::None => "none",
        Isolation::Pid => "pid",
    }
}

fn on_disconnect(policy: OnDisconnect) -> String {
    match policy {
        OnDisconnect::Cancel => "cancel".into(),
        OnDisconnect::Detach => "detach".into(),
        OnDisconnect::Grace(time) => show_duration(time),
    }
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
    match command.run_as {
        None => {}
        Some(RunAs::Daemon) => more("run_as daemon".into()),
        Some(RunAs::Peer) => more("run_as peer".into()),
        Some(RunAs::User(uid)) => more(format!("run_as uid {uid}")),
    }
    if command.isolation == Isolation::Pid {
        more("isolation pid".into());
    }
    describe_bounds(&command.bounds, more);
    if command.inherit.everything {
        more("inherit_env true".into());
    }
    if !command.inherit.also.is_empty() {
        more(format!("pass_env {}", command.inherit.also.join(" ")));
    }
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
