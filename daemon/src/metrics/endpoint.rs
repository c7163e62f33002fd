//! The door for Prometheus: a small HTTP/1.1 server of one page, on a socket of its own.
//!
//! It serves one peer at a time, on a thread of its own, and gives each a fixed time for all of it,
//! so that nobody can hold it up for long. What it is asked is bounded; anything but GET or HEAD of
//! `/metrics` is refused; every answer ends the connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ceased_transports::{Accept, Address, ListenError, Listener, Transport};
use crossbeam_channel::{Sender, bounded};
use mio::{Events, Poll, Token, Waker};

use crate::reports::{Report, Reports};

/// Bytes of a request at most, its headers included.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// How long a peer may take for everything.
const WITHIN: Duration = Duration::from_secs(2);
/// How long the loop may take for the page.
const PAGE_WITHIN: Duration = Duration::from_secs(1);
/// How long accepting rests when the system has no room for another peer.
const REST: Duration = Duration::from_millis(100);

/// How often it is looked whether the socket file is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

const STOP: Token = Token(0);
const LISTENER: Token = Token(1);
const PEER: Token = Token(2);

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    waker: Waker,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Serves the metrics of the loop behind `reports` at `address`; also the address as it became.
    ///
    /// # Errors
    /// [`ListenError`], and what the system does not give, as one.
    pub(crate) fn start(
        address: &Address,
        reports: Reports,
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
        let server = Server { poll, listener, reports, is_stopped: Arc::clone(&is_stopped) };
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

struct Server {
    poll: Poll,
    listener: Listener,
    reports: Reports,
    /// Looked at between any two steps: whoever always has something to say leaves no time for a
    /// poll.
    is_stopped: Arc<AtomicBool>,
}

impl Server {
    fn run(mut self) {
        let mut events = Events::with_capacity(8);
        let mut again = None;
        while !self.is_stopped() {
            let look = self.listener.has_file().then_some(LOOK_EVERY);
            if !self.wait(&mut events, again.take().or(look)) {
                return;
            }
            self.renew_listener();
            while !self.is_stopped() {
                match self.listener.accept() {
                    // A peer that goes away, or is too slow, is its own misfortune.
                    Accept::Peer(peer) => drop(self.serve(peer, &mut events)),
                    Accept::Drained => break,
                    Accept::Exhausted { .. } => {
                        again = Some(REST);
                        break;
                    }
                    Accept::Failed(error) => {
                        tracing::error!(%error, "no metrics are served any more");
                        return;
                    }
                }
            }
        }
    }

    /// Listens anew where the socket file was removed.
    fn renew_listener(&mut self) {
        if self.listener.is_in_place() {
            return;
        }
        let registry = self.poll.registry();
        let _ = self.listener.deregister(registry);
        let renewed = self.listener.renew(None).map_err(|error| error.to_string());
        let watched = self.listener.register(registry, LISTENER).map_err(|error| error.to_string());
        match renewed.and(watched) {
            Ok(()) => tracing::warn!("the metrics' socket file was removed; listening there again"),
            Err(why) => tracing::debug!(%why, "the metrics' socket file cannot be made again yet"),
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits for an event, or this long; false when the poll fails.
    fn wait(&mut self, events: &mut Events, within: Option<Duration>) -> bool {
        match self.poll.poll(events, within) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
            Err(error) => {
                tracing::error!(%error, "no metrics are served any more");
                return false;
            }
        }
        true
    }

    fn serve(&mut self, mut peer: Box<dyn Transport>, events: &mut Events) -> io::Result<()> {
        let until = Instant::now() + WITHIN;
        peer.register(self.poll.registry(), PEER)?;
        let mut request = Vec::new();
        let asked = loop {
            self.may_go_on(until)?;
            if let Some(asked) = Asked::read(&request) {
                break asked;
            }
            let mut bytes = [0; 1024];
            match peer.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => request.extend_from_slice(bytes.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pause(until, events)?;
                }
                Err(error) => return Err(error),
            }
        };
        let answer = self.answer(asked);
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            self.may_go_on(until)?;
            match peer.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pause(until, events)?;
                }
                Err(error) => return Err(error),
            }
        }
        peer.finish()?;
        // Its own end shows that it has read ours; closing with bytes unread would cut the answer.
        loop {
            self.may_go_on(until)?;
            match peer.read(&mut [0; 1024]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pause(until, events)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// An error when a peer's time is over, or everybody's.
    fn may_go_on(&self, until: Instant) -> io::Result<()> {
        let is_over = self.is_stopped() || Instant::now() >= until;
        if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn pause(&mut self, until: Instant, events: &mut Events) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if self.wait(events, Some(left)) { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
    }

    fn answer(&self, asked: Asked) -> Vec<u8> {
        let refusal = |status, text: &str| response(status, "", text, true);
        match asked {
            Asked::Metrics { body } => match self.page() {
                Some(page) => response("200 OK", "", &page, body),
                None => {
                    response("503 Service Unavailable", "", "the daemon does not answer\n", body)
                }
            },
            Asked::OtherPath { body } => {
                response("404 Not Found", "", "there is only /metrics\n", body)
            }
            Asked::OtherMethod => {
                response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET or HEAD\n", true)
            }
            Asked::Nonsense => refusal("400 Bad Request", "this is no HTTP/1 request\n"),
            Asked::TooLong => {
                refusal("431 Request Header Fields Too Large", "8 KiB are the limit\n")
            }
        }
    }

    fn page(&self) -> Option<String> {
        let (answer, page): (Sender<String>, _) = bounded(1);
        self.reports
            .try_send(Report::Scrape(answer))
            .then(|| page.recv_timeout(PAGE_WITHIN).ok())?
    }
}

fn response(status: &str, more: &str, text: &str, body: bool) -> Vec<u8> {
    let length = text.len();
    let text = if body { text } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nCache-Control: no-store\r\n{more}Connection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

/// What a peer asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A HEAD is answered without a body, whatever the answer.
    Metrics {
        body: bool,
    },
    OtherPath {
        body: bool,
    },
    OtherMethod,
    Nonsense,
    TooLong,
}

impl Asked {
    /// What a request asks for; `None` when more of it is to come.
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
            return Self::Nonsense;
        };
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Self::Nonsense;
        };
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let body = method == "GET";
        match (method, path) {
            ("GET" | "HEAD", "/metrics") => Self::Metrics { body },
            ("GET" | "HEAD", _) => Self::OtherPath { body },
            _ if method.bytes().all(|b| b.is_ascii_uppercase()) && !method.is_empty() => {
                Self::OtherMethod
            }
            _ => Self::Nonsense,
        }
    }
}

