//! Floods: with any input of a peer, the daemon keeps its memory bounded and serves its other
//! peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ceased_tests::daemon::peer::{call, cancel};
use ceased_tests::daemon::{Config, Daemon, Peer, assert_none_left, marker};
use serde_json::Value;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
/// Memory in KiB that a line of up to 16 MiB may take: a buffer that has doubled, twice while it
/// doubles.
const LINE_KIB_MAX: usize = 64 * 1024;

fn ping(peer: &mut Peer) {
    assert_eq!(peer.result("ping", "{}"), serde_json::json!({}));
}

/// Sends a line and checks its error code; returns the id of the response.
fn refused(peer: &mut Peer, line: &[u8], code: i64) -> Value {
    peer.try_send(&[line, b"\n"].concat()).expect("the daemon reads");
    let shown = String::from_utf8_lossy(line.get(..80).unwrap_or(line)).into_owned();
    let answer = peer.message().unwrap_or_else(|| panic!("closed by {shown}"));
    assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    answer
}

/// RPC-01, RPC-02: every invalid line is answered once, and the next valid one is served.
#[test]
fn every_invalid_line_is_answered_once() {
    let daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let nest = |bytes: &[u8]| bytes.repeat(100_000);
    let broken: [&[u8]; 19] = [
        b"hello",
        b"{",
        b"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\"",
        b"{\"jsonrpc\":\"2.0\" \"id\":900}",
        b"\xff\xfe\xfd",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"pi\xc3(ng\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"p\0ng\"}",
        b"\0",
        b"\0{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\"} trailing",
        b"{'jsonrpc':'2.0'}",
        b"{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"ping\"}",
        b"// a comment",
        b"\"\\ud800",
        b"Content-Length: 20",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nul",
    ];
    for line in broken {
        refused(&mut peer, line, PARSE_ERROR);
        ping(&mut peer);
    }
    let wrong: [&[u8]; 17] = [
        b"null",
        b"7",
        b"\"text\"",
        b"[]",
        b"[1,2,3]",
        b"[{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\"}]",
        b"{}",
        b"{\"id\":900,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"1.0\",\"id\":900,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":[900],\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"id\":901,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\",\"method\":\"tools/list\"}",
        b"{\"jsonrpc\":\"2.0\",\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":7}",
    ];
    for line in wrong {
        refused(&mut peer, line, INVALID_REQUEST);
        ping(&mut peer);
    }
    for line in [nest(b"["), nest(b"{\"a\":"), [nest(b"["), nest(b"]")].concat()] {
        peer.try_send(&line).unwrap();
        peer.send("");
        let answer = peer.message().expect("an answer");
        let code = answer["error"]["code"].as_i64();
        assert!(matches!(code, Some(PARSE_ERROR | INVALID_REQUEST)), "{answer}");
        ping(&mut peer);
    }
    // Blank lines are ignored.
    peer.try_send(b"\n\r\n  \t \n").unwrap();
    ping(&mut peer);
    assert!(peer.is_silent(), "a second answer");
}

/// Deep nesting in arguments, which the engine does not descend into.
#[test]
fn deep_arguments_are_passed_on() {
    let daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let before = daemon.status()["counters"]["jobsStarted"].clone();
    for method in ["tools/call", "ping", "tasks/get", "notifications/cancelled"] {
        let id = peer.next_id();
        peer.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"echo","arguments":{{"text":{deep}}}}}}}"#
        ));
        let answer = peer.message().unwrap();
        assert!(answer["error"]["code"].is_i64(), "{method}: {answer}");
    }
    ping(&mut peer);
    assert_eq!(daemon.status()["counters"]["jobsStarted"], before);
}

/// One line of a gigabyte takes no more memory than the longest valid one.
#[test]
fn line_of_a_gigabyte_takes_bounded_memory() {
    const PIECE: usize = 1 << 20;
    let daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    ping(&mut peer);
    let before = daemon.vitals();
    peer.try_send(b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"ping\",\"params\":{\"x\":\"")
        .unwrap();
    let piece = vec![b'x'; PIECE];
    for _ in 0..1024 {
        peer.try_send(&piece).unwrap();
    }
    peer.send("\"}}");
    let answer = peer.message().unwrap();
    assert_eq!(answer["error"]["code"], INVALID_REQUEST);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("message_bytes = 16777216"), "{message}");
    ping(&mut peer);
    assert!(peer.is_silent(), "a second refusal of one line");
    let grown = daemon.vitals().memory_peak_kib.saturating_sub(before.memory_peak_kib);
    assert!(grown < LINE_KIB_MAX, "{grown} KiB for one line");
    assert_eq!(daemon.status()["counters"]["overlong"], 1);
}

/// Many peers with incomplete lines: their memory is bounded and released.
#[test]
fn incomplete_lines_take_bounded_memory() {
    let daemon =
        Daemon::start(&Config { limits: "message_bytes = \"64KiB\"", ..Config::default() });
    let before = daemon.vitals();
    let mut peers: Vec<Peer> = (0..50).map(|_| daemon.peer()).collect();
    let piece = vec![b' '; 1 << 20];
    for peer in &mut peers {
        peer.try_send(b"{").unwrap();
        peer.try_send(&piece).unwrap();
    }
    let mut last = daemon.peer();
    ping(&mut last);
    let grown = daemon.vitals().memory_peak_kib.saturating_sub(before.memory_peak_kib);
    assert!(grown < LINE_KIB_MAX, "{grown} KiB for lines that do not end");
    for peer in &mut peers {
        assert_eq!(peer.message().unwrap()["error"]["code"], INVALID_REQUEST);
    }
    drop((peers, last));
    daemon.wait_idle();
    before.wait_back(daemon.pid());
}

