//! Responses and requests as state machines: tables, every cut of the bytes, hostile answers.

use ceased_transports::http::client::{
    ClientLimits, ClientRequest, Event, EventReader, HttpClient, Part, Place, RequestError,
    ResponseError, ResponseReader, Url, UrlError,
};
use ceased_transports::http::{BodyError, sse};

const LIMITS: ClientLimits =
    ClientLimits { head_bytes: 512, headers: 6, body_bytes: 64, event_bytes: 48 };

/// All that a response says.
#[derive(Debug, Clone, PartialEq)]
struct Read {
    status: Option<u16>,
    parts: Vec<Part>,
    is_whole: bool,
    keeps_alive: bool,
    error: Option<ResponseError>,
    /// The error of the end of the connection after these bytes.
    at_end: Option<ResponseError>,
}

/// Reads pieces as the response to a HEAD request or another.
fn read_pieces<'a>(to_head: bool, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut reader = ResponseReader::new(LIMITS, to_head);
    let mut error = None;
    for piece in pieces {
        error = reader.receive(piece).err();
    }
    let (is_whole, keeps_alive) = (reader.is_whole(), reader.keeps_alive());
    let at_end = reader.finish().err();
    let mut parts = Vec::new();
    parts.extend(std::iter::from_fn(|| reader.next_part()));
    let status = reader.head().map(|head| head.status);
    // A wrong head without a line end is looked at once the connection ends, if not before.
    let error = error.or_else(|| at_end.clone());
    Read { status, parts, is_whole, keeps_alive, error, at_end }
}

/// Reads bytes whole, byte by byte, and cut into two at every place; all give the same.
fn read_to(to_head: bool, bytes: &[u8]) -> Read {
    let whole = read_pieces(to_head, [bytes]);
    assert_eq!(read_pieces(to_head, bytes.chunks(1)), whole, "byte by byte: {}", shown(bytes));
    for at in 0..=bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(read_pieces(to_head, [first, second]), whole, "cut at {at}: {}", shown(bytes));
    }
    whole
}

fn read(text: &str) -> Read {
    read_to(false, text.as_bytes())
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn body(text: &str) -> Vec<Part> {
    vec![Part::Body(text.into())]
}

fn event(id: Option<&str>, kind: &str, data: &str) -> Part {
    Part::Event(Event { id: id.map(str::to_owned), kind: kind.to_owned(), data: data.into() })
}

#[test]
fn responses_end_where_they_say() {
    // Text, status, parts, whole before the end of the connection, fit for another request.
    for (text, status, parts, is_whole, keeps_alive) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, body("{}"), true, true),
        ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, vec![], true, true),
        ("HTTP/1.1 200 OK\ncontent-length: 2\n\n{}", 200, body("{}"), true, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}", 200, body("{}"), true, true),
        (
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\ncontent-length: 2\r\n\r\n{}",
            200,
            body("{}"),
            true,
            false,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{}", 200, body("{"), true, false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", 200, body("{}"), true, false),
        (
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}",
            200,
            body("{}"),
            true,
            true,
        ),
        ("HTTP/1.1 404 No\r\n\r\nno", 404, body("no"), false, false),
        ("HTTP/1.1 200 OK\r\n\r\n", 200, vec![], false, false),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, vec![], true, true),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, vec![], true, true),
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", 202, vec![], true, true),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n\
             HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            200,
            body("{}"),
            true,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1 ; a=b\r\n{\r\n01\r\n}\r\n\
             0\r\nx-sum: 1\r\n\r\n",
            200,
            body("{}"),
            true,
            true,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\n\r\n{}", 200, body("{}"), false, false),
    ] {
        let found = read(text);
        assert_eq!((found.status, &found.parts), (Some(status), &parts), "{text}");
        assert_eq!((found.is_whole, found.keeps_alive), (is_whole, keeps_alive), "{text}");
        assert_eq!((found.error, found.at_end), (None, None), "{text}");
    }
}

