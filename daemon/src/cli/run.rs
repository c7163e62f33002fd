//! `ceased run`: runs a command as a job of the daemon, as the user of this process.

use serde_json::{Map, Value, json};

use super::args::RunArgs;
use super::call::{CallOutput, Follow, Request, plain};
use super::{Backend, Exit, Failure, Io, discover};

/// Runs the command.
pub(super) fn run(args: &RunArgs, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    let params = params(args)?;
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let request = Request::Run { params: &params };
    if args.json {
        // Standard output has the result alone, as for a program that reads it.
        io.out_is_terminal = false;
    }
    let output = CallOutput { timeout: args.timeout, detach: args.detach, json: args.json };
    match args.detach {
        true => Follow { client, io, output, request: &request }.task(),
        false => plain(client, &request, output, io),
    }
}

/// The params of the request: the command, the working directory and the search path of this
/// process, and the variables of the command line.
fn params(args: &RunArgs) -> Result<Value, Failure> {
    let text = |text: &std::ffi::OsStr| {
        text.to_str().map(str::to_owned).ok_or_else(|| {
            let message = format!("{text:?} is not UTF-8, which the protocol needs");
            Failure::new(Exit::Usage, message)
        })
    };
    let command: Vec<String> = args.command.iter().map(|it| text(it)).collect::<Result<_, _>>()?;
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
