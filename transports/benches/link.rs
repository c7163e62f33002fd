//! Costs of moving bytes: frames cut out of input, and answers written, through a socket
//! of this machine as the daemon uses it.
//!
//! `cargo bench -p ceased-transports --bench link`; the quickest run says most, since other load of
//! the machine only adds time.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::send_queue::SendQueue;
use ceased_transports::{Link, Readiness, SCRATCH_BYTES, Sent, Socket};
use divan::Bencher;
use divan::counter::BytesCount;
use mio::{Poll, Token};

/// Frames that are there at once.
const COUNTS: [usize; 3] = [1, 16, 128];
/// Bytes of a small message, such as a call and its answer.
const SMALL: usize = 128;
/// Bytes of a large one.
const LARGE: usize = 1 << 20;

fn main() {
    divan::main();
}

fn pair() -> (Poll, Link, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let transport = Socket::from_unix(ours).unwrap();
    let mut link = Link::new(Box::new(transport), FrameLimits::default());
    let poll = Poll::new().unwrap();
    link.register(poll.registry(), Token(0)).unwrap();
    (poll, link, theirs)
}

/// A message of so many bytes, with its line end.
fn line(bytes: usize) -> Vec<u8> {
    let mut line = br#"{"text":""#.to_vec();
    line.resize(bytes - 3, b'x');
    line.extend_from_slice(b"\"}\n");
    line
}

/// A link, and a peer that writes to it.
struct Incoming {
    link: Link,
    peer: Option<JoinHandle<UnixStream>>,
    scratch: Vec<u8>,
    _poll: Poll,
    _written: Option<UnixStream>,
}

impl Incoming {
    fn new(count: usize, bytes: usize) -> Self {
        let (poll, link, mut theirs) = pair();
        let text = line(bytes).repeat(count);
        let peer = thread::spawn(move || {
            theirs.write_all(&text).unwrap();
            theirs
        });
        // Small ones are all there before the clock starts.
        let (peer, written) = match count * bytes < SCRATCH_BYTES {
            true => (None, Some(peer.join().unwrap())),
            false => (Some(peer), None),
        };
        Self { link, peer, scratch: vec![0; SCRATCH_BYTES], _poll: poll, _written: written }
    }

    /// Reads frames that have arrived, or arrive meanwhile.
    fn receive(&mut self, count: usize) {
        let mut frames = 0;
        while frames < count {
            self.link.note(Readiness { readable: true, ..Default::default() });
            let flow = self.link.receive(&mut self.scratch, usize::MAX, &mut |frame: Frame<'_>| {
                frames += usize::from(matches!(frame, Frame::Line(_)));
            });
            assert!(flow.is_ok(), "the link is lost");
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.peer.take().map(JoinHandle::join);
    }
}

#[divan::bench(args = COUNTS, sample_size = 1, sample_count = 500)]
fn receive(bencher: Bencher<'_, '_>, count: usize) {
    bencher
        .counter(BytesCount::new(count * SMALL))
        .with_inputs(|| Incoming::new(count, SMALL))
        .bench_local_refs(|incoming| incoming.receive(count));
}

#[divan::bench(sample_size = 1)]
fn receive_one_mib(bencher: Bencher<'_, '_>) {
    bencher
        .counter(BytesCount::new(LARGE))
        .with_inputs(|| Incoming::new(1, LARGE))
        .bench_local_refs(|incoming| incoming.receive(1));
}

/// A link, and a peer that reads all that is written to it.
struct Outgoing {
    link: Link,
    queue: SendQueue,
    text: Vec<u8>,
    peer: Option<JoinHandle<()>>,
    poll: Poll,
}

impl Outgoing {
    fn new(count: usize, bytes: usize) -> Self {
        let (poll, link, mut theirs) = pair();
        let text = line(bytes).trim_ascii_end().to_vec();
        let peer = thread::spawn(move || {
            let mut all = vec![0; count * bytes];
            theirs.read_exact(&mut all).unwrap();
        });
        Self { link, queue: SendQueue::new(), text, peer: Some(peer), poll }
    }

    /// Writes frames and hands them to the system.
    fn send(&mut self, count: usize) {
        for _ in 0..count {
            self.queue.line(&self.text);
        }
        loop {
            self.link.note(Readiness { writable: true, ..Default::default() });
            match self.link.send(&mut self.queue, self.poll.registry()) {
                Sent::Everything => break,
                Sent::Blocked => thread::yield_now(),
                Sent::Lost => panic!("the link is lost"),
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.peer.take().map(JoinHandle::join);
    }
}

#[divan::bench(args = COUNTS, sample_size = 1, sample_count = 500)]
fn send(bencher: Bencher<'_, '_>, count: usize) {
    bencher
        .counter(BytesCount::new(count * SMALL))
        .with_inputs(|| Outgoing::new(count, SMALL))
        .bench_local_refs(|outgoing| outgoing.send(count));
}

#[divan::bench(sample_size = 1)]
fn send_one_mib(bencher: Bencher<'_, '_>) {
    bencher
        .counter(BytesCount::new(LARGE))
        .with_inputs(|| Outgoing::new(1, LARGE))
        .bench_local_refs(|outgoing| outgoing.send(1));
}
