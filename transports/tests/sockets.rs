//! Real Unix and TCP sockets: listening, accepting, closing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::send_queue::SendQueue;
use ceased_transports::{
    Accept, Address, Flow, Link, ListenError, Listener, Lost, Peer, SCRATCH_BYTES, Sent, Socket,
    SocketMode, Transport,
};
use mio::{Events, Poll, Token};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::sockopt::{set_socket_linger, tcp_nodelay};

const DEADLINE: Duration = Duration::from_secs(20);

fn unix(path: impl AsRef<Path>) -> Address {
    Address::Unix { path: path.as_ref().to_owned(), mode: SocketMode::OWNER }
}

fn tcp() -> Address {
    Address::Tcp("127.0.0.1:0".parse().expect("an address"))
}

/// A listener with a poll, accepting as the daemon does.
struct Door {
    listener: Listener,
    poll: Poll,
}

impl Door {
    fn new(mut listener: Listener) -> Self {
        let poll = Poll::new().expect("poll");
        listener.register(poll.registry(), Token(0)).expect("register");
        Self { listener, poll }
    }

    fn accept(&mut self) -> Box<dyn Transport> {
        let (start, mut events) = (Instant::now(), Events::with_capacity(8));
        loop {
            match self.listener.accept() {
                Accept::Peer(transport) => return transport,
                Accept::Drained => {}
                other @ (Accept::Exhausted { .. } | Accept::Failed(_)) => panic!("{other:?}"),
            }
            assert!(start.elapsed() < DEADLINE, "nobody came");
            self.poll.poll(&mut events, Some(DEADLINE)).expect("poll");
        }
    }
}

/// A link that is driven as the daemon drives it.
struct Line {
    link: Link,
    poll: Poll,
    scratch: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl Line {
    fn new(transport: Box<dyn Transport>) -> Self {
        let poll = Poll::new().expect("poll");
        let mut link = Link::new(transport, FrameLimits::default());
        link.register(poll.registry(), Token(1)).expect("register");
        Self { link, poll, scratch: vec![0; SCRATCH_BYTES], frames: vec![] }
    }

    /// Waits for events; false when none came.
    fn wait(&mut self) -> bool {
        let mut events = Events::with_capacity(8);
        self.poll.poll(&mut events, Some(DEADLINE)).expect("poll");
        for event in &events {
            self.link.on_event(event);
        }
        !events.is_empty()
    }

    fn receive(&mut self) -> Result<Flow, Lost> {
        let frames = &mut self.frames;
        self.link.receive(&mut self.scratch, SCRATCH_BYTES, &mut |frame: Frame<'_>| match frame {
            Frame::Line(line) => frames.push(line.to_vec()),
            Frame::TooLong(_) | Frame::NotJsonRpc(_) => panic!("{frame:?}"),
        })
    }

    /// Receives until the flow is `wanted`.
    fn until(&mut self, wanted: Flow) {
        loop {
            let flow = self.receive().expect("the peer is there");
            if flow == wanted {
                return;
            }
            if flow == Flow::Drained {
                assert!(self.wait(), "no event");
            }
        }
    }

    fn until_frames(&mut self, count: usize) {
        while self.frames.len() < count {
            let flow = self.receive().expect("the peer is there");
            if flow == Flow::Drained && self.frames.len() < count {
                assert!(self.wait(), "no event");
            }
        }
    }

    fn until_lost(&mut self) -> Lost {
        loop {
            match self.receive() {
                Ok(Flow::Drained | Flow::Finished) => assert!(self.wait(), "no event"),
                Ok(Flow::More) => {}
                Err(lost) => return lost,
            }
        }
    }

    fn send(&mut self, queue: &mut SendQueue) {
        loop {
            match self.link.send(queue, self.poll.registry()) {
                Sent::Everything => return,
                Sent::Blocked => assert!(self.wait(), "no event"),
                Sent::Lost => panic!("lost"),
            }
        }
    }
}

