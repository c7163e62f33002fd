//! HTTP/1.1 of the daemon: connections, limits, slow and hostile clients (HTTP-10).

use std::time::{Duration, Instant};

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::wait_until;
use serde_json::json;

use super::kit::{
    OPEN, Session, call, connect, daemon, daemon_with, daemon_within, headers, modern,
};

const PING: &str = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;

/// HTTP-10: requests sent ahead are answered in order, whatever they take.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let mut http = connect(&daemon);
    for id in 1..30 {
        let ms = if id % 7 == 0 { 20 } else { 0 };
        http.post(&session.headers(), &call(id, "sleep", &format!(r#"{{"ms":{ms}}}"#)));
    }
    for id in 1..30 {
        assert_eq!(http.answer()["id"], json!(id));
    }
}

/// HTTP-10: chunks, Expect, and bytes one by one.
#[test]
fn bodies_arrive_in_every_form() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\n",
        session.id
    );
    let mut http = connect(&daemon);
    let (one, two) = PING.split_at(11);
    let chunked = format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{one}\r\n{:X};x=y\r\n{two}\r\n0\r\ntrailer: x\r\n\r\n",
        one.len(),
        two.len()
    );
    for byte in chunked.as_bytes() {
        http.send(&[*byte]);
    }
    assert_eq!(http.answer()["id"], 9);
    http.send(
        format!("{head}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", PING.len()).as_bytes(),
    );
    assert_eq!(http.any_head().status, 100);
    http.send(PING.as_bytes());
    assert_eq!(http.answer()["id"], 9);
    // HTTP/1.0 is closed after the response.
    let mut old = connect(&daemon);
    let head = head.replace("HTTP/1.1", "HTTP/1.0");
    old.send(format!("{head}content-length: {}\r\n\r\n{PING}", PING.len()).as_bytes());
    assert_eq!(old.answer()["id"], 9);
    assert!(old.is_closed());
}

/// HTTP-10: a request that two servers could read in two ways is refused, and the connection
/// closed.
#[test]
fn smuggling_shapes_are_refused() {
    let daemon = daemon();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for rest in [
        "content-length: 5\r\ncontent-length: 6\r\n\r\n",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        "content-length: +5\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\nhello",
        "x: a\r\n b\r\n\r\n",
        "x: a\rb\r\n\r\n",
        "x : a\r\n\r\n",
        "host: other\r\n\r\n",
    ] {
        let mut http = connect(&daemon);
        http.send(format!("{head}{rest}").as_bytes());
        let reply = http.reply();
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{rest:?}");
        assert!(http.is_closed(), "{rest:?}");
    }
    let mut http = connect(&daemon);
    http.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS");
    assert_eq!(http.reply().status, 400);
}

/// HTTP-10: heads are bounded.
#[test]
fn long_heads_are_refused() {
    let daemon = daemon();
    for head in [
        format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000)),
        format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(150)),
    ] {
        let mut http = connect(&daemon);
        http.send(head.as_bytes());
        assert_eq!(http.reply().status, 431);
    }
}

/// HTTP-10: clients that send a byte now and then are closed after `frame_time`, and delay no other.
#[test]
fn slow_heads_delay_no_ping() {
    let daemon = daemon_within("frame_time = \"800ms\"", OPEN);
    let session = Session::begin(&daemon, "2025-11-25");
    let mut slow: Vec<Http> = (0..200).map(|_| connect(&daemon)).collect();
    for (position, http) in slow.iter_mut().enumerate() {
        let text: &[u8] = match position % 3 {
            0 => b"POST /mcp HTTP/1.1\r\nhost: local",
            1 => b"P",
            _ => b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10000\r\n\r\n{",
        };
        http.send(text);
    }
    let mut http = connect(&daemon);
    let mut worst = Duration::ZERO;
    for _ in 0..100 {
        let begin = Instant::now();
        http.post(&session.headers(), PING);
        assert_eq!(http.answer()["id"], 9);
        worst = worst.max(begin.elapsed());
        for slow in slow.iter_mut().take(20) {
            let _ = slow.try_send(b"x");
        }
    }
    println!("worst ping beside 200 slow clients: {worst:?}");
    for http in &mut slow {
        assert_eq!(http.reply().status, 408);
        assert!(http.is_closed());
    }
}

/// HTTP-10: a silent connection is closed after `keep_alive`.
#[test]
fn silent_connections_are_closed() {
    let daemon = daemon_with(&format!("{OPEN}keep_alive = \"300ms\"\n"));
    let mut fresh = connect(&daemon);
    let mut used = connect(&daemon);
    let reply = used.exchange(&headers("tools/list", ""), &modern(1, "tools/list", ""));
    assert_eq!(reply.status, 200);
    assert!(fresh.is_closed() && used.is_closed());
    daemon.wait_idle();
}

/// HTTP-10: connections of one address are bounded.
#[test]
fn connections_of_one_address_are_bounded() {
    let daemon = daemon_with(&format!("{OPEN}connections_per_address = 4\n"));
    // Each is in use.
    let mut kept: Vec<Http> = (0..4).map(|_| connect(&daemon)).collect();
    for http in &mut kept {
        http.request("GET /events", &[("accept", "text/event-stream")], "");
        assert_eq!(http.head().status, 200);
    }
    let mut more = connect(&daemon);
    let reply = more.exchange(&headers("tools/list", ""), &modern(1, "tools/list", ""));
    assert_eq!((reply.status, reply.header("connection")), (429, Some("close")));
    assert!(reply.body.contains("connections_per_address = 4"), "{reply:?}");
    assert!(more.is_closed());
    drop(kept.pop());
    wait_until("a place is free", || {
        let mut http = connect(&daemon);
        let reply = http.exchange(&headers("tools/list", ""), &modern(1, "tools/list", ""));
        reply.status == 200
    });
}

/// A crowd that sends nothing has the places of connections without a request, of which the oldest
/// give way; the others are served on.
#[test]
fn crowds_beyond_the_limit_are_closed() {
    let daemon = daemon_within("connections = 64\n", OPEN);
    let mut kept = connect(&daemon);
    let list = modern(1, "tools/list", "");
    assert_eq!(kept.exchange(&headers("tools/list", ""), &list).status, 200);
    let mut crowd: Vec<Http> = (0..300).map(|_| connect(&daemon)).collect();
    assert_eq!(kept.exchange(&headers("tools/list", ""), &list).status, 200);
    // A quarter of the limit may be without a request.
    let newest = crowd.split_off(284);
    for http in &mut crowd {
        assert!(http.is_closed());
    }
    assert!(daemon.vitals().descriptors < 100);
    drop(newest);
}
