//! HTTP connections as state machines: tables of requests, whole and byte by byte.

use ceased_transports::http::sse::{self, EventBuffer, EventId};
use ceased_transports::http::{
    Head, HeadCheck, HttpConnection, HttpLimits, Method, Phase, Request, Response, Status,
};

/// Lets every request through.
struct AllowAll;

impl HeadCheck for AllowAll {
    fn check(&mut self, _: &Head) -> Option<Response> {
        None
    }
}

/// Refuses every request by its head.
struct RefuseAll;

impl HeadCheck for RefuseAll {
    fn check(&mut self, _: &Head) -> Option<Response> {
        Some(Response::text(Status::Forbidden, "no"))
    }
}

const LIMITS: HttpLimits =
    HttpLimits { head_bytes: 1024, headers: 10, body_bytes: 100, pipelined_bytes: 256 };

fn answer(connection: &mut HttpConnection, request: &Request) {
    let body = format!("{} {}", request.head.target, String::from_utf8_lossy(&request.body));
    connection.respond(&Response::text(Status::Ok, &body));
    connection.advance(&mut AllowAll);
}

/// The output for this input, received in parts of this size, with every request answered.
fn exchange(input: &[u8], size: usize) -> (String, Phase) {
    let mut connection = HttpConnection::new(LIMITS);
    let mut output = Vec::new();
    for part in input.chunks(size) {
        connection.receive(part, &mut AllowAll);
        while let Some(request) = connection.take_request() {
            answer(&mut connection, &request);
        }
        output.extend_from_slice(connection.pending());
        connection.note_sent(connection.pending().len());
    }
    (String::from_utf8(output).expect("ASCII"), connection.phase())
}

