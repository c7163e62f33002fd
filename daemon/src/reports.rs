//! Reports: everything other threads tell the loop, through one bounded channel and one waker.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ceased_core::call::{Answer, Ask};
use ceased_core::event::{LogLevel, Outcome};
use ceased_core::id::{AskId, JobId};
use crossbeam_channel::{Receiver, Sender, TryIter, bounded};
use mio::{Poll, Token, Waker};
use serde_json::value::RawValue;

use crate::process;
use crate::store;

/// Reports that may wait for the loop; a thread that reports more waits for it.
const WAITING_MAX: usize = 4096;

/// Something another thread tells the loop.
#[derive(Debug)]
pub(crate) enum Report {
    /// A handler got further.
    Progress { job: JobId, progress: f64, total: Option<f64>, message: Option<Box<str>> },
    /// A handler says something.
    Log { job: JobId, level: LogLevel, data: Box<RawValue> },
    /// A handler asks its peer something.
    Asked { job: JobId, ask: AskId, request: Ask, answer: Sender<Answer> },
    /// A handler has returned.
    Done { job: JobId, outcome: Outcome },
    /// What the supervisor of processes has to say.
    Process(process::Report),
    /// What the store has to say.
    Store(store::thread::Report),
    /// Serve the other end of this socket as a peer of our own user.
    Adopt(UnixStream),
    /// Shut down.
    ShutDown,
}

/// The sending side. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    channel: Sender<Report>,
    wake: Arc<Wake>,
}

#[derive(Debug)]
struct Wake {
    waker: Waker,
    /// The loop was woken and has not looked yet: waking it again would be a wasted system call.
    woken: AtomicBool,
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct Inbound {
    channel: Receiver<Report>,
    wake: Arc<Wake>,
}

impl Reports {
    /// A channel into the loop that polls `poll`, announced under `token`.
    pub(crate) fn new(poll: &Poll, token: Token) -> io::Result<(Self, Inbound)> {
        let waker = Waker::new(poll.registry(), token)?;
        let wake = Arc::new(Wake { waker, woken: AtomicBool::new(false) });
        let (sender, receiver) = bounded(WAITING_MAX);
        let inbound = Inbound { channel: receiver, wake: Arc::clone(&wake) };
        Ok((Self { channel: sender, wake }, inbound))
    }

    /// Tells the loop. Once the loop has ended nobody listens, and that is fine.
    pub(crate) fn send(&self, report: Report) {
        if self.channel.send(report).is_ok() && !self.wake.woken.swap(true, Ordering::AcqRel) {
            // Fails only when the loop's descriptors are gone, and then nobody waits.
            let _ = self.wake.waker.wake();
        }
    }
}

impl Inbound {
    /// What has arrived. Whatever arrives from now on wakes the loop again.
    pub(crate) fn take(&self) -> TryIter<'_, Report> {
        self.wake.woken.store(false, Ordering::Release);
        self.channel.try_iter()
    }
}
