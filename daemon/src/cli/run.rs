//! `ceased run`: runs a command as a job of the daemon, as the user of this process, with the standard
//! streams of this process and the exit code of the command.

use std::ffi::{OsStr, OsString};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::args::RunArgs;
use super::call::{CallOutput, Follow, Request, Stop};
use super::cancel::{announce, report, stop_call};
use super::run_streams::Streams;
use super::{Backend, Exit, Failure, Io, discover, format};
use ceased_client::Client;
use ceased_process::daemon_support::unrunnable;

/// Exit code for a program that is not there, as of shells.
const NOT_FOUND: u8 = 127;
/// Added by shells to the number of the signal that ended a command.
const BY_SIGNAL: i64 = 128;

/// Runs the command.
pub(super) fn run(args: &RunArgs, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    let mut params = params(args)?;
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    if args.detach {
        let output = CallOutput { timeout: args.timeout, detach: true, json: args.json };
        return Follow { client, io, output, request: &Request::Run { params: &params } }.task();
    }
    // A daemon elsewhere cannot open the streams of this process.
    let is_here = args.daemon.tcp.is_none();
    if let Some(why) = args.command.first().filter(|_| is_here).and_then(|it| unrunnable(it, None))
    {
        let program = args.command.first().map(|it| it.display().to_string()).unwrap_or_default();
        let message = format!("cannot run {program:?}, {why}");
        return Err(Failure::new(Exit::OfCommand(NOT_FOUND), message));
    }
    let streams = (is_here && !args.json).then(|| Streams::open(io)).transpose()?;
    if let (Some(streams), Some(params)) = (&streams, params.as_object_mut()) {
        params.insert("streams".into(), streams.paths());
    }
    attached(client, &params, streams, args, io)
}

/// Waits for the end of the command, and for its output.
fn attached(
    client: &mut Client,
    params: &Value,
    streams: Option<Streams>,
    args: &RunArgs,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
    let request = Request::Run { params };
    let call = request.start(client)?;
    let answer = Stop::sort(client.wait(call, args.timeout, &mut |_| {}))?;
    let exit = match answer {
        Ok(result) => {
            finish(streams, client);
            return ended(&result, args.json, io);
        }
        Err(stop) => {
            let reason = stop.reason(args.timeout);
            announce(&request.name(), &reason, io);
            let gone = stop_call(client, call, &reason, io);
            report(&gone, client, io);
            stop.exit()
        }
    };
    finish(streams, client);
    Ok(exit)
}

/// Waits until the output of the command is written; Ctrl-C ends the wait.
fn finish(streams: Option<Streams>, client: &Client) {
    let Some(streams) = streams else { return };
    streams.finish(|| client.interrupts().is_some_and(ceased_client::Interrupts::take));
}

/// Prints a result as far as the command did not print it itself, and returns its exit code.
fn ended(result: &RawValue, is_json: bool, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let exit = match is_json {
        true => format::result_as_json(result, io)?,
        false => output(&value, result, io)?,
    };
    let numbers = &value["structuredContent"];
    let code = match (numbers["exitCode"].as_i64(), numbers["signal"].as_i64()) {
        (Some(code), _) => Some(code),
        (None, signal) => signal.map(|signal| BY_SIGNAL + signal),
    };
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(code) if exit != Exit::TimedOut => Ok(Exit::OfCommand(code)),
        Some(_) | None => Ok(exit),
    }
}

/// Prints the output that the daemon has captured: all of it where it has no streams, and otherwise
/// the reason why the command has not run.
fn output(value: &Value, result: &RawValue, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let numbers = &value["structuredContent"];
    let has_ended = !numbers["exitCode"].is_null() || !numbers["signal"].is_null();
    // The last text is the verdict, which the exit code says as well.
    let texts = value["content"].as_array().map_or(0, Vec::len);
    let is_verdict = |at: usize| has_ended && value["isError"] == true && at + 1 == texts;
    format::result_without(result, &|at, _| is_verdict(at), io)
}

/// The params of the request: the command, the working directory and the search path of this
/// process, and the variables of the command line.
fn params(args: &RunArgs) -> Result<Value, Failure> {
    let text = |text: &OsStr| {
        text.to_str().map(str::to_owned).ok_or_else(|| {
            let message = format!("{text:?} is not UTF-8, which the protocol needs");
            Failure::new(Exit::Usage, message)
        })
    };
    let command: Vec<String> =
        args.command.iter().map(|it: &OsString| text(it)).collect::<Result<_, _>>()?;
    let cwd = std::env::current_dir().map_err(|error| {
        Failure::new(Exit::Usage, format!("cannot tell the working directory: {error}"))
    })?;
    let mut env = Map::new();
    if let Some(path) = std::env::var_os("PATH") {
        env.insert("PATH".to_owned(), text(&path)?.into());
    }
    for (name, value) in &args.env {
        env.insert(name.clone(), value.clone().into());
    }
    Ok(json!({"command": command, "cwd": text(cwd.as_os_str())?, "env": env}))
}
