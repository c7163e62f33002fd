//! Results of commands: the output as a model reads it, the numbers as a program does.

use std::borrow::Cow;

use ceased_core::ids::JobId;
use ceased_core::json::raw::Json;
use ceased_core::protocol::revision::{ContentTypes, Dialect};
use ceased_core::reason::StopReason;
use serde_json::json;
use serde_json::value::RawValue;

use crate::config::{CommandTool, Output, show_size};
use crate::json_text;
use crate::tools::content::{Content, ResourceLink};
use crate::tools::handler::ToolResult;
use ceased_process::plain_text::plain_text;
use ceased_process::{Captured, Exit, Reached};

/// Nesting of a printed object at most: less than readers take (128), since a message is around it.
const DEPTH_MAX: usize = 120;
/// Share of a limited text that its beginning gets, in quarters. Errors and summaries come last.
const HEAD_QUARTERS: usize = 1;
/// Bytes within which a cut moves to the end of a line.
const LINE_NEAR: usize = 512;

/// Schema of the `structuredContent` of commands whose output is text.
pub(crate) const EXIT_SCHEMA: &str = r#"{"type":"object","properties":{"exitCode":{"type":["integer","null"],"description":"null if a signal ended the command"},"signal":{"type":["integer","null"]},"durationMs":{"type":"integer"},"truncated":{"type":"boolean","description":"whether the text leaves output out"},"bytes":{"type":"integer","description":"bytes of output in all"},"timedOut":{"type":"boolean"},"cancelled":{"type":"boolean"},"survivors":{"type":"integer","description":"processes that could not be ended"},"reached":{"type":"array","items":{"enum":["memory_max","pids_max"]},"description":"bounds of the tool that the command reached"}},"required":["exitCode","signal","durationMs","truncated","bytes"]}"#;

/// The URI of the output of a job, as a resource.
pub(crate) fn output_uri(job: JobId) -> String {
    format!("ceased://jobs/{}/output", job.get())
}

/// The circumstances of a result.
pub(crate) struct Ended<'a> {
    pub(crate) job: JobId,
    pub(crate) tool: &'a str,
    pub(crate) command: &'a CommandTool,
    /// Why it was stopped, if it was.
    pub(crate) why: Option<StopReason>,
    /// The revision in which it is answered.
    pub(crate) dialect: &'static Dialect,
    /// Whether `ceased logs` reaches this daemon.
    pub(crate) has_socket: bool,
}

/// Output as text of a bounded size.
struct Readable {
    text: String,
    omitted: u64,
}

