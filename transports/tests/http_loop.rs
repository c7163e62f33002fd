//! A client in an event loop: a connection that does not block, a request larger than the buffers of
//! the system, events as they come, and the next request on the same connection.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ceased_core::limits::FrameLimits;
use ceased_transports::http::client::{ClientLimits, ClientRequest, HttpClient, Part};
use ceased_transports::{Flow, Link, Lost, SCRATCH_BYTES, Sent, Socket};
use mio::{Events, Poll, Token};

/// More than a socket of this machine holds.
const LARGE: usize = 16 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);

/// A loop with one connection.
struct Loop {
    poll: Poll,
    events: Events,
    link: Link,
    client: HttpClient,
    scratch: Vec<u8>,
}

impl Loop {
    fn new(socket: Socket) -> Self {
        let mut link = Link::new(Box::new(socket), FrameLimits::default());
        let poll = Poll::new().unwrap();
        link.register(poll.registry(), Token(1)).unwrap();
        let client = HttpClient::new(ClientLimits::default());
        let events = Events::with_capacity(8);
        Self { poll, events, link, client, scratch: vec![0; SCRATCH_BYTES] }
    }

    fn request(&mut self, body: &[u8]) {
        let (method, target, authority) = ("POST", "/mcp", "localhost");
        let headers = [("content-type", "application/json")];
        let request =
            ClientRequest { method, target, authority, headers: &headers, body, keep_alive: true };
        self.client.send(&request).unwrap();
    }

    /// Sends and receives until there is a part, or the reason for which there is none.
    fn part(&mut self) -> Result<Part, Lost> {
        loop {
            let sent = self.link.send(&mut self.client, self.poll.registry());
            let client = &mut self.client;
            let mut taken = Ok(());
            let mut take = |bytes: &[u8]| taken = client.receive(bytes);
            let flow = self.link.receive_bytes(&mut self.scratch, SCRATCH_BYTES, &mut take)?;
            taken.unwrap();
            if let Some(part) = self.client.next_part() {
                return Ok(part);
            }
            assert_ne!(flow, Flow::Finished);
            if flow == Flow::Drained && sent != Sent::Lost {
                self.poll.poll(&mut self.events, Some(PATIENCE)).unwrap();
                assert!(!self.events.is_empty(), "no event within {PATIENCE:?}");
                self.events.iter().for_each(|event| self.link.on_event(event));
            }
        }
    }
}

/// Reads requests, and answers each with two events, the second one when it is told to.
fn serve(peer: impl io::Read + io::Write + Send, told: &Receiver<()>) {
    let mut peer = BufReader::new(peer);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if peer.read_line(&mut line).unwrap() == 0 {
                return;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        peer.read_exact(&mut body).unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        let event = format!("data: {length}\n\n");
        let first = format!("{head}{:x}\r\n{event}\r\n", event.len());
        peer.get_mut().write_all(first.as_bytes()).unwrap();
        told.recv().unwrap();
        peer.get_mut().write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").unwrap();
    }
}

fn data(part: Part) -> String {
    match part {
        Part::Event(event) => String::from_utf8(event.data).unwrap(),
        Part::Body(_) => panic!("a body"),
    }
}

/// Two requests on one connection.
fn exchange(socket: Socket, tell: &Sender<()>) {
    let mut turn = Loop::new(socket);
    for length in [LARGE, 2] {
        turn.request(&vec![b' '; length]);
        assert_eq!(data(turn.part().unwrap()), length.to_string());
        assert!(!turn.client.is_idle());
        tell.send(()).unwrap();
        assert_eq!(data(turn.part().unwrap()), "2");
        assert!(turn.client.is_idle() && turn.client.pending().is_empty());
    }
}

#[test]
fn requests_and_events_pass_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, told) = channel();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0, &told));
    exchange(Socket::connect_tcp(addr).unwrap(), &tell);
    server.join().unwrap();
}

#[test]
fn requests_and_events_pass_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let (tell, told) = channel();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0, &told));
    exchange(Socket::connect_unix(&path).unwrap(), &tell);
    server.join().unwrap();
}

#[test]
fn address_without_a_server_is_a_loss_with_its_reason() {
    let closed: SocketAddr = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let lost = match Socket::connect_tcp(closed) {
        Err(why) => why.to_string(),
        Ok(socket) => {
            let mut turn = Loop::new(socket);
            turn.request(b"{}");
            turn.part().unwrap_err().to_string()
        }
    };
    assert!(lost.contains("refused"), "{lost}");
    let missing = Socket::connect_unix("/nonexistent/socket".as_ref()).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}
