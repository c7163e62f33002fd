//! Standard input and output over descriptors that are shared with the test itself.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::limits::FrameLimits;
use ceased_transports::{Link, Peer, Stdio, Transport as _};
use mio::{Events, Poll, Token};

const DEADLINE: Duration = Duration::from_secs(20);

fn copying_threads() -> usize {
    fs::read_dir("/proc/self/task")
        .expect("threads")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim_end() == "ceased-stdin")
        .count()
}

#[test]
fn copying_thread_ends_with_its_transport() {
    let endless = File::open("/dev/zero").unwrap();
    let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let mut stdio = Stdio::adopt(endless.into(), null.into()).unwrap();
    let (start, mut buf) = (Instant::now(), [1; 100]);
    while stdio.read(&mut buf).is_err() {
        assert!(start.elapsed() < DEADLINE, "nothing was copied");
        thread::yield_now();
    }
    assert_eq!(buf, [0; 100]);
    assert_eq!(copying_threads(), 1);
    drop(stdio);
    while copying_threads() > 0 {
        assert!(start.elapsed() < DEADLINE, "it copies to nobody");
        thread::yield_now();
    }
}

#[test]
fn dropped_transport_is_not_announced_although_its_description_lives_on() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let ours = OwnedFd::from(ours);
    let kept = ours.try_clone().unwrap();
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    let stdio = Stdio::adopt(ours.try_clone().unwrap(), ours).unwrap();
    let uid = rustix::process::getuid().as_raw();
    let mut link = Link::new(Box::new(stdio), FrameLimits::default());
    assert_eq!(link.peer(), &Peer::Stdio { uid });
    link.register(poll.registry(), Token(1)).unwrap();
    theirs.write_all(b"{}\n").unwrap();
    poll.poll(&mut events, Some(DEADLINE)).unwrap();
    assert!(!events.is_empty(), "it was announced before");

    drop(link);
    theirs.write_all(b"{}\n").unwrap();
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(events.is_empty(), "{events:?}");
    drop(kept);
}

#[test]
fn after_its_end_nothing_can_be_written_and_the_peer_knows() {
    let (stdin, _to) = rustix::pipe::pipe().unwrap();
    let (from, stdout) = rustix::pipe::pipe().unwrap();
    let mut stdio = Stdio::adopt(stdin, stdout).unwrap();
    let poll = Poll::new().unwrap();
    stdio.register(poll.registry(), Token(1)).unwrap();
    assert_eq!(stdio.write(b"last").unwrap(), 4);
    stdio.finish().unwrap();
    stdio.finish().unwrap();
    assert!(stdio.write(b"more").is_err());
    assert_eq!(std::io::read_to_string(File::from(from)).unwrap(), "last");
    stdio.deregister(poll.registry()).unwrap();
}
