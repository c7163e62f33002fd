//! Spans of ended calls for a collector, over OTLP/HTTP as JSON (OBS-01).
//!
//! The loop hands spans to a thread of their own through a bounded queue. A collector that is slow or
//! away costs the loop nothing: spans that do not fit or cannot be delivered are dropped and counted.

mod post;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::config;
use crate::observability::ended::{EndedCall, EndedRequest, Export};
use crate::start_error::StartError;
use post::Collector;
use span::{span_of, span_of_request};

/// Spans in one request at most.
const TOGETHER_MAX: usize = 512;
/// Time for which spans are collected for one request.
const COLLECT: Duration = Duration::from_secs(1);
/// Time for the last spans at the end of the daemon.
const FAREWELL: Duration = Duration::from_secs(1);

/// The way to the collector.
#[derive(Debug)]
pub(crate) struct Otlp {
    spans: Option<SyncSender<Value>>,
    dropped: Arc<AtomicU64>,
    /// Closed when the thread has ended.
    over: Receiver<()>,
}

impl Otlp {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the headers or certificates cannot be read, or the thread cannot be created.
    pub(crate) fn start(policy: &config::Otlp) -> Result<Self, StartError> {
        let collector = Collector::of(policy)
            .map_err(|why| StartError::Otlp(format!("[otlp] cannot be used: {why}")))?;
        let (spans, received) = sync_channel(policy.queue);
        let (ended, over) = sync_channel(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let exporter = Exporter {
            collector,
            service_name: policy.service_name.clone(),
            timeout: policy.timeout,
            dropped: Arc::clone(&dropped),
            is_failing: false,
        };
        let run = move || {
            exporter.run(&received);
            drop(ended);
        };
        thread::Builder::new().name("ceased-otlp".into()).spawn(run)?;
        Ok(Self { spans: Some(spans), dropped, over })
    }
}

impl Otlp {
    /// Puts a span into the queue, or counts it as dropped.
    fn send(&self, span: Option<Value>) {
        let Some(span) = span else { return };
        let sent = self.spans.as_ref().map(|spans| spans.try_send(span));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Export for Otlp {
    fn export(&self, ended: &EndedCall, stopped: Option<Instant>) {
        self.send(span_of(ended, stopped));
    }

    fn export_request(&self, request: &EndedRequest<'_>) {
        self.send(span_of_request(request));
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Otlp {
    /// Gives the last spans a moment; a collector that does not answer is left behind.
    fn drop(&mut self) {
        self.spans = None;
        let _ = self.over.recv_timeout(FAREWELL);
    }
}

/// The thread that delivers spans.
struct Exporter {
    collector: Collector,
    service_name: String,
    timeout: Duration,
    dropped: Arc<AtomicU64>,
    is_failing: bool,
}

impl Exporter {
    fn run(mut self, spans: &Receiver<Value>) {
        while let Ok(first) = spans.recv() {
            let mut together = vec![first];
            let until = Instant::now() + COLLECT;
            while together.len() < TOGETHER_MAX {
                match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => together.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.deliver(together);
        }
    }

    fn deliver(&mut self, spans: Vec<Value>) {
        let count = spans.len() as u64;
        let version = env!("CARGO_PKG_VERSION");
        let resource = json!({"attributes": [
            span::text("service.name", &self.service_name),
            span::text("service.version", version),
        ]});
        let scope = json!({"name": "ceased", "version": version});
        let body = json!({"resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]},
        ]});
        let until = Instant::now() + self.timeout;
        match self.collector.post(&body.to_string(), until) {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                tracing::info!("the collector of [otlp] takes spans again");
            }
            Ok(()) => {}
            Err(why) => {
                self.dropped.fetch_add(count, Ordering::Relaxed);
                if !self.is_failing {
                    self.is_failing = true;
                    tracing::warn!(why, "the collector of [otlp] takes no spans: they are dropped");
                }
            }
        }
    }
}
