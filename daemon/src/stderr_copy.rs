//! A copy of a program's standard error on this process's own, as `ceased wrap` makes it: hosts show
//! the standard error of the server that they started.
//!
//! The thread that reads the program must not wait for the host, so that a thread of its own writes.
//! Bytes that find no room in its queue are dropped, and a line says how many.

use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ceased_process::TakeOutput;

use crate::stderr::BlockingStderr;

/// Bytes that wait for the reader of standard error: several pages of log, and as much as a pipe
/// holds four times.
const WAITING_MAX: usize = 256 * 1024;

/// The thread that writes the copy. Dropping it writes the rest, as far as standard error is read.
#[derive(Debug)]
pub(crate) struct StderrCopy {
    queue: Arc<Queue>,
    stderr: BlockingStderr,
    thread: Option<JoinHandle<()>>,
}

/// Bytes between the supervisor and the thread.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Bytes after `waiting` that found no room.
    dropped: u64,
    is_closed: bool,
}

impl State {
    /// Appends bytes, or counts them where there is no room. Nothing is appended behind a gap, so
    /// that its line stands in its place.
    fn push(&mut self, bytes: &[u8]) {
        if self.dropped > 0 || self.waiting.len() + bytes.len() > WAITING_MAX {
            self.dropped += bytes.len() as u64;
        } else {
            self.waiting.extend_from_slice(bytes);
        }
    }

    /// Takes everything, with a line about a gap at its end.
    fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.waiting);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            if bytes.last().is_some_and(|last| *last != b'\n') {
                bytes.push(b'\n');
            }
            let line = format!(
                "ceased: dropped {dropped} bytes of standard error of the wrapped program: this one was \
                 not read\n"
            );
            bytes.extend_from_slice(line.as_bytes());
        }
        bytes
    }
}

impl TakeOutput for Queue {
    fn take(&self, bytes: &[u8]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        self.changed.notify_one();
    }
}

impl Queue {
    /// Waits for bytes; `None` once it is closed and empty.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let bytes = state.take();
            if !bytes.is_empty() {
                return Some(bytes);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.changed.notify_one();
    }
}

impl StderrCopy {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, stderr) = (Arc::new(Queue::default()), BlockingStderr::default());
        let (of_thread, mut sink) = (Arc::clone(&queue), stderr.clone());
        let thread = thread::Builder::new().name("ceased-stderr".into()).spawn(move || {
            while let Some(bytes) = of_thread.next() {
                // Without a reader there is no place for the rest either.
                let _ = sink.write_all(&bytes);
            }
        })?;
        Ok(Self { queue, stderr, thread: Some(thread) })
    }

    /// The end that takes output.
    pub(crate) fn sink(&self) -> Arc<dyn TakeOutput> {
        Arc::clone(&self.queue) as Arc<dyn TakeOutput>
    }
}

impl Drop for StderrCopy {
    fn drop(&mut self) {
        self.queue.close();
        self.stderr.stop_waiting();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_is_told_in_its_place() {
        let mut state = State::default();
        state.push(b"first");
        state.push(&vec![b'x'; WAITING_MAX]);
        state.push(b"later");
        let text = String::from_utf8(state.take()).unwrap();
        let dropped = WAITING_MAX + 5;
        assert!(text.starts_with(&format!("first\nceased: dropped {dropped} bytes ")), "{text}");
        state.push(b"again\n");
        assert_eq!(state.take(), b"again\n");
        assert!(state.take().is_empty());
    }

    #[test]
    fn waiting_bytes_are_bounded() {
        let mut state = State::default();
        for _ in 0..100 {
            state.push(&vec![b'x'; WAITING_MAX / 8 + 1]);
        }
        assert!(state.waiting.len() <= WAITING_MAX && state.dropped > 0);
    }
}
