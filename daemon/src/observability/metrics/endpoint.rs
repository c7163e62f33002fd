//! The Prometheus endpoint: a small HTTP/1.1 server of one page.
//!
//! It serves all peers from one thread, each within a fixed deadline. The number of peers is
//! bounded: a new peer evicts the oldest one without a complete request. Requests are bounded in
//! size; only GET and HEAD of `/metrics` are accepted; every response closes the connection.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ceased_core::time::Wall;
use ceased_transports::http::fixdate;
use ceased_transports::{Accept, Address, ListenError, Listener, Transport};
use crossbeam_channel::{Sender, bounded};
use mio::{Events, Poll, Token, Waker};

use crate::event_loop::mailbox::{LoopSender, Report};

/// Size limit of a request including its headers.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Deadline of a peer, from accept to close.
const WITHIN: Duration = Duration::from_secs(2);
/// Time the loop may take to render the page.
const PAGE_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of concurrent peers.
const PEERS_MAX: usize = 32;
/// Maximum number of peers accepted in one turn.
const ACCEPTS_MAX: usize = 64;
/// Pause of accepting when the system is out of descriptors or memory.
const REST: Duration = Duration::from_millis(100);
/// Interval of the check that the socket file still exists.
const LOOK_EVERY: Duration = Duration::from_secs(2);

