//! Commands of callers (`ceased/run`): jobs without a configured tool, as the caller's own user.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::policy::allow::Allow;
use ceased_core::tool::{TaskSupport, Tool, ToolHints};
use serde::Deserialize;
use serde_json::json;

use crate::config::{CommandTool, Config, Output, RunAs};
use crate::tools::arguments::{
    Argv, COMMAND_BYTES_MAX, CommandTemplate, ELEMENT_BYTES_MAX, SchemaError,
};
use crate::tools::catalog;
use ceased_process::daemon_support::is_private;
use ceased_process::{Bounds, Inherit, Isolation};

/// Name in records and views. No configured tool can have it.
pub(crate) const NAME: &str = "ceased/run";
/// From SIGTERM to SIGKILL, as the default of tools.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// Bytes of output kept of each stream, as the default of tools.
const MAX_OUTPUT: usize = 1 << 20;

/// Schema of the params of the request.
const SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"minItems":1},"cwd":{"type":"string"},"env":{"type":"object","additionalProperties":{"type":"string"}},"streams":{"type":"object","properties":{"stdin":{"type":"string"},"stdout":{"type":"string"},"stderr":{"type":"string"}},"required":["stdin","stdout","stderr"]}},"required":["command"]}"#;
/// Opens the streams and becomes the command.
const OPEN: &str = r#"exec <"$1" >>"$2" 2>>"$3"; shift 3; exec "$@""#;

/// The tool behind the request, if the configuration allows it.
///
/// # Errors
/// If it does, and the feature `schema` is off.
pub(crate) fn tool(config: &Config) -> Result<Option<Arc<Tool>>, SchemaError> {
    let daemon = &config.daemon;
    if !daemon.allow_run {
        return Ok(None);
    }
    let max_output = MAX_OUTPUT.min(config.limits.write_buffer_bytes);
    let command = CommandTool {
        template: CommandTemplate {
            program: OsString::new(),
            elements: Vec::new(),
            cwd: None,
            env: Vec::new(),
            stdin: None,
        },
        is_given: true,
        kill_grace: KILL_GRACE,
        max_output,
        run_as: Some(RunAs::Peer),
        isolation: daemon.isolation,
        bounds: Bounds::default(),
        inherit: Inherit::default(),
        env_file: None,
        progress: None,
        output: Output::Stdout,
        output_schema: None,
        // A person reads it, not a model.
        text_limit: max_output,
        client_roots: None,
    };
    Ok(Some(Arc::new(Tool {
        task_support: TaskSupport::Optional,
        heartbeat: daemon.heartbeat,
        hints: ToolHints::default(),
        on_disconnect: daemon.on_disconnect,
        allow: Allow::Everyone,
        ..catalog::command(NAME, SCHEMA, KILL_GRACE, command)?
    })))
}

/// The params of the request.
#[derive(Deserialize)]
struct Params {
    command: Vec<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    streams: Option<Streams>,
}

/// Files that the command has as its standard streams, such as pipes of its caller in `/proc`. The
/// command itself opens them, with the rights of its caller.
#[derive(Deserialize)]
struct Streams {
    stdin: String,
    stdout: String,
    stderr: String,
}

impl Streams {
    /// The command with these streams.
    fn before(self, command: Vec<String>) -> Vec<String> {
        let shell = ["/bin/sh", "-c", OPEN, "sh"].map(str::to_owned).into_iter();
        shell.chain([self.stdin, self.stdout, self.stderr]).chain(command).collect()
    }
}

/// The part of the params that records and views show: the command and its directory.
pub(crate) fn shown(params: &str) -> String {
    match serde_json::from_str(params) {
        Ok(Params { command, cwd: Some(cwd), .. }) => json!({"command": command, "cwd": cwd}),
        Ok(Params { command, cwd: None, .. }) => json!({"command": command}),
        Err(_) => json!({}),
    }
    .to_string()
}

