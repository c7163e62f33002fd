//! The audit log: who did what to which task, and what became of every cancel (TSK-41, CAN-12).
//!
//! Records go through a bounded queue to a thread of their own, which puts them into words and
//! writes them, so that no disk can hold the loop up. What does not fit, or cannot be written, is
//! dropped, counted, and said: in the log, and in the file itself as soon as it can be written to
//! again.

mod line;
mod record;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

pub(crate) use record::{CancelRecord, Happening, Record};
use writer::{Sink, Writer};

/// Records that may wait for the disk.
const WAITING_MAX: usize = 8192;

/// What the thread is sent.
enum Order {
    Write(Record),
    /// Open the file again: somebody has moved it away (SIGHUP).
    Reopen,
}

/// The way to the audit log.
pub(crate) struct Audit {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the loop and the thread share.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// The queue has something, or is closed.
    filled: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queue {
    orders: Vec<Order>,
    /// The thread sleeps until somebody wakes it.
    asleep: bool,
    closed: bool,
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
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(sink, Arc::clone(&shared));
        let thread =
            thread::Builder::new().name("ceased-audit".into()).spawn(move || writer.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands a record over; never waits.
    pub(crate) fn record(&self, record: Record) {
        if !self.shared.push(Order::Write(record)) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file again; the old one stays in use if that fails.
    pub(crate) fn reopen(&self) {
        if !self.shared.push(Order::Reopen) {
            tracing::error!("the audit log was not reopened: its queue is full; send SIGHUP again");
        }
    }

    /// Records that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False when there is no room.
    fn push(&self, order: Order) -> bool {
        let mut queue = self.queue();
        if queue.orders.len() >= WAITING_MAX {
            return false;
        }
        queue.orders.push(order);
        let wakes = std::mem::take(&mut queue.asleep);
        drop(queue);
        if wakes {
            self.filled.notify_one();
        }
        true
    }

    /// Waits for something and moves it all into `orders`, which is empty; false when nothing will
    /// come any more.
    fn take(&self, orders: &mut Vec<Order>) -> bool {
        let mut queue = self.queue();
        while queue.orders.is_empty() && !queue.closed {
            queue.asleep = true;
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.orders, orders);
        !orders.is_empty()
    }

    fn is_closed(&self) -> bool {
        self.queue().closed
    }
}

impl Drop for Audit {
    /// Writes what waits.
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where an audit log is, in an error.
pub(crate) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the audit log {}: {error}", path.display()))
}
