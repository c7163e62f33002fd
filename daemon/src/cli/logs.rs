//! `ceased logs`: what a job printed, while it runs and afterwards.

use std::io::Write;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::args::LogsArgs;
use super::format::clean_lines;
use super::{Backend, Exit, Failure, Io, discover};
use crate::client::{Client, Error, INVALID_PARAMS};

/// Time between two looks at a job that runs.
const PAUSE: Duration = Duration::from_millis(200);

/// A part of the output of a job.
#[derive(Debug, Deserialize)]
struct Part {
    ended: bool,
    stdout: Stream,
    stderr: Stream,
}

/// A part of one stream of it.
#[derive(Debug, Deserialize)]
struct Stream {
    from: u64,
    next: u64,
    total: u64,
    text: String,
}

/// `ceased logs`.
pub(super) fn logs(
    args: &LogsArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let (mut stdout, mut stderr) = (0, 0);
    loop {
        let part = match read(client, &args.id, (stdout, stderr)) {
            Ok(part) => part,
            Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {
                let message = format!(
                    "there is no output of {:?}\nthe job never ran here, its output is forgotten, \
                     or it is another user's",
                    args.id
                );
                return Err(Failure::new(Exit::UnknownTask, message));
            }
            Err(error) => return Err(error.into()),
        };
        let is_terminal = io.out_is_terminal;
        show(io.out, &part.stdout, stdout, is_terminal)?;
        io.out.flush()?;
        show(io.err, &part.stderr, stderr, io.err_is_terminal)?;
        let moved = (part.stdout.next, part.stderr.next) != (stdout, stderr);
        (stdout, stderr) = (part.stdout.next, part.stderr.next);
        let all = stdout == part.stdout.total && stderr == part.stderr.total;
        if all && part.ended || !moved && !args.follow {
            return Ok(Exit::Done);
        }
        if !moved {
            match client.idle(PAUSE, &mut |_| {}) {
                Ok(()) => {}
                // Ctrl-C ends the watching, not the job.
                Err(Error::Interrupted) => return Ok(Exit::Cancelled),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn read(client: &mut Client, id: &str, (stdout, stderr): (u64, u64)) -> Result<Part, Error> {
    let mut params = json!({"stdout": stdout, "stderr": stderr});
    let number = id.strip_prefix("job:").unwrap_or(id).parse::<u64>();
    let (member, value) = match number {
        Ok(number) => ("job", Value::from(number)),
        Err(_) => ("task", Value::from(id)),
    };
    if let Some(params) = params.as_object_mut() {
        params.insert(member.to_owned(), value);
    }
    let answer = client.call("ceased/logs", params)?;
    serde_json::from_value(answer).map_err(|error| Error::Protocol(error.to_string()))
}

fn show(out: &mut dyn Write, stream: &Stream, seen: u64, terminal: bool) -> std::io::Result<()> {
    if stream.from > seen {
        writeln!(out, "[… {} bytes cut …]", stream.from - seen)?;
    }
    if terminal {
        // A terminal obeys what it is sent.
        return write!(out, "{}", clean_lines(&stream.text));
    }
    out.write_all(stream.text.as_bytes())
}
