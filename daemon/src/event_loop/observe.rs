//! Observation of the engine: audit records, metrics, warnings, and data for views (TSK-38, TSK-41,
//! CAN-12, CAN-13).

use super::server::Server;
use super::state::observer::{End, Ended, Survey};

use std::collections::BTreeMap;
use std::sync::Arc;

use ceased_core::action::{AuditEvent, Receipt, RequestEnd};
use ceased_core::event::{Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, InstanceId, JobId, RequestId, StatusId};
use ceased_core::protocol::revision::Dialect;
use ceased_core::time::{Instant as CoreInstant, Now};
use ceased_core::upstream::interface::Proof;
use ceased_transports::{Link, Peer as Origin};
use serde_json::value::{RawValue, to_raw_value};

use super::state::party::Party;
use super::state::record_limiter::{INTERVAL, RecordKind, Unwritten};
use super::upstreams::{instance_of, quoted, to_job};
use crate::announce::say;
use crate::http::signed::SignedToken;
use crate::observability::audit::{CancelRecord, Happening, facts_of};
use crate::observability::calls::{CallOutcome, CallRecord};
use crate::observability::ended::{EndedCall, EndedRequest};
use crate::observability::hop::Hop;
use crate::observability::job_status::{self, JobStatus};
use crate::observability::metrics::{InstanceStatus, Listed, Snapshot};
use crate::process_ids::{from_process, to_process};
use ceased_process::{Exit, Order, Process, Stopped, Usage};

/// No step was needed.
const NONE: &str = "none";

impl Server {
    pub(super) fn audit(&mut self, now: Now, happening: &Happening) {
        self.observer.audit.record(now.wall, happening);
    }

    /// Counts a record; returns whether to write it in full.
    pub(super) fn should_record(&mut self, now: Now, party: Party, kind: RecordKind) -> bool {
        self.record_limiter.note(now.at, party, kind)
    }

    /// Records the number of suppressed records of ended intervals.
    pub(super) fn record_suppressed(&mut self, now: Now) {
        for Unwritten { party, kind, count } in self.record_limiter.take_due(now.at) {
            let party = party.map_or_else(|| "others".to_owned(), |party| party.to_string());
            let (of, limit, reason) = (kind.name(), kind.limit(), kind.reason());
            if kind != RecordKind::Connect {
                tracing::warn!(of, limit, reason, %party, count, within = ?INTERVAL, "suppressed repeated records");
            }
            let window = INTERVAL;
            self.audit(now, &Happening::Repeated { of, limit, reason, party, count, window });
        }
    }

    /// Counts a connection, accepted or not.
    pub(super) fn note_connection(&mut self) {
        self.observer.metrics.note_connection();
    }

    /// Counts the bytes of a closed connection.
    pub(super) fn note_close(&mut self, link: &Link) {
        self.observer.metrics.note_close(link.bytes_received(), link.bytes_sent());
    }

    /// Records an accepted peer, and the job, server or agent that it is inside of, if any. Later peers of a party, and their disconnects,
    /// are only counted.
    pub(super) fn record_connect(
        &mut self,
        now: Now,
        conn: ConnId,
        identity: &Identity,
        peer: &Origin,
        inside: Option<ceased_process::JobId>,
        signed: Option<Arc<SignedToken>>,
    ) {
        self.observer.names.note(identity);
        if !self.should_record(now, Party::of(identity, peer), RecordKind::Connect) {
            return;
        }
        self.connections.note_recorded(conn);
        self.http.note_recorded(conn);
        let instance = inside.and_then(instance_of);
        let job = inside.filter(|_| instance.is_none()).map(from_process);
        let instance = instance.and_then(|instance| self.upstreams.get(instance));
        let server = instance.map(|instance| Box::from(instance.name()));
        tracing::debug!(%conn, %identity, %peer, job = job.map(JobId::get), server, "connected");
        let (identity, peer) = (identity.clone(), peer.to_string());
        self.audit(now, &Happening::Connect { identity, conn, peer, job, server, signed });
    }