/// The command that the params name. One in a pid namespace of its own cannot open the streams of its
/// caller, so that its output is its result.
///
/// # Errors
/// The reason, for the caller.
pub(crate) fn command(params: &str, isolation: Isolation) -> Result<Argv, String> {
    let Params { command, cwd, env, streams } =
        serde_json::from_str(params).map_err(|error| format!("params: {error}"))?;
    let command = match streams.filter(|_| isolation == Isolation::None) {
        Some(streams) => streams.before(command),
        None => command,
    };
    let texts = command.iter().chain(env.keys()).chain(env.values());
    let mut total = 0;
    for text in texts {
        if text.contains('\0') {
            return Err("params: a NUL byte, which no command or variable can contain".into());
        }
        if text.len() > ELEMENT_BYTES_MAX {
            let long = text.len();
            return Err(format!(
                "params: an element of {long} bytes; the system takes at most {ELEMENT_BYTES_MAX}"
            ));
        }
        total += text.len() + 1;
    }
    if total > COMMAND_BYTES_MAX {
        return Err(format!(
            "params: the command has {total} bytes; the limit is {COMMAND_BYTES_MAX}"
        ));
    }
    if let Some(dir) = cwd.as_ref().filter(|dir| !dir.is_absolute()) {
        return Err(format!("params/cwd: {dir:?} is not an absolute path"));
    }
    let is_odd = |name: &String| name.is_empty() || name.contains('=') || is_private(name.as_ref());
    if let Some(name) = env.keys().find(|name| is_odd(name)) {
        return Err(format!("params/env: {name:?} cannot be set for a command"));
    }
    let argv = command.into_iter().map(OsString::from).collect();
    Ok(Argv { argv, stdin: None, cwd: cwd.map(Into::into), env: env.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_become_a_command() {
        let params = r#"{"command":["ls","-l"],"cwd":"/srv","env":{"A":"b"},"_meta":{}}"#;
        let argv = command(params, Isolation::None).expect("valid");
        assert_eq!(argv.argv, ["ls", "-l"]);
        assert_eq!(argv.cwd, Some(PathBuf::from("/srv").into()));
        assert_eq!(argv.env, [("A".to_owned(), "b".to_owned())]);
        let params = r#"{"command":["ls"],"streams":{"stdin":"/i","stdout":"/o","stderr":"/e"}}"#;
        let argv = command(params, Isolation::None).expect("valid");
        assert_eq!(argv.argv, ["/bin/sh", "-c", OPEN, "sh", "/i", "/o", "/e", "ls"]);
        assert_eq!(shown(params), r#"{"command":["ls"]}"#);
        assert_eq!(command(params, Isolation::Pid).expect("valid").argv, ["ls"]);
    }

    #[test]
    fn params_that_no_process_can_have_are_refused() {
        let long = "x".repeat(ELEMENT_BYTES_MAX + 1);
        let many = format!("[{}\"x\"]", format!("{:?},", "x".repeat(100_000)).repeat(11));
        for (params, why) in [
            (r#"{"command":["a\u0000"]}"#.to_owned(), "NUL byte"),
            (format!(r#"{{"command":[{long:?}]}}"#), "the system takes at most"),
            (format!(r#"{{"command":{many}}}"#), "the limit is"),
            (r#"{"command":["a"],"cwd":"b"}"#.to_owned(), "not an absolute path"),
            (r#"{"command":["a"],"env":{"A=B":""}}"#.to_owned(), "\"A=B\" cannot be set"),
            (r#"{"command":["a"],"env":{"CEASED_JOB":"9"}}"#.to_owned(), "cannot be set"),
            (r#"{"command":"a"}"#.to_owned(), "invalid type"),
        ] {
            let said = command(&params, Isolation::None).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn commands_of_callers_are_off_unless_allowed() {
        let mut config = Config::default();
        assert!(matches!(tool(&config), Ok(None)));
        config.daemon.allow_run = true;
        let allowed = tool(&config).map(|tool| tool.map(|tool| tool.name.to_string()));
        let expected = match cfg!(feature = "schema") {
            true => Ok(Some(NAME.to_owned())),
            false => Err(SchemaError::Unsupported),
        };
        assert_eq!(allowed, expected);
    }
}
