//! What is measured: how long a cancel takes until everything is dead, what survived it, what was
//! refused, and how full the daemon is (TSK-38).

mod alerts;
mod endpoint;
mod histogram;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::counters::Counters;
use ceased_core::engine::Gauges;
use ceased_core::event::Identity;
use serde::Serialize;

pub(crate) use alerts::{Alerts, Thresholds};
pub(crate) use endpoint::Endpoint;
use histogram::Histogram;

use crate::audit::CancelRecord;

/// Receipts that are kept for views.
const RECEIPTS_MAX: usize = 32;

/// Everything the loop counts beside the engine.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    deaths: Histogram,
    survivors: u64,
    processes_ended: u64,
    refused: BTreeMap<&'static str, u64>,
    /// Bytes of the connections that are closed: read, and written.
    closed_bytes: (u64, u64),
    connections_accepted: u64,
    /// The latest receipts, newest last.
    receipts: VecDeque<Arc<CancelRecord>>,
}

impl Metrics {
    /// A job that was told to stop has ended.
    pub(crate) fn note_end(&mut self, record: Arc<CancelRecord>) {
        self.deaths.add(record.died_after);
        self.survivors += u64::from(record.survivors);
        self.processes_ended += u64::from(record.processes_ended);
        if self.receipts.len() >= RECEIPTS_MAX {
            self.receipts.pop_front();
        }
        self.receipts.push_back(record);
    }

    pub(crate) fn note_refusal(&mut self, limit: &'static str) {
        *self.refused.entry(limit).or_default() += 1;
    }

    pub(crate) const fn note_connection(&mut self) {
        self.connections_accepted += 1;
    }

    pub(crate) const fn note_close(&mut self, received: u64, sent: u64) {
        self.closed_bytes.0 += received;
        self.closed_bytes.1 += sent;
    }

    /// The latest receipts a viewer may see, newest first; everybody's for an operator.
    pub(crate) fn receipts(&self, viewer: Option<&Identity>) -> Vec<&CancelRecord> {
        let seen = |owner: &Identity| match viewer {
            None => true,
            // Nobody vouches for them: what one cancelled is no business of the others (TSK-40).
            Some(Identity::Anonymous) => false,
            Some(own @ (Identity::User(_) | Identity::Token(_))) => own == owner,
        };
        let receipts = self.receipts.iter().rev().map(|record| &**record);
        receipts.filter(|record| seen(&record.receipt.owner)).collect()
    }
}

/// Everything there is to tell, at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    pub(crate) metrics: &'a Metrics,
    pub(crate) counters: &'a Counters,
    pub(crate) gauges: Gauges,
    /// The limits the gauges are to be read against.
    pub(crate) limits: ceased_core::limits::Limits,
    /// Bytes of the connections that are open: read, and written.
    pub(crate) open_bytes: (u64, u64),
    pub(crate) audit_dropped: u64,
    /// Threads of handlers that were given up and have not returned.
    pub(crate) abandoned_threads: usize,
    pub(crate) uptime: Duration,
}

/// The host's part of a detailed status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostStatus<'a> {
    pid: u32,
    uptime_ms: u64,
    containment: &'a str,
    survivors: u64,
    processes_ended: u64,
    abandoned_threads: usize,
    audit_dropped: u64,
    connections_accepted: u64,
    received_bytes: u64,
    sent_bytes: u64,
    refused_by_limit: &'a BTreeMap<&'static str, u64>,
    cancel_to_death: &'a Histogram,
    /// The latest ends of jobs that were told to stop, newest first.
    receipts: Vec<&'a CancelRecord>,
    /// The processes of each job.
    processes: BTreeMap<u64, Vec<crate::process::Process>>,
}

impl<'a> Snapshot<'a> {
    fn bytes(&self) -> (u64, u64) {
        let (closed, open) = (self.metrics.closed_bytes, self.open_bytes);
        (closed.0 + open.0, closed.1 + open.1)
    }

    /// As the host's part of a detailed status for one viewer.
    pub(crate) fn host_status(
        &self,
        containment: &'a str,
        viewer: Option<&Identity>,
        processes: BTreeMap<u64, Vec<crate::process::Process>>,
    ) -> HostStatus<'a> {
        let (received_bytes, sent_bytes) = self.bytes();
        HostStatus {
            pid: std::process::id(),
            uptime_ms: u64::try_from(self.uptime.as_millis()).unwrap_or(u64::MAX),
            containment,
            survivors: self.metrics.survivors,
            processes_ended: self.metrics.processes_ended,
            abandoned_threads: self.abandoned_threads,
            audit_dropped: self.audit_dropped,
            connections_accepted: self.metrics.connections_accepted,
            received_bytes,
            sent_bytes,
            refused_by_limit: &self.metrics.refused,
            cancel_to_death: &self.metrics.deaths,
            receipts: self.metrics.receipts(viewer),
            processes,
        }
    }
}