    /// Records a rejected peer: its identity and the reason. The first of a party and kind is
    /// recorded, later ones are counted. Returns whether this one is recorded.
    pub(super) fn record_refusal(
        &mut self,
        now: Now,
        conn: Option<ConnId>,
        identity: Identity,
        peer: &Origin,
        kind: RecordKind,
        reason: &str,
    ) -> bool {
        let limit = kind.limit();
        if let Some(limit) = limit {
            self.observer.metrics.note_refusal(limit);
        }
        let is_news = self.should_record(now, Party::of(&identity, peer), kind);
        if is_news {
            let (peer, reason) = (peer.to_string(), reason.to_owned());
            self.audit(now, &Happening::Refuse { identity, conn, peer, limit, reason });
        }
        is_news
    }

    /// Records a request rejected by a limit of the engine.
    fn record_limit(&mut self, now: Now, conn: ConnId, identity: Identity, limit: &'static str) {
        self.observer.metrics.note_refusal(limit);
        let party = match self.connections.origin(conn) {
            Some(origin) => Party::of(&identity, origin),
            None => Party::Identity(identity.clone()),
        };
        if self.should_record(now, party, RecordKind::Limit(limit)) {
            self.audit(now, &Happening::Noted(AuditEvent::Refused { conn, identity, limit }, None));
        }
    }

    /// Records the disconnect of an accepted peer. Call it before the engine forgets its identity.
    pub(super) fn record_disconnect(&mut self, now: Now, conn: ConnId, link: &Link) {
        let (received_bytes, sent_bytes) = (link.bytes_received(), link.bytes_sent());
        let identity = self.engine.identity(conn).unwrap_or(&Identity::Anonymous);
        let identity = identity.clone();
        tracing::debug!(%conn, %identity, received_bytes, sent_bytes, "disconnected");
        let gone = Happening::Disconnect { identity, conn, received_bytes, sent_bytes };
        self.audit(now, &gone);
    }

    pub(super) fn record_note(&mut self, now: Now, note: AuditEvent) {
        match note {
            AuditEvent::Ceased(receipt) => return self.record_end(now, receipt, Ended::Wholly),
            AuditEvent::Outlasted(receipt) => return self.record_end(now, receipt, Ended::Not),
            AuditEvent::RelayEnded(end) => {
                let (is_stopped, was_sent) = (end.is_stopped, end.sent.is_some());
                let hop =
                    self.hop(end.asked, &end.method, end.request.as_ref(), (end.conn, end.dialect));
                let mut call = self.observer.calls.end_relayed(*end, now);
                call.hop = hop;
                return self.call_ended(now, Arc::new(call), (is_stopped, was_sent));
            }
            AuditEvent::RequestEnded(end) => return self.export_request(now, &end),
            AuditEvent::Refused { conn, identity, limit } => {
                return self.record_limit(now, conn, identity, limit);
            }
            AuditEvent::TaskCreated { ref identity, live, .. } => {
                let max = self.settings.limits.live_tasks_max;
                self.observer.alerts.look_at_tasks(now.at, identity, live, max);
            }
            AuditEvent::StoreFailed { why } => {
                self.observer.store_trouble = Some((why, now.wall));
                self.http.health.note_store(false);
            }
            AuditEvent::StoreRecovered => {
                self.observer.store_trouble = None;
                self.http.health.note_store(true);
            }
            AuditEvent::CallCancelled { .. }
            | AuditEvent::TaskCancelled { .. }
            | AuditEvent::JobCancelled { .. }
            | AuditEvent::CancelIgnored { .. }
            | AuditEvent::Abandoned { .. }
            | AuditEvent::RemoteTask { .. }
            | AuditEvent::TaskEnded { .. }
            | AuditEvent::TaskRetrieved { .. }
            | AuditEvent::TaskExpired { .. }
            | AuditEvent::Suspicious { .. } => {}
        }
        let job = job_of(&note);
        let trace = job.and_then(|job| self.engine.trace(job)).cloned();
        if let Some(happening) = Happening::of(note, trace) {
            self.audit(now, &happening);
        }
    }

