//! Bytes to requests of HTTP/1.1: cut anywhere, a stream gives the same requests and responses, and
//! the bytes that the connection holds stay within its limits.

use ceased_transports::http::{
    Head, HeadCheck, HttpConnection, HttpLimits, Phase, Response, Status,
};

/// Small, so that a fuzzer exceeds them.
const LIMITS: HttpLimits =
    HttpLimits { head_bytes: 300, headers: 8, body_bytes: 100, pipelined_bytes: 200 };
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A message of the connection to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// A head that the host was asked about, and whether it refused the request.
    Head(String, bool),
    Request(String, Vec<u8>),
}

#[derive(Default)]
struct Host(Vec<Seen>);

impl HeadCheck for Host {
    fn check(&mut self, head: &Head) -> Option<Response> {
        let is_refused = head.path() == "/no";
        self.0.push(Seen::Head(head.target.clone(), is_refused));
        is_refused.then(|| Response::text(Status::NotFound, "no"))
    }
}

/// Checks a stream; the first byte is the size of its pieces.
///
/// # Panics
/// When the result depends on the pieces, or a response is not well formed.
pub fn check(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let wanted = run(stream, stream.len().max(1));
    for size in [usize::from(*size).max(1), 1] {
        assert_eq!(run(stream, size), wanted, "in pieces of {size}");
    }
    let (seen, statuses, is_over) = wanted;
    let finals = statuses.len();
    let requests = seen.iter().filter(|it| matches!(it, Seen::Request(..))).count();
    let refused = seen.iter().filter(|it| matches!(it, Seen::Head(_, true))).count();
    // At most one more: the refusal that closes the connection.
    let owed = requests + refused;
    assert!(finals == owed || (is_over && finals == owed + 1), "{finals} responses to {owed}");
}

/// The messages to the host, the statuses of the responses, and whether the connection is closed.
fn run(stream: &[u8], size: usize) -> (Vec<Seen>, Vec<String>, bool) {
    let (mut http, mut host, mut output) =
        (HttpConnection::new(LIMITS), Host::default(), Vec::new());
    // A line end has an incomplete head looked at, also one that arrived byte by byte.
    let pieces = stream.chunks(size).chain([&b"\r\n\r\n"[..]]);
    for piece in pieces {
        http.receive(piece, &mut host);
        while let Some(request) = http.take_request() {
            assert!(request.body.len() <= LIMITS.body_bytes, "{} bytes", request.body.len());
            let number = host.0.len();
            host.0.push(Seen::Request(request.head.target.clone(), request.body));
            if number % 2 == 0 {
                http.respond(&Response::text(Status::Ok, "yes"));
            } else {
                http.start_stream(&Response::new(Status::Ok));
                http.write_stream(b"part");
                http.end_stream();
            }
            http.advance(&mut host);
        }
        let limit = LIMITS.head_bytes + LIMITS.body_bytes + LIMITS.pipelined_bytes + piece.len();
        assert!(http.held_bytes() <= limit, "{} bytes are held", http.held_bytes());
        output.extend_from_slice(http.pending());
        http.note_sent(http.pending().len());
    }
    let is_over = http.phase() == Phase::Closing;
    (host.0, statuses(&without_interim(&output)), is_over)
}

/// Interim responses depend on the time at which a body arrives.
fn without_interim(output: &[u8]) -> Vec<u8> {
    let (mut rest, mut kept) = (output, Vec::new());
    while let Some(at) = rest.windows(CONTINUE.len()).position(|window| window == CONTINUE) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + CONTINUE.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

/// Statuses of the responses in an output, read strictly. Refusals of bytes that are no request are
/// one: the first error depends on the bytes that have arrived.
fn statuses(mut output: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while !output.is_empty() {
        let end = output.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = std::str::from_utf8(&output[..end]).expect("text");
        let status = head.strip_prefix("HTTP/1.1 ").expect("a status line");
        let status = status.get(..3).expect("a status");
        let is_known = matches!(status, "200" | "404" | "413");
        found.push(if is_known { status } else { "refused" }.to_owned());
        output = &output[end + 4..];
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        // No body begins like a head, so that this is the response to HEAD.
        if output.is_empty() || output.starts_with(b"HTTP/1.1 ") {
            continue;
        }
        if let Some(length) = length {
            output = &output[length.parse().expect("a number")..];
        } else if head.contains("transfer-encoding: chunked") {
            let last = b"4\r\npart\r\n0\r\n\r\n";
            output = output.strip_prefix(&last[..]).expect("the chunks of the host");
        } else {
            // HTTP/1.0, whose body ends with the connection.
            assert_eq!(output, b"part", "{head}");
            output = &[];
        }
    }
    found
}