/// Status codes of the responses in an output.
fn statuses(output: &str) -> Vec<&str> {
    let starts = output.match_indices("HTTP/1.1 ").map(|(at, start)| at + start.len());
    let codes = starts.filter_map(|at| output.get(at..at + 3));
    codes.filter(|code| code.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// Requests that this server reads, and the bodies of the responses.
#[test]
fn well_formed_requests_are_answered() {
    for (input, bodies) in [
        ("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &["/a "][..]),
        ("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz", &["/a xyz"]),
        ("POST /a HTTP/1.1\r\nHost: h\r\ncontent-length: 0\r\n\r\n", &["/a "]),
        (
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n1;e=f\r\n!\r\n0\r\n\r\n",
            &["/a xyz!"],
        ),
        (
            "POST /a HTTP/1.1\r\nHost: h\r\ntransfer-encoding: Chunked\r\n\r\n0\r\nTrailer: t\r\n\r\n",
            &["/a "],
        ),
        ("GET http://other:1/b?c HTTP/1.1\r\nHost: h\r\n\r\n", &["/b?c "]),
        ("GET HTTP://other HTTP/1.1\r\nHost: h\r\n\r\n", &["/ "]),
        ("\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n", &["/a "]),
        (
            "GET /a HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n2GET /c HTTP/1.1\r\nHost: h\r\n\r\n",
            &["/a ", "/b 2", "/c "],
        ),
    ] {
        for size in [1, 2, 7, input.len()] {
            let (output, phase) = exchange(input.as_bytes(), size);
            assert_eq!(statuses(&output), vec!["200"; bodies.len()], "{input:?} by {size}");
            for body in bodies {
                assert!(output.contains(&format!("\r\n\r\n{body}\n")), "{input:?}: {output:?}");
            }
            assert_eq!(phase, Phase::Idle, "{input:?} by {size}");
        }
    }
}

/// HTTP-10: requests that two servers could read in two ways, and requests beyond the limits, are
/// refused, and the connection is closed: the place of the next request is unknown.
#[test]
fn smuggling_shapes_and_excess_are_refused_with_a_close() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(2000));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(20));
    let next = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";
    for (status, request) in [
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\nx"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\nx"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\nx"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nx"),
        (
            "400",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("501", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("501", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n"),
        (
            "501",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n"),
        ("400", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("400", "GET / HTTP/1.1\nHost: h\n\n"),
        ("400", "GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\nHost: h\r\nA: b\nC: d\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\nHost : h\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        ("400", "GET a HTTP/1.1\r\nHost: h\r\n\r\n"),
        ("400", "GET /\u{0} HTTP/1.1\r\nHost: h\r\n\r\n"),
        ("400", "\u{16}\u{3}\u{1}\u{2}\r\n\r\n"),
        ("505", "GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
        ("417", "POST / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\nContent-Length: 1\r\n\r\nx"),
        ("413", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"),
        ("413", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\n"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n"),
        ("400", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n"),
        ("431", &long),
        ("431", &many),
    ] {
        for size in [1, 3, request.len()] {
            let input = [request.as_bytes(), next.as_bytes()].concat();
            let (output, phase) = exchange(&input, size);
            assert_eq!(statuses(&output), [status], "{request:?} by {size}: {output}");
            assert!(output.contains("connection: close"), "{request:?}: {output}");
            assert!(!output.contains("hidden"), "{request:?}: {output}");
            assert_eq!(phase, Phase::Closing, "{request:?}");
        }
    }
}

/// A refusal names the limit that holds, also if more headers are configured than there is room for.
#[test]
fn refusals_name_the_limit_of_headers() {
    for (configured, limit) in [(10, 10), (500, 128)] {
        let head = |fields: usize| {
            format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a: b\r\n".repeat(fields - 1))
        };
        let output = |head: &str| {
            let mut connection = HttpConnection::new(HttpLimits { headers: configured, ..LIMITS });
            connection.receive(head.as_bytes(), &mut AllowAll);
            if let Some(request) = connection.take_request() {
                answer(&mut connection, &request);
            }
            String::from_utf8(connection.pending().to_vec()).expect("ASCII")
        };
        assert_eq!(statuses(&output(&head(limit))), ["200"]);
        let refused = output(&head(limit + 1));
        assert_eq!(statuses(&refused), ["431"]);
        assert!(refused.contains(&format!("1024 bytes and {limit} headers")), "{refused}");
    }
}

#[test]
fn refused_head_is_answered_before_the_body_arrives() {
    let mut connection = HttpConnection::new(LIMITS);
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 90\r\nExpect: 100-continue\r\n\r\n";
    connection.receive(head, &mut RefuseAll);
    let output = String::from_utf8(connection.pending().to_vec()).expect("ASCII");
    assert_eq!(statuses(&output), ["403"]);
    assert_eq!(connection.phase(), Phase::Closing);
    assert!(!connection.is_over());
    connection.note_sent(output.len());
    assert!(connection.is_over());
}

#[test]
fn refused_request_without_a_body_leaves_the_connection_usable() {
    let mut connection = HttpConnection::new(LIMITS);
    connection.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut RefuseAll);
    connection.receive(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &mut AllowAll);
    let request = connection.take_request().expect("a request");
    assert_eq!((request.head.method, request.head.path()), (Method::Get, "/a"));
}

#[test]
fn continue_is_sent_only_to_a_client_that_waits_for_it() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    let mut waiting = HttpConnection::new(LIMITS);
    waiting.receive(head.as_bytes(), &mut AllowAll);
    assert_eq!(waiting.pending(), b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(waiting.phase(), Phase::Body);
    let mut hasty = HttpConnection::new(LIMITS);
    hasty.receive(format!("{head}x").as_bytes(), &mut AllowAll);
    assert_eq!(hasty.pending(), b"");
    assert_eq!(hasty.take_request().expect("a request").body, b"x");
}

#[test]
fn connection_is_kept_alive_as_the_client_asks() {
    for (request, phase) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Phase::Idle),
        ("GET / HTTP/1.1\r\nHost: h\r\nConnection: a, Close\r\n\r\n", Phase::Closing),
        ("GET / HTTP/1.0\r\n\r\n", Phase::Closing),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Phase::Idle),
    ] {
        let (output, after) = exchange(request.as_bytes(), request.len());
        assert_eq!(after, phase, "{request:?}");
        assert_eq!(output.contains("connection: close"), phase == Phase::Closing, "{request:?}");
    }
}

#[test]
fn response_to_head_has_a_length_and_no_body() {
    let (output, _) = exchange(b"HEAD /abc HTTP/1.1\r\nHost: h\r\n\r\n", 999);
    assert!(output.contains("content-length: 6\r\n"), "{output}");
    assert!(output.ends_with("\r\n\r\n"), "{output}");
}

#[test]
fn header_value_cannot_end_the_head() {
    let mut connection = HttpConnection::new(LIMITS);
    connection.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut AllowAll);
    connection.take_request().expect("a request");
    let evil = Response::new(Status::Ok).header("x-evil", "a\r\nset-cookie: b".to_owned());
    connection.respond(&evil);
    let output = String::from_utf8(connection.pending().to_vec()).expect("ASCII");
    assert!(!output.contains("cookie"), "{output}");
}

#[test]
fn stream_is_chunked_and_the_next_request_waits_for_its_end() {
    let mut connection = HttpConnection::new(LIMITS);
    let two = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
    connection.receive(two, &mut AllowAll);
    assert_eq!(connection.take_request().expect("a request").head.path(), "/a");
    connection.start_stream(&Response::new(Status::Ok).header("content-type", sse::CONTENT_TYPE));
    assert!(connection.is_streaming());
    assert!(connection.write_stream(b"hello"));
    connection.advance(&mut AllowAll);
    assert!(connection.take_request().is_none());
    connection.end_stream();
    assert!(!connection.write_stream(b"late"));
    connection.advance(&mut AllowAll);
    assert_eq!(connection.take_request().expect("a request").head.path(), "/b");
    let output = String::from_utf8(connection.pending().to_vec()).expect("ASCII");
    assert!(output.contains("transfer-encoding: chunked\r\n"), "{output}");
    assert!(output.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{output}");
}

#[test]
fn stream_of_http_1_0_ends_with_the_connection() {
    let mut connection = HttpConnection::new(LIMITS);
    let request = b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    connection.receive(request, &mut AllowAll);
    connection.take_request().expect("a request");
    connection.start_stream(&Response::new(Status::Ok));
    connection.write_stream(b"hello");
    connection.end_stream();
    let output = String::from_utf8(connection.pending().to_vec()).expect("ASCII");
    assert!(output.ends_with("\r\n\r\nhello"), "{output}");
    assert!(output.contains("connection: close"), "{output}");
    assert_eq!(connection.phase(), Phase::Closing);
}

/// A client that sends requests ahead without reading is bounded.
#[test]
fn input_is_not_wanted_beyond_the_limit_of_pipelined_bytes() {
    let mut connection = HttpConnection::new(LIMITS);
    connection.receive(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &mut AllowAll);
    connection.take_request().expect("a request");
    let mut received = 0;
    while connection.wants_input() {
        connection.receive(b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n", &mut AllowAll);
        received += 27;
    }
    assert!(received < LIMITS.pipelined_bytes + 64, "{received}");
    connection.respond(&Response::new(Status::NoContent));
    connection.advance(&mut AllowAll);
    let mut answered = 0;
    while let Some(request) = connection.take_request() {
        answer(&mut connection, &request);
        answered += 1;
    }
    assert_eq!(answered * 27, received);
    assert!(connection.wants_input());
}

#[test]
fn late_request_is_given_up_with_a_close() {
    let timeout = Response::text(Status::RequestTimeout, "too slow");
    let mut slow = HttpConnection::new(LIMITS);
    slow.receive(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", &mut AllowAll);
    assert_eq!(slow.phase(), Phase::Body);
    slow.give_up(&timeout);
    assert_eq!(slow.phase(), Phase::Closing);
    let output = String::from_utf8(slow.pending().to_vec()).expect("ASCII");
    assert_eq!(statuses(&output), ["408"]);
    slow.receive(b"defghi", &mut AllowAll);
    assert!(slow.take_request().is_none());
}

/// Any cut of the input gives the same responses.
#[test]
fn output_does_not_depend_on_the_cuts_of_the_input() {
    let input: &[u8] = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyzPOST /b HTTP/1.1\r\nHost: h\r\n\
        Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n";
    let (whole, _) = exchange(input, input.len());
    for size in 1..input.len() {
        assert_eq!(exchange(input, size).0, whole, "parts of {size}");
    }
}

#[test]
fn head_gives_headers_by_name_and_only_single_ones_as_one() {
    let mut connection = HttpConnection::new(LIMITS);
    let request = b"GET /p?q=1 HTTP/1.1\r\nHost: H:80\r\nAccept: a\r\nACCEPT: b\r\nX-One: 1\r\nX-Bad: \xff\r\n\r\n";
    connection.receive(request, &mut AllowAll);
    let head = connection.take_request().expect("a request").head;
    assert_eq!((head.path(), &*head.host), ("/p", "H:80"));
    assert_eq!(head.all("accept").collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((head.header("accept"), head.header("x-one")), (None, Some("1")));
    assert_eq!((head.header("x-bad"), head.has("x-bad"), head.has("x-none")), (None, true, false));
}

#[test]
fn event_is_one_block_of_lines() {
    let mut out = Vec::new();
    let id = EventId { stream: 3, place: 7 };
    sse::write_event(&mut out, Some(&id.to_string()), b"{\n\"a\":1\r\n}");
    sse::write_event(&mut out, None, b"");
    sse::write_retry(&mut out, 500);
    sse::write_comment(&mut out);
    let text = String::from_utf8(out).expect("ASCII");
    assert_eq!(text, "id: 3-7\ndata: { \"a\":1  }\n\ndata:\n\nretry: 500\n\n:\n\n");
}

#[test]
fn event_ids_are_read_as_they_are_written_and_others_refused() {
    let id = EventId { stream: 12, place: 0 };
    assert_eq!(EventId::read(&id.to_string()), Some(id));
    for text in ["", "1", "-1", "1-", "1-+2", "a-1", "1-1-1", "99999999999999999999-1"] {
        assert_eq!(EventId::read(text), None, "{text}");
    }
}

/// HTTP-06: events of one stream alone are replayed, from a bounded buffer.
#[test]
fn buffer_replays_one_stream_and_forgets_the_oldest() {
    let mut buffer = EventBuffer::new(1000);
    for place in 0..4 {
        for stream in [1, 2] {
            buffer.push(EventId { stream, place }, format!("{stream}:{place}").as_bytes());
        }
    }
    let after = |buffer: &EventBuffer, stream, place| -> Vec<String> {
        let events = buffer.after(EventId { stream, place });
        events.map(|(_, data)| String::from_utf8_lossy(data).into_owned()).collect()
    };
    assert_eq!(after(&buffer, 1, 1), ["1:2", "1:3"]);
    assert_eq!(after(&buffer, 3, 0), [""; 0]);
    for place in 4..1000 {
        buffer.push(EventId { stream: 1, place }, b"0123456789");
        assert!(buffer.len() <= 1000);
    }
    assert_eq!(after(&buffer, 2, 0), [""; 0]);
    assert!(!after(&buffer, 1, 4).is_empty());
    buffer.push(EventId { stream: 1, place: 1000 }, &[b'x'; 2000]);
    assert!(buffer.len() <= 1000 && buffer.is_empty());
}