    /// Records the receipt of a stopped job, when it has ended or outlasts that: from the engine's
    /// data of the request and the supervisor's of the end.
    fn record_end(&mut self, now: Now, receipt: Box<Receipt>, ended: Ended) {
        let after = now.at - receipt.since;
        let unbegun = || (NONE, "nothing", Some(0), after, Some(0));
        let end = match (self.observer.job_ends.take(receipt.job), receipt.stage) {
            (Some(End::Unbegun), _) | (None, None) => unbegun(),
            (None, Some(step)) => match receipt.upstream.as_ref().map(|upstream| upstream.proof) {
                None => (step.as_str(), "thread", Some(0), after, Some(0)),
                Some(Proof::Unsent) => unbegun(),
                Some(proof) => {
                    let (ended, survivors) = facts_of(proof);
                    (step.as_str(), self.observer.containment, ended, after, survivors)
                }
            },
            (Some(End::Exited { stopped, processes, survivors, gone }), _) => {
                let stage = match stopped {
                    // It ended by itself before the order arrived.
                    Stopped::No => NONE,
                    Stopped::Terminated => "SIGTERM",
                    Stopped::Killed => "SIGKILL",
                };
                let died_after = self.clock.at(gone) - receipt.since;
                (stage, self.observer.containment, Some(processes), died_after, survivors)
            }
        };
        let (stage, held_by, processes_ended, died_after, survivors) = end;
        let died_after = (ended == Ended::Wholly).then_some(died_after);
        let record =
            CancelRecord { stage, held_by, processes_ended, died_after, survivors, receipt };
        let is_wrap = self.settings.servers.iter().any(|server| server.transparent);
        if is_wrap && tracing::enabled!(tracing::Level::WARN) {
            // The user of `ceased wrap` has no other place that shows it.
            record.left_by_server().iter().for_each(|line| say(format_args!("{line}")));
        }
        let observer = &mut self.observer;
        observer.alerts.look_at_end(&record);
        let record = Arc::new(record);
        observer.metrics.note_end(Arc::clone(&record));
        self.audit(now, &Happening::Cancel(Arc::clone(&record)));
        let receipt = &*record.receipt;
        let is_unbegun = receipt.stage.is_none() && receipt.upstream.is_none();
        let call = self.observer.job_ends.take_unreceipted(receipt.job);
        let call = call.or_else(|| is_unbegun.then(|| Arc::new(CallRecord::unbegun(receipt))));
        if let Some(call) = call.filter(|_| ended == Ended::Wholly) {
            self.keep_ended(now, call, Some(record));
        }
    }

    /// A call has ended: records and counts it. To be called while the engine still has its job.
    pub(super) fn record_call(
        &mut self,
        now: Now,
        job: JobId,
        outcome: CallOutcome,
        exit: Option<&Exit>,
    ) {
        let of_job = self.engine.job_facts(job);
        let about = of_job.map_or((None, None), |job| (Some(job.owner), job.trace));
        let is_stopped = of_job.is_some_and(|job| job.is_stopping);
        let outcome = (outcome, self.clock.to_system(now.at));
        let Some(mut call) = self.observer.calls.end(job, about, outcome, exit) else { return };
        call.hop = self.hop_of(job);
        self.call_ended(now, Arc::new(call), (is_stopped, true));
    }

    /// Facts about the request of a job, where spans are recorded.
    fn hop_of(&self, job: JobId) -> Option<Box<Hop>> {
        self.observer.exporter.as_ref()?;
        let (asked, dialect) = (self.engine.asked_at(job)?, self.engine.dialect_of(job)?);
        let conn = self.engine.connection(job)?;
        self.hop(asked, "tools/call", self.engine.request(job), (conn, dialect))
    }

