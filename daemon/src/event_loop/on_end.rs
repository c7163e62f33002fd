//! `on_end`: a command after a task or a long call, contained like the call.
//!
//! It runs with the user, the isolation and the bounds that the call had, never with more (SEC-05).

use super::run_as;
use super::server::Server;
use super::state::endings::{Epilogue, Signal};
use super::state::shutdown::Stopping;

use std::ffi::OsString;

use ceased_core::time::Now;
use ceased_process::{Ending, Launch, Order, OutputOptions, Report, Stream};
use rustix::process::geteuid;

use super::jobs::trace_variables;
use super::upstreams::quoted;
use crate::config::{OnEnd, RunAs};
use crate::observability::audit::call_told;
use crate::observability::ended::EndedCall;
use crate::process_ids::{from_process, to_process};
use crate::tools::catalog::{Payload, command_of};
use crate::tools::upstream_launch::UpstreamLaunch;

/// Bytes kept of the output of a command.
const OUTPUT_BYTES: usize = 8 * 1024;
/// Puts the receipt into a file of the user of the command, and removes it behind the command.
const WITH_RECEIPT: &str = r#"umask 077
CEASED_RECEIPT=$(mktemp) || exit 125
trap 'rm -f "$CEASED_RECEIPT"' EXIT
trap 'exit 124' TERM INT
cat >"$CEASED_RECEIPT"
export CEASED_RECEIPT
"$@" </dev/null"#;

impl Server {
    /// Runs the command for a call that has ended, if there is one.
    pub(super) fn begin_on_end(&mut self, now: Now, ended: &EndedCall) {
        let call = &*ended.call;
        let now_offered = || self.settings.catalog.get(&call.tool).cloned();
        let tool = call.of.clone().or_else(now_offered).filter(|_| call.server.is_none());
        let policy = self.endings.policy();
        let own = tool.as_deref().and_then(Payload::of).and_then(|it| it.on_end.as_ref());
        let command = own.unwrap_or(&policy.command);
        let is_due = call.task.is_some() || call.duration >= policy.after;
        if command.is_empty() || !is_due || self.stopping != Stopping::No {
            return;
        }
        let of_tool = tool.as_deref().and_then(command_of);
        let servers = &self.settings.servers;
        let of_server =
            call.server.as_ref().and_then(|name| servers.iter().find(|it| it.name == *name));
        let of_server = of_server.and_then(|server| UpstreamLaunch::of(server));
        let run_as: Option<RunAs> = of_tool
            .map(|tool| tool.run_as)
            .or_else(|| of_server.map(|server| server.run_as))
            .unwrap_or_default();
        let (owner, us) = (Some(&call.identity), geteuid().as_raw());
        // SEC-05: the user of the call; for one that had no process on a daemon of root, its caller.
        let user = match of_tool {
            Some(tool) if tool.is_given => run_as::caller(owner, us),
            Some(_) => run_as::user(run_as, owner, us),
            None => run_as::user(run_as, owner, us).or_else(|_| run_as::caller(owner, us)),
        };
        let user = match user {
            Ok(user) => user,
            Err(why) => {
                tracing::debug!(job = %call.job, %why, "no on_end for this call");
                return;
            }
        };
        let mut launch = Launch::new(command_line(command, ended));
        launch.job = to_process(call.job);
        launch.env = variables(ended);
        launch.stdin = call_told(call, ended.receipt.as_deref(), None, None)
            .ok()
            .map(|told| told.get().as_bytes().to_vec());
        launch.user = user;
        launch.output = OutputOptions::kept(OUTPUT_BYTES);
        if let Some((isolation, bounds)) = of_tool
            .map(|tool| (tool.isolation, tool.bounds))
            .or_else(|| of_server.map(|server| (server.launch.isolation, server.launch.bounds)))
        {
            (launch.isolation, launch.bounds) = (isolation, bounds);
        }
        let epilogue = Epilogue { launch: Box::new(launch), owner: call.identity.clone() };
        if !self.endings.push(epilogue) {
            tracing::warn!(job = %call.job, "too many on_end commands wait; one is dropped");
        }
        self.start_on_end(now);
    }

