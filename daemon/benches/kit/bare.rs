//! A minimal server: one thread that reads lines and sends the same response to each.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Thread};
use std::time::Instant;

use mio::{Events, Interest, Poll, Registry, Token};

const ANSWER: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}],\"isError\":false}}\n";

/// A running server. Dropping it stops the server.
pub(crate) struct Server {
    /// Times at which cancels were read.
    pub(crate) raised: Receiver<Instant>,
    newcomers: Sender<UnixStream>,
    waker: mio::Waker,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Reports the start of a call of `wait`, and the end of its handler after a cancel.
    pub(crate) fn start(begun: Sender<()>, ended: Sender<Instant>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), Token(usize::MAX))?;
        let (newcomers, incoming) = channel();
        let (flag, raised) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let is_raised = Arc::new(AtomicBool::new(false));
        let handler = handler(Arc::clone(&is_raised), ended);
        let shared = Shared { begun, flag, is_raised, handler };
        let is_over = Arc::clone(&stop);
        thread::spawn(move || serve(poll, &incoming, &shared, &is_over));
        Ok(Self { raised, newcomers, waker, stop })
    }

    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let _ = self.newcomers.send(theirs);
        self.waker.wake()?;
        Ok(ours)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.waker.wake();
    }
}

struct Shared {
    begun: Sender<()>,
    flag: Sender<Instant>,
    is_raised: Arc<AtomicBool>,
    handler: Thread,
}

/// Starts a thread that repeatedly sleeps until the flag is set.
fn handler(is_raised: Arc<AtomicBool>, ended: Sender<Instant>) -> Thread {
    let sleeper = thread::spawn(move || {
        loop {
            while !is_raised.swap(false, Ordering::Acquire) {
                thread::park();
            }
            if ended.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    sleeper.thread().clone()
}

fn serve(mut poll: Poll, incoming: &Receiver<UnixStream>, shared: &Shared, is_over: &AtomicBool) {
    let mut events = Events::with_capacity(1024);
    let mut peers = Vec::new();
    while !is_over.load(Ordering::Relaxed) && poll.poll(&mut events, None).is_ok() {
        for event in &events {
            if let Some(peer) = peers.get_mut(event.token().0) {
                answer(peer, shared);
            }
        }
        while let Ok(stream) = incoming.try_recv() {
            peers.extend(watched(poll.registry(), stream, Token(peers.len())));
        }
    }
}

fn watched(registry: &Registry, stream: UnixStream, token: Token) -> Option<mio::net::UnixStream> {
    stream.set_nonblocking(true).ok()?;
    let mut stream = mio::net::UnixStream::from_std(stream);
    registry.register(&mut stream, token, Interest::READABLE).ok()?;
    Some(stream)
}

/// Answers the lines of one peer; each arrives in one piece.
fn answer(peer: &mut mio::net::UnixStream, shared: &Shared) {
    let mut buf = [0; 4096];
    let Ok(count) = peer.read(&mut buf) else { return };
    for line in buf[..count].split_inclusive(|byte| *byte == b'\n') {
        let has = |word: &[u8]| line.windows(word.len()).any(|at| at == word);
        if has(b"notifications/cancelled") {
            let _ = shared.flag.send(Instant::now());
            shared.is_raised.store(true, Ordering::Release);
            shared.handler.unpark();
        } else if has(b"\"wait\"") {
            let _ = shared.begun.send(());
        } else if has(b"\"id\"") {
            let _ = peer.write_all(ANSWER);
        }
    }
}