    fn transport_of(&self, conn: ConnId) -> &'static str {
        match self.connections.origin(conn) {
            Some(Origin::Unix { .. }) => "unix",
            Some(Origin::Tcp { .. }) => "tcp",
            Some(Origin::Stdio { .. } | Origin::Child { .. }) => "pipe",
            // An HTTP session has no connection of its own.
            None => "",
        }
    }

    fn hop(
        &self,
        asked: CoreInstant,
        method: &str,
        request: Option<&RequestId>,
        (conn, dialect): (ConnId, &'static Dialect),
    ) -> Option<Box<Hop>> {
        self.observer.exporter.as_ref()?;
        let transport = self.transport_of(conn);
        Some(Box::new(Hop {
            asked: self.clock.to_system(asked),
            method: method.into(),
            request: request.map(|request| format!("{request:.64}")),
            revision: dialect.revision,
            transport,
        }))
    }

    fn call_ended(
        &mut self,
        now: Now,
        call: Arc<CallRecord>,
        (is_stopped, has_begun): (bool, bool),
    ) {
        if self.observer.calls.are_recorded() && (has_begun || !is_stopped) {
            self.audit(now, &Happening::Call(Arc::clone(&call)));
        }
        match is_stopped {
            true => self.observer.job_ends.await_receipt(call),
            false => self.keep_ended(now, call, None),
        }
    }

    /// Hands the end of a request that no job worked on to the collector of spans.
    fn export_request(&self, now: Now, end: &RequestEnd) {
        let Some(exporter) = &self.observer.exporter else { return };
        let at = |at| self.clock.to_system(at);
        exporter.export_request(&EndedRequest {
            end,
            asked: at(end.asked),
            stopped: end.stopped.map(at),
            ended: at(now.at),
            transport: self.transport_of(end.conn),
        });
    }

    /// A call has ended and has its receipt, if it was stopped.
    pub(super) fn keep_ended(
        &mut self,
        now: Now,
        call: Arc<CallRecord>,
        receipt: Option<Arc<CancelRecord>>,
    ) {
        let ended = EndedCall::new(call, receipt, self.clock.to_system(now.at));
        if let Some(exporter) = &self.observer.exporter {
            let since = ended.receipt.as_ref().map(|it| self.clock.to_system(it.receipt.since));
            exporter.export(&ended, since);
        }
        self.begin_on_end(now, &ended);
        self.observer.ended.push(ended);
    }

    /// Hands the end of a job that no process had to the engine.
    pub(super) fn done(&mut self, now: Now, job: JobId, outcome: Outcome) {
        self.record_call(now, job, CallOutcome::of(&outcome), None);
        self.engine.handle(now, Event::Done { job, outcome }, &mut self.actions);
    }

    /// Warns of limits that are nearly reached (TSK-38).
    pub(super) fn look_how_full(&mut self, now: Now) {
        let load = self.engine.occupancy();
        self.observer.alerts.look(now.at, load, &self.settings.limits);
    }

    /// A snapshot of all measurements.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let engine = &self.engine;
        let bytes = |(received, sent): (u64, u64), link: &Link| {
            (received + link.bytes_received(), sent + link.bytes_sent())
        };
        let open = self.connections.links();
        let store = self.store.as_ref();
        Snapshot {
            store_is_open: store.map(|_| self.observer.store_trouble.is_none()),
            store_bytes: store.and_then(|store| store.health().bytes()),
            metrics: &self.observer.metrics,
            tools: self.observer.calls.tools(),
            times: self.observer.calls.times(),
            counters: engine.counters(),
            gauges: engine.gauges(),
            limits: self.settings.limits,
            open_bytes: open.fold((0, 0), bytes),
            audit_dropped: self.observer.audit.dropped(),
            spans_dropped: self.observer.exporter.as_ref().map(|exporter| exporter.dropped()),
            on_end_dropped: self.endings.dropped(),
            abandoned_threads: self.jobs.abandoned(),
            uptime: self.observer.started.elapsed(),
            reloads: self.reloads().latest(),
            agents: engine.agent_stats(),
            servers: engine
                .server_stats()
                .into_iter()
                .map(|stats| {
                    let skipped = self.upstreams.skipped_by(&stats.server);
                    (stats, skipped)
                })
                .collect(),
        }
    }

    /// Handles a request for the detailed status: first collects the processes.
    pub(super) fn survey(
        &mut self,
        now: Now,
        survey: StatusId,
        jobs: Vec<JobId>,
        instances: Vec<InstanceId>,
        (viewer, ended): (Option<Identity>, bool),
    ) {
        let asked = jobs.iter().copied().map(to_process);
        let asked = asked.chain(instances.into_iter().map(to_job)).collect();
        #[cfg(feature = "fleet")]
        let of_fleet = self.reader.is_some().then(|| viewer.clone());
        let survey_of = Survey { viewer, jobs, ended, asked, fleet: None };
        self.observer.surveys.insert(survey, survey_of);
        #[cfg(feature = "fleet")]
        if let (Some(reader), Some(viewer)) = (&self.reader, of_fleet) {
            return reader.survey(survey.get(), viewer);
        }
        self.survey_processes(now, survey.get(), None);
    }

    /// Asks for the processes, with the nodes of the fleet, if there is one.
    pub(super) fn survey_processes(&mut self, now: Now, ticket: u64, fleet: Option<Box<RawValue>>) {
        let survey = StatusId::new(ticket);
        let Some(waiting) = self.observer.surveys.get_mut(&survey) else { return };
        waiting.fleet = fleet;
        let order = Order::Survey { ticket, jobs: std::mem::take(&mut waiting.asked) };
        if self.supervisor.order(order).is_err() {
            self.answer_survey(now, survey, Vec::new(), &BTreeMap::new());
        }
    }

    /// Answers it when the processes are known.
    pub(super) fn answer_survey(
        &mut self,
        now: Now,
        survey: StatusId,
        processes: Vec<(ceased_process::JobId, Vec<Process>)>,
        usage: &BTreeMap<JobId, Usage>,
    ) {
        let Some(Survey { viewer, jobs, ended, fleet, .. }) = self.observer.surveys.remove(&survey)
        else {
            return;
        };
        let (mut of_jobs, mut instances) = (BTreeMap::new(), BTreeMap::new());
        for (job, list) in processes {
            match instance_of(job) {
                Some(id) => {
                    let status = self.instance_status(now, id, list);
                    instances.extend(status.map(|status| (id.get(), status)));
                }
                None => _ = of_jobs.insert(from_process(job).get(), list),
            }
        }
        let (viewer, containment) = (viewer.as_ref(), self.observer.containment);
        let store = self.store_status(viewer);
        let jobs = job_status::of_jobs(&jobs, usage, |job| JobStatus {
            arguments: self.observer.calls.shown_arguments(job),
            last_line: self.outputs.last_line(job),
            ..JobStatus::default()
        });
        let tokens = self.token_status(now, viewer);
        let observer = &mut self.observer;
        observer.ended.prune();
        let calls = &observer.calls;
        let ended = ended.then(|| observer.ended.told(viewer, |call| calls.arguments_of(call)));
        let names = observer.names.told(viewer);
        let listed = Listed { processes: of_jobs, jobs, instances, tokens, ended, names, fleet };
        let status = self.snapshot().host_status(containment, viewer, listed, store);
        // The structure has no map with non-string keys, so serialization succeeds.
        let Ok(host) = to_raw_value(&status) else { return };
        let event = Event::HostStatusCollected { survey, host: &host };
        self.engine.handle(now, event, &mut self.actions);
    }
}