const STOP: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST_PEER: usize = 2;

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    waker: Waker,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Serves the metrics of the loop behind `reports` at `address`; also returns the bound
    /// address.
    ///
    /// # Errors
    /// [`ListenError`]; failures of the system are converted to it.
    pub(crate) fn start(
        address: &Address,
        reports: LoopSender,
    ) -> Result<(Self, Address), ListenError> {
        let mut listener = Listener::bind(address)?;
        let bound = listener.address().clone();
        let failed = |error| ListenError::Os {
            doing: "serve metrics at",
            subject: bound.to_string(),
            error,
        };
        let poll = Poll::new().map_err(failed)?;
        let waker = Waker::new(poll.registry(), STOP).map_err(failed)?;
        listener.register(poll.registry(), LISTENER).map_err(failed)?;
        let is_stopped = Arc::default();
        let server = Server::new(poll, listener, reports, Arc::clone(&is_stopped));
        let thread = thread::Builder::new()
            .name("ceased-metrics".into())
            .spawn(move || server.run())
            .map_err(failed)?;
        Ok((Self { waker, is_stopped, thread: Some(thread) }, bound))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Without a waker the thread ends with the process.
        if let (Ok(()), Some(thread)) = (self.waker.wake(), self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// A peer and the state of its request.
struct Scrape {
    peer: Box<dyn Transport>,
    /// Deadline of the peer.
    until: Instant,
    stage: Stage,
    /// Set when a step is possible that no readiness event will announce (edge-triggered epoll).
    is_ready: bool,
}

#[derive(Debug)]
enum Stage {
    /// Reading the request.
    Asking(Vec<u8>),
    /// Writing the response, from this offset.
    Answered(Vec<u8>, usize),
    /// Waiting for the peer to close, which shows that it has read the response: closing with
    /// unread input would reset the connection and truncate the response.
    Ending,
}

struct Server {
    poll: Poll,
    listener: Listener,
    reports: LoopSender,
    /// Checked between any two steps, so that a busy peer cannot delay the shutdown.
    is_stopped: Arc<AtomicBool>,
    peers: BTreeMap<Token, Scrape>,
    next: usize,
    /// When to call `accept` again; edge-triggered epoll does not announce waiting peers twice.
    again: Option<Instant>,
    /// Time of the next check of the socket file, if there is one.
    look: Option<Instant>,
}

impl Server {
    fn new(
        poll: Poll,
        listener: Listener,
        reports: LoopSender,
        is_stopped: Arc<AtomicBool>,
    ) -> Self {
        let (peers, next, again) = (BTreeMap::new(), FIRST_PEER, None);
        let look = listener.has_file().then(|| Instant::now() + LOOK_EVERY);
        Self { poll, listener, reports, is_stopped, peers, next, again, look }
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.is_stopped() {
            if let Err(error) = self.turn(&mut events) {
                tracing::error!(%error, "the metrics endpoint failed; metrics are no longer served");
                return;
            }
        }
    }

    /// Binds a new listener if the socket file was removed.
    ///
    /// # Errors
    /// An unusable listener.
    fn renew_listener(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.look.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.look = Some(now + LOOK_EVERY);
        if self.listener.is_in_place() {
            return Ok(());
        }
        // Peers that connected before the removal wait in the backlog of the old socket.
        self.again = Some(now);
        self.accept()?;
        let registry = self.poll.registry();
        let _ = self.listener.deregister(registry);
        let renewed = self.listener.renew(None).map_err(|error| error.to_string());
        let watched = self.listener.register(registry, LISTENER).map_err(|error| error.to_string());
        match renewed.and(watched) {
            Ok(()) => tracing::warn!(
                "the socket file of the metrics endpoint was removed; created it again"
            ),
            Err(why) => {
                tracing::debug!(%why, "cannot create the socket file of the metrics endpoint again; retrying");
            }
        }
        self.again = Some(Instant::now());
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits for events and handles them.
    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        match self.poll.poll(events, self.timeout()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
            Err(error) => return Err(error),
        }
        for event in &*events {
            match event.token() {
                STOP => {}
                LISTENER => self.again = Some(Instant::now()),
                token => {
                    if let Some(scrape) = self.peers.get_mut(&token) {
                        scrape.is_ready = true;
                    }
                }
            }
        }
        self.renew_listener()?;
        self.accept()?;
        self.serve();
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if self.peers.values().any(|scrape| scrape.is_ready) {
            return Some(Duration::ZERO);
        }
        let ends = self.peers.values().map(|scrape| scrape.until);
        let first = ends.chain(self.again).chain(self.look).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            if self.is_stopped() || self.again.is_none_or(|at| at > Instant::now()) {
                break;
            }
            match self.listener.accept() {
                // A failure of one peer affects only that peer.
                Accept::Peer(peer) => drop(self.take_in(peer)),
                Accept::Drained => self.again = None,
                Accept::Exhausted { .. } => self.again = Some(Instant::now() + REST),
                Accept::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds a peer. At the limit it evicts the peer that has been without a request longest, so
    /// that silent peers do not delay a scrape.
    fn take_in(&mut self, mut peer: Box<dyn Transport>) -> io::Result<()> {
        let token = Token(self.next);
        self.next = self.next.checked_add(1).unwrap_or(FIRST_PEER);
        peer.register(self.poll.registry(), token)?;
        while self.peers.len() >= PEERS_MAX {
            let asks = |scrape: &Scrape| matches!(scrape.stage, Stage::Asking(_));
            let oldest = self.peers.iter().min_by_key(|(_, it)| (!asks(it), it.until));
            let Some(oldest) = oldest.map(|(token, _)| *token) else { break };
            self.close(oldest);
        }
        let until = Instant::now() + WITHIN;
        let scrape = Scrape { peer, until, stage: Stage::Asking(Vec::new()), is_ready: true };
        self.peers.insert(token, scrape);
        Ok(())
    }

    fn close(&mut self, token: Token) {
        if let Some(mut scrape) = self.peers.remove(&token) {
            let _ = scrape.peer.deregister(self.poll.registry());
        }
    }

    /// Advances each peer that is ready and closes those past their deadline.
    fn serve(&mut self) {
        let mut page = None;
        let tokens: Vec<Token> = self.peers.keys().copied().collect();
        for token in tokens {
            let Some(mut scrape) = self.peers.remove(&token) else { continue };
            let mut goes_on = !self.is_stopped() && Instant::now() < scrape.until;
            if goes_on && scrape.is_ready {
                goes_on = match self.step(token, &mut scrape, &mut page) {
                    Ok(goes_on) => goes_on,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        scrape.is_ready = false;
                        true
                    }
                    Err(_) => false,
                };
            }
            self.peers.insert(token, scrape);
            if !goes_on {
                self.close(token);
            }
        }
    }

    /// Performs one read or write; returns false when the peer is done.
    ///
    /// # Errors
    /// Errors of the transport; [`io::ErrorKind::WouldBlock`] when an event will announce
    /// the next step.
    fn step(
        &self,
        token: Token,
        scrape: &mut Scrape,
        page: &mut Option<Option<String>>,
    ) -> io::Result<bool> {
        let mut bytes = [0; 1024];
        match &mut scrape.stage {
            Stage::Asking(request) => {
                let count = scrape.peer.read(&mut bytes)?;
                if count == 0 {
                    return Ok(false);
                }
                request.extend_from_slice(bytes.get(..count).unwrap_or_default());
                if let Some(request_kind) = Request::read(request) {
                    if matches!(request_kind, Request::Metrics { .. }) && page.is_none() {
                        *page = Some(self.page());
                    }
                    let page = page.as_ref().and_then(Option::as_deref);
                    scrape.stage = Stage::Answered(answer(request_kind, page), 0);
                    scrape.peer.await_room(self.poll.registry(), token, true)?;
                }
            }
            Stage::Answered(answer, sent) => {
                let rest = answer.get(*sent..).unwrap_or_default();
                if rest.is_empty() {
                    scrape.peer.finish()?;
                    scrape.stage = Stage::Ending;
                } else {
                    *sent += scrape.peer.write(rest)?;
                }
            }
            Stage::Ending => return Ok(scrape.peer.read(&mut bytes)? > 0),
        }
        Ok(true)
    }

    /// The page; one snapshot for all peers that ask within one turn.
    fn page(&self) -> Option<String> {
        let (answer, page): (Sender<String>, _) = bounded(1);
        self.reports
            .try_send(Report::Scrape(answer))
            .then(|| page.recv_timeout(PAGE_WITHIN).ok())?
    }
}

fn answer(request_kind: Request, page: Option<&str>) -> Vec<u8> {
    let refusal = |status, text: &str| response(status, "", text, true);
    match request_kind {
        Request::Metrics { body } => match page {
            Some(page) => response("200 OK", "", page, body),
            None => response(
                "503 Service Unavailable",
                "",
                "the daemon did not provide the metrics in time\n",
                body,
            ),
        },
        Request::UnknownPath { body } => {
            response("404 Not Found", "", "unknown path; use /metrics\n", body)
        }
        Request::UnsupportedMethod => {
            response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET or HEAD\n", true)
        }
        Request::NotHttp => refusal("400 Bad Request", "not an HTTP/1 request\n"),
        Request::TooLong => refusal(
            "431 Request Header Fields Too Large",
            "the request exceeds the limit of 8 KiB\n",
        ),
    }
}

fn response(status: &str, more: &str, text: &str, body: bool) -> Vec<u8> {
    let length = text.len();
    let text = if body { text } else { "" };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = fixdate(Wall::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)));
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nDate: {date}\r\nCache-Control: no-store\r\n{more}Connection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

/// A parsed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// HEAD: a response without a body.
    Metrics {
        body: bool,
    },
    UnknownPath {
        body: bool,
    },
    UnsupportedMethod,
    NotHttp,
    TooLong,
}

impl Request {
    /// Parses a request; `None` while it is incomplete.
    fn read(request: &[u8]) -> Option<Self> {
        let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n");
        match (is_whole, request.len() > REQUEST_BYTES_MAX) {
            (_, true) => Some(Self::TooLong),
            (true, false) => Some(Self::of_head(request)),
            (false, false) => None,
        }
    }

    fn of_head(request: &[u8]) -> Self {
        let Some(Ok(line)) = request.split(|b| *b == b'\r').next().map(str::from_utf8) else {
            return Self::NotHttp;
        };
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Self::NotHttp;
        };
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let body = method == "GET";
        match (method, path) {
            ("GET" | "HEAD", "/metrics") => Self::Metrics { body },
            ("GET" | "HEAD", _) => Self::UnknownPath { body },
            _ if method.bytes().all(|b| b.is_ascii_uppercase()) && !method.is_empty() => {
                Self::UnsupportedMethod
            }
            _ => Self::NotHttp,
        }
    }
}