    /// Starts the commands that have a place.
    fn start_on_end(&mut self, now: Now) {
        while let Some(launch) = self.endings.next(now.at) {
            let job = from_process(launch.job);
            if self.supervisor.order(Order::Launch(launch)).is_err() {
                self.endings.end(job);
            }
        }
    }

    /// Ends the commands whose time is over.
    pub(super) fn take_on_end_time(&mut self, now: Now) {
        for signal in self.endings.take_due(now.at) {
            match signal {
                Signal::Terminate(job) => self.order(Order::Terminate(to_process(job))),
                Signal::Kill(job) => self.order(Order::Kill(to_process(job))),
            }
        }
    }

    /// Takes a report about such a command; returns any other.
    pub(super) fn take_on_end_report(&mut self, now: Now, report: Report) -> Option<Report> {
        let job = match &report {
            Report::Progress { job, .. }
            | Report::Line { job, .. }
            | Report::Lingering { job }
            | Report::Outlasting { job, .. }
            | Report::Ended { job, .. } => from_process(*job),
            Report::Surveyed { .. }
            | Report::Located { .. }
            | Report::Examined { .. }
            | Report::BornEnded { .. } => return Some(report),
        };
        if !self.endings.is_running(job) {
            return Some(report);
        }
        match report {
            Report::Lingering { .. } => self.endings.note_lingering(job, now.at),
            Report::Ended { ending, .. } => {
                let output = self.endings.end(job);
                let printed = output.map(|output| {
                    let text = |stream| output.captured(stream).text();
                    quoted(&(text(Stream::Stdout) + &text(Stream::Stderr)))
                });
                match ending {
                    Ending::Exited(exit) if exit.code == Some(0) => {
                        tracing::debug!(%job, "on_end has ended");
                    }
                    Ending::Exited(exit) => {
                        let (code, signal) = (exit.code, exit.signal);
                        tracing::warn!(%job, code, signal, printed, "on_end has failed");
                    }
                    Ending::NotStarted(why) => {
                        tracing::warn!(%job, why, "on_end cannot be started");
                    }
                }
                self.start_on_end(now);
            }
            Report::Progress { .. }
            | Report::Line { .. }
            | Report::Outlasting { .. }
            | Report::Surveyed { .. }
            | Report::Located { .. }
            | Report::Examined { .. }
            | Report::BornEnded { .. } => {}
        }
        None
    }
}

/// A fact of a call by its name in braces; empty without one.
fn fact(ended: &EndedCall, name: &str) -> String {
    let call = &ended.call;
    match name {
        "tool" => call.tool.to_string(),
        "server" => call.server.as_deref().unwrap_or_default().to_owned(),
        "outcome" => call.outcome.as_str().to_owned(),
        "job" => call.job.get().to_string(),
        "task" => call.task.map(|task| task.to_string()).unwrap_or_default(),
        "identity" => call.identity.to_string(),
        "duration" => format!("{:.1}s", call.duration.as_secs_f64()),
        _ => String::new(),
    }
}

fn command_line(command: &OnEnd, ended: &EndedCall) -> Vec<String> {
    let shell = ["/bin/sh", "-c", WITH_RECEIPT, "on_end"].map(str::to_owned).into_iter();
    shell.chain(command.fill(|name| fact(ended, name))).collect()
}

fn variables(ended: &EndedCall) -> Vec<(OsString, OsString)> {
    let named = ["tool", "server", "outcome", "task", "identity", "duration"].map(|name| {
        (
            format!("CEASED_{}", name.to_uppercase()).into(),
            fact(ended, name).replace('\0', "").into(),
        )
    });
    let named = named.into_iter().filter(|(_, value): &(OsString, OsString)| !value.is_empty());
    let trace = ended.call.trace.as_deref().map(trace_variables);
    named.chain(trace.into_iter().flatten()).collect()
}
