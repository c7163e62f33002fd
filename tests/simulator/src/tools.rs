//! Tool definitions for worlds: with every task support, both stop policies, a timeout and an
//! argument check.
//!
//! No code is behind them: the test decides the behaviour of a job.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::acp::protocol::{AcpServices, Offer};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::{ArgumentCheck, Catalog, StopPolicy, TaskSupport, Tool, ToolHints};

/// Time after which a function tool that ignores its flag is abandoned.
pub const ABANDON_AFTER: Duration = Duration::from_secs(5);
/// Time from SIGTERM to SIGKILL of the command tools.
pub const KILL_GRACE: Duration = Duration::from_secs(2);
/// Timeout of the tools that have one.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A check that requires a string member `text`.
struct RequiresText;

impl ArgumentCheck for RequiresText {
    fn check<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        let members: serde_json::Value =
            serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        match members.get("text").and_then(serde_json::Value::as_str) {
            Some(_) => Ok(Cow::Borrowed(arguments)),
            None => Err("/text must be a string".to_owned()),
        }
    }
}

/// An argument check that requires a string member `text`.
#[must_use]
pub fn wants_text() -> Box<dyn ArgumentCheck> {
    Box::new(RequiresText)
}

/// A function tool without tasks.
#[must_use]
pub fn tool(name: &str) -> Tool {
    Tool {
        title: Some(format!("The {name}").into()),
        description: Some(format!("Does \"{name}\".").into()),
        ..Tool::new(name, StopPolicy::Handler { abandon_after: ABANDON_AFTER })
    }
}

/// A function tool with optional tasks.
#[must_use]
pub fn optional(name: &str) -> Tool {
    Tool { task_support: TaskSupport::Optional, ..tool(name) }
}

/// The heartbeat of `slow`.
pub const HEARTBEAT: Duration = Duration::from_millis(400);

/// Tools of every world.
///
/// | name | tasks | stop policy | timeout |
/// | --- | --- | --- | --- |
/// | `echo` | forbidden | handler | none |
/// | `sleep` | optional | handler | none |
/// | `slow`, with a [`HEARTBEAT`] | optional | handler | [`TIMEOUT`] |
/// | `build` | optional | command | [`TIMEOUT`] |
/// | `report` | required | handler | none |
/// | `strict` | optional, checks its arguments | handler | none |
#[must_use]
pub fn catalog() -> Catalog {
    Catalog::new([
        tool("echo"),
        optional("sleep"),
        Tool { timeout: Some(TIMEOUT), heartbeat: Some(HEARTBEAT), ..optional("slow") },
        Tool {
            timeout: Some(TIMEOUT),
            stop_policy: StopPolicy::Command { kill_grace: KILL_GRACE },
            output_schema: Some(r#"{"type":"object"}"#.into()),
            ..optional("build")
        },
        Tool {
            task_support: TaskSupport::Required,
            hints: ToolHints {
                destructive: Some(true),
                idempotent: Some(false),
                open_world: Some(true),
            },
            icon: Some("https://example.org/report.png".into()),
            ..tool("report")
        },
        Tool { check: Some(Box::new(RequiresText)), ..optional("strict") },
    ])
    .expect("good tools")
}

/// Services of every world for servers: sampling and elicitation also as tasks, roots never.
#[must_use]
pub fn services() -> Catalog {
    Catalog::new([
        optional("sampling/createMessage"),
        optional("elicitation/create"),
        tool("roots/list"),
    ])
    .expect("good tools")
}

/// Services of every world for ACP peers, on either side: the methods of the protocol that the
/// suites use.
///
/// | method | stop policy | timeout |
/// | --- | --- | --- |
/// | `initialize`, `session/new`, `fs/read_text_file`, `session/request_permission` | handler | none |
/// | `session/prompt` | handler | [`TIMEOUT`] |
/// | `terminal/wait_for_exit` | command | none |
#[must_use]
pub fn offers() -> AcpServices {
    let offer = |services: Vec<Tool>, notification: &str| Offer {
        services: Catalog::new(services).expect("good tools"),
        notifications: [notification.into()].into(),
    };
    let prompt = Tool { timeout: Some(TIMEOUT), ..tool("session/prompt") };
    let stop_policy = StopPolicy::Command { kill_grace: KILL_GRACE };
    let wait = Tool { stop_policy, ..tool("terminal/wait_for_exit") };
    let ask = tool("session/request_permission");
    AcpServices {
        agent: offer(vec![tool("initialize"), tool("session/new"), prompt], "session/cancel"),
        client: offer(vec![tool("fs/read_text_file"), ask, wait], "session/update"),
    }
}

/// Settings with the tools above, these limits and this policy.
#[must_use]
pub fn settings(limits: Limits, tasks: TaskPolicy) -> Arc<Settings> {
    let server = ServerInfo::new("world", "1.2.3");
    let (catalog, services, acp) = (catalog(), services(), offers());
    let outputs = false;
    Arc::new(Settings {
        server,
        limits,
        tasks,
        catalog,
        services,
        acp,
        outputs,
        operators: Vec::new(),
        ..Settings::default()
    })
}
