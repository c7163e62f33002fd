//! Arguments of `ceased probe`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ceased_transports::http::client::check_header;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::argument_values::duration;
use crate::config::units::parse_size;
use ceased_probe as probe;

/// `probe`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ProbeArgs {
    /// The command is an ACP agent
    #[arg(long, conflicts_with_all = ["tool", "stubborn_tool", "revision", "restart", "socket", "url"])]
    pub(super) acp: bool,
    /// The command is a client or host, which gets a scripted server: {server} in an argument stands
    /// for the server's command line, {config} for a file with an mcpServers object
    #[arg(long, conflicts_with_all = ["acp", "tool", "stubborn_tool", "revision", "restart", "socket", "url"])]
    pub(super) client: bool,
    /// Prompt whose turn takes longer than the time limit
    #[arg(
        long,
        value_name = "TEXT",
        requires = "acp",
        default_value = "Count from 1 to 5000, each number on a line of its own, and use no tool."
    )]
    prompt: String,
    /// Prompt whose turn starts a process that takes long [default: the prompt]
    #[arg(long, value_name = "TEXT", requires = "acp")]
    work_prompt: Option<String>,
    /// Prompt whose turn asks the client for permission
    #[arg(long, value_name = "TEXT", requires = "acp")]
    question_prompt: Option<String>,
    /// Prompt whose turn leaves background work, in version 2
    #[arg(long, value_name = "TEXT", requires = "acp")]
    background_prompt: Option<String>,
    /// Tool of which a call takes long, at least twenty seconds [default: one that waits, by its
    /// name and schema]
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Arguments of that call
    #[arg(long, value_name = "JSON", value_parser = object, requires = "tool")]
    args: Option<Value>,
    /// Arguments with which the same tool ends by itself after about a second
    #[arg(long, value_name = "JSON", value_parser = object, requires = "tool")]
    brief_args: Option<Value>,
    /// Tool whose work ignores a cancel, such as a process that ignores SIGTERM
    #[arg(long, value_name = "NAME")]
    stubborn_tool: Option<String>,
    /// Arguments of that tool
    #[arg(long, value_name = "JSON", value_parser = object, requires = "stubborn_tool")]
    stubborn_args: Option<Value>,
    /// Protocol revision to speak [default: 2025-11-25, or 2026-07-28 if the server refuses that]
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Checks to do, by their ids or the beginnings of ids, separated by commas
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Checks to leave out, as for --only
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(super) skip: Vec<String>,
    /// Print the text of these checks with their rules and remedies, without a target
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(super) explain: Vec<String>,
    /// File with known deviations, an id of a check on each line: the exit code is 0 if nothing
    /// else deviates
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) baseline: Option<PathBuf>,
    /// Write all deviations as a baseline to this file; the exit code is 0 then
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) write_baseline: Option<PathBuf>,
    /// Time limit of each thing that has to happen
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// How long to watch for a thing that must not happen
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "1s")]
    window: Duration,
    /// The command finds its tasks again when it is started anew
    #[arg(long)]
    restart: bool,
    /// Checks at once
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u8).range(1..))]
    at_once: u8,
    /// Memory of the processes of one check, such as "2GiB"
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4GiB")]
    memory_max: u64,
    /// Processes and threads of one check
    #[arg(long, value_name = "N", default_value = "4096")]
    pids_max: u32,
    /// Bytes that may be received on one connection; then it counts as closed
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    output_max: u64,
    /// Write the result as JSON to this file; - is stdout, instead of the table
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) json: Option<PathBuf>,
    /// Write the result as JUnit XML to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) junit: Option<PathBuf>,
    /// Write the result as Markdown to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) markdown: Option<PathBuf>,
    /// Unix socket of the server, with JSON lines; {port} in it and in the command is a free port,
    /// another for each instance
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    socket: Option<String>,
    /// URL of the server, over Streamable HTTP: http://, https://, or unix:/PATH for HTTP on a Unix
    /// socket; {port} as for --socket
    #[arg(long, value_name = "URL", value_parser = server_url)]
    url: Option<String>,
    /// Header of every HTTP request, such as "X-Key: secret"; may be repeated
    #[arg(long, value_name = "HEADER", value_parser = header, requires = "url")]
    header: Vec<(String, String)>,
    /// File with the bearer token, alone or as `name token`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "url")]
    pub(super) token_file: Option<PathBuf>,
    /// File with the certificates of the authorities that vouch for a server over https, in PEM
    /// format [default: those of the system]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "url")]
    ca_file: Option<PathBuf>,
    /// Program of the server and its arguments; with --socket or --url it may be absent, and checks
    /// that need the processes of the server are unknown
    #[arg(trailing_var_arg = true, required_unless_present_any = ["socket", "url", "explain"], value_name = "COMMAND",
          value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// `probe-server`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ProbeServerArgs {
    /// Socket of the probe; without it, a process that waits
    pub(super) socket: Option<PathBuf>,
}

