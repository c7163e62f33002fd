//! Output of jobs as the loop keeps it, and peers that read it.

use ceased_core::action::OutputQuery;
use ceased_core::event::Event;
use ceased_core::ids::{JobId, TaskId};
use ceased_core::time::Now;
use ceased_core::tool::Tool;
use serde_json::value::{RawValue, to_raw_value};

use super::server::Server;
use super::state::job_output::{Begun, OutputLimits};
use ceased_process::OutputOptions;

impl Server {
    /// A command begins to print.
    pub(super) fn begin_output(
        &mut self,
        job: JobId,
        task: Option<TaskId>,
        tool: &Tool,
        options: &OutputOptions,
    ) {
        let Some(owner) = self.engine.owner(job).cloned() else { return };
        let Some((conn, of_task)) = self.engine.origin(job) else { return };
        let (task, tool) = (task.or(of_task), tool.name.clone());
        let (output, merged) = (options.kept.clone(), options.merged);
        self.outputs.begin(Begun { job, owner, conn, task, tool, output, merged });
    }

    /// A command will print nothing more.
    pub(super) fn end_output(&mut self, now: Now, job: JobId) {
        let task = self.engine.origin(job).and_then(|(_, task)| task);
        let limits = self.output_limits();
        self.outputs.end(job, task, now.at, limits);
    }

    fn output_limits(&self) -> OutputLimits {
        let limits = &self.settings.limits;
        OutputLimits {
            per_identity: limits.output_bytes_per_identity_max,
            all: limits.output_bytes_max,
            span: self.settings.tasks.default_ttl,
        }
    }

    /// Answers a peer that reads the output of jobs.
    pub(super) fn read_output(&mut self, now: Now, query: &OutputQuery) {
        self.outputs.prune(now.at);
        let found = self.outputs.read(query).and_then(|value| to_raw_value(&value).ok());
        let output: Option<&RawValue> = found.as_deref();
        let event = Event::OutputRead { read: query.read, output };
        self.engine.handle(now, event, &mut self.actions);
    }
}
