//! Settings in a recording: everything the engine goes by, nothing of what a host needs to run a
//! tool.

use std::time::Duration;

use ceased_core::limits::{FrameLimits, Limits, OnTtl, TaskPolicy};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::{Catalog, Ladder, TaskSupport, Tool};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::tools;

/// [`Settings`] as data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Recipe {
    server: (String, String),
    limits: [usize; 14],
    write_stall: Duration,
    tasks: Policy,
    tools: Vec<ToolRecipe>,
}

/// [`TaskPolicy`] as data.
#[derive(Debug, Serialize, Deserialize)]
struct Policy {
    default_ttl: Duration,
    max_ttl: Duration,
    anonymous_ttl: Duration,
    may_finish: bool,
    late_result: Duration,
    poll_interval: Duration,
    page_size: usize,
    status_notifications: bool,
}

/// [`Tool`] as data. Its check is made anew from its schema.
#[derive(Debug, Serialize, Deserialize)]
struct ToolRecipe {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: String,
    output_schema: Option<String>,
    task_support: TaskSupportWord,
    timeout: Option<Duration>,
    /// Whether it is a command, and the first wait of its ladder.
    ladder: (bool, Duration),
    checked: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TaskSupportWord {
    Forbidden,
    Optional,
    Required,
}

impl Recipe {
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { server, limits, tasks, catalog } = settings;
        // Every limit is named: a new one must find its place here as well.
        let Limits {
            frames: FrameLimits { frame_bytes_max },
            asks_max,
            calls_max,
            depth_max,
            connections_max,
            inflight_max,
            batch_max,
            running_max,
            queued_max,
            live_tasks_max,
            stored_tasks_max,
            stored_bytes_max,
            write_buffer_bytes,
            write_stall,
            text_bytes_max,
        } = *limits;
        Self {
            server: (server.name.to_string(), server.version.to_string()),
            limits: [
                frame_bytes_max,
                asks_max,
                calls_max,
                depth_max,
                connections_max,
                inflight_max,
                batch_max,
                running_max,
                queued_max,
                live_tasks_max,
                stored_tasks_max,
                stored_bytes_max,
                write_buffer_bytes,
                text_bytes_max,
            ],
            write_stall,
            tasks: Policy::new(tasks),
            tools: catalog.iter().map(|tool| ToolRecipe::new(tool)).collect(),
        }
    }

    /// The settings again.
    ///
    /// # Errors
    /// When a tool's schema cannot be read any more.
    pub(super) fn get(&self) -> Result<Settings, String> {
        let [
            frame_bytes_max,
            asks_max,
            calls_max,
            depth_max,
            connections_max,
            inflight_max,
            batch_max,
            running_max,
            queued_max,
            live_tasks_max,
            stored_tasks_max,
            stored_bytes_max,
            write_buffer_bytes,
            text_bytes_max,
        ] = self.limits;
        let limits = Limits {
            frames: FrameLimits { frame_bytes_max },
            asks_max,
            calls_max,
            depth_max,
            connections_max,
            inflight_max,
            batch_max,
            running_max,
            queued_max,
            live_tasks_max,
            stored_tasks_max,
            stored_bytes_max,
            write_buffer_bytes,
            write_stall: self.write_stall,
            text_bytes_max,
        };
        let tools: Result<Vec<Tool>, String> = self.tools.iter().map(ToolRecipe::get).collect();
        let (name, version) = &self.server;
        Ok(Settings {
            server: ServerInfo { name: name.as_str().into(), version: version.as_str().into() },
            limits,
            tasks: self.tasks.get(),
            catalog: Catalog::new(tools?),
        })
    }
}

impl Policy {
    fn new(tasks: &TaskPolicy) -> Self {
        let TaskPolicy {
            default_ttl,
            max_ttl,
            anonymous_ttl,
            on_ttl,
            late_result,
            poll_interval,
            page_size,
            status_notifications,
        } = *tasks;
        Self {
            default_ttl,
            max_ttl,
            anonymous_ttl,
            may_finish: on_ttl == OnTtl::Finish,
            late_result,
            poll_interval,
            page_size,
            status_notifications,
        }
    }

    const fn get(&self) -> TaskPolicy {
        TaskPolicy {
            default_ttl: self.default_ttl,
            max_ttl: self.max_ttl,
            anonymous_ttl: self.anonymous_ttl,
            on_ttl: if self.may_finish { OnTtl::Finish } else { OnTtl::Stop },
            late_result: self.late_result,
            poll_interval: self.poll_interval,
            page_size: self.page_size,
            status_notifications: self.status_notifications,
        }
    }
}

impl ToolRecipe {
    fn new(tool: &Tool) -> Self {
        Self {
            name: tool.name.to_string(),
            title: tool.title.as_ref().map(ToString::to_string),
            description: tool.description.as_ref().map(ToString::to_string),
            input_schema: tool.input_schema.to_string(),
            output_schema: tool.output_schema.as_ref().map(ToString::to_string),
            task_support: match tool.task_support {
                TaskSupport::Forbidden => TaskSupportWord::Forbidden,
                TaskSupport::Optional => TaskSupportWord::Optional,
                TaskSupport::Required => TaskSupportWord::Required,
            },
            timeout: tool.timeout,
            ladder: match tool.ladder {
                Ladder::Handler { patience } => (false, patience),
                Ladder::Command { kill_grace } => (true, kill_grace),
            },
            checked: tool.check.is_some(),
        }
    }

    fn get(&self) -> Result<Tool, String> {
        let check = self.checked.then(|| Arguments::new(&self.input_schema).map(tools::by_schema));
        let check = check.transpose().map_err(|why| format!("{}: {why}", self.name))?;
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let (command, wait) = self.ladder;
        Ok(Tool {
            name: self.name.as_str().into(),
            title: text(&self.title),
            description: text(&self.description),
            input_schema: self.input_schema.as_str().into(),
            output_schema: text(&self.output_schema),
            task_support: match self.task_support {
                TaskSupportWord::Forbidden => TaskSupport::Forbidden,
                TaskSupportWord::Optional => TaskSupport::Optional,
                TaskSupportWord::Required => TaskSupport::Required,
            },
            timeout: self.timeout,
            ladder: if command {
                Ladder::Command { kill_grace: wait }
            } else {
                Ladder::Handler { patience: wait }
            },
            check,
            payload: None,
        })
    }
}
