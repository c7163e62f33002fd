//! Carries out the engine's actions and logs its events.

use super::server::Server;
use super::state::connections::Sending;
use super::state::constants::LAST_FLUSH;
use super::state::shutdown::Stopping;

use std::io;
use std::os::unix::net::UnixStream;

use ceased_core::action::{Action, AuditEvent, Receipt};
use ceased_core::event::Event;
use ceased_core::ids::{ConnId, StatusId};
use ceased_core::outgoing::call::Caller;
use ceased_core::protocol::trace_context::Span;
use ceased_core::reason::CloseReason;
use ceased_core::time::Now;
use ceased_transports::{Socket, Transport};
use rustix::process::getuid;

use crate::event_loop::mailbox::{Asked, Report};
use crate::observability::calls::CallOutcome;
use crate::process_ids::from_process;
use crate::store::orders::Order;

/// Capacity of the report buffer kept after a burst.
const REPORTS_KEPT: usize = 128;

impl Server {
    /// Handles the reports of other threads.
    pub(super) fn take_reports(&mut self, now: Now) {
        let mut heard = std::mem::take(&mut self.heard);
        self.inbound.take(&mut heard);
        for report in heard.drain(..) {
            self.hear(now, report);
        }
        // Free the memory of a burst.
        heard.shrink_to(REPORTS_KEPT);
        self.heard = heard;
    }

    pub(super) fn hear(&mut self, now: Now, report: Report) {
        match report {
            Report::Progress { .. } | Report::Log { .. } => {
                if let Some(said) = report.said() {
                    self.engine.handle(now, said, &mut self.actions);
                }
            }
            Report::Asked { job, asked } => {
                for Asked { ask, request, answer } in asked {
                    self.jobs.ask(Caller::Job { job, ask }, answer);
                    let event = Event::Asked { job, ask, conn: None, request };
                    self.engine.handle(now, event, &mut self.actions);
                }
            }
            Report::Escalated(job) => {
                self.engine.handle(now, Event::Escalated { job }, &mut self.actions);
            }
            Report::Offers(change) => self.change_offers(now, change),
            Report::Done { job, outcome } => {
                self.jobs.end_handler(job);
                self.done(now, job, outcome);
            }
            Report::Process(report) => self.take_process_report(now, report),
            Report::Store(report) => self.take_store_report(now, report),
            Report::Adopt(stream) => {
                let identity = ceased_core::identity::Identity::User(getuid().as_raw());
                let admitted = adopted(stream)
                    .and_then(|transport| self.admit(now, transport, identity, false));
                if let Err(error) = admitted {
                    tracing::warn!(%error, "cannot serve an embedded peer");
                }
            }
            Report::Resolved { instance, slot, found } => {
                self.take_addresses(now, (instance, slot), found);
            }
            Report::Token { bearer, answer } => self.take_token(now, &bearer, answer),
            Report::Login { read, server, answer } => {
                self.login_changed(now, read, &server, &answer);
            }
            Report::KeysRead => self.take_keys(now),
            Report::Reloaded(read) => self.has_read(read),
            Report::ShutDown => self.shut_down(now),
        }
    }

