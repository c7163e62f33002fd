//! Output of a call while it runs, and the output so far of a cancelled call.
//!
//! The daemon keeps the output of running jobs (`ceased/logs`), so that it is read here by parts
//! beside the wait for the answer. Standard error is shown at once. Standard output is the result,
//! which is printed once: of a tool with merged output it is shown live on a terminal alone.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Io;
use super::cancel::{Whose, jobs_of};
use super::directory::is_ceased;
use super::display::Display;
use super::format::clean_lines;
use super::job_output::{Part, Reader};
use ceased_client::{CallId, Client, Error, Notification};
use ceased_process::plain_text::plain_text;
use serde_json::value::RawValue;

/// Time before the first look: most calls have their answer by then.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Time limit of one look. A daemon that is slower is asked again.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
/// Parts that one look reads at most: the answer may be there.
const PARTS_MAX: usize = 16;
/// Looks for the output of a running job after which it counts as a job without any, such as a
/// Rust handler.
const TRIES_MAX: u32 = 10;
/// Bytes of standard error that are remembered, and of a line without an end.
const REMEMBERED_MAX: usize = 64 * 1024;

/// The source of the output.
#[derive(Debug)]
enum Source {
    /// The job is unknown: not begun, or not looked for.
    Unknown,
    Job {
        reader: Reader,
        tries: u32,
    },
    /// The server does not offer output, or the job has none.
    Nothing,
}

/// Output of one call.
#[derive(Debug)]
pub(super) struct LiveOutput<'a> {
    whose: Whose<'a>,
    source: Source,
    begun: Instant,
    /// Whether standard output and standard error are terminals.
    terminals: (bool, bool),
    merged: bool,
    /// A line without an end.
    open_line: String,
    /// Standard error so far, while it is short enough to be recognised in a result.
    stderr: String,
    /// The result's text is on the terminal.
    has_shown_result: bool,
}

impl<'a> LiveOutput<'a> {
    /// The output of the jobs of `whose`.
    pub(super) fn of(whose: Whose<'a>, client: &Client, io: &Io<'_>) -> Self {
        let source = if is_ceased(client) { Source::Unknown } else { Source::Nothing };
        Self {
            whose,
            source,
            begun: Instant::now(),
            terminals: (io.out_is_terminal, io.err_is_terminal),
            merged: false,
            open_line: String::new(),
            stderr: String::new(),
            has_shown_result: false,
        }
    }

