//! Calls under way and how they end: a record for the audit log, and numbers for each tool.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ceased_core::action::{Receipt, RelayEnd, RelayOutcome};
use ceased_core::event::Outcome;
use ceased_core::identity::Identity;
use ceased_core::ids::{JobId, TaskId};
use ceased_core::protocol::trace_context::TraceContext;
use ceased_core::time::Now;
use ceased_core::tool::Tool;
use ceased_process::{Ending, Exit};
use serde_json::Value;

use super::histogram::Histogram;
use super::hop::Hop;
use crate::config::RecordCalls;
use crate::conn_map::ByCount;

/// Bytes of the arguments of one call that are recorded; longer ones are counted instead.
const ARGUMENTS_BYTES_MAX: usize = 4096;
/// Characters of the arguments of one call in a status.
const SHOWN_CHARS_MAX: usize = 256;
/// Tools that have numbers of their own. Names come from the configuration, and a reload brings new
/// ones.
const TOOLS_MAX: usize = 256;
/// The name that further tools are counted under.
const OTHER: &str = "(other)";
/// Steps of one call that are noted: SIGKILL may be repeated for as long as a process is left.
const STEPS_MAX: usize = 8;
/// Value of an argument that is not recorded.
const REDACTED: &str = "[redacted]";

/// The recorded part of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallPolicy {
    /// `log.calls`.
    pub(crate) record: RecordCalls,
    /// `log.redact`: names of arguments, `*` for any characters, in lower case.
    pub(crate) redact: Vec<String>,
}

/// A call that runs.
#[derive(Debug)]
struct Running {
    tool: Arc<str>,
    /// The tool as it was when the call began.
    of: Option<Arc<Tool>>,
    task: Option<TaskId>,
    started: Instant,
    arguments: Arguments,
    /// Steps that were taken to stop it.
    steps: Vec<(&'static str, Instant)>,
}

/// Arguments of a call.
#[derive(Debug)]
pub(crate) enum Arguments {
    /// As they were written, up to [`ARGUMENTS_BYTES_MAX`].
    Text(Box<str>),
    /// The length of longer ones.
    Long(usize),
}

impl Arguments {
    fn of(text: &str) -> Self {
        match text.len() {
            0..=ARGUMENTS_BYTES_MAX => Self::Text(text.into()),
            length => Self::Long(length),
        }
    }

    /// As JSON; a text that states the length of long ones.
    fn read(&self) -> Value {
        match self {
            Self::Text(text) => serde_json::from_str(text).unwrap_or_default(),
            Self::Long(length) => format!("[{length} bytes]").into(),
        }
    }
}

/// The end of a call, for counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallOutcome {
    /// The tool returned a result that is no error.
    Ok,
    /// The tool returned an error, or its command an exit code other than 0.
    Failed,
    /// The tool could not be run.
    Error,
    /// The call was stopped.
    Stopped,
}

/// Whether a result has characters that an `isError` needs: a capital letter, or an escape in its name.
fn may_be_error(result: &str) -> bool {
    memchr::memchr2(b'E', b'\\', result.as_bytes()).is_some()
}

impl CallOutcome {
    /// In the order of the numbers.
    const ALL: [Self; 4] = [Self::Ok, Self::Failed, Self::Error, Self::Stopped];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Stopped => "stopped",
        }
    }

    /// The outcome of a handler, or of a call that was not begun.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Result(result) if !may_be_error(result.get()) => Self::Ok,
            Outcome::Result(result) => {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Told {
                    #[serde(default)]
                    is_error: bool,
                }
                match serde_json::from_str::<Told>(result.get()) {
                    Ok(Told { is_error: true }) => Self::Failed,
                    Ok(_) | Err(_) => Self::Ok,
                }
            }
            Outcome::Refused(_) | Outcome::Error(_) => Self::Error,
            Outcome::Stopped => Self::Stopped,
        }
    }

    /// The outcome of a command.
    pub(crate) fn of_command(ending: &Ending) -> Self {
        match ending {
            Ending::NotStarted(_) => Self::Error,
            Ending::Exited(exit) => Self::of_exit(exit),
        }
    }

    fn of_exit(exit: &Exit) -> Self {
        match (exit.stopped, exit.code) {
            (ceased_process::Stopped::No, Some(0)) => Self::Ok,
            (ceased_process::Stopped::No, _) => Self::Failed,
            (ceased_process::Stopped::Terminated | ceased_process::Stopped::Killed, _) => {
                Self::Stopped
            }
        }
    }
}