#[cfg(test)]
mod tests {
    use ceased_transports::{Peer, SocketMode};
    use mio::Registry;

    use super::*;

    /// Asks for the page, and always has more to say.
    #[derive(Debug)]
    struct Talker {
        begun: Instant,
        is_stopped: Option<Arc<AtomicBool>>,
    }

    impl Transport for Talker {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            assert!(self.begun.elapsed() < WITHIN * 10, "it is listened to for ever");
            let said = b"GET /metrics HTTP/1.1\r\n\r\n";
            for (to, from) in buf.iter_mut().zip(said) {
                *to = *from;
            }
            Ok(said.len())
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once it is answered, the end has come.
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

    /// Who talks on and on has the time that everybody has, and none once the end has come.
    #[test]
    fn nobody_is_listened_to_for_ever() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("m.sock");
        let address = Address::Unix { path, mode: SocketMode::default() };
        let listener = Listener::bind(&address).expect("it is free");
        let (poll, is_stopped) = (Poll::new().expect("a poll"), Arc::default());
        let (reports, _) = Reports::aside();
        let mut server = Server { poll, listener, reports, is_stopped };
        for ends in [false, true] {
            let (begun, flag) = (Instant::now(), Arc::clone(&server.is_stopped));
            let talker = Talker { begun, is_stopped: ends.then_some(flag) };
            let served = server.serve(Box::new(talker), &mut Events::with_capacity(8));
            assert_eq!(served.expect_err("it never ends").kind(), io::ErrorKind::TimedOut);
            assert_eq!(begun.elapsed() < WITHIN, ends);
        }
    }

    #[test]
    fn requests() {
        let long = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(2000));
        for (request, asked) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Asked::Metrics { body: true })),
            ("HEAD /metrics?a=b HTTP/1.0\r\n\r\n", Some(Asked::Metrics { body: false })),
            ("GET / HTTP/1.1\r\n\r\n", Some(Asked::OtherPath { body: true })),
            ("HEAD / HTTP/1.1\r\n\r\n", Some(Asked::OtherPath { body: false })),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some(Asked::OtherMethod)),
            ("GET /metrics HTTP/2\r\n\r\n", Some(Asked::Nonsense)),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Some(Asked::Nonsense)),
            ("{\"jsonrpc\":\"2.0\"}\r\n\r\n", Some(Asked::Nonsense)),
            ("\r\n\r\n", Some(Asked::Nonsense)),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", None),
            (&long, Some(Asked::TooLong)),
        ] {
            assert_eq!(Asked::read(request.as_bytes()), asked, "{request:.60}");
        }
    }

    #[test]
    fn a_response_is_whole() {
        let text = String::from_utf8(response("200 OK", "", "abc", true)).expect("text");
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\nabc"));
        let head = String::from_utf8(response("200 OK", "", "abc", false)).expect("text");
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
    }
}