impl Ended<'_> {
    /// The result of a command that ended.
    pub(crate) fn result(&self, exit: &Exit) -> ToolResult {
        let stopped = stopped(self.why);
        if exit.code != Some(0) || stopped.is_some() {
            return self.failure(exit, stopped);
        }
        match self.command.output {
            Output::Combined | Output::Stdout => self.text(exit),
            Output::Json => self.json(exit),
            Output::Content => self.content(exit),
        }
    }

    /// The output of a command that did well.
    fn text(&self, exit: &Exit) -> ToolResult {
        let output = self.readable(&exit.stdout, self.command.text_limit);
        let omitted = output.omitted > 0;
        let mut content = Vec::new();
        push_text(&mut content, output.text);
        push_refused(&mut content, exit);
        self.push_left(&mut content, exit);
        self.push_link(&mut content, omitted);
        let structured_content = Some(numbers(exit, None, omitted));
        ToolResult { content, structured_content, is_error: false }
    }

    /// The output and the verdict on a command that did not.
    fn failure(&self, exit: &Exit, stopped: Option<(&str, &str)>) -> ToolResult {
        let merged = self.command.output == Output::Combined;
        let limit = self.command.text_limit;
        let limit = if merged { limit } else { limit / 2 };
        let (stdout, stderr) =
            (self.readable(&exit.stdout, limit), self.readable(&exit.stderr, limit));
        let omitted = stdout.omitted + stderr.omitted > 0;
        let mut content = Vec::new();
        push_text(&mut content, stdout.text);
        push_text(&mut content, stderr.text);
        content.push(Content::text(verdict(exit, stopped.map(|(_, how)| how))));
        push_refused(&mut content, exit);
        self.push_left(&mut content, exit);
        self.push_link(&mut content, omitted);
        // The schema of a JSON tool is for results that it printed.
        let structured_content = (self.command.output != Output::Json)
            .then(|| numbers(exit, stopped.map(|(member, _)| member), omitted));
        ToolResult { content, structured_content, is_error: true }
    }

    /// Standard output is one JSON object.
    fn json(&self, exit: &Exit) -> ToolResult {
        let printed = match whole(&exit.stdout) {
            Ok(printed) => without_mark(printed),
            Err(why) => return self.unusable(exit, &why),
        };
        let object = match printed_object(&printed) {
            Ok(object) => object,
            Err(why) => return self.unusable(exit, &why),
        };
        if let Some(schema) = &self.command.output_schema
            && let Err(why) = schema.accept(&json_text::without_halves(object.get()))
        {
            let why = why.replacen("arguments", "output", 1);
            return self.unusable(exit, &format!("it does not match `output_schema`: {why}"));
        }
        let output = self.readable(&exit.stdout, self.command.text_limit);
        let mut content = Vec::new();
        push_text(&mut content, output.text);
        self.push_link(&mut content, output.omitted > 0);
        ToolResult { content, structured_content: Some(object), is_error: false }
    }

    /// Standard output is a JSON array of content blocks.
    fn content(&self, exit: &Exit) -> ToolResult {
        let blocks = whole(&exit.stdout).map(without_mark).and_then(|printed| {
            serde_json::from_str::<Vec<Content>>(&json_text::without_halves(&printed))
                .map_err(|error| format!("it is not a JSON array of content blocks: {error}"))
        });
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(why) => return self.unusable(exit, &why),
        };
        if let Some((at, flaw)) =
            blocks.iter().enumerate().find_map(|(at, block)| Some((at, block.flaw()?)))
        {
            return self.unusable(exit, &format!("block {at}: {flaw}"));
        }
        let content = blocks.into_iter().map(|block| known(block, self.dialect)).collect();
        let structured_content = Some(numbers(exit, None, false));
        ToolResult { content, structured_content, is_error: false }
    }

    /// The command printed something else than it was declared to.
    fn unusable(&self, exit: &Exit, why: &str) -> ToolResult {
        let mut failed = self.failure(exit, None);
        let verdict = format!("the output of the tool cannot be used: {why}");
        // Instead of the word that it exited well.
        if let Some(last) =
            failed.content.iter_mut().rev().find(|b| matches!(b, Content::Text { .. }))
        {
            *last = Content::text(verdict);
        }
        failed
    }

    /// Output without escape sequences, its head and its tail within `limit` bytes.
    fn readable(&self, captured: &Captured, limit: usize) -> Readable {
        let (head, tail) = captured.whole_characters();
        let (mut head, mut tail, mut omitted) = match captured.cut() {
            0 => (plain_text(&[head, tail].concat()), String::new(), 0),
            cut => (plain_text(head), plain_text(tail), cut),
        };
        if head.len() + tail.len() > limit {
            let whole = omitted == 0;
            let head_max = (limit / 4 * HEAD_QUARTERS).min(head.len());
            let tail_max = limit - head_max;
            if whole {
                tail = head.split_off(end_of_line(&head, head_max));
            } else {
                let end = end_of_line(&head, head_max);
                omitted += (head.len() - end) as u64;
                head.truncate(end);
            }
            let start = start_of_line(&tail, tail.len().saturating_sub(tail_max));
            omitted += start as u64;
            tail.drain(..start);
        }
        if omitted == 0 {
            return Readable { text: head + &tail, omitted };
        }
        let mut text = head;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&self.omission(omitted, captured.cut() > 0));
        text.push_str(&tail);
        Readable { text, omitted }
    }

    /// The line that stands for the omitted part.
    fn omission(&self, bytes: u64, is_cut: bool) -> String {
        let uri = output_uri(self.job);
        let more = if is_cut { "more of it" } else { "all of it" };
        let logs = match self.has_socket {
            true => format!(", or `ceased logs job:{}`", self.job.get()),
            false => String::new(),
        };
        format!("[… {bytes} bytes omitted; {more} in the resource {uri}{logs} …]\n")
    }

    fn push_left(&self, content: &mut Vec<Content>, exit: &Exit) {
        if let Some(left) = exit.survivors.filter(|left| *left > 0) {
            let text = format!("{left} of its processes cannot be ended and may still run");
            content.push(Content::text(text));
        }
    }

    fn push_link(&self, content: &mut Vec<Content>, omitted: bool) {
        if omitted && self.dialect.content >= ContentTypes::Links {
            content.push(Content::ResourceLink(ResourceLink {
                uri: output_uri(self.job),
                name: format!("output of {}", self.tool),
                description: Some("The output of this call, until it is forgotten".into()),
                mime_type: Some("text/plain".into()),
                ..ResourceLink::default()
            }));
        }
    }
}

/// Tells that the command could not start as many processes as it tried to.
fn push_refused(content: &mut Vec<Content>, exit: &Exit) {
    if let Some(max) = exit.reached.pids_max {
        let text = format!("pids_max {max} was reached: the start of a further process failed");
        content.push(Content::text(text));
    }
}

fn push_text(content: &mut Vec<Content>, text: String) {
    // No empty blocks, and none that looks so.
    if !text.trim().is_empty() {
        content.push(Content::text(text));
    }
}

