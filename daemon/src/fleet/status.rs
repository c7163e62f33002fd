//! The nodes of a fleet and the tasks that run there, for a detailed status.

use std::time::Instant;

use ceased_core::identity::Identity;
use ceased_core::tasks::durable::Work;
use ceased_fleet::PostgresTable;
use ceased_fleet::contract::{Failure, PlacedTask};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::options::FleetOptions;
use super::records;

/// Most tasks that are shown, the newest first.
const TASKS_MAX: u32 = 100;

#[derive(Debug, Serialize)]
struct FleetStatus<'a> {
    /// Name of this node.
    node: &'a str,
    nodes: Vec<NodeStatus>,
    tasks: Vec<TaskStatus>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    name: String,
    state: &'static str,
    tasks: u64,
    lease_left_ms: u64,
    version: String,
}

/// A task as the status of one node shows it, and its node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskStatus {
    task: String,
    tool: String,
    identity: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    age_ms: u64,
    ttl_left_ms: u64,
    node: String,
    /// How far its work is, after a cancel or a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<&'static str>,
}

/// The members of the fleet, and the newest tasks of the viewer; for `None` those of all, with those without
/// an end first.
pub(super) fn look(
    table: &mut PostgresTable,
    options: &FleetOptions,
    viewer: Option<&Identity>,
    deadline: Instant,
) -> Result<Option<Box<RawValue>>, Failure> {
    let nodes = table.nodes(deadline)?;
    let tasks = match viewer {
        // TSK-40
        Some(Identity::Anonymous) => Vec::new(),
        Some(Identity::User(_) | Identity::Token(_) | Identity::Subject(_)) | None => {
            let viewer = viewer.map(|viewer| options.names.of(viewer));
            table.newest(viewer.as_deref(), TASKS_MAX, deadline)?
        }
    };
    let members = nodes.into_iter().filter(|node| node.state == "live");
    let status = FleetStatus {
        node: &options.node.name,
        nodes: members
            .map(|node| NodeStatus {
                state: if node.drains { "draining" } else { "live" },
                name: node.name,
                tasks: node.tasks,
                lease_left_ms: node.left_ms.try_into().unwrap_or_default(),
                version: node.version,
            })
            .collect(),
        tasks: tasks.into_iter().map(|task| shown(task, options)).collect(),
    };
    // No map with keys that are no text.
    Ok(to_raw_value(&status).ok())
}

fn shown(task: PlacedTask, options: &FleetOptions) -> TaskStatus {
    let PlacedTask { row, node, age_ms } = task;
    let identity = options.names.read(&row.identity);
    TaskStatus {
        work: records::work(&row).map(Work::as_str),
        task: row.id.to_string(),
        tool: row.tool,
        identity: identity.map_or(row.identity, |identity| identity.to_string()),
        status: row.status.as_str(),
        status_message: row.message,
        age_ms,
        ttl_left_ms: row
            .expires
            .since(row.created)
            .as_millis()
            .try_into()
            .map_or(0, |ttl: u64| ttl.saturating_sub(age_ms)),
        node,
    }
}