#[cfg(test)]
mod tests {
    use ceased_transports::{Peer, SocketMode};
    use mio::Registry;

    use super::*;

    /// A peer that requests the page and never stops sending.
    #[derive(Debug)]
    struct Talker {
        begun: Instant,
        is_stopped: Option<Arc<AtomicBool>>,
    }

    impl Transport for Talker {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            assert!(self.begun.elapsed() < WITHIN * 10, "a peer past its deadline is still read");
            let received = b"GET /metrics HTTP/1.1\r\n\r\n";
            for (to, from) in buf.iter_mut().zip(received) {
                *to = *from;
            }
            Ok(received.len())
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The response arrived: start the shutdown.
            if let Some(is_stopped) = &self.is_stopped {
                is_stopped.store(true, Ordering::Relaxed);
            }
            Ok(bytes.len())
        }

        fn register(&mut self, _: &Registry, _: Token) -> io::Result<()> {
            Ok(())
        }

        fn await_room(&mut self, _: &Registry, _: Token, _: bool) -> io::Result<()> {
            Ok(())
        }

        fn deregister(&mut self, _: &Registry) -> io::Result<()> {
            Ok(())
        }

        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn peer(&self) -> &Peer {
            &Peer::Stdio { uid: 0 }
        }
    }

    fn server(dir: &tempfile::TempDir) -> (Server, Address) {
        let path = dir.path().join("m.sock");
        let address = Address::Unix { path, mode: SocketMode::default() };
        let mut listener = Listener::bind(&address).expect("it is free");
        let poll = Poll::new().expect("a poll");
        listener.register(poll.registry(), LISTENER).expect("it can be watched");
        let (reports, _) = LoopSender::aside();
        (Server::new(poll, listener, reports, Arc::default()), address)
    }

    /// A peer that never stops sending is closed at its deadline, or at once on shutdown.
    #[test]
    fn talker_is_closed_when_its_time_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut events = Events::with_capacity(8);
        for ends in [false, true] {
            let (mut server, _) = server(&dir);
            let (begun, flag) = (Instant::now(), Arc::clone(&server.is_stopped));
            let talker = Talker { begun, is_stopped: ends.then_some(flag) };
            server.take_in(Box::new(talker)).expect("it can be watched");
            while !server.peers.is_empty() {
                server.turn(&mut events).expect("it can be polled");
            }
            assert_eq!(begun.elapsed() < WITHIN, ends);
        }
    }

    /// Silent peers delay no scrape, and their number is bounded.
    #[test]
    fn silent_peers_do_not_delay_a_scrape() {
        use std::io::{Read as _, Write as _};
        use std::os::unix::net::UnixStream;

        let dir = tempfile::tempdir().expect("a directory");
        let (mut server, address) = server(&dir);
        let Address::Unix { path, .. } = address else { panic!("a Unix socket") };
        let connect = || UnixStream::connect(&path).expect("it listens");
        let mut events = Events::with_capacity(64);
        for silent in [8, 200] {
            let begun = Instant::now();
            let crowd: Vec<UnixStream> = (0..silent).map(|_| connect()).collect();
            let mut scraper = connect();
            scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is read");
            scraper.set_nonblocking(true).expect("a socket");
            let mut received = Vec::new();
            let ended = loop {
                server.turn(&mut events).expect("it can be polled");
                assert!(server.peers.len() <= PEERS_MAX, "{} peers", server.peers.len());
                match scraper.read_to_end(&mut received) {
                    Ok(_) => break begun.elapsed(),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            };
            // The test has no loop to render the page.
            assert!(
                received.starts_with(b"HTTP/1.1 503 "),
                "{}",
                String::from_utf8_lossy(&received)
            );
            assert!(ended < WITHIN, "{ended:?} beside {silent}");
            drop(crowd);
        }
    }

    #[test]
    fn requests_are_parsed() {
        let long = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(2000));
        for (request, request_kind) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Request::Metrics { body: true })),
            ("HEAD /metrics?a=b HTTP/1.0\r\n\r\n", Some(Request::Metrics { body: false })),
            ("GET / HTTP/1.1\r\n\r\n", Some(Request::UnknownPath { body: true })),
            ("HEAD / HTTP/1.1\r\n\r\n", Some(Request::UnknownPath { body: false })),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some(Request::UnsupportedMethod)),
            ("GET /metrics HTTP/2\r\n\r\n", Some(Request::NotHttp)),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Some(Request::NotHttp)),
            ("{\"jsonrpc\":\"2.0\"}\r\n\r\n", Some(Request::NotHttp)),
            ("\r\n\r\n", Some(Request::NotHttp)),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", None),
            (&long, Some(Request::TooLong)),
        ] {
            assert_eq!(Request::read(request.as_bytes()), request_kind, "{request:.60}");
        }
    }

    #[test]
    fn response_has_length_and_body() {
        let text = String::from_utf8(response("200 OK", "", "abc", true)).expect("text");
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\nabc"));
        let head = String::from_utf8(response("200 OK", "", "abc", false)).expect("text");
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
    }
}
