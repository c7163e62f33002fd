//! Tools: their declarations, and how the work behind a call is stopped.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::time::Duration;

use serde::de::IgnoredAny;

use crate::json::writer::Writer;
use crate::policy::allow::{Allow, RunsFor};
use crate::protocol::revision::ToolMembers;
use crate::upstream::route::Route;
use alloc::vec::Vec;

/// Whether a tool may or must run as a task (`execution.taskSupport`).
///
/// In the session revisions a peer learns this from `tools/list` and asks for a task or does not.
/// In 2026-07-28 the server decides, for clients that declared the tasks extension on the call
/// (EXT-01); the rule is: whatever may be a task is one. A client that declares the extension can
/// follow a task, and a tool that may be one is a tool whose work may take long; so a declaring
/// client need not keep its connection for it. A tool that is always quick should say `Forbidden`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[cfg_attr(feature = "trace", derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum TaskSupport {
    /// Never; the meaning of a missing declaration (TSK-05).
    #[default]
    Forbidden,
    /// As the requestor likes: if it asks for one (2025-11-25), if it declared the tasks extension
    /// (2026-07-28).
    Optional,
    /// Always (TSK-06); a client without tasks cannot call it (EXT-01).
    Required,
}

impl TaskSupport {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// Treatment of a plain call whose connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "lowercase"))]
pub enum OnDisconnect {
    /// It is stopped.
    #[default]
    Cancel,
    /// It goes on for so long, and is stopped then. If it ends before, its outcome answers a
    /// repeated call with the same idempotency key.
    Grace(Duration),
    /// It becomes a task of its requestor, listed by `tasks/list`; it is stopped where there
    /// is no room for one, or no identity to own it.
    Detach,
}

/// How work is stopped, as timed steps (STOP-01, CAN-06). The host only carries them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum StopPolicy {
    /// A function on one of our threads: its flag is raised; when it has not returned after
    /// `abandon_after` it is abandoned, counted and reported, since a thread cannot be killed.
    Handler {
        /// How long the function may take to look at its flag.
        abandon_after: Duration,
    },
    /// A tree of processes: SIGTERM to all of it, after `kill_grace` SIGKILL to the rest,
    /// repeated until nothing is left. Never abandoned.
    Command {
        /// Between SIGTERM and SIGKILL.
        kill_grace: Duration,
    },
    /// A request of an upstream: the server is told, and the engine checks that it obeys (UPS-05).
    Relay,
}

/// One step of stopping a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopStep {
    /// Tell the upstream, and check that it obeys; never asked of the host.
    Tell,
    /// Raise the job's cancellation flag.
    Flag,
    /// SIGTERM to every process of the job.
    Terminate,
    /// SIGKILL to every process of the job.
    Kill,
    /// Stop waiting for the job: its thread does not look at its flag.
    Abandon,
}

impl StopStep {
    /// A word for logs and views.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tell => "told",
            Self::Flag => "flag",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::Abandon => "abandoned",
        }
    }
}

/// How often SIGKILL is repeated while processes of a job are still there. The first repetition
/// ends the wait for them: see [`Event::Outlasted`](crate::event::Event::Outlasted).
pub(crate) const KILL_AGAIN: Duration = Duration::from_secs(1);

impl StopPolicy {
    /// The first step.
    #[must_use]
    pub const fn first(self) -> StopStep {
        match self {
            Self::Handler { .. } => StopStep::Flag,
            Self::Command { .. } => StopStep::Terminate,
            Self::Relay => StopStep::Tell,
        }
    }

    /// The step after `step` and how long to wait for it; `None` when there is none.
    #[must_use]
    pub const fn after(self, step: StopStep) -> Option<(Duration, StopStep)> {
        match (self, step) {
            (
                Self::Handler { abandon_after },
                StopStep::Tell | StopStep::Flag | StopStep::Terminate | StopStep::Kill,
            ) => Some((abandon_after, StopStep::Abandon)),
            (
                Self::Command { kill_grace },
                StopStep::Tell | StopStep::Flag | StopStep::Terminate,
            ) => Some((kill_grace, StopStep::Kill)),
            (Self::Command { .. }, StopStep::Kill) => Some((KILL_AGAIN, StopStep::Kill)),
            (Self::Relay, _) | (_, StopStep::Abandon) => None,
        }
    }
}

/// Checks the arguments of a call against the tool's input schema.
///
/// Called by the engine before anything starts. Must depend on its arguments alone (DET-01).
pub trait ArgumentCheck: Send + Sync {
    /// Returns the arguments that the tool is given, for arguments that are the JSON text of an
    /// object: the same, or without members that are as if they were left out.
    ///
    /// # Errors
    /// One sentence that names the path of the offence.
    fn check<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String>;
}

