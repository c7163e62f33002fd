//! Execution of the engine's decisions about upstreams: their processes, pipes, evidence and end.

use std::time::Duration;

use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, InstanceId};
use ceased_core::time::Now;
use ceased_core::upstream::approval::ToolChange;
use ceased_core::upstream::interface::{ProcessEvidence, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use ceased_process::{Ending, Evidence, JobId, Order, OutputOptions, Report, stdio_pipes};
use ceased_transports::{ChildStdio, Link};
use rustix::process::geteuid;

use super::run_as;
use super::server::Server;
use super::state::upstream_instances::{Instance, Step};
use crate::remote::Endpoint;
use crate::tool_diff::tool_diff;
use crate::tools::upstream_launch::UpstreamLaunch;

/// Numbers of instances among the supervisor's jobs start here; those of jobs are smaller.
const FIRST_JOB: u64 = 1 << 62;
/// Bytes kept of the standard error of an instance.
const STDERR_BYTES: usize = 64 * 1024;
/// Lines of standard error that an error quotes, and their bytes.
const QUOTED_LINES: usize = 8;
const QUOTED_BYTES: usize = 2048;
/// Bytes of the difference of one tool in a log line; `ceased approve` shows all of it.
const LOGGED_DIFF_MAX: usize = 2048;
/// Tools that differ of which the log has the difference; `ceased approve` shows all.
const LOGGED_TOOLS_MAX: usize = 8;
/// Bytes of the old and the new text together that are compared for the log.
const COMPARED_MAX: usize = 16 * 1024;
/// Maximum number of reads from the pipe of an instance that has ended.
const LAST_READS: usize = 64;

/// Number of an instance among the supervisor's jobs.
pub(super) const fn to_job(instance: InstanceId) -> JobId {
    JobId::new(FIRST_JOB + instance.get())
}

/// The instance with this number among the supervisor's jobs.
pub(super) const fn instance_of(job: JobId) -> Option<InstanceId> {
    match job.get().checked_sub(FIRST_JOB) {
        Some(number) => Some(InstanceId::new(number)),
        None => None,
    }
}

impl Server {
    /// Births as the supervisor reads clocks.
    fn births(&self, of: &ceased_core::births::Births) -> ceased_process::Births {
        let at = |at| self.clock.to_system(at);
        ceased_process::Births {
            since: at(of.since),
            floor: at(of.floor),
            other: of.other.map(at),
            works: of.works.iter().map(|(since, is_meant)| (at(*since), *is_meant)).collect(),
        }
    }

    /// Carries out a decision of the engine.
    pub(super) fn act_on_upstream(&mut self, now: Now, action: UpstreamAction) {
        match action {
            UpstreamAction::Start { instance, server, owner, .. } => {
                if let Some(endpoint) = Endpoint::of(&server) {
                    return self.start_remote(now, instance, endpoint, owner);
                }
                if let Err(why) = self.start_upstream(now, instance, &server, owner.as_ref()) {
                    self.tell_upstream_ended(now, instance, &why, "");
                }
            }
            UpstreamAction::Examine { instance, check, births } => {
                let ticket = self.upstreams.ask(instance, check);
                let (job, births) = (to_job(instance), self.births(&births));
                self.order(Order::Examine { ticket, job, births });
            }
            UpstreamAction::EndStrays { instance, check, births, kill_grace } => {
                let ticket = self.upstreams.ask(instance, check);
                let (job, births) = (to_job(instance), self.births(&births));
                self.order(Order::EndBorn { ticket, job, births, grace: kill_grace });
            }
            UpstreamAction::End { instance, kill_grace } => {
                if self.drive_remote(now, instance, |remote| remote.end(now.at)) {
                    return;
                }
                self.end_upstream(now, instance, Some(kill_grace));
            }
            UpstreamAction::Forget { instance, call } => {
                self.drive_remote(now, instance, |remote| remote.forget(call.get(), now.at));
            }
            UpstreamAction::Warn { server, what } => {
                tracing::warn!(
                    server = &*server,
                    what = &*what,
                    "a list of a server is not as it says"
                );
            }
            UpstreamAction::ToolsDiffer { server, changes } => {
                // The loop waits for each.
                for ToolChange { tool, before, after } in changes.iter().take(LOGGED_TOOLS_MAX) {
                    let is_short =
                        before.as_ref().map_or(0, |it| it.len()) + after.len() <= COMPARED_MAX;
                    let before = before.as_deref().filter(|_| is_short);
                    let diff = if is_short { tool_diff(before, after) } else { String::new() };
                    let end = diff.floor_char_boundary(LOGGED_DIFF_MAX);
                    tracing::warn!(
                        server = &*server,
                        tool = &**tool,
                        diff = diff.get(..end).unwrap_or_default(),
                        "a tool differs from the approved one; see `ceased approve`"
                    );
                }
            }
            UpstreamAction::SaveApproval { server, approval } => {
                self.save_approval(&server, *approval);
            }
            UpstreamAction::SaveManifest { server, manifest } => {
                self.save_manifest(&server, *manifest);
            }
        }
    }

    /// Starts an instance; the error text is for a user.
    fn start_upstream(
        &mut self,
        now: Now,
        instance: InstanceId,
        server: &UpstreamServer,
        owner: Option<&Identity>,
    ) -> Result<(), String> {
        let how = UpstreamLaunch::of(server).ok_or("it has no command in this program")?;
        let user = run_as::user(how.run_as, owner, geteuid().as_raw())?;
        let no_pipes = |error| format!("cannot connect its pipes: {error}");
        let (ours, theirs) = stdio_pipes().map_err(no_pipes)?;
        let transport = ChildStdio::new(ours.stdout, ours.stdin, &server.name).map_err(no_pipes)?;
        let skipped = transport.skipped();
        let link = Link::new(Box::new(transport), self.settings.limits.frames);
        let conn = self.add_connection(link, false).map_err(no_pipes)?;
        let mut output = OutputOptions::kept(STDERR_BYTES);
        output.copy.clone_from(&how.launch.output.copy);
        let stderr = output.kept.clone();
        let mut launch = how.launch.clone();
        (launch.job, launch.pipes) = (to_job(instance), Some(theirs));
        (launch.user, launch.output) = (user, output);
        let (name, times) = (server.name.clone(), (now.at, server.kill_grace));
        let entry = Instance::new(name, owner.cloned(), (conn, skipped), stderr, times);
        self.upstreams.insert(instance, entry);
        self.order(Order::Launch(Box::new(launch)));
        tracing::debug!(%instance, server = &*server.name, "started an upstream");
        let started = UpstreamEvent::Started { instance, conn };
        self.engine.handle(now, Event::Upstream(started), &mut self.actions);
        Ok(())
    }

    /// Begins the stop sequence of an instance: end of file, SIGTERM, SIGKILL (UPS-07).
    fn end_upstream(&mut self, now: Now, id: InstanceId, kill_grace: Option<Duration>) {
        let Some(conn) = self.upstreams.begin_end(id, kill_grace, now.at) else { return };
        if let Err(error) = self.connections.finish(conn) {
            tracing::debug!(%error, "cannot close standard input of an upstream");
        }
    }

    /// Ends an instance whose pipes are broken. Returns false if `conn` belongs to none.
    pub(super) fn end_upstream_of(&mut self, now: Now, conn: ConnId) -> bool {
        let Some(id) = self.upstreams.behind(conn) else { return false };
        self.end_upstream(now, id, None);
        true
    }

    /// Takes the steps of stop sequences that are due.
    pub(super) fn take_upstream_steps(&mut self, now: Now) {
        for (id, step) in self.upstreams.take_steps(now.at) {
            self.order(match step {
                Step::Terminate => Order::Terminate(to_job(id)),
                Step::Kill => Order::Kill(to_job(id)),
            });
        }
    }

    /// Takes a report about an instance; returns any other.
    pub(super) fn take_upstream_report(&mut self, now: Now, report: Report) -> Option<Report> {
        match report {
            Report::Examined { ticket, evidence } => self.take_evidence(now, ticket, evidence),
            Report::BornEnded { ticket, ended, left, .. } => {
                self.take_born_ended(now, ticket, ended, left);
            }
            Report::Lingering { job } => match instance_of(job) {
                Some(instance) => self.upstream_lingers(now, instance),
                None => return Some(report),
            },
            Report::Outlasting { job, .. } => match instance_of(job) {
                Some(instance) => {
                    tracing::error!(%instance, "processes of an upstream outlast SIGKILL");
                }
                None => return Some(report),
            },
            Report::Ended { job, ref ending } => match instance_of(job) {
                Some(instance) => self.take_upstream_ended(now, instance, ending),
                None => return Some(report),
            },
            Report::Progress { .. }
            | Report::Line { .. }
            | Report::Surveyed { .. }
            | Report::Located { .. } => return Some(report),
        }
        None
    }

    /// The command of an instance has exited, and processes that it started live on.
    pub(super) fn upstream_lingers(&mut self, now: Now, id: InstanceId) {
        self.end_upstream(now, id, None);
    }

    /// Hands evidence to the engine.
    pub(super) fn take_evidence(&mut self, now: Now, ticket: u64, evidence: Evidence) {
        let Some((instance, check)) = self.upstreams.take_question(ticket) else { return };
        let Evidence { born, cpu, waited } = evidence;
        let processes = ProcessEvidence { born, cpu, waited };
        let event = UpstreamEvent::Examined { instance, check, processes };
        self.engine.handle(now, Event::Upstream(event), &mut self.actions);
    }

    /// Tells the engine that strays were ended.
    pub(super) fn take_born_ended(&mut self, now: Now, ticket: u64, ended: u32, left: u32) {
        let Some((instance, check)) = self.upstreams.take_question(ticket) else { return };
        let event = UpstreamEvent::StraysEnded { instance, check, ended, left };
        self.engine.handle(now, Event::Upstream(event), &mut self.actions);
    }

    /// No process of an instance is left.
    pub(super) fn take_upstream_ended(&mut self, now: Now, id: InstanceId, ending: &Ending) {
        let Some(conn) = self.upstreams.get(id).map(Instance::conn) else { return };
        // Its last answers are in the pipe.
        for _ in 0..LAST_READS {
            let before = self.connections.bytes_received(conn);
            self.read(now, conn);
            if self.connections.bytes_received(conn) == before {
                break;
            }
        }
        let Some(instance) = self.upstreams.remove(id) else { return };
        let (lines, first) = instance.skipped();
        if lines > 0 {
            let server = instance.name();
            tracing::warn!(server, lines, ?first, "printed lines that are no JSON-RPC messages");
        }
        let stderr = quoted(&instance.stderr());
        self.tell_upstream_ended(now, id, &status(ending), &stderr);
        self.drop_peer(now, conn);
    }

    fn tell_upstream_ended(&mut self, now: Now, instance: InstanceId, status: &str, stderr: &str) {
        let event = UpstreamEvent::Ended { instance, status, stderr };
        self.engine.handle(now, Event::Upstream(event), &mut self.actions);
    }
}

/// Ending of a process in words.
fn status(ending: &Ending) -> String {
    match ending {
        Ending::NotStarted(why) => why.clone(),
        Ending::Exited(exit) => match (exit.code, exit.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown exit status".to_owned(),
        },
    }
}

/// The last lines of a text, bounded.
pub(super) fn quoted(text: &str) -> String {
    let text = text.trim_end();
    let start = text.len().saturating_sub(QUOTED_BYTES);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let tail = text.split_at(start).1;
    let mut lines: Vec<&str> = tail.lines().rev().take(QUOTED_LINES).collect();
    lines.reverse();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_quoted() {
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let quote = quoted(&text);
        assert!(quote.starts_with("line 92\n") && quote.ends_with("\nline 99"), "{quote}");
        assert!(quoted(&"é".repeat(5000)).len() <= QUOTED_BYTES);
        assert_eq!(quoted(""), "");
    }

    #[test]
    fn instances_and_jobs_have_different_numbers() {
        let instance = InstanceId::new(7);
        assert_eq!(instance_of(to_job(instance)), Some(instance));
        assert_eq!(instance_of(JobId::new(7)), None);
    }
}