/// The record of a call that has ended.
#[derive(Debug)]
pub(crate) struct CallRecord {
    pub(crate) job: JobId,
    pub(crate) tool: Arc<str>,
    pub(crate) identity: Identity,
    pub(crate) task: Option<TaskId>,
    pub(crate) outcome: CallOutcome,
    /// The exit code of a command.
    pub(crate) code: Option<i32>,
    /// The signal that ended a command.
    pub(crate) signal: Option<i32>,
    pub(crate) duration: Duration,
    /// The arguments as JSON, without secrets.
    pub(crate) arguments: Option<String>,
    /// The trace context of its request.
    pub(crate) trace: Option<Arc<TraceContext>>,
    /// Server of a relayed call.
    pub(crate) server: Option<Box<str>>,
    /// The tool as it was when the call began, of one that is not relayed.
    pub(crate) of: Option<Arc<Tool>>,
    /// Its arguments as they were written.
    pub(crate) given: Option<Arguments>,
    pub(crate) ended: Instant,
    /// Steps that were taken to stop it.
    pub(crate) steps: Vec<(&'static str, Instant)>,
    /// Facts about its request, where spans are recorded.
    pub(crate) hop: Option<Box<Hop>>,
}

impl CallRecord {
    /// The record of a call that was stopped before it began.
    pub(crate) fn unbegun(receipt: &Receipt) -> Self {
        Self {
            job: receipt.job,
            tool: Arc::clone(&receipt.tool),
            identity: receipt.owner.clone(),
            task: receipt.task,
            outcome: CallOutcome::Stopped,
            code: None,
            signal: None,
            duration: Duration::ZERO,
            arguments: None,
            trace: receipt.trace.clone(),
            server: None,
            of: None,
            given: None,
            ended: Instant::now(),
            steps: Vec::new(),
            hop: None,
        }
    }
}

/// Numbers of one tool.
#[derive(Debug, Default)]
pub(crate) struct ToolNumbers {
    outcomes: [u64; CallOutcome::ALL.len()],
    pub(crate) took: Histogram,
}

impl ToolNumbers {
    fn count(&mut self, outcome: CallOutcome, duration: Duration) {
        if let Some(count) = self.outcomes.get_mut(outcome as usize) {
            *count += 1;
        }
        self.took.add(duration);
    }

    /// The outcomes that calls had, with the number of calls.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (CallOutcome, u64)> {
        CallOutcome::ALL.into_iter().zip(self.outcomes).filter(|(_, count)| *count > 0)
    }
}

/// The calls under way, and the numbers of those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    policy: CallPolicy,
    running: HashMap<JobId, Running, ByCount>,
    tools: BTreeMap<Arc<str>, ToolNumbers>,
    /// Times that relayed calls ran.
    relayed: Histogram,
    /// Times that calls waited before they began.
    waited: Histogram,
}