    fn take_process_report(&mut self, now: Now, report: ceased_process::Report) {
        let Some(report) = self.take_upstream_report(now, report) else { return };
        let Some(report) = self.take_on_end_report(now, report) else { return };
        match report {
            ceased_process::Report::Progress { job, progress, total, message } => {
                let (job, message) = (from_process(job), message.as_deref());
                let event = Event::Progress { job, progress, total, message };
                self.engine.handle(now, event, &mut self.actions);
            }
            ceased_process::Report::Line { job, line } => {
                let event = Event::Output { job: from_process(job), line: &line };
                self.engine.handle(now, event, &mut self.actions);
            }
            ceased_process::Report::Lingering { job } => {
                let job = from_process(job);
                self.engine.handle(now, Event::Lingering { job }, &mut self.actions);
            }
            ceased_process::Report::Surveyed { ticket, processes, usage } => {
                let usage = usage.into_iter().map(|(job, usage)| (from_process(job), usage));
                let (survey, usage) = (StatusId::new(ticket), usage.collect());
                self.answer_survey(now, survey, processes, &usage);
            }
            ceased_process::Report::Located { ticket, located } => {
                self.take_located(now, ticket, &located);
            }
            // Answers about upstreams, taken above.
            ceased_process::Report::Examined { .. } | ceased_process::Report::BornEnded { .. } => {}
            ceased_process::Report::Outlasting { job, exit } => {
                let job = from_process(job);
                self.observer.job_ends.note_outlasting(job, &exit);
                let outcome = self.unfinished(job, &exit);
                self.engine.handle(now, Event::Outlasted { job, outcome }, &mut self.actions);
            }
            ceased_process::Report::Ended { job, ending } => {
                let job = from_process(job);
                let command = self.jobs.end(job);
                self.observer.job_ends.note_end(job, &ending);
                self.end_output(now, job);
                let exit = match &ending {
                    ceased_process::Ending::Exited(exit) => Some(&**exit),
                    ceased_process::Ending::NotStarted(_) => None,
                };
                self.record_call(now, job, CallOutcome::of_command(&ending), exit);
                let outcome = self.command_outcome(job, command, ending);
                self.engine.handle(now, Event::Done { job, outcome }, &mut self.actions);
            }
        }
    }

    /// Carries out the engine's actions.
    pub(super) fn act(&mut self, now: Now) {
        let mut actions = std::mem::take(&mut self.actions);
        for call in self.observer.job_ends.begin_actions().into_values() {
            self.keep_ended(now, call, None);
        }
        for action in actions.drain(..) {
            match action {
                Action::Start { job, tool, arguments, task } => {
                    self.start(now, job, tool, arguments, task);
                }
                Action::Stop { job, step, why } => self.stop(job, step, why),
                Action::Tell { caller, answer } => {
                    if let Some(answer) = self.jobs.answer(&caller, answer) {
                        self.confirmed(now, caller, &answer);
                    }
                }
                // The daemon does not observe progress of peers or cancellations of single
                // requests.
                Action::TellProgress { .. } | Action::RefuseCancel { .. } => {}
                // The daemon opens no ACP connections.
                Action::Notified { .. } => {}
                Action::Store { seq, write } => {
                    self.order_store(Order::Write { seq, write: *write });
                }
                Action::Load { load, key } => self.order_store(Order::Load { load, key }),
                Action::LookUp(lookup) => self.look_up(lookup),
                Action::Flush { conn } => self.connections.note_output(conn, Sending::First),
                Action::Close { conn, why } => self.close(now, conn, why),
                Action::Operate { conn, identity, order } => {
                    self.operate(now, conn, identity, order);
                }
                Action::CollectHostStatus { survey, jobs, instances, viewer, ended } => {
                    self.survey(now, survey, jobs, instances, (viewer, ended));
                }
                Action::ReadOutput(query) => self.read_output(now, &query),
                Action::Upstream(action) => {
                    self.act_on_upstream(now, action);
                }
                Action::Audit(note) => {
                    self.log(now, &note);
                    self.record_note(now, note);
                }
                Action::Exit => {
                    if let Stopping::Draining(by) = self.stopping {
                        let end = (now.at + LAST_FLUSH).min(by.max(now.at));
                        self.stopping = Stopping::Flushing { end, by };
                    }
                    self.close_all_connections(now);
                }
            }
        }
        self.dispatch(now);
        // Actions created meanwhile are for the next turn, in the same buffer.
        actions.append(&mut self.actions);
        self.actions = actions;
    }