/// The whole of a stream that a program is to read.
fn whole(captured: &Captured) -> Result<Cow<'_, str>, String> {
    if captured.cut() > 0 {
        let (all, kept) = (captured.total(), captured.total() - captured.cut());
        return Err(format!("it has {all} bytes, and max_output keeps {kept}"));
    }
    match std::str::from_utf8(captured.head()) {
        Ok(text) if captured.tail().is_empty() => Ok(text.into()),
        _ => String::from_utf8([captured.head(), captured.tail()].concat())
            .map(Cow::Owned)
            .map_err(|_| "it is not UTF-8".into()),
    }
}

/// The object that a command printed, with the text of its values as it is: numbers of any size, and
/// halves of surrogate pairs, which programs that count in 16 bits print.
fn printed_object(printed: &str) -> Result<Json, String> {
    let raw: &RawValue =
        serde_json::from_str(printed).map_err(|error| format!("it is not JSON: {error}"))?;
    if !raw.get().starts_with('{') {
        return Err("it is JSON, but not an object".into());
    }
    if json_text::depth(raw.get()) > DEPTH_MAX {
        return Err(format!("it nests deeper than {DEPTH_MAX} objects and arrays"));
    }
    // Line breaks stand between values alone, and a message is one line.
    Ok(Json::written(raw.get().replace(['\n', '\r'], " ")))
}

/// The text behind a byte order mark, which programs of other systems print first.
fn without_mark(text: Cow<'_, str>) -> Cow<'_, str> {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => Cow::Owned(rest.to_owned()),
        None => text,
    }
}

/// A block in a type that the revision has.
fn known(block: Content, dialect: &Dialect) -> Content {
    match &block {
        Content::Audio { mime_type, .. } if dialect.content < ContentTypes::Audio => {
            Content::text(format!("[{mime_type}: this protocol revision has no audio]"))
        }
        Content::ResourceLink(link) if dialect.content < ContentTypes::Links => {
            Content::text(format!("{}: {}", link.name, link.uri))
        }
        Content::Text { .. }
        | Content::Image { .. }
        | Content::Audio { .. }
        | Content::ResourceLink(_)
        | Content::Resource { .. } => block,
    }
}

/// The member that says how a command was stopped, and the words for it.
const fn stopped(why: Option<StopReason>) -> Option<(&'static str, &'static str)> {
    match why {
        Some(StopReason::TimedOut) => Some(("timedOut", "timed out and was stopped")),
        Some(StopReason::Requested) => Some(("cancelled", "was cancelled")),
        Some(
            StopReason::Disconnected
            | StopReason::Shutdown
            | StopReason::Expired
            | StopReason::LeftBehind
            | StopReason::Unanswered
            | StopReason::Unstored
            | StopReason::Lapsed
            | StopReason::Feature
            | StopReason::Limit
            | StopReason::Host
            | _,
        )
        | None => None,
    }
}

fn verdict(exit: &Exit, stopped: Option<&str>) -> String {
    if let Some(max) = exit.reached.memory_max {
        return format!("killed: memory_max {} was reached", show_size(max));
    }
    match (stopped, exit.code, exit.signal) {
        (Some(how), ..) => how.to_owned(),
        (None, Some(code), _) => format!("exited with code {code}"),
        (None, None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None, None) if exit.survivors.is_some_and(|left| left > 0) => "was stopped".into(),
        (None, None, None) => "ended in an unknown way".into(),
    }
}

/// Facts for a program; see [`EXIT_SCHEMA`].
fn numbers(exit: &Exit, stopped: Option<&str>, omitted: bool) -> Json {
    let mut numbers = json!({
        "exitCode": exit.code,
        "signal": exit.signal,
        "durationMs": u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
        "truncated": omitted,
        "bytes": exit.stdout.total() + exit.stderr.total(),
    });
    if let Some(members) = numbers.as_object_mut() {
        if let Some(member) = stopped {
            members.insert(member.into(), true.into());
        }
        let Reached { memory_max, pids_max } = exit.reached;
        let reached = [memory_max.map(|_| "memory_max"), pids_max.map(|_| "pids_max")];
        let reached: Vec<&str> = reached.into_iter().flatten().collect();
        if !reached.is_empty() {
            members.insert("reached".into(), reached.into());
        }
        if let Some(left) = exit.survivors.filter(|left| *left > 0) {
            members.insert("survivors".into(), left.into());
        }
    }
    Json::written(numbers.to_string())
}

/// The end of a head of at most `max` bytes: after a line where one ends nearby.
fn end_of_line(text: &str, max: usize) -> usize {
    let max = text.floor_char_boundary(max);
    let (head, _) = text.split_at(max);
    match head.rfind('\n') {
        Some(at) if max - at <= LINE_NEAR => at + 1,
        Some(_) | None => max,
    }
}

/// The start of a tail at `min` or later: at a line where one begins nearby.
fn start_of_line(text: &str, min: usize) -> usize {
    let min = text.ceil_char_boundary(min);
    let (_, tail) = text.split_at(min);
    match tail.find('\n') {
        Some(at) if at < LINE_NEAR => min + at + 1,
        Some(_) | None => min,
    }
}
