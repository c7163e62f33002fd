//! `ceased logs SERVER`: standard error of the instances of a server.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::args::LogsArgs;
use super::format::{self, clean_lines, last_lines};
use super::{Exit, Failure, Io};
use ceased_client::{Client, Error, INVALID_PARAMS};

/// Time between two looks at a server.
const PAUSE: Duration = Duration::from_millis(200);

/// A part of the standard error of an instance.
#[derive(Debug, Deserialize)]
struct Part {
    instance: u64,
    /// The next instance that printed something.
    next: Option<u64>,
    stderr: Piece,
}

#[derive(Debug, Deserialize)]
struct Piece {
    from: u64,
    next: u64,
    text: String,
}

fn read(
    client: &mut Client,
    server: &str,
    instance: Option<u64>,
    from: u64,
    since: Option<Duration>,
) -> Result<Option<Part>, Error> {
    let mut params = json!({"server": server, "stderr": from});
    if let Some(since) = since {
        params["sinceMs"] = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).into();
    }
    if let Some(instance) = instance {
        params["instance"] = instance.into();
    }
    match client.call_raw("ceased/logs", params) {
        Ok(answer) => serde_json::from_str(answer.get())
            .map(Some)
            .map_err(|why| Error::Protocol(format!("cannot parse ceased/logs ({why})"))),
        Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the daemon has output of a server or agent of this name, or such a server or agent.
pub(super) fn is_server(client: &mut Client, name: &str) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        servers: Vec<Named>,
        #[serde(default)]
        agents: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        #[serde(alias = "agent")]
        server: String,
    }

    if read(client, name, None, 0, None)?.is_some() {
        return Ok(true);
    }
    let raw = super::ps::status(client)?;
    let status: Status = serde_json::from_str(raw.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot parse the status ({why})")))?;
    Ok(status.servers.iter().chain(&status.agents).any(|it| it.server == name))
}

/// Prints the output of every kept instance, oldest first; with `--follow` until Ctrl-C.
pub(super) fn show(
    server: &str,
    args: &LogsArgs,
    client: &mut Client,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
    let held = args.tail.map(|lines| (lines, String::new()));
    let (read, since) = (BTreeMap::new(), args.since);
    let mut reader = Reader { server, json: args.json, read, since, shown: None, held };
    loop {
        match reader.round(client, io) {
            Ok(true) => continue,
            Ok(false) if reader.held.is_some() => {
                reader.release(io)?;
                continue;
            }
            Ok(false) if !args.follow => return Ok(Exit::Done),
            Ok(false) => {}
            Err(Interruption::Interrupted) => return Ok(Exit::Cancelled),
            Err(Interruption::Failed(failure)) => return Err(failure),
        }
        match client.idle(PAUSE, &mut |_| {}) {
            Ok(()) => {}
            Err(Error::Interrupted) => return Ok(Exit::Cancelled),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why a round ended early.
enum Interruption {
    Interrupted,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Interruption {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A reader of the instances of a server, which remembers how far it has read each.
struct Reader<'s> {
    server: &'s str,
    json: bool,
    read: BTreeMap<u64, u64>,
    /// Each instance is read from the output of this last time on.
    since: Option<Duration>,
    /// The instance whose text was printed last.
    shown: Option<u64>,
    /// Text that is held back until its last lines are known, and their number.
    held: Option<(usize, String)>,
}

impl Reader<'_> {
    /// Prints new output of each instance; returns whether there was any.
    fn round(&mut self, client: &mut Client, io: &mut Io<'_>) -> Result<bool, Interruption> {
        let (mut moved, mut instance) = (false, None);
        loop {
            let known = instance.and_then(|id| self.read.get(&id)).copied();
            let (from, since) = (known.unwrap_or_default(), self.since.filter(|_| known.is_none()));
            let part = match read(client, self.server, instance, from, since) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(moved),
                Err(Error::Interrupted) => return Err(Interruption::Interrupted),
                Err(error) => return Err(error.into()),
            };
            // Which instance is the first is known from an answer alone.
            if instance.is_none() && self.read.contains_key(&part.instance) {
                instance = Some(part.instance);
                continue;
            }
            let piece = &part.stderr;
            let from = if since.is_some() { piece.from } else { from };
            if piece.next > from {
                self.print(part.instance, from, piece, io)?;
                moved = true;
            }
            self.read.insert(part.instance, piece.next);
            match part.next {
                Some(next) => instance = Some(next),
                None => return Ok(moved),
            }
        }
    }

    /// Prints the last lines of the text that was held back.
    fn release(&mut self, io: &mut Io<'_>) -> std::io::Result<()> {
        let Some((lines, held)) = self.held.take() else { return Ok(()) };
        let text = last_lines(&held, lines);
        if self.json {
            return format::json(&json!({"stream": "stderr", "text": text}), io);
        }
        let text = if io.out_is_terminal { clean_lines(text).into() } else { text.to_owned() };
        io.out.write_all(text.as_bytes())?;
        io.out.flush()
    }

    /// Prints a piece of an instance that was read up to `from`.
    fn print(&mut self, id: u64, from: u64, piece: &Piece, io: &mut Io<'_>) -> std::io::Result<()> {
        let (cut, text) = (piece.from.saturating_sub(from), &piece.text);
        if let Some((_, held)) = &mut self.held {
            held.push_str(text);
            return Ok(());
        }
        if self.json {
            let line = json!({
                "instance": id, "stream": "stderr", "from": piece.from, "cut": cut, "text": text,
            });
            format::json(&line, io)?;
            return io.out.flush();
        }
        if self.shown.replace(id) != Some(id) {
            io.say(&format!("instance {id} of {}:", self.server));
        }
        if cut > 0 {
            writeln!(io.out, "[… {cut} bytes cut …]")?;
        }
        if io.out_is_terminal {
            // A terminal obeys control characters.
            write!(io.out, "{}", clean_lines(text))?;
        } else {
            io.out.write_all(text.as_bytes())?;
        }
        io.out.flush()
    }
}