/// The job that an event is about, while it may run.
const fn job_of(note: &AuditEvent) -> Option<JobId> {
    match note {
        AuditEvent::CallCancelled { job, .. } | AuditEvent::TaskCancelled { job, .. } => *job,
        AuditEvent::JobCancelled { job, .. }
        | AuditEvent::TaskCreated { job, .. }
        | AuditEvent::Abandoned { job, .. } => Some(*job),
        AuditEvent::CancelIgnored { .. }
        | AuditEvent::Ceased(_)
        | AuditEvent::Outlasted(_)
        | AuditEvent::RelayEnded(_)
        | AuditEvent::RequestEnded(_)
        | AuditEvent::RemoteTask { .. }
        | AuditEvent::StoreFailed { .. }
        | AuditEvent::StoreRecovered
        | AuditEvent::Refused { .. }
        | AuditEvent::TaskEnded { .. }
        | AuditEvent::TaskRetrieved { .. }
        | AuditEvent::TaskExpired { .. }
        | AuditEvent::Suspicious { .. } => None,
    }
}

impl Server {
    fn instance_status(
        &self,
        now: Now,
        id: InstanceId,
        processes: Vec<Process>,
    ) -> Option<InstanceStatus> {
        let instance = self.upstreams.get(id)?;
        let stderr = quoted(&instance.stderr());
        let stderr = stderr.lines().map(str::to_owned).collect();
        let age = now.at - instance.started();
        Some(InstanceStatus::new(age, processes, instance.skipped(), stderr))
    }
}