fn queue_of(line: &[u8]) -> SendQueue {
    let mut queue = SendQueue::new();
    queue.line(line);
    queue
}

/// A connected pair: our line, their socket.
fn unix_pair() -> (Line, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    (Line::new(Box::new(Socket::from_unix(ours).expect("socket"))), theirs)
}

fn tcp_pair() -> (Line, TcpStream) {
    let mut door = Door::new(Listener::bind(&tcp()).expect("bind"));
    let Address::Tcp(addr) = *door.listener.address() else { panic!("not tcp") };
    let theirs = TcpStream::connect(addr).expect("connect");
    (Line::new(door.accept()), theirs)
}

#[test]
fn unix_peer_is_accepted_with_its_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/x.sock");
    let mut door = Door::new(Listener::bind(&unix(&path)).unwrap());
    assert_eq!(door.listener.address(), &unix(&path));
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o777, 0o600);
    for made in ["deep", "deep/er"] {
        assert_eq!(fs::metadata(dir.path().join(made)).unwrap().mode() & 0o777, 0o700);
    }

    let mut theirs = UnixStream::connect(&path).unwrap();
    let mut line = Line::new(door.accept());
    let pid = Some(std::process::id());
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(line.link.peer(), &Peer::Unix { uid, gid, pid });
    theirs.write_all(b"{\"id\":1}\n").unwrap();
    line.until_frames(1);
    assert_eq!(line.frames, [b"{\"id\":1}"]);
    assert!(matches!(door.listener.accept(), Accept::Drained));
}