/// Hints about the effects of a tool (`annotations`); `None`: not declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ToolHints {
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// A second call with the same arguments changes nothing more.
    pub idempotent: Option<bool>,
    /// It reaches things outside of the machine, such as the web.
    pub open_world: Option<bool>,
}

/// One tool, as a peer sees it and as the engine runs it.
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Tool {
    /// The name a call gives.
    pub name: Arc<str>,
    /// A name for people.
    pub title: Option<Box<str>>,
    /// Description for models.
    pub description: Option<Box<str>>,
    /// The JSON Schema of its arguments, as JSON text of an object.
    pub input_schema: Box<str>,
    /// The JSON Schema of its `structuredContent`, as JSON text of an object.
    pub output_schema: Option<Box<str>>,
    /// Whether it runs as a task.
    pub task_support: TaskSupport,
    /// The longest it may run; no bound when `None`.
    pub timeout: Option<Duration>,
    /// Steps and times of its stop.
    pub stop_policy: StopPolicy,
    /// How long a requestor that wants progress is told nothing at most; `None`: no heartbeat.
    pub heartbeat: Option<Duration>,
    /// Whether it changes nothing, wherever that may be (`annotations.readOnlyHint`). Then the job
    /// behind a task may begin while that is being stored, and be in vain when it is not.
    pub read_only: bool,
    /// Further hints about its effects.
    pub hints: ToolHints,
    /// A picture for people: an `https:` or `data:` URI.
    pub icon: Option<Box<str>>,
    /// Treatment of a plain call whose connection is gone.
    pub on_disconnect: OnDisconnect,
    /// Callers that may use it.
    pub allow: Allow,
    /// Callers as which it can run.
    #[cfg_attr(feature = "trace", serde(default))]
    pub runs_for: RunsFor,
    /// Calls of it that run at once; the others wait, and hold up no other tool.
    pub max_running: Option<usize>,
    /// Name of a lock: calls of tools with the same lock run one after the other. `{name}` in it is
    /// the argument of that name.
    pub lock: Option<Box<str>>,
    /// Check of its arguments.
    #[cfg_attr(feature = "trace", serde(with = "traced_check"))]
    pub check: Option<Box<dyn ArgumentCheck>>,
    /// Whether its handler says when a call becomes a task, where the server decides that: until
    /// then it is a plain call, and its questions are inputs of the call (2026-07-28).
    pub asks_first: bool,
    /// The request of an upstream that a call becomes. The host never runs such a tool.
    #[cfg_attr(feature = "trace", serde(skip))]
    pub route: Option<Arc<Route>>,
    /// Data for the host to run it. The engine only hands it back with the job.
    #[cfg_attr(feature = "trace", serde(skip))]
    pub payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl Tool {
    /// A tool that takes any object, runs for plain calls only and without a bound of time, and is
    /// offered to everyone. The fields say otherwise:
    /// `Tool { timeout: Some(timeout), ..Tool::new("build", policy) }`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, stop_policy: StopPolicy) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: r#"{"type":"object"}"#.into(),
            output_schema: None,
            task_support: TaskSupport::Forbidden,
            timeout: None,
            stop_policy,
            heartbeat: None,
            read_only: false,
            hints: ToolHints::default(),
            icon: None,
            on_disconnect: OnDisconnect::Cancel,
            allow: Allow::Everyone,
            runs_for: RunsFor::Everyone,
            max_running: None,
            lock: None,
            check: None,
            asks_first: false,
            route: None,
            payload: None,
        }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.name)
    }
}

/// The check of a tool in a trace: whether it has one.
#[cfg(feature = "trace")]
mod traced_check {
    use alloc::borrow::Cow;
    use alloc::boxed::Box;
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::ArgumentCheck;

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        check: &Option<Box<dyn ArgumentCheck>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(check.is_some())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Box<dyn ArgumentCheck>>, D::Error> {
        let has_check = bool::deserialize(from)?;
        Ok(has_check.then(|| Box::new(NotRestored) as Box<dyn ArgumentCheck>))
    }

    /// Stands for a check until [`restore_checks`](crate::trace::restore_checks); refuses all arguments.
    struct NotRestored;

    impl ArgumentCheck for NotRestored {
        fn check<'a>(&self, _: &'a str) -> Result<Cow<'a, str>, String> {
            Err("the settings are from a trace, and their checks were not restored".into())
        }
    }
}

/// Two tools are the same when they are the same object; a reload makes new ones.
impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

