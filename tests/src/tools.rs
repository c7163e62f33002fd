//! Tools on paper: definitions with every task support, both ladders, a timeout and a check.
//!
//! Nothing runs them: a test says what they do.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::acp::protocol::{AcpServices, Offer};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::{ArgumentCheck, Catalog, StopPolicy, TaskSupport, Tool};

/// How long the function tools may take to look at their flag.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL of the command tools.
pub const KILL_GRACE: Duration = Duration::from_secs(2);
/// The timeout of the tools that have one.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Wants a member `text` with a string, and nothing else.
struct WantsText;

impl ArgumentCheck for WantsText {
    fn check<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        let members: serde_json::Value =
            serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        match members.get("text").and_then(serde_json::Value::as_str) {
            Some(_) => Ok(Cow::Borrowed(arguments)),
            None => Err("/text must be a string".to_owned()),
        }
    }
}

/// A check that wants a member `text` with a string.
#[must_use]
pub fn wants_text() -> Box<dyn ArgumentCheck> {
    Box::new(WantsText)
}

/// A function tool that does not run as a task.
#[must_use]
pub fn tool(name: &str) -> Tool {
    Tool {
        title: Some(format!("The {name}").into()),
        description: Some(format!("Does \"{name}\".").into()),
        ..Tool::new(name, StopPolicy::Handler { patience: PATIENCE })
    }
}

/// A function tool that may run as a task.
#[must_use]
pub fn optional(name: &str) -> Tool {
    Tool { task_support: TaskSupport::Optional, ..tool(name) }
}

/// The heartbeat of `slow`.
pub const HEARTBEAT: Duration = Duration::from_millis(400);

/// The tools of every world.
///
/// | name | tasks | ladder | timeout |
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
            ladder: StopPolicy::Command { kill_grace: KILL_GRACE },
            output_schema: Some(r#"{"type":"object"}"#.into()),
            ..optional("build")
        },
        Tool { task_support: TaskSupport::Required, ..tool("report") },
        Tool { check: Some(Box::new(WantsText)), ..optional("strict") },
    ])
    .expect("good tools")
}

/// What every world does for servers: sampling and elicitation also as tasks, roots never.
#[must_use]
pub fn services() -> Catalog {
    Catalog::new([
        optional("sampling/createMessage"),
        optional("elicitation/create"),
        tool("roots/list"),
    ])
    .expect("good tools")
}

/// What every world offers to ACP peers, on either side: the methods of the protocol that the
/// suites use.
///
/// | method | ladder | timeout |
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
    let ladder = StopPolicy::Command { kill_grace: KILL_GRACE };
    let wait = Tool { ladder, ..tool("terminal/wait_for_exit") };
    let ask = tool("session/request_permission");
    AcpServices {
        agent: offer(vec![tool("initialize"), tool("session/new"), prompt], "session/cancel"),
        client: offer(vec![tool("fs/read_text_file"), ask, wait], "session/update"),
    }
}

/// Settings with the tools above, these limits and this policy.
#[must_use]
pub fn settings(limits: Limits, tasks: TaskPolicy) -> Arc<Settings> {
    let server = ServerInfo { name: "world".into(), version: "1.2.3".into() };
    let (catalog, services, acp) = (catalog(), services(), offers());
    Arc::new(Settings { server, limits, tasks, catalog, services, acp, operators: Vec::new() })
}