#[test]
fn inherited_listener_is_served_and_its_file_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let made = UnixListener::bind(&path).unwrap();
    let shared = made.try_clone().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
    let mut door = Door::new(Listener::adopt(made.into()).unwrap());
    let mode = SocketMode::from_bits(0o660).unwrap();
    assert_eq!(door.listener.address(), &Address::Unix { path: path.clone(), mode });
    assert!(fcntl_getfl(shared.as_fd()).unwrap().contains(OFlags::NONBLOCK));
    let _theirs = UnixStream::connect(&path).unwrap();
    door.accept();
    drop(door);
    assert!(path.exists());

    let made = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = made.local_addr().unwrap();
    let mut door = Door::new(Listener::adopt(made.into()).unwrap());
    assert_eq!(door.listener.address(), &Address::Tcp(addr));
    let theirs = TcpStream::connect(addr).unwrap();
    assert_eq!(door.accept().peer(), &Peer::Tcp { addr: theirs.local_addr().unwrap() });

    let (connected, _other) = UnixStream::pair().unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    let datagrams = UnixDatagram::unbound().unwrap();
    for (fd, what) in [
        (OwnedFd::from(connected), "does not listen"),
        (file.into(), "not a socket"),
        (datagrams.into(), "another type"),
    ] {
        let error = Listener::adopt(fd).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn tcp_port_is_chosen_and_taken() {
    let mut door = Door::new(Listener::bind(&tcp()).unwrap());
    let Address::Tcp(addr) = *door.listener.address() else { panic!("not tcp") };
    assert_ne!(addr.port(), 0);
    let error = Listener::bind(&Address::Tcp(addr)).unwrap_err();
    assert!(matches!(error, ListenError::PortTaken { addr: taken } if taken == addr), "{error}");
    let theirs = TcpStream::connect(addr).unwrap();
    assert_eq!(door.accept().peer(), &Peer::Tcp { addr: theirs.local_addr().unwrap() });

    let adopted = TcpStream::connect(addr).unwrap();
    let clone = adopted.try_clone().unwrap();
    let _socket = Socket::from_tcp(adopted).unwrap();
    assert!(tcp_nodelay(&clone).unwrap());
    let nowhere: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let error = Listener::bind(&Address::Tcp(nowhere)).unwrap_err();
    assert!(error.to_string().contains("bind tcp 192.0.2.1:1"), "{error}");
}

#[test]
fn connections_that_went_before_they_were_accepted_do_no_harm() {
    let mut door = Door::new(Listener::bind(&tcp()).unwrap());
    let Address::Tcp(addr) = *door.listener.address() else { panic!("not tcp") };
    for _ in 0..10 {
        let stream = TcpStream::connect(addr).unwrap();
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
    let mut theirs = TcpStream::connect(addr).unwrap();
    let live = Peer::Tcp { addr: theirs.local_addr().unwrap() };
    let mut line = loop {
        let transport = door.accept();
        if transport.peer() == &live {
            break Line::new(transport);
        }
        assert!(matches!(Line::new(transport).until_lost(), Lost::Vanished(_)));
    };
    theirs.write_all(b"{}\n").unwrap();
    line.until_frames(1);
}

#[test]
fn half_closed_peer_still_gets_its_answers() {
    fn check(mut line: Line, mut theirs: impl std::io::Read + std::io::Write, end: impl Fn()) {
        theirs.write_all(b"{\"id\":1}\n{\"id\":2}").unwrap();
        end();
        line.until(Flow::Finished);
        assert_eq!(line.frames, [b"{\"id\":1}", b"{\"id\":2}"]);
        line.send(&mut queue_of(b"{\"result\":1}"));
        drop(line);
        let mut answers = String::new();
        theirs.read_to_string(&mut answers).unwrap();
        assert_eq!(answers, "{\"result\":1}\n");
    }
    let (line, theirs) = unix_pair();
    let end = theirs.try_clone().unwrap();
    check(line, theirs, || end.shutdown(Shutdown::Write).unwrap());
    let (line, theirs) = tcp_pair();
    let end = theirs.try_clone().unwrap();
    check(line, theirs, || end.shutdown(Shutdown::Write).unwrap());
}

#[test]
fn peer_that_closes_is_lost_after_its_last_words() {
    let (mut line, mut theirs) = unix_pair();
    theirs.write_all(b"{\"method\":\"tasks/cancel\"}\n").unwrap();
    drop(theirs);
    assert!(line.wait());
    assert!(matches!(line.receive(), Err(Lost::Vanished(None))));
    assert_eq!(line.frames, [b"{\"method\":\"tasks/cancel\"}"]);

    // The same when it is noticed by writing.
    let (mut line, mut theirs) = unix_pair();
    assert_eq!(line.receive().unwrap(), Flow::Drained);
    theirs.write_all(b"{\"method\":\"tasks/cancel\"}\n").unwrap();
    drop(theirs);
    let mut answer = queue_of(b"{}");
    assert_eq!(line.link.send(&mut answer, line.poll.registry()), Sent::Lost);
    assert!(answer.is_empty());
    let lost = line.until_lost();
    assert!(matches!(&lost, Lost::Vanished(Some(_))), "{lost:?}");
    assert_eq!(line.frames, [b"{\"method\":\"tasks/cancel\"}"]);
}

#[test]
fn reset_is_a_loss() {
    let (mut line, theirs) = tcp_pair();
    assert_eq!(line.receive().unwrap(), Flow::Drained);
    set_socket_linger(&theirs, Some(Duration::ZERO)).unwrap();
    drop(theirs);
    let lost = line.until_lost();
    assert!(lost.to_string().contains("reset"), "{lost}");
    assert_eq!(line.link.send(&mut queue_of(b"{}"), line.poll.registry()), Sent::Lost);
}

#[test]
fn closed_tcp_peer_is_first_finished_then_lost() {
    let (mut line, theirs) = tcp_pair();
    drop(theirs);
    line.until(Flow::Finished);
    // Only a write finds out that the peer does not read.
    while line.link.send(&mut queue_of(b"{}"), line.poll.registry()) == Sent::Everything {
        assert!(line.wait(), "no event");
    }
    assert!(matches!(line.until_lost(), Lost::Vanished(_)));
}

/// A wait for the next request does not wake because an answer was taken.
#[test]
fn answer_that_is_taken_is_no_event() {
    let (mut line, mut theirs) = unix_pair();
    line.until(Flow::Drained);
    let mut taken = [0; 3];
    for _ in 0..2 {
        line.send(&mut queue_of(b"{}"));
        theirs.read_exact(&mut taken).unwrap();
        let mut events = Events::with_capacity(8);
        line.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty(), "{events:?}");
        // And no more of them after room was waited for.
        let mut many = queue_of(&vec![b'x'; 4 << 20]);
        let mut rest = theirs.try_clone().unwrap();
        let reader = thread::spawn(move || rest.read_exact(&mut vec![0; (4 << 20) + 1]));
        line.send(&mut many);
        reader.join().unwrap().unwrap();
        line.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn peer_that_does_not_read_blocks_only_its_own_queue() {
    fn check(mut line: Line, mut theirs: impl std::io::Read + std::io::Write + Send + 'static) {
        let mut answers = SendQueue::new();
        let mut wanted = vec![];
        while wanted.len() < 16 << 20 {
            let text = format!("{{\"n\":{},\"pad\":\"{}\"}}", wanted.len(), "x".repeat(5000));
            answers.line(text.as_bytes());
            wanted.extend_from_slice(text.as_bytes());
            wanted.push(b'\n');
        }
        assert_eq!(line.link.send(&mut answers, line.poll.registry()), Sent::Blocked);
        let first = line.link.bytes_sent();
        assert_eq!(first as usize + answers.len(), wanted.len());
        assert_eq!(
            line.link.send(&mut answers, line.poll.registry()),
            Sent::Blocked,
            "and it does not spin"
        );
        assert_eq!(line.link.bytes_sent(), first);

        // It can still be heard: its cancel would end the backlog.
        theirs.write_all(b"{\"method\":\"notifications/cancelled\"}\n").unwrap();
        line.until_frames(1);

        let reader = thread::spawn(move || {
            let mut got = vec![];
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        line.send(&mut answers);
        drop(line);
        assert!(reader.join().unwrap() == wanted, "whole and in order");
    }
    let (line, theirs) = unix_pair();
    check(line, theirs);
    let (line, theirs) = tcp_pair();
    check(line, theirs);
}

#[test]
fn flood_is_read_in_turns_and_whole() {
    fn check(mut line: Line, mut theirs: impl std::io::Write + Send + 'static) {
        let count = 20_000;
        let writer = thread::spawn(move || {
            for n in 0..count {
                theirs.write_all(format!("{{\"id\":{n}}}\n").as_bytes()).unwrap();
            }
            theirs
        });
        line.until_frames(count);
        for (n, frame) in line.frames.iter().enumerate() {
            assert_eq!(frame, format!("{{\"id\":{n}}}").as_bytes());
        }
        drop(writer.join().unwrap());
    }
    let (line, theirs) = unix_pair();
    check(line, theirs);
    let (line, theirs) = tcp_pair();
    check(line, theirs);
}

#[test]
fn our_end_can_be_told_and_the_peer_heard_out() {
    let (mut line, mut theirs) = tcp_pair();
    line.send(&mut queue_of(b"{\"last\":1}"));
    line.link.finish().unwrap();
    let mut answers = String::new();
    theirs.read_to_string(&mut answers).unwrap();
    assert_eq!(answers, "{\"last\":1}\n");
    theirs.write_all(b"{\"bye\":1}\n").unwrap();
    drop(theirs);
    line.until(Flow::Finished);
    assert_eq!(line.frames, [b"{\"bye\":1}"]);
}

#[test]
fn shared_description_is_not_made_non_blocking() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let shared = ours.try_clone().unwrap();
    let mut line = Line::new(Box::new(Socket::from_unix(ours).unwrap()));
    theirs.write_all(b"{}\n").unwrap();
    line.until_frames(1);
    line.send(&mut queue_of(b"{}"));
    assert!(!fcntl_getfl(shared.as_fd()).unwrap().contains(OFlags::NONBLOCK));
    line.link.deregister(line.poll.registry()).unwrap();
    assert!(line.link.deregister(line.poll.registry()).is_err(), "it was registered");
}