/// 99th percentile of the time of some pings.
fn slow_ping(peer: &mut Peer, pings: usize) -> Duration {
    let mut times: Vec<Duration> = (0..pings)
        .map(|_| {
            let start = Instant::now();
            ping(peer);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    *times.get(pings - 1 - pings / 100).expect("some pings")
}

/// E4, P8: floods of every kind at once, and a peer that only pings.
#[test]
fn other_peers_are_served_during_a_flood() {
    const CANCELS: u64 = 1_000_000;
    let daemon = Daemon::start(&Config { tcp: true, ..Config::default() });
    let mark = marker();
    let mut bystander = daemon.peer();
    let quiet = slow_ping(&mut bystander, 1000);
    let done = AtomicBool::new(false);
    let before = daemon.vitals();
    let flooded = thread::scope(|scope| {
        // CAN-09: a million cancellations of unknown requests.
        let cancels = scope.spawn(|| {
            let mut peer = daemon.peer();
            for chunk in 0..CANCELS / 1000 {
                let text: String =
                    (0..1000).map(|n| cancel(chunk * 1000 + n + 1_000_000) + "\n").collect();
                peer.try_send(text.as_bytes()).unwrap();
            }
            ping(&mut peer);
            assert!(peer.is_silent(), "a cancellation is never answered");
        });
        // Invalid lines, each of which is answered.
        let garbage = scope.spawn(|| {
            let mut peer = daemon.tcp_peer();
            while !done.load(Ordering::Relaxed) {
                peer.try_send(&b"\xff\0garbage\n".repeat(100)).unwrap();
                for _ in 0..100 {
                    assert_eq!(peer.message().unwrap()["error"]["code"], PARSE_ERROR);
                }
            }
        });
        // Long lines.
        let long = scope.spawn(|| {
            let mut peer = daemon.peer();
            let line = vec![b'['; 1 << 20];
            while !done.load(Ordering::Relaxed) {
                peer.try_send(&line).unwrap();
                peer.send("");
                assert!(peer.message().unwrap()["error"].is_object());
            }
        });
        // Calls that are cancelled in the same write.
        let calls = scope.spawn(|| {
            let mut peer = daemon.peer();
            while !done.load(Ordering::Relaxed) {
                let id = peer.next_id();
                let hang = call(id, "hang", &format!(r#"{{"t":"{mark}"}}"#), "");
                peer.send(&format!("{hang}\n{}", cancel(id)));
                ping(&mut peer);
            }
        });
        let flooded = slow_ping(&mut bystander, 1000);
        cancels.join().unwrap();
        done.store(true, Ordering::Relaxed);
        garbage.join().unwrap();
        long.join().unwrap();
        calls.join().unwrap();
        flooded
    });
    // A turn serves every flooding peer once. The bound is far above the usual time and far below a
    // wait for the end of a flood, also on a busy machine.
    let bound = (quiet * 200).max(Duration::from_millis(500));
    assert!(flooded < bound, "pings took {flooded:?} in a flood and {quiet:?} without");
    drop(bystander);
    daemon.wait_idle();
    assert_none_left(&mark);
    let status = daemon.status();
    assert_eq!(status["counters"]["cancelsIgnored"], CANCELS);
    before.wait_back(daemon.pid());
    let grown = daemon.vitals().memory_peak_kib.saturating_sub(before.memory_peak_kib);
    assert!(grown < LINE_KIB_MAX, "{grown} KiB for floods");
    // A flood must not fill the disk with log lines.
    let said = daemon.home.log().len();
    assert!(said < 64 * 1024 * 1024, "{said} bytes of log");
}

/// Peers of other protocols, such as a browser that sends JSON-RPC: closed at once, without
/// execution and without an answer to a machine.
#[test]
fn peers_of_other_protocols_are_closed() {
    let daemon = Daemon::start(&Config { tcp: true, ..Config::default() });
    let mark = marker();
    let body = format!(
        "{}\n{}\n",
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"0"}}}"#,
        call(2, "hang", &format!(r#"{{"t":"{mark}"}}"#), "")
    );
    let post = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n";
    // The start of a TLS 1.2 record with a ClientHello.
    let hello = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(), &[0xa5; 300]].concat();
    let late = format!("\n\n  {post}");
    let machines: [&[u8]; 4] = [post.as_bytes(), get.as_bytes(), &hello, late.as_bytes()];
    for is_tcp in [false, true] {
        let connect = || if is_tcp { daemon.connect_tcp() } else { daemon.connect() };
        for bytes in machines {
            let mut peer = connect();
            // The connection may be closed before everything is sent.
            let _ = peer.try_send(bytes);
            assert_eq!(peer.rest(), Vec::<Value>::new());
        }
        // A person gets an explanation.
        let mut peer = connect();
        peer.send("hello?");
        let said = peer.rest();
        assert_eq!(said.len(), 1);
        assert_eq!(said[0]["error"]["code"], PARSE_ERROR);
    }
    // The same byte by byte.
    let mut peer = daemon.connect_tcp();
    for byte in post.as_bytes() {
        if peer.try_send(&[*byte]).is_err() {
            break;
        }
    }
    assert!(peer.rest().iter().all(|message| message["result"].is_null()));
    drop(peer);
    daemon.wait_idle();
    assert_none_left(&mark);
    assert_eq!(daemon.status()["counters"]["jobsStarted"], 0);
}
