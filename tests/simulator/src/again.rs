//! Calls that a requestor repeats: tools for every disconnect policy, and calls with an idempotency
//! key.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::Settings;
use ceased_core::tool::{Catalog, OnDisconnect, StopPolicy, TaskSupport, Tool};

use crate::tools;
use crate::world::World;

fn tool(name: &str, on_disconnect: OnDisconnect) -> Tool {
    Tool {
        task_support: TaskSupport::Optional,
        stop_policy: StopPolicy::Command { kill_grace: Duration::from_secs(1) },
        on_disconnect,
        ..tools::tool(name)
    }
}

/// Settings with the tools `work`, which is cancelled when its peer disconnects, `patient`, which
/// continues for 5 s, and `detached`.
#[must_use]
pub fn settings(limits: Limits, tasks: TaskPolicy) -> Arc<Settings> {
    let tools = [
        tool("work", OnDisconnect::Cancel),
        tool("patient", OnDisconnect::Grace(Duration::from_secs(5))),
        tool("detached", OnDisconnect::Detach),
    ];
    let catalog = Catalog::new(tools).expect("good tools");
    Arc::new(Settings { limits, tasks, catalog, ..Settings::default() })
}

/// A call with a key; `more` are further members of its parameters.
#[must_use]
pub fn line(id: &str, tool: &str, key: &str, arguments: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"ceased/idempotencyKey":"{key}"}}{more}}}}}"#
    )
}

/// Sends a call with a key and waits for nothing.
pub fn call(w: &mut World, conn: ConnId, id: &str, tool: &str, key: &str) {
    w.send(conn, &line(id, tool, key, "{}", ""));
}