impl Calls {
    pub(crate) fn new(policy: CallPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// A call begins, after it has waited for a place.
    pub(crate) fn begin(
        &mut self,
        job: JobId,
        tool: &Arc<Tool>,
        arguments: &str,
        task: Option<TaskId>,
        (started, waited): (Instant, Duration),
    ) {
        self.waited.add(waited);
        let (name, arguments) = (Arc::clone(&tool.name), Arguments::of(arguments));
        let of = Some(Arc::clone(tool));
        let steps = Vec::new();
        let running = Running { tool: name, of, task, started, arguments, steps };
        self.running.insert(job, running);
    }

    /// Whether the audit log has records of calls.
    pub(crate) fn are_recorded(&self) -> bool {
        self.policy.record != RecordCalls::None
    }

    /// A call has ended: counts it, and returns its record.
    pub(crate) fn end(
        &mut self,
        job: JobId,
        (identity, trace): (Option<&Identity>, Option<&Arc<TraceContext>>),
        (outcome, ended): (CallOutcome, Instant),
        exit: Option<&Exit>,
    ) -> Option<CallRecord> {
        let running = self.running.remove(&job)?;
        let Running { tool, of, task, started, arguments: given, steps } = running;
        let duration = ended.saturating_duration_since(started);
        self.count(&tool, outcome, duration);
        let is_recorded = self.policy.record == RecordCalls::Arguments;
        let arguments = is_recorded.then(|| self.without_secrets(given.read()));
        Some(CallRecord {
            job,
            tool,
            identity: identity.cloned().unwrap_or(Identity::Anonymous),
            task,
            outcome,
            code: exit.and_then(|exit| exit.code),
            signal: exit.and_then(|exit| exit.signal),
            duration,
            arguments,
            trace: trace.cloned(),
            server: None,
            of,
            given: Some(given),
            ended,
            steps,
            hop: None,
        })
    }

    /// A relayed call has ended: counts it, and returns its record.
    pub(crate) fn end_relayed(&mut self, end: RelayEnd, now: Now) -> CallRecord {
        let begun = end.sent.unwrap_or(now.at);
        let (waited, duration) = (begun - end.asked, now.at - begun);
        let outcome = match end.outcome {
            RelayOutcome::Ok => CallOutcome::Ok,
            RelayOutcome::Failed => CallOutcome::Failed,
            RelayOutcome::Error => CallOutcome::Error,
            RelayOutcome::Stopped => CallOutcome::Stopped,
        };
        // Not by tool: names of relayed tools are their server's choice, and no label holds one.
        self.waited.add(waited);
        self.relayed.add(duration);
        CallRecord {
            job: end.job,
            tool: end.tool,
            identity: end.owner,
            task: end.task,
            outcome,
            code: None,
            signal: None,
            duration,
            arguments: None,
            trace: end.trace,
            server: Some(end.server),
            of: None,
            given: None,
            ended: Instant::now(),
            steps: Vec::new(),
            hop: None,
        }
    }

    fn count(&mut self, tool: &Arc<str>, outcome: CallOutcome, duration: Duration) {
        if let Some(numbers) = self.tools.get_mut(tool) {
            return numbers.count(outcome, duration);
        }
        let name = if self.tools.len() < TOOLS_MAX { Arc::clone(tool) } else { OTHER.into() };
        self.tools.entry(name).or_default().count(outcome, duration);
    }

    /// Notes a step towards the end of a call.
    pub(crate) fn note_step(&mut self, job: JobId, step: &'static str) {
        let running = self.running.get_mut(&job);
        if let Some(running) = running.filter(|running| running.steps.len() < STEPS_MAX) {
            running.steps.push((step, Instant::now()));
        }
    }

    /// The numbers of each tool that was called.
    pub(crate) const fn tools(&self) -> &BTreeMap<Arc<str>, ToolNumbers> {
        &self.tools
    }

    /// Times that calls of all tools ran, and times that they waited before.
    pub(crate) fn times(&self) -> (Histogram, &Histogram) {
        let of_tools = self.tools.values().map(|numbers| &numbers.took);
        (of_tools.fold(self.relayed.clone(), Histogram::with), &self.waited)
    }

    /// The arguments of a call that runs, for its owner and operators: `n=30 name="a b"`, without
    /// secrets and at most [`SHOWN_CHARS_MAX`] characters; `None` if it does not run or has none.
    pub(crate) fn shown_arguments(&self, job: JobId) -> Option<String> {
        self.as_words(&self.running.get(&job)?.arguments)
    }

    /// As [`Calls::shown_arguments`], of a call that has ended.
    pub(crate) fn arguments_of(&self, call: &CallRecord) -> Option<String> {
        self.as_words(call.given.as_ref()?)
    }

    fn as_words(&self, arguments: &Arguments) -> Option<String> {
        let mut arguments = arguments.read();
        redact(&mut arguments, &self.policy.redact);
        let words: Vec<String> = match &arguments {
            Value::Object(members) => {
                members.iter().map(|(name, value)| format!("{name}={}", in_words(value))).collect()
            }
            Value::Null => Vec::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                vec![in_words(other)]
            }
        };
        let text = words.join(" ");
        if text.chars().count() <= SHOWN_CHARS_MAX {
            return (!text.is_empty()).then_some(text);
        }
        Some(text.chars().take(SHOWN_CHARS_MAX - 1).chain(['…']).collect())
    }