/// A URL of a server, in which {port} may stand.
fn server_url(text: &str) -> Result<String, String> {
    probe::check_url(text).map(|()| text.to_owned())
}

/// A header as a name in lower case and a value.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be NAME: VALUE")?;
    if !value.is_ascii() {
        return Err("must consist of ASCII characters".to_owned());
    }
    check_header(name, value).map_err(|why| why.to_string())?;
    Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
}

impl ProbeArgs {
    /// The options of a probe of a client.
    pub(super) fn client_options(
        &self,
        checks: BTreeSet<&'static str>,
    ) -> probe::client::ClientOptions {
        probe::client::ClientOptions {
            command: self.command.clone(),
            checks,
            timeout: self.timeout,
            at_once: self.at_once.into(),
            memory_max: self.memory_max,
            pids_max: self.pids_max,
            output_max: self.output_max,
        }
    }

    /// The options of a probe of an agent.
    pub(super) fn agent_options(
        &self,
        checks: BTreeSet<&'static str>,
    ) -> probe::agent::AgentOptions {
        probe::agent::AgentOptions {
            command: self.command.clone(),
            prompt: self.prompt.clone(),
            work_prompt: self.work_prompt.clone(),
            question_prompt: self.question_prompt.clone(),
            background_prompt: self.background_prompt.clone(),
            checks,
            timeout: self.timeout,
            window: self.window,
            at_once: self.at_once.into(),
            memory_max: self.memory_max,
            pids_max: self.pids_max,
            output_max: self.output_max,
        }
    }

    /// The transport and the address of the server.
    pub(super) fn target(&self) -> probe::Target {
        match (&self.socket, &self.url) {
            (Some(path), _) => probe::Target::Socket(path.clone()),
            (None, Some(url)) => probe::Target::Url(url.clone()),
            (None, None) => probe::Target::Stdio,
        }
    }

    /// The authorities that vouch for the server, if it is one over TLS.
    pub(super) fn tls(&self) -> Result<Option<probe::TlsConfig>, String> {
        let is_tls = self.url.as_deref().is_some_and(probe::is_tls_url);
        match (&self.ca_file, is_tls) {
            (Some(path), true) => probe::TlsConfig::with_ca_file(path).map(Some),
            (None, true) => probe::TlsConfig::with_system_roots().map(Some),
            (None, false) => Ok(None),
            (Some(_), false) => return Err("--ca-file needs a --url with https://".to_owned()),
        }
        .map_err(|why| why.to_string())
    }

    /// The options of the probe.
    pub(super) fn options(&self, checks: BTreeSet<&'static str>) -> probe::Options {
        let call = |name: &Option<String>, arguments: &Option<Value>| {
            let arguments = arguments.clone().unwrap_or_else(|| json!({}));
            name.clone().map(|name| probe::ToolCall { name, arguments })
        };
        probe::Options {
            command: self.command.clone(),
            target: self.target(),
            headers: self.header.clone(),
            tls: None,
            long: call(&self.tool, &self.args),
            brief: self.brief_args.clone(),
            stubborn: call(&self.stubborn_tool, &self.stubborn_args),
            revision: self.revision.clone(),
            checks,
            timeout: self.timeout,
            window: self.window,
            at_once: self.at_once.into(),
            restart: self.restart,
            memory_max: self.memory_max,
            pids_max: self.pids_max,
            output_max: self.output_max,
        }
    }
}

/// A JSON object.
fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err("must be a JSON object, such as {\"seconds\": 60}".to_owned()),
        Err(why) => Err(format!("is no JSON: {why}")),
    }
}
