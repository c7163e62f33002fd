//! The queue between the loop and the thread that writes the audit log.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of records that may wait for the disk: 16,000 records, about.
pub(crate) const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of records that are handed over before the turn is over.
pub(crate) const TOGETHER_BYTES: usize = 64 * 1024;

/// State shared by the loop and the thread.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    /// The queue has something, or is closed.
    pub(crate) filled: Condvar,
    pub(crate) dropped: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) waiting: Batch,
    /// The thread sleeps until it is woken.
    pub(crate) asleep: bool,
    pub(crate) closed: bool,
}

/// Next step of the thread.
#[derive(Default)]
pub(crate) struct Batch {
    /// Records, each a line.
    pub(crate) lines: Vec<u8>,
    /// Open the file again once so many bytes of them are written: it was moved away
    /// (SIGHUP).
    pub(crate) reopen: Option<usize>,
}

impl Batch {
    pub(crate) const fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.reopen.is_none()
    }
}

impl Shared {
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes lines over, or drops them when there is no room; leaves an empty buffer.
    pub(crate) fn push(&self, lines: &mut Vec<u8>) {
        let mut queue = self.queue();
        let waiting = &mut queue.waiting.lines;
        if waiting.is_empty() {
            std::mem::swap(waiting, lines);
        } else if waiting.len() + lines.len() <= WAITING_BYTES_MAX {
            waiting.extend_from_slice(lines);
        } else {
            self.dropped.fetch_add(count(lines), Ordering::Relaxed);
        }
        lines.clear();
        self.wake(queue);
    }

    pub(crate) fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let wakes = std::mem::take(&mut queue.asleep);
        drop(queue);
        if wakes {
            self.filled.notify_one();
        }
    }

    /// Waits for something and moves it all into `batch`, which is empty; false when nothing will
    /// come any more.
    pub(crate) fn take(&self, batch: &mut Batch) -> bool {
        let mut queue = self.queue();
        while queue.waiting.is_empty() && !queue.closed {
            queue.asleep = true;
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.waiting, batch);
        !batch.is_empty()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue().closed
    }
}

/// How many records these lines are.
pub(crate) fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Where an audit log is, in an error.
pub(crate) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the audit log {}: {error}", path.display()))
}