/// Why a tool cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadTool {
    /// Name of the tool.
    pub name: String,
    /// The mistake.
    pub why: String,
    /// Kind of the mistake.
    pub kind: BadToolKind,
}

/// Kind of a mistake in a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadToolKind {
    /// The tool is invalid, in every program.
    Invalid,
    /// Its schema is one that this program cannot check: a feature of its build is off.
    UnsupportedSchema,
}

impl BadTool {
    /// A mistake in a tool.
    pub fn new(name: impl Into<String>, why: impl Into<String>, kind: BadToolKind) -> Self {
        Self { name: name.into(), why: why.into(), kind }
    }
}

impl fmt::Display for BadTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tool {:?}: {}", self.name, self.why)
    }
}

impl core::error::Error for BadTool {}

/// The tools on offer, in the order they are listed.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    by_name: BTreeMap<Arc<str>, Arc<Tool>>,
    /// `tools/list` results but for the opening brace, written once: the same for every peer of
    /// the same revision.
    lists: [Vec<u8>; ToolMembers::ALL.len()],
}

impl Catalog {
    /// A catalog of `tools`.
    ///
    /// # Errors
    /// [`BadTool`] for the first that has no name, the name of one before it, or a schema that is
    /// not JSON text of an object: it would go into every list of tools as it is.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Result<Self, BadTool> {
        let mut catalog = Self::default();
        for tool in tools {
            catalog.add(tool)?;
        }
        catalog.lists = ToolMembers::ALL.map(|members| render(catalog.iter(), members));
        Ok(catalog)
    }

    /// The same with one more tool, in the place of one with its name if there is one.
    ///
    /// # Errors
    /// [`BadTool`] as for [`Catalog::new`].
    pub fn with(&self, tool: Tool) -> Result<Self, BadTool> {
        let mut tools = Self::new([tool])?.tools;
        let Some(tool) = tools.pop() else { return Ok(self.clone()) };
        let mut all = self.tools.clone();
        match all.iter().position(|other| other.name == tool.name) {
            Some(at) => all[at] = tool,
            None => all.push(tool),
        }
        Ok(Self::of(all))
    }

    /// The same without the tool of this name.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        Self::of(self.tools.iter().filter(|tool| *tool.name != *name).cloned().collect())
    }

    /// A catalog of tools that were checked.
    fn of(tools: Vec<Arc<Tool>>) -> Self {
        let by_name = tools.iter().map(|tool| (tool.name.clone(), Arc::clone(tool))).collect();
        let lists = ToolMembers::ALL.map(|members| render(tools.iter(), members));
        Self { tools, by_name, lists }
    }

    /// Changes the tools in place; one that is in use elsewhere is left as it is.
    #[cfg(feature = "trace")]
    pub(crate) fn change_tools(
        &mut self,
        change: &mut dyn FnMut(&mut Tool) -> Result<(), String>,
    ) -> Result<(), String> {
        self.by_name.clear();
        let mut tools = core::mem::take(&mut self.tools);
        let changed = tools.iter_mut().filter_map(Arc::get_mut).try_for_each(change);
        *self = Self::of(tools);
        changed
    }

    fn add(&mut self, tool: Tool) -> Result<(), BadTool> {
        let bad = |why: String| BadTool::new(&*tool.name, why, BadToolKind::Invalid);
        if tool.name.is_empty() {
            return Err(bad("it has no name: give it one to be called by".into()));
        }
        if self.by_name.contains_key(&tool.name) {
            return Err(bad("there is another of this name: rename one of them".into()));
        }
        let output = tool.output_schema.as_ref().map(|schema| ("output_schema", schema));
        for (member, schema) in
            [Some(("input_schema", &tool.input_schema)), output].iter().flatten()
        {
            if let Err(why) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(schema) {
                let what = "must be JSON text of an object";
                return Err(bad(alloc::format!("its `{member}` {what}: {why}")));
            }
        }
        let tool = Arc::new(tool);
        self.by_name.insert(tool.name.clone(), Arc::clone(&tool));
        self.tools.push(tool);
        Ok(())
    }

    /// The tool called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// Whether every peer is offered the same.
    #[must_use]
    pub fn is_public(&self) -> bool {
        let is_public = |tool: &Arc<Tool>| {
            (&tool.allow, tool.runs_for) == (&Allow::Everyone, RunsFor::Everyone)
        };
        self.tools.iter().all(is_public)
    }

    /// Every tool, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter()
    }

    /// The members of the result of `tools/list` as JSON text, and the closing brace; of the tools
    /// that a caller sees.
    pub(crate) fn list(&self, members: ToolMembers, sees: impl Fn(&Tool) -> bool) -> Cow<'_, [u8]> {
        if !self.tools.iter().all(|tool| sees(tool)) {
            let offered = self.tools.iter().filter(|tool| sees(tool));
            return Cow::Owned(render(offered, members));
        }
        Cow::Borrowed(&self.lists[members as usize])
    }
}