#[test]
fn response_to_head_has_no_body() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n";
    let found = read_to(true, text.as_bytes());
    assert_eq!((found.status, found.is_whole, found.keeps_alive), (Some(200), true, true));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    assert!(read_to(true, chunked.as_bytes()).is_whole);
}

#[test]
fn hostile_responses_are_typed_errors() {
    let head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
    let chunked = |body: &str| format!("{}{body}", head("transfer-encoding: chunked\r\n"));
    let not_http = |begin: &str, why| ResponseError::NotHttp { why, begin: begin.to_owned() };
    let coding = |found: &str| ResponseError::TransferEncoding { found: found.to_owned() };
    let length = |found: &str| ResponseError::BadLength { found: found.to_owned() };
    let long = head(&format!("x: {}\r\n", "x".repeat(512)));
    let interims = "HTTP/1.1 100 Continue\r\n\r\n".repeat(30);
    for (text, wanted) in [
        ("SSH-2.0-x\r\n".to_owned(), not_http("SSH-2.0-x", httparse::Error::Version)),
        ("HTTP/1.1 2x0 OK\r\n".to_owned(), not_http("HTTP/1.1 2x0 OK", httparse::Error::Status)),
        (
            "HTTP/1.1 103 Early\r\n\r\nSSH-2.0-x and more".to_owned(),
            not_http("SSH-2.0-x and mo", httparse::Error::Version),
        ),
        ("SSH".to_owned(), not_http("SSH", httparse::Error::Version)),
        (head("a b: c\r\n"), not_http("HTTP/1.1 200 OK", httparse::Error::HeaderName)),
        (long, ResponseError::HeadTooLarge { bytes_max: 512 }),
        (interims, ResponseError::HeadTooLarge { bytes_max: 512 }),
        (head(&"a: b\r\n".repeat(7)), ResponseError::TooManyHeaders { headers_max: 6 }),
        ("HTTP/1.1 101 Go\r\n\r\n".to_owned(), ResponseError::Switched),
        (head("content-length: +2\r\n"), length("+2")),
        (head("content-length: \r\n"), length("")),
        (head("content-length: 99999999999999999999\r\n"), length("99999999999999999999")),
        (
            head("content-length: 2\r\ncontent-length: 3\r\n"),
            ResponseError::TwoLengths { first: 2, other: 3 },
        ),
        (
            head("content-length: 2\r\ntransfer-encoding: chunked\r\n"),
            ResponseError::LengthAndCoding,
        ),
        (head("transfer-encoding: gzip, chunked\r\n"), coding("gzip, chunked")),
        (head("transfer-encoding: chunked\r\n").replace("1.1", "1.0"), coding("chunked")),
        (
            head("content-encoding: gzip\r\n"),
            ResponseError::ContentEncoding { found: "gzip".to_owned() },
        ),
        (
            head("content-length: 65\r\n"),
            ResponseError::Body(BodyError::TooLarge { bytes_max: 64 }),
        ),
        (head("") + &"x".repeat(65), ResponseError::Body(BodyError::TooLarge { bytes_max: 64 })),
        (
            chunked("40\r\n") + &"x".repeat(64) + "\r\n1\r\n",
            ResponseError::Body(BodyError::TooLarge { bytes_max: 64 }),
        ),
        (chunked("0x1\r\n"), ResponseError::Body(BodyError::ChunkSize { found: "0x1".to_owned() })),
        (chunked("1\r\nab\r\n"), ResponseError::Body(BodyError::ChunkEnd)),
        (
            chunked("1\n"),
            ResponseError::Body(BodyError::LineEnd { subject: "the size of a chunk" }),
        ),
        (
            chunked(&format!("1;{}", "x".repeat(256))),
            ResponseError::Body(BodyError::LongLine {
                subject: "the size of a chunk",
                bytes_max: 256,
            }),
        ),
        (
            chunked(&format!("0\r\nx: {}", "x".repeat(512))),
            ResponseError::Body(BodyError::LongLine {
                subject: "the trailers of a message",
                bytes_max: 512,
            }),
        ),
    ] {
        let found = read(&text);
        assert_eq!(found.error.as_ref(), Some(&wanted), "{text}");
        assert!(!found.is_whole && !found.keeps_alive && found.parts.is_empty(), "{text}");
        assert!(wanted.to_string().len() > 20);
    }
}