    fn close(&mut self, now: Now, conn: ConnId, why: CloseReason) {
        if why == CloseReason::Unanswered {
            let eof_grace = self.eof_grace;
            tracing::warn!(%conn, ?eof_grace, "cancelled requests that were not answered in time after the end of the input");
        } else {
            tracing::debug!(%conn, ?why, "closing");
        }
        match (self.http.is_engine_side(conn), why.flushes()) {
            (true, true) => {
                self.http.note_closing(conn);
                self.connections.note_output(conn, Sending::More);
            }
            (true, false) => self.end_engine_side(now, conn),
            (false, true) => _ = self.connections.close_after_output(conn),
            (false, false) => self.drop_peer(now, conn),
        }
    }

    /// Cancels, with identity and reason, are recorded in the audit log (CAN-12), which is this log
    /// unless it has its own file; the engine has cleaned and capped texts of peers.
    fn log(&self, now: Now, note: &AuditEvent) {
        match note {
            AuditEvent::CallCancelled { conn, identity, request, tool, job, method: _, reason } => {
                let job = job.map(tracing::field::display);
                // Ids are chosen by the peer and unbounded.
                let request = format_args!("{request:.64}");
                tracing::debug!(%conn, %identity, %request, %tool, job, reason, "call cancelled");
            }
            AuditEvent::TaskCancelled { conn, identity, task, job, tool, method: _, reason } => {
                let job = job.map(tracing::field::display);
                tracing::debug!(%conn, %identity, %task, %tool, job, reason, "task cancelled");
            }
            AuditEvent::CancelIgnored { conn } => {
                tracing::debug!(%conn, "cancellation ignored: no running request has this id");
            }
            AuditEvent::JobCancelled { conn, identity, job, tool, reason } => {
                tracing::debug!(%conn, %identity, %job, %tool, reason, "job cancelled");
            }
            AuditEvent::Ceased(receipt) => {
                let Receipt { job, tool, why, since, trace, .. } = &**receipt;
                let (took, why) = (now.at - *since, why.as_str());
                let span = trace.as_ref().and_then(|trace| trace.span.as_ref());
                let (trace_id, span_id) = (span.map(Span::trace_hex), span.map(Span::id_hex));
                tracing::debug!(%job, %tool, why, ?took, trace_id, span_id, "ceased");
            }
            AuditEvent::Outlasted(receipt) => {
                let Receipt { job, tool, why, .. } = &**receipt;
                tracing::debug!(%job, %tool, why = why.as_str(), "outlasts SIGKILL");
            }
            AuditEvent::Abandoned { job, tool } => {
                tracing::error!(%job, %tool, "abandoned a handler that ignores its cancel token");
            }
            AuditEvent::RemoteTask { conn, task, method, label, state } => {
                let state = state.as_str();
                tracing::info!(%conn, %task, %method, label, state, "task at a peer");
            }
            AuditEvent::StoreFailed { why } => {
                let why = why.as_str();
                tracing::error!(
                    why,
                    "the store rejects writes; tasks are unavailable until it recovers"
                );
            }
            AuditEvent::StoreRecovered => tracing::info!("the store accepts writes again"),
            AuditEvent::Refused { conn, identity, limit } => {
                tracing::debug!(%conn, %identity, limit, "rejected by a limit");
            }
            // TSK-41
            AuditEvent::Suspicious { conn, identity, pattern, count, window } => {
                let pattern = pattern.as_str();
                tracing::warn!(%conn, %identity, pattern, count, ?window, "suspicious");
            }
            AuditEvent::RelayEnded(_)
            | AuditEvent::RequestEnded(_)
            | AuditEvent::TaskCreated { .. }
            | AuditEvent::TaskEnded { .. }
            | AuditEvent::TaskRetrieved { .. }
            | AuditEvent::TaskExpired { .. } => {}
        }
    }
}

/// Converts a connected Unix socket into a transport.
fn adopted(stream: UnixStream) -> io::Result<Box<dyn Transport>> {
    Ok(Box::new(Socket::from_unix(stream)?))
}
