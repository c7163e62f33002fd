//! Output of a job, read from the daemon by parts.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use ceased_client::{Client, Error, Notification};

/// A part of the output of a job.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    pub(super) ended: bool,
    /// Standard error is within standard output, in the order in which they came.
    #[serde(default)]
    pub(super) merged: bool,
    pub(super) stdout: Piece,
    pub(super) stderr: Piece,
}

/// A part of one stream.
#[derive(Debug, Deserialize)]
pub(super) struct Piece {
    from: u64,
    next: u64,
    total: u64,
    text: String,
    /// Bytes before it that the daemon does not keep.
    #[serde(skip)]
    cut: u64,
}

impl Piece {
    /// The piece as JSON; `None` if nothing is new in it.
    pub(super) fn json(&self, stream: &str) -> Option<Value> {
        let is_new = !self.text.is_empty() || self.cut > 0;
        let text = &self.text;
        is_new.then(|| json!({"stream": stream, "from": self.from, "cut": self.cut, "text": text}))
    }

    /// Takes the text out, with the line that stands for bytes that are not kept.
    pub(super) fn take_text(&mut self) -> String {
        let text = self.text();
        (self.text, self.cut) = (String::new(), 0);
        text
    }

    /// Sets the text: the last one up to its place.
    pub(super) fn put_text(&mut self, text: &str) {
        self.from = self.next.saturating_sub(text.len() as u64);
        text.clone_into(&mut self.text);
    }

    /// The text, after a line that stands for bytes that are not kept.
    pub(super) fn text(&self) -> String {
        match self.cut {
            0 => self.text.clone(),
            cut => format!("[… {cut} bytes cut …]\n{}", self.text),
        }
    }
}

/// A reader of the output of one job, which remembers how far it has read.
#[derive(Debug)]
pub(super) struct Reader {
    /// The member that names the job or its task, and its value.
    name: (&'static str, Value),
    stdout: u64,
    stderr: u64,
    /// The first part begins with the output of this last time.
    since: Option<Duration>,
}

impl Reader {
    /// Reads from the beginning of the output of the job of this task.
    pub(super) fn of_task(id: &str) -> Self {
        Self { name: ("task", id.into()), stdout: 0, stderr: 0, since: None }
    }

    /// Reads from the beginning of the output of the job of this number.
    pub(super) fn of_job(job: u64) -> Self {
        Self { name: ("job", job.into()), stdout: 0, stderr: 0, since: None }
    }

    /// Begins with the output of this last time.
    pub(super) fn since(self, since: Option<Duration>) -> Self {
        Self { since, ..self }
    }

    /// Reads standard output from its beginning again.
    pub(super) const fn restart_stdout(&mut self) {
        self.stdout = 0;
    }

    /// Reads new output; the flag tells whether there was any. Notifications received meanwhile go
    /// to `sink`.
    ///
    /// # Errors
    /// As [`Client::wait`]; [`Error::Rpc`] if there is no such output.
    pub(super) fn next(
        &mut self,
        client: &mut Client,
        within: Duration,
        sink: &mut dyn FnMut(&Notification),
    ) -> Result<(Part, bool), Error> {
        let mut params = json!({"stdout": self.stdout, "stderr": self.stderr});
        let since = self.since.take();
        if let Some(since) = since {
            params["sinceMs"] = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).into();
        }
        let (member, value) = &self.name;
        if let Some(params) = params.as_object_mut() {
            params.insert((*member).to_owned(), value.clone());
        }
        let call = client.send("ceased/logs", params)?;
        let answer = client.wait(call, Some(within), sink)?;
        let mut part: Part = serde_json::from_str(answer.get())
            .map_err(|why| Error::Protocol(format!("cannot parse ceased/logs ({why})")))?;
        if since.is_none() {
            part.stdout.cut = part.stdout.from.saturating_sub(self.stdout);
            part.stderr.cut = part.stderr.from.saturating_sub(self.stderr);
        }
        let moved = (part.stdout.next, part.stderr.next) != (self.stdout, self.stderr);
        (self.stdout, self.stderr) = (part.stdout.next, part.stderr.next);
        Ok((part, moved))
    }
}

impl Part {
    /// Whether it is the last one.
    pub(super) fn is_last(&self) -> bool {
        let is_read = |piece: &Piece| piece.next == piece.total;
        self.ended && is_read(&self.stdout) && is_read(&self.stderr)
    }
}