#[test]
fn connection_that_ends_too_early_is_an_error() {
    let head = "HTTP/1.1 200 OK\r\n";
    for (text, wanted) in [
        (String::new(), ResponseError::NoResponse),
        ("HTTP/1.1 100 Continue\r\n\r\n".to_owned(), ResponseError::CutHead { received: 25 }),
        (head.to_owned(), ResponseError::CutHead { received: 17 }),
        (format!("{head}content-length: 3\r\n\r\n{{}}"), ResponseError::CutBody { received: 2 }),
        (
            format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n"),
            ResponseError::CutBody { received: 2 },
        ),
        (
            format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n"),
            ResponseError::CutBody { received: 2 },
        ),
    ] {
        let found = read(&text);
        assert_eq!(found.at_end, Some(wanted), "{text}");
        assert!(!found.is_whole, "{text}");
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n";

#[test]
fn events_are_cut_as_the_standard_says() {
    let first = "\u{feff}: comment\nid: 1\ndata:\n\ndata: {\"a\":\r\ndata: 1}\r\n\r\n";
    let more = "event: x\rdata:  y\r\rid\ndata\n\nid: 7\nretry: 30\n\nnone: x\ndata:z\n\ndata: cut";
    let expected = vec![
        event(Some("1"), "", ""),
        event(None, "", "{\"a\":\n1}"),
        event(None, "x", " y"),
        event(Some(""), "", ""),
        event(None, "", "z"),
    ];
    let found = read(&format!("{STREAM}\r\n{first}{more}"));
    assert_eq!((found.parts, found.error, found.at_end), (expected.clone(), None, None));
    let chunks: String = [first, more].map(|it| format!("{:x}\r\n{it}\r\n", it.len())).concat();
    let found = read(&format!("{STREAM}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"));
    assert_eq!((found.parts, found.is_whole, found.keeps_alive), (expected, true, true));
}

#[test]
fn event_stream_has_no_bound_but_that_of_an_event() {
    let fine = format!("data: {}\n\n", "x".repeat(42));
    let found = read(&format!("{STREAM}\r\n{}", fine.repeat(3)));
    assert_eq!((found.parts.len(), found.error), (3, None));
    for wrong in [
        format!("data: {}\n\n", "x".repeat(43)),
        format!(": {}", "x".repeat(47)),
        "data: xxxxxxxx\n".repeat(6),
        "data\n".repeat(64),
    ] {
        let found = read(&format!("{STREAM}\r\n{fine}{wrong}"));
        assert_eq!(found.parts.len(), 1, "{wrong}");
        assert_eq!(found.error, Some(ResponseError::EventTooLarge { bytes_max: 48 }), "{wrong}");
    }
}

#[test]
fn events_before_a_wrong_chunk_are_read() {
    let text = format!("{STREAM}transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\nz\r\n");
    let found = read(&text);
    assert_eq!(found.parts, [event(None, "", "1")]);
    assert!(matches!(found.error, Some(ResponseError::Body(BodyError::ChunkSize { .. }))));
}

#[test]
fn stream_remembers_its_last_id_and_its_time_to_wait() {
    let mut reader = EventReader::new(usize::MAX);
    let mut count = 0;
    let mut take = |reader: &mut EventReader, text: &str| {
        reader.receive(text.as_bytes(), &mut |_| count += 1).map(|()| count)
    };
    assert_eq!(take(&mut reader, "id: 1\nretry: 1x\nretry: 250\n\nid: 2\0\ndata\n\n"), Ok(1));
    assert_eq!((reader.last_id(), reader.retry()), (Some("1"), Some(250)));
    assert_eq!(take(&mut reader, "retry: 99999999999999999999\nid\ndata\n\nid: 3"), Ok(2));
    assert_eq!((reader.last_id(), reader.retry()), (None, Some(250)));
    let long = format!("\nid: {}\n", "x".repeat(8193));
    let wanted = ResponseError::EventIdTooLong { bytes: 8193, bytes_max: 8192 };
    assert_eq!(take(&mut reader, &long), Err(wanted));
}

/// The two halves of this crate understand each other.
#[test]
fn events_of_the_server_half_are_read() {
    let mut bytes = Vec::new();
    sse::write_retry(&mut bytes, 5);
    sse::write_comment(&mut bytes);
    sse::write_event(&mut bytes, Some("1-0"), b"{\r\n}");
    sse::write_event(&mut bytes, None, b"");
    let (mut reader, mut found) = (EventReader::new(64), Vec::new());
    reader.receive(&bytes, &mut |event| found.push(Part::Event(event))).unwrap();
    assert_eq!(found, [event(Some("1-0"), "", "{  }"), event(None, "", "")]);
    assert_eq!((reader.last_id(), reader.retry()), (Some("1-0"), Some(5)));
}

fn request<'a>(headers: &'a [(&'a str, &'a str)]) -> ClientRequest<'a> {
    let (method, target, authority) = ("POST", "/mcp?a=1", "localhost:80");
    ClientRequest { method, target, authority, headers, body: b"{}", keep_alive: true }
}

