//! `ceased logs`: the output of a job, while it runs and afterwards.

use std::io::Write;
use std::time::Duration;

use super::args::LogsArgs;
use super::format::{self, clean_lines, last_lines};
use super::job_output::{Part, Piece, Reader};
use super::{Backend, Exit, Failure, Io, directory, discover, server_logs};
use ceased_client::{Error, INVALID_PARAMS};
use serde_json::json;

/// Time between two looks at a job that runs.
const PAUSE: Duration = Duration::from_millis(200);
/// Time limit of one look.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// `ceased logs`.
pub(super) fn logs(
    args: &LogsArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let mut reader = match directory::job_number(&args.id) {
        // Also one that has ended, which the daemon lists no longer.
        Some(job) => Reader::of_job(job).since(args.since),
        None if server_logs::is_server(client, &args.id)? => {
            return server_logs::show(&args.id, args, client, io);
        }
        None => {
            Reader::of_task(&directory::task(client, &args.id, &args.daemon)?).since(args.since)
        }
    };
    let mut tail = args.tail.map(Tail::new);
    let mut may_be_task = args.id.bytes().all(|byte| byte.is_ascii_digit());
    loop {
        let (mut part, moved) = match reader.next(client, ANSWER_WITHIN, &mut |_| {}) {
            Ok(read) => read,
            // Digits alone may be the beginning of the id of a task as well.
            Err(Error::Rpc(error)) if error.code == INVALID_PARAMS && may_be_task => {
                may_be_task = false;
                let task = directory::task(client, &args.id, &args.daemon)?;
                reader = Reader::of_task(&task).since(args.since);
                continue;
            }
            Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => return Err(none(&args.id)),
            Err(Error::Interrupted) => return Ok(Exit::Cancelled),
            Err(error) => return Err(error.into()),
        };
        if Tail::holds(&mut tail, &mut part, moved) {
            continue;
        }
        if args.json {
            for (stream, piece) in [("stdout", &part.stdout), ("stderr", &part.stderr)] {
                if let Some(line) = piece.json(stream) {
                    format::json(&line, io)?;
                }
            }
            io.out.flush()?;
        } else {
            show(io.out, &part.stdout, io.out_is_terminal)?;
            io.out.flush()?;
            show(io.err, &part.stderr, io.err_is_terminal)?;
        }
        if part.is_last() || !moved && !args.follow {
            if args.json {
                format::json(&json!({"ended": part.ended}), io)?;
            }
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

/// The failure for an id without output.
fn none(id: &str) -> Failure {
    let message = format!(
        "there is no output of {id:?}\nthe job never ran here, its output is forgotten, or it is \
         another user's"
    );
    Failure::new(Exit::UnknownTask, message)
}

/// Output that is held back until its last lines are known.
struct Tail {
    lines: usize,
    held: [String; 2],
}

impl Tail {
    const fn new(lines: usize) -> Self {
        Self { lines, held: [String::new(), String::new()] }
    }

    /// Holds a part back while more is to be read, and puts the last lines into the last part.
    fn holds(tail: &mut Option<Self>, part: &mut Part, moved: bool) -> bool {
        let Some(held) = tail else { return false };
        held.push(part);
        if moved && !part.is_last() {
            return true;
        }
        held.release(part);
        *tail = None;
        false
    }

    /// Takes the text of a part.
    fn push(&mut self, part: &mut Part) {
        let [out, err] = &mut self.held;
        for (held, piece) in [(out, &mut part.stdout), (err, &mut part.stderr)] {
            held.push_str(&piece.take_text());
        }
    }

    /// Puts the last lines into a part.
    fn release(&mut self, part: &mut Part) {
        let [out, err] = std::mem::take(&mut self.held);
        for (held, piece) in [(out, &mut part.stdout), (err, &mut part.stderr)] {
            piece.put_text(last_lines(&held, self.lines));
        }
    }
}

/// Writes a piece of one stream as it came, or escaped for a terminal.
fn show(out: &mut dyn Write, piece: &Piece, is_terminal: bool) -> std::io::Result<()> {
    let text = piece.text();
    if is_terminal {
        // A terminal obeys control sequences.
        return write!(out, "{}", clean_lines(&text));
    }
    out.write_all(text.as_bytes())
}
