//! The audit log: who did what to which task, and what became of every cancel (TSK-41, CAN-12).
//!
//! Records go through a bounded queue to a thread of their own, so that no disk can hold the loop
//! up. What does not fit, or cannot be written, is dropped, counted, and said: in the log, and in
//! the file itself as soon as it can be written to again.

mod record;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, bounded};

pub(crate) use record::{CancelRecord, Happening, Record};
use writer::{Sink, Writer};

/// Records that may wait for the disk.
const WAITING_MAX: usize = 8192;

/// What the thread is sent.
enum Order {
    Write(Box<Record>),
    /// Open the file again: somebody has moved it away (SIGHUP).
    Reopen,
}

/// The way to the audit log.
pub(crate) struct Audit {
    orders: Option<Sender<Order>>,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Audit {
    /// Starts writing to `path`, or to the log where there is none.
    ///
    /// # Errors
    /// When the file cannot be opened, is no regular file, or there is no thread for it.
    pub(crate) fn start(path: Option<PathBuf>) -> io::Result<Self> {
        let sink = match path {
            None => Sink::Log,
            Some(path) => Sink::file(path)?,
        };
        let (orders, inbox) = bounded(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(sink, Arc::clone(&dropped));
        let thread =
            thread::Builder::new().name("ceased-audit".into()).spawn(move || writer.run(&inbox))?;
        Ok(Self { orders: Some(orders), dropped, thread: Some(thread) })
    }

    /// Hands a record over; never waits.
    pub(crate) fn record(&self, record: Record) {
        let order = Order::Write(Box::new(record));
        if self.orders.as_ref().is_none_or(|orders| orders.try_send(order).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file again; the old one stays in use if that fails.
    pub(crate) fn reopen(&self) {
        let full =
            self.orders.as_ref().is_none_or(|orders| orders.try_send(Order::Reopen).is_err());
        if full {
            tracing::error!("the audit log was not reopened: its queue is full; send SIGHUP again");
        }
    }

    /// Records that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Audit {
    /// Writes what waits.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where an audit log is, in an error.
pub(crate) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the audit log {}: {error}", path.display()))
}