fn written(request: &ClientRequest<'_>) -> Result<String, RequestError> {
    let mut out = Vec::new();
    let result = request.write(&mut out);
    let text = String::from_utf8(out).expect("ASCII");
    assert!(result.is_ok() || text.is_empty());
    result.map(|()| text)
}

#[test]
fn requests_are_written_with_their_framing() {
    let plain = request(&[("accept", "text/event-stream")]);
    assert_eq!(
        written(&plain).unwrap(),
        "POST /mcp?a=1 HTTP/1.1\r\nhost: localhost:80\r\naccept: text/event-stream\r\n\
         accept-encoding: identity\r\ncontent-length: 2\r\n\r\n{}"
    );
    let last = ClientRequest { method: "GET", body: b"", keep_alive: false, ..plain };
    let text = written(&ClientRequest { headers: &[("Host", "other")], ..last }).unwrap();
    let wanted = "GET /mcp?a=1 HTTP/1.1\r\nHost: other\r\naccept-encoding: identity\r\n\
                  connection: close\r\n\r\n";
    assert_eq!(text, wanted);
    let empty = written(&ClientRequest { body: b"", ..plain }).unwrap();
    assert!(empty.contains("content-length: 0\r\n"));
}

#[test]
fn no_part_of_a_request_leaves_its_place() {
    let wrong_header = |name: &str| RequestError::HeaderName(name.to_owned());
    for (name, value, wanted) in [
        ("a b", "c", wrong_header("a b")),
        ("", "c", wrong_header("")),
        ("a:", "c", wrong_header("a:")),
        ("x\r\ny", "c", wrong_header("x\r\ny")),
        ("x", "a\r\nb: c", RequestError::HeaderValue { name: "x".to_owned() }),
        ("x", "a\nb", RequestError::HeaderValue { name: "x".to_owned() }),
        ("x", "a\0", RequestError::HeaderValue { name: "x".to_owned() }),
        ("Content-Length", "1", RequestError::OwnHeader("Content-Length".to_owned())),
        ("transfer-encoding", "x", RequestError::OwnHeader("transfer-encoding".to_owned())),
        ("connection", "x", RequestError::OwnHeader("connection".to_owned())),
    ] {
        assert_eq!(written(&request(&[(name, value)])), Err(wanted), "{name:?}: {value:?}");
    }
    let fine = request(&[]);
    for method in ["", "GET /", "GET\r\n"] {
        let wanted = RequestError::Method(method.to_owned());
        assert_eq!(written(&ClientRequest { method, ..fine }), Err(wanted));
    }
    for target in ["", "mcp", "/a b", "/a\r\n", "/\u{e9}"] {
        let wanted = RequestError::Target(target.to_owned());
        assert_eq!(written(&ClientRequest { target, ..fine }), Err(wanted));
    }
    let wanted = RequestError::Authority("a\r\nb".to_owned());
    assert_eq!(written(&ClientRequest { authority: "a\r\nb", ..fine }), Err(wanted));
}

