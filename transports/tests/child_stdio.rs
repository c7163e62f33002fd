//! A child's pipes as a link: messages alone arrive, and both directions have backpressure.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::send_queue::SendQueue;
use ceased_transports::{ChildStdio, Flow, Link, SCRATCH_BYTES, Sent, SkippedLines};
use mio::{Events, Poll, Token};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

struct Rig {
    poll: Poll,
    link: Link,
    skipped: SkippedLines,
    /// The child's standard input and output.
    stdin: File,
    stdout: File,
}

fn rig() -> Rig {
    let (stdin, to_child) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (from_child, stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let transport = ChildStdio::new(from_child, to_child, "test").unwrap();
    let skipped = transport.skipped();
    let limits = FrameLimits { frame_bytes_max: 64 };
    let mut link = Link::new(Box::new(transport), limits);
    let poll = Poll::new().unwrap();
    link.register(poll.registry(), Token(7)).unwrap();
    Rig { poll, link, skipped, stdin: stdin.into(), stdout: stdout.into() }
}

impl Rig {
    fn wait(&mut self) {
        let mut events = Events::with_capacity(8);
        self.poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
        assert!(!events.is_empty(), "no event in time");
        events.iter().for_each(|event| self.link.on_event(event));
    }

    fn receive(&mut self, budget: usize) -> (Vec<String>, Flow) {
        let (mut frames, mut scratch) = (Vec::new(), vec![0; SCRATCH_BYTES]);
        let mut sink = |frame: Frame<'_>| {
            frames.push(match frame {
                Frame::Line(line) => String::from_utf8_lossy(line).into_owned(),
                Frame::TooLong(_) => "<too long>".into(),
                Frame::NotJsonRpc(_) => "<no JSON-RPC>".into(),
            });
        };
        let flow = self.link.receive(&mut scratch, budget, &mut sink).unwrap();
        (frames, flow)
    }
}

/// UPS-14
#[test]
fn banner_and_garbage_are_skipped_and_an_overlong_line_is_told() {
    let mut rig = rig();
    let long = format!("{{\"long\":\"{}\"}}\n", "x".repeat(100));
    rig.stdout.write_all(b"Server 1.0\r\n\x1b[1mready\xff\x1b[0m\n").unwrap();
    rig.wait();
    assert_eq!(rig.receive(1 << 20), (vec![], Flow::Drained));
    rig.stdout.write_all(b"[2026-11-25] hi\n{\"id\":1}\r\n").unwrap();
    rig.stdout.write_all(long.as_bytes()).unwrap();
    rig.stdout.write_all(b"{\"id\":2}\n{\"cut").unwrap();
    rig.wait();
    let (frames, flow) = rig.receive(1 << 20);
    assert_eq!(frames, ["{\"id\":1}", "<too long>", "{\"id\":2}"]);
    assert_eq!(flow, Flow::Drained);
    rig.stdout.write_all(b"\":3}\n").unwrap();
    rig.wait();
    assert_eq!(rig.receive(1 << 20).0, ["{\"cut\":3}"]);
    assert_eq!(rig.skipped.count(), 3);
    assert_eq!(rig.skipped.first().first().unwrap(), "Server 1.0");
    drop(rig.stdout);
    rig.stdout = File::open("/dev/null").unwrap();
    rig.wait();
    assert_eq!(rig.receive(1 << 20), (vec![], Flow::Finished));
}

/// One event announces all that a pipe holds, also of a child that enlarged its pipe: no other event
/// follows while the child waits.
#[test]
fn full_pipe_of_any_size_is_emptied_and_the_next_write_is_announced() {
    for enlarged in [false, true] {
        let mut rig = rig();
        if enlarged {
            fcntl_setpipe_size(&rig.stdout, 1 << 20).unwrap();
        }
        let bytes = fcntl_getpipe_size(&rig.stdout).unwrap();
        // A length that divides the size of a pipe, so that the pipe is full to the last byte.
        let line = format!("{{\"id\":{:>8}}}\n", 1);
        assert_eq!(bytes % line.len(), 0);
        let lines = bytes / line.len();
        for _ in 0..3 {
            rig.stdout.write_all(line.repeat(lines).as_bytes()).unwrap();
            rig.wait();
            let (frames, flow) = rig.receive(4 << 20);
            assert_eq!((frames.len(), flow), (lines, Flow::Drained), "{bytes}");
        }
    }
}

#[test]
fn child_that_does_not_read_blocks_the_queue_until_it_reads() {
    let mut rig = rig();
    let mut queue = SendQueue::new();
    let message = format!("{{\"text\":\"{}\"}}", "x".repeat(1000));
    let lines = 300;
    (0..lines).for_each(|_| queue.line(message.as_bytes()));
    let whole = lines * (message.len() + 1);
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Blocked);
    let mut read = 0;
    let mut bytes = vec![0; 64 << 10];
    while read < whole {
        read += rig.stdin.read(&mut bytes).unwrap();
        if rig.link.is_blocked() {
            rig.wait();
            let _ = rig.link.send(&mut queue, rig.poll.registry());
        }
    }
    assert_eq!((read, queue.is_empty()), (whole, true));
    // End of file: the child can still answer.
    rig.link.finish().unwrap();
    assert_eq!(rig.stdin.read(&mut bytes).unwrap(), 0);
    rig.stdout.write_all(b"{\"id\":9}\n").unwrap();
    rig.wait();
    assert_eq!(rig.receive(1 << 20).0, ["{\"id\":9}"]);
}

#[test]
fn caller_that_does_not_read_blocks_the_child() {
    let mut rig = rig();
    rustix::io::ioctl_fionbio(&rig.stdout, true).unwrap();
    let mut written = 0;
    let error = loop {
        match rig.stdout.write(b"{\"id\":1}\n") {
            Ok(n) => written += n,
            Err(error) => break error,
        }
        assert!(written < 64 << 20, "the pipe never fills");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    rig.wait();
    let (frames, flow) = rig.receive(900);
    assert_eq!((frames.len(), flow), (100, Flow::More), "no more than the budget");
    let mut all = frames.len();
    while flow_more(&mut rig, &mut all) {}
    assert_eq!(all, written / 9);
    rig.stdout.write_all(b"{\"id\":1}\n").unwrap();
}

fn flow_more(rig: &mut Rig, all: &mut usize) -> bool {
    let (frames, flow) = rig.receive(9000);
    *all += frames.len();
    flow == Flow::More
}