/// The hints of a tool that says any. A tool that says nothing is not read-only, for all a client
/// knows. The first revision with annotations has its title there.
fn write_annotations(json: &mut Writer<'_>, tool: &Tool, members: ToolMembers) {
    let title = tool.title.as_ref().filter(|_| members == ToolMembers::Annotated);
    let hints = [
        ("readOnlyHint", tool.read_only.then_some(true)),
        ("destructiveHint", tool.hints.destructive),
        ("idempotentHint", tool.hints.idempotent),
        ("openWorldHint", tool.hints.open_world),
    ];
    let mut start = ",\"annotations\":{";
    if let Some(title) = title {
        json.raw(start).member("title", title);
        start = ",";
    }
    for (name, hint) in hints {
        if let Some(hint) = hint {
            json.raw(start).string(name).raw(":").display(hint);
            start = ",";
        }
    }
    if start == "," {
        json.raw("}");
    }
}

fn render<'a>(tools: impl Iterator<Item = &'a Arc<Tool>>, members: ToolMembers) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut json = Writer::new(&mut bytes);
    json.raw("\"tools\":[");
    for (position, tool) in tools.enumerate() {
        json.raw(if position == 0 { "{" } else { ",{" }).member("name", &tool.name);
        if let Some(description) = &tool.description {
            json.raw(",").member("description", description);
        }
        json.raw(",\"inputSchema\":").raw(&tool.input_schema);
        if members >= ToolMembers::Annotated {
            write_annotations(&mut json, tool, members);
        }
        if members >= ToolMembers::Titled {
            if let Some(title) = &tool.title {
                json.raw(",").member("title", title);
            }
            if let Some(schema) = &tool.output_schema {
                json.raw(",\"outputSchema\":").raw(schema);
            }
        }
        if let Some(icon) = tool.icon.as_ref().filter(|_| members >= ToolMembers::Iconed) {
            json.raw(",\"icons\":[{").member("src", icon).raw("}]");
        }
        if members >= ToolMembers::Execution {
            json.raw(",\"execution\":{").member("taskSupport", tool.task_support.as_str());
            json.raw("}");
        }
        json.raw("}");
    }
    json.raw("]}");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that are copied into the list of tools are JSON, and each tool can be called.
    #[test]
    fn catalog_takes_what_can_be_listed() {
        let tool = |name: &str, input: &str, output: Option<&str>| Tool {
            input_schema: input.into(),
            output_schema: output.map(Into::into),
            ..Tool::new(name, StopPolicy::Handler { abandon_after: Duration::ZERO })
        };
        const ANY: &str = r#" {"type":"object","\u0061":[1]} "#;
        let good = Catalog::new([tool("a", ANY, None), tool("b", ANY, Some(ANY))]);
        assert_eq!(good.map(|catalog| catalog.iter().count()), Ok(2));
        for (bad, why) in [
            (tool("", ANY, None), "it has no name"),
            (tool("a", ANY, None), "there is another of this name"),
            (tool("b", "nope", None), "its `input_schema` must be JSON text of an object"),
            (tool("b", "[]", None), "its `input_schema` must be JSON text of an object"),
            (tool("b", "{},{}", None), "its `input_schema` must be JSON text of an object"),
            (tool("b", ANY, Some("")), "its `output_schema` must be JSON text of an object"),
        ] {
            let name = String::from(&*bad.name);
            let refused = Catalog::new([tool("a", ANY, None), bad]).unwrap_err();
            assert!(refused.name == name && refused.why.starts_with(why), "{refused}");
        }
    }

    /// STOP-01: the stop policy is total, and for processes it never ends before they do.
    #[test]
    fn ladders() {
        let grace = Duration::from_secs(2);
        let command = StopPolicy::Command { kill_grace: grace };
        assert_eq!(command.first(), StopStep::Terminate);
        assert_eq!(command.after(StopStep::Terminate), Some((grace, StopStep::Kill)));
        assert_eq!(command.after(StopStep::Kill), Some((KILL_AGAIN, StopStep::Kill)));
        let handler = StopPolicy::Handler { abandon_after: grace };
        assert_eq!(handler.first(), StopStep::Flag);
        assert_eq!(handler.after(StopStep::Flag), Some((grace, StopStep::Abandon)));
        assert_eq!(handler.after(StopStep::Abandon), None);
    }
}