    /// The arguments as text; values under names that are to be redacted are left out at any depth.
    fn without_secrets(&self, mut arguments: Value) -> String {
        redact(&mut arguments, &self.policy.redact);
        let text = arguments.to_string();
        if text.len() <= ARGUMENTS_BYTES_MAX {
            return text;
        }
        Value::from(format!("[{} bytes]", text.len())).to_string()
    }
}

/// A value as JSON; a text without quotation marks where it is one word.
fn in_words(value: &Value) -> String {
    let is_word = |text: &str| {
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"'\\".contains(c);
        !text.is_empty() && text.chars().all(is_plain)
    };
    match value.as_str().filter(|text| is_word(text)) {
        Some(word) => word.to_owned(),
        None => value.to_string(),
    }
}

fn redact(value: &mut Value, names: &[String]) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let name = name.to_lowercase();
                if names.iter().any(|pattern| matches(pattern, &name)) {
                    *member = REDACTED.into();
                } else {
                    redact(member, names);
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| redact(entry, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a text matches a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
impl CallRecord {
    /// A call of a tool `t` that was successful.
    pub(crate) fn example(identity: Identity, job: JobId) -> Self {
        Self {
            job,
            tool: "t".into(),
            identity,
            task: None,
            outcome: CallOutcome::Ok,
            code: Some(0),
            signal: None,
            duration: Duration::from_millis(1),
            arguments: None,
            trace: None,
            server: None,
            of: None,
            given: None,
            ended: Instant::now(),
            steps: Vec::new(),
            hop: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("token", "token", true),
            ("token", "tokens", false),
            ("*token*", "my_token_2", true),
            ("*token", "my_token", true),
            ("api*key", "api_key", true),
            ("api*key", "api_keys", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn shown_arguments_have_no_secrets_and_a_bound() {
        let policy = CallPolicy { record: RecordCalls::None, redact: vec!["*token*".into()] };
        let mut calls = Calls::new(policy);
        let mut shown = |arguments: &str| {
            let (job, tool) = (JobId::new(1), "t".into());
            let arguments = Arguments::of(arguments);
            let running = Running {
                tool,
                of: None,
                task: None,
                started: Instant::now(),
                arguments,
                steps: Vec::new(),
            };
            calls.running.insert(job, running);
            calls.shown_arguments(job)
        };
        let text = r#"{"n":3,"name":"a b","my_token":"x","path":"/tmp","list":[1,"\u001b"]}"#;
        let told = shown(text).unwrap_or_default();
        for word in ["n=3", "name=\"a b\"", "my_token=[redacted]", "path=/tmp", "list=[1,"] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains('\u{1b}'), "{told:?}");
        assert_eq!(shown("{}"), None);
        let long = shown(&format!(r#"{{"x":"{}"}}"#, "y".repeat(1000))).unwrap_or_default();
        assert!(long.chars().count() == SHOWN_CHARS_MAX && long.ends_with('…'), "{long}");
        let longer = shown(&format!(r#"{{"x":"{}"}}"#, "y".repeat(5000)));
        assert_eq!(longer.as_deref(), Some("\"[5008 bytes]\""));
        assert_eq!(calls.shown_arguments(JobId::new(2)), None);
    }

    #[test]
    fn secrets_are_redacted_at_any_depth() {
        let policy = CallPolicy { record: RecordCalls::Arguments, redact: vec!["*token*".into()] };
        let calls = Calls::new(policy);
        let arguments = serde_json::json!({"n": 1, "in": [{"My_Token": "s3cret", "x": "y"}]});
        let text = calls.without_secrets(arguments);
        assert_eq!(text, r#"{"in":[{"My_Token":"[redacted]","x":"y"}],"n":1}"#);
        let long = calls.without_secrets(serde_json::json!({"x": "y".repeat(5000)}));
        assert!(long.starts_with("\"[50") && long.len() < 20, "{long}");
    }
}
