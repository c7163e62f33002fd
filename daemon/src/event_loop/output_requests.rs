//! Output of jobs as the loop keeps it, and peers that read it.

use std::sync::PoisonError;

use ceased_core::action::{OutputQuery, OutputRequest, Viewer};
use ceased_core::event::Event;
use ceased_core::ids::{JobId, StatusId, TaskId};
use ceased_core::time::Now;
use ceased_core::tool::Tool;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::server::Server;
use super::state::job_output::{Begun, OutputLimits};
use crate::http::view::passes;
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

    /// A link that opens the live view as this identity; `None` if no listener serves the view to
    /// this machine.
    fn link_view(&mut self, viewer: &Viewer) -> Option<Value> {
        let address = self.listeners.view_address()?;
        let mut passes = self.http.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let code = passes.link(&viewer.identity, viewer.rights, std::time::Instant::now())?;
        let ttl = u64::try_from(passes::CODE_TTL.as_millis()).unwrap_or(u64::MAX);
        Some(json!({
            "url": format!("http://{address}/#{code}"),
            "identity": viewer.identity.to_string(),
            "expiresInMs": ttl,
        }))
    }

    /// Answers a peer that reads the output of jobs.
    pub(super) fn read_output(&mut self, now: Now, query: &OutputQuery) {
        self.outputs.prune(now.at);
        let found = match &query.request {
            OutputRequest::Server { name, instance, from, since } => {
                self.upstreams.logs().read(name, *instance, (*from, *since), &query.viewer)
            }
            OutputRequest::Login { server, wish } => {
                match self.take_login_wish(now, query, server, wish) {
                    Some(answer) => Some(answer),
                    // A thread writes or removes the file, and reports.
                    None => return,
                }
            }
            OutputRequest::View => self.link_view(&query.viewer),
            OutputRequest::List | OutputRequest::Whole(_) | OutputRequest::Part { .. } => {
                self.outputs.read(query)
            }
        };
        self.answer_reader(now, query.read, found.as_ref());
    }

    /// Hands the data to the engine, which answers the peer.
    pub(super) fn answer_reader(&mut self, now: Now, read: StatusId, found: Option<&Value>) {
        let found = found.and_then(|value| to_raw_value(value).ok());
        let output: Option<&RawValue> = found.as_deref();
        let event = Event::OutputRead { read, output };
        self.engine.handle(now, event, &mut self.actions);
    }
}