#[test]
fn connection_is_used_again_only_where_both_sides_keep_it() {
    let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let mut client = HttpClient::new(LIMITS);
    assert!(client.is_idle() && client.pending().is_empty());
    for _ in 0..2 {
        client.send(&request(&[])).unwrap();
        assert_eq!(client.send(&request(&[])), Err(RequestError::Busy));
        client.note_sent(client.pending().len());
        client.receive(whole).unwrap();
        assert!(client.is_idle() && !client.is_over());
        assert_eq!(client.next_part(), Some(Part::Body(b"{}".to_vec())));
        assert_eq!(client.head().map(|head| head.status), Some(200));
    }
    // Bytes that no request asked for, and the end of an idle connection.
    let mut unasked = HttpClient::new(LIMITS);
    unasked.receive(whole).unwrap();
    assert!(unasked.is_over() && !unasked.is_idle() && unasked.head().is_none());
    assert_eq!(client.finish(), Ok(()));
    assert!(client.is_over());
    // A response before the end of its request.
    let mut early = HttpClient::new(LIMITS);
    early.send(&request(&[])).unwrap();
    early.note_sent(10);
    early.receive(whole).unwrap();
    assert!(early.is_over() && !early.is_idle());
    // The client wants no other.
    let mut last = HttpClient::new(LIMITS);
    last.send(&ClientRequest { keep_alive: false, ..request(&[]) }).unwrap();
    last.note_sent(last.pending().len());
    last.receive(whole).unwrap();
    assert!(last.is_over());
    // A HEAD request, as it is.
    let mut raw = HttpClient::new(LIMITS);
    raw.send_raw(b"HEAD / HTTP/1.1\r\n\r\n".to_vec()).unwrap();
    raw.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").unwrap();
    assert!(raw.is_over() && raw.response().is_some_and(ResponseReader::is_whole));
}

#[test]
fn urls_are_taken_apart() {
    let tcp = |host: &str, port, is_tls| Place::Tcp { host: host.to_owned(), port, is_tls };
    for (text, place, authority, target) in [
        ("http://localhost:81/mcp?a=1#x", tcp("localhost", 81, false), "localhost:81", "/mcp?a=1"),
        ("HTTPS://Example.org", tcp("example.org", 443, true), "Example.org", "/"),
        ("http://[::1]?q", tcp("::1", 80, false), "[::1]", "/?q"),
        ("https://[2001:db8::1]:8443/", tcp("2001:db8::1", 8443, true), "[2001:db8::1]:8443", "/"),
        ("unix:/run/s", Place::Unix("/run/s".into()), "localhost", "/mcp"),
        ("unix:///run/s:/x?y", Place::Unix("/run/s".into()), "localhost", "/x?y"),
    ] {
        let url = Url::parse(text).unwrap();
        let wanted = (place, authority.to_owned(), target.to_owned());
        assert_eq!((url.place, url.authority, url.target), wanted, "{text}");
    }
    let (host, port) =
        (|it: &str| UrlError::Host(it.to_owned()), |it: &str| UrlError::Port(it.to_owned()));
    let long = format!("http://a/{}", "x".repeat(9000));
    for (text, wanted) in [
        ("ftp://a", UrlError::Scheme),
        ("a/b", UrlError::Scheme),
        ("http://", host("")),
        ("https://:1/", host("")),
        ("http://[::1/", host("[::1")),
        ("http://[a]/", host("[a]")),
        ("http://a%20b/", host("a%20b")),
        ("http://a:b/", port("b")),
        ("http://a:/", port("")),
        ("http://a:+1/", port("+1")),
        ("http://a:0/", port("0")),
        ("http://a:65536/", port("65536")),
        ("http://a /", UrlError::Characters),
        ("http://a\\@b/", UrlError::Characters),
        ("http://u:p@a/", UrlError::User),
        ("unix:run/s", UrlError::Socket),
        (&*long, UrlError::TooLong { bytes: long.len() }),
    ] {
        assert_eq!(Url::parse(text), Err(wanted), "{text}");
    }
}