    /// Waits for the answer to `call` and shows output and notifications until then.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub(super) fn wait(
        &mut self,
        client: &mut Client,
        call: CallId,
        timeout: Option<Duration>,
        mut display: Display<'_>,
    ) -> Result<Box<RawValue>, Error> {
        let deadline = timeout.and_then(|timeout| self.begun.checked_add(timeout));
        let mut pause = FIRST_LOOK;
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let slice = left.map_or(pause, |left| left.min(pause));
            match client.wait(call, Some(slice), &mut |note| display.show(note)) {
                Err(Error::TimedOut(_)) if left.is_some_and(|left| left <= slice) => {
                    return Err(Error::TimedOut(timeout.unwrap_or(slice)));
                }
                Err(Error::TimedOut(_)) => {}
                Ok(answer) => {
                    self.look(client, &mut display)?;
                    self.end_line(&mut display);
                    return Ok(answer);
                }
                Err(error) => return Err(error),
            }
            pause = PAUSE;
            display.tick(self.begun.elapsed());
            if matches!(self.source, Source::Unknown) {
                self.find(client, &mut |note| display.show(note))?;
            }
            self.look(client, &mut display)?;
        }
    }

    /// Looks for the job. One that is queued has printed nothing.
    fn find(
        &mut self,
        client: &mut Client,
        sink: &mut dyn FnMut(&Notification),
    ) -> Result<(), Error> {
        let id = client.send("ceased/status", json!({}))?;
        let status = match client.wait(id, Some(LOOK_WITHIN), sink) {
            Ok(status) => status,
            Err(Error::TimedOut(_)) => return Ok(()),
            Err(Error::Rpc(_)) => {
                self.source = Source::Nothing;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let status: Value = serde_json::from_str(status.get()).unwrap_or_default();
        let running = |job: &&&Value| job["state"] != "queued";
        let job = jobs_of(&status, self.whose).iter().find(running).map(|job| &job["job"]);
        if let Some(job) = job.and_then(Value::as_u64) {
            self.source = Source::Job { reader: Reader::of_job(job), tries: 0 };
        }
        Ok(())
    }

    /// Shows the output since the last look.
    fn look(&mut self, client: &mut Client, display: &mut Display<'_>) -> Result<(), Error> {
        for _ in 0..PARTS_MAX {
            let Source::Job { reader, tries } = &mut self.source else { return Ok(()) };
            match reader.next(client, LOOK_WITHIN, &mut |note| display.show(note)) {
                Ok((_, false)) | Err(Error::TimedOut(_)) => return Ok(()),
                Ok((part, true)) => self.take(&part, display),
                Err(Error::Rpc(_)) if *tries < TRIES_MAX => {
                    *tries += 1;
                    return Ok(());
                }
                Err(Error::Rpc(_)) => self.source = Source::Nothing,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, part: &Part, display: &mut Display<'_>) {
        self.merged = part.merged;
        let text = match (part.merged, self.terminals.1) {
            (true, true) => part.stdout.text(),
            // It would be mixed up with the result, which has it.
            (true, false) => return,
            (false, _) => part.stderr.text(),
        };
        if !part.merged && self.stderr.len() <= REMEMBERED_MAX {
            self.stderr.push_str(&text);
        }
        self.open_line.push_str(&text);
        let end = match self.open_line.rfind('\n') {
            Some(at) => at + 1,
            None if self.open_line.len() > REMEMBERED_MAX => self.open_line.len(),
            None => return,
        };
        let rest = self.open_line.split_off(end);
        let lines = std::mem::replace(&mut self.open_line, rest);
        self.print(&lines, display);
    }

    /// Prints the line that has no end.
    fn end_line(&mut self, display: &mut Display<'_>) {
        if !self.open_line.is_empty() {
            let line = std::mem::take(&mut self.open_line);
            self.print(&line, display);
        }
    }

    fn print(&mut self, lines: &str, display: &mut Display<'_>) {
        let lines = plain_text(lines.as_bytes());
        let is_result = self.shows_result();
        self.has_shown_result |= is_result && !lines.trim().is_empty();
        display.output(&clean_lines(&lines), is_result);
    }

    /// Whether the live output is the result on its own terminal.
    const fn shows_result(&self) -> bool {
        self.merged && self.terminals.0 && self.terminals.1
    }

    /// Whether a text of the result has been shown on the same terminal.
    pub(super) fn has_shown(&self, position: usize, text: &str) -> bool {
        let is_stderr = || {
            let stderr = plain_text(self.stderr.as_bytes());
            !stderr.trim().is_empty() && stderr.trim_end() == text.trim_end()
        };
        match self.terminals {
            (true, true) if self.merged => position == 0 && self.has_shown_result,
            (true, true) => is_stderr(),
            (true, false) | (false, _) => false,
        }
    }

    /// Finds the job of a call that is about to be cancelled, since it may be gone afterwards.
    /// Whether the user wants to leave at once; the cancel does not fail with this look otherwise.
    pub(super) fn prepare_cancel(&mut self, client: &mut Client) -> bool {
        matches!(self.source, Source::Unknown)
            && matches!(self.find(client, &mut |_| {}), Err(Error::Interrupted))
    }

    /// Prints the output of a cancelled call that is not shown yet.
    pub(super) fn print_rest(&mut self, client: &mut Client, io: &mut Io<'_>) {
        let shows_result = self.shows_result();
        let Source::Job { reader, .. } = &mut self.source else { return };
        if !shows_result {
            reader.restart_stdout();
        }
        let (mut stdout, mut stderr) = (String::new(), String::new());
        if shows_result {
            stdout = std::mem::take(&mut self.open_line);
        } else if !self.merged {
            stderr = std::mem::take(&mut self.open_line);
        }
        while let Ok((part, true)) = reader.next(client, LOOK_WITHIN, &mut |_| {}) {
            stdout.push_str(&part.stdout.text());
            stderr.push_str(&part.stderr.text());
        }
        // A closed stream is no reason to stay.
        let wrote = [(&stderr, true), (&stdout, false)].map(|(text, is_stderr)| match is_stderr {
            true => write_text(io.err, text, io.err_is_terminal),
            false => write_text(io.out, text, io.out_is_terminal),
        });
        drop(wrote);
    }
}

/// Writes a text that ends with a line, for a terminal without control sequences.
fn write_text(out: &mut dyn Write, text: &str, is_terminal: bool) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match is_terminal {
        true => write!(out, "{}{end}", clean_lines(&plain_text(text.as_bytes())))?,
        false => write!(out, "{text}{end}")?,
    }
    out.flush()
}
