//! Bytes that are held for one identity in the real daemon: a hostile identity fills its share, and
//! another one is served (TSK-36).

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::peer::{call, request};
use ceased_tests::daemon::{Daemon, Peer, carriers, marker, wait_until};
use serde_json::{Value, json};

use crate::http::kit::{headers, modern};
use crate::limits::fairness::{ANN, BOB, ONE, OTHER, token_peer, with_tokens};

const SHARE: usize = 4 << 20;
/// Memory that it may take: the share, and its messages until they are refused.
const GROWTH_KIB_MAX: usize = 48 * 1024;
/// Length of one argument.
const LONG: usize = 900_000;

fn daemon() -> Daemon {
    let http =
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\ntoken_file = \"tokens\"\n";
    with_tokens(
        "workers = 8\nqueue = 4096",
        "message_bytes = \"1MiB\"\nheld_bytes = \"16MiB\"\nheld_bytes_per_identity = \"4MiB\"",
        http,
    )
}

fn is_refusal(answer: &Value) -> bool {
    let limit = json!({"limit": "held_bytes_per_identity", "max": SHARE});
    answer["error"]["data"] == limit
}

fn check_memory(daemon: &Daemon, before_kib: usize) {
    let grown = daemon.vitals().memory_peak_kib.saturating_sub(before_kib);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for one identity");
}

/// Sends a request of 2026-07-28 by a connection of its own.
fn post(daemon: &Daemon, token: &str, method: &str, tool: &str, body: &str) -> Http {
    let authorization = format!("Bearer {token}");
    let mut http = Http::tcp(daemon.http_address());
    let more = [&[("authorization", authorization.as_str())], &headers(method, tool)[..]].concat();
    http.post(&more, body);
    http
}

#[test]
fn hostile_identity_fills_its_share_alone_over_http() {
    let (daemon, mark) = (daemon(), marker());
    let before = daemon.vitals();
    let call = |token: &str, id: u64, tool: &str, arguments: &Value| {
        let params = format!(r#""name":"{tool}","arguments":{arguments}"#);
        post(&daemon, token, "tools/call", tool, &modern(id, "tools/call", &params))
    };
    let mut crowd: Vec<Http> =
        (0..7).map(|id| call(ANN, id, "hang", &json!({"t": mark}))).collect();
    wait_until("its workers are busy", || carriers(&mark).len() == 7);
    let long = json!({"text": "x".repeat(LONG)});
    crowd.extend((10..14).map(|id| call(ANN, id, "echo", &long)));
    // Each comes on a connection of its own, in any order.
    let jobs = || daemon.status()["jobs"].as_array().map(Vec::len);
    wait_until("its calls wait", || jobs() == Some(11));
    let refusal = |http: &mut Http| is_refusal(&http.reply().json());
    assert!(refusal(&mut call(ANN, 20, "echo", &long)), "arguments have a share");
    // The rest of the share goes to long ids.
    crowd.extend((0..40).map(|number| {
        let body = modern(1, "tools/call", r#""name":"echo","arguments":{"text":"x"}"#);
        let id = format!(r#""id":"{number:06}{}""#, "i".repeat(8000));
        post(&daemon, ANN, "tools/call", "echo", &body.replacen(r#""id":1"#, &id, 1))
    }));
    for id in 0..3 {
        let answer = call(BOB, id, "echo", &long).reply().json();
        let text = answer["result"]["content"][0]["text"].as_str().map(str::len);
        assert_eq!(text, Some(LONG), "{answer:.300}");
    }
    check_memory(&daemon, before.memory_peak_kib);
    drop(crowd);
    wait_until("its calls have ended", || carriers(&mark).is_empty());
    let answer = call(ANN, 1, "echo", &long).reply().json();
    assert!(answer["result"].is_object(), "{answer:.300}");
}

/// The same for peers that keep one connection: `hostile` fills its share by arguments, ids and
/// progress tokens, and another identity, `other`, is served.
fn check_share(daemon: &Daemon, mut hostile: Peer, mut other: Peer) {
    let mark = marker();
    let before = daemon.vitals();
    let hang = json!({"t": mark}).to_string();
    let hung: Vec<u64> = (0..7).map(|_| hostile.call("hang", &hang)).collect();
    wait_until("its workers are busy", || carriers(&mark).len() == 7);
    let long = json!({"text": "x".repeat(LONG)}).to_string();
    let queued: Vec<u64> = (0..4).map(|_| hostile.call("echo", &long)).collect();
    let last = hostile.call("echo", &long);
    assert!(is_refusal(&hostile.answer(last)), "arguments have a share");
    // The rest of the share goes to long ids and progress tokens.
    for number in 10_000..10_040 {
        let token = format!(r#","_meta":{{"progressToken":"{number}{}"}}"#, "t".repeat(4000));
        let line = call(number, "echo", r#"{"text":"x"}"#, &token);
        let id = format!(r#""id":"{number}{}""#, "i".repeat(4000));
        hostile.send(&line.replacen(&format!(r#""id":{number}"#), &id, 1));
    }
    hostile.send(&request(20_000, "ping", "{}"));
    assert_eq!(hostile.answer(20_000)["result"], json!({}));
    for _ in 0..3 {
        let call = other.call("echo", &long);
        let answer = other.answer(call);
        let text = answer["result"]["content"][0]["text"].as_str().map(str::len);
        assert_eq!(text, Some(LONG), "{answer:.300}");
    }
    check_memory(daemon, before.memory_peak_kib);
    hung.into_iter().chain(queued).for_each(|call| hostile.cancel(call));
    wait_until("its calls have ended", || carriers(&mark).is_empty());
    let call = hostile.call("echo", &long);
    let answer = hostile.answer(call);
    assert!(answer["result"].is_object(), "{answer:.300}");
}

#[test]
fn hostile_identity_fills_its_share_alone_over_tcp() {
    let daemon = daemon();
    check_share(&daemon, token_peer(&daemon, ANN), token_peer(&daemon, BOB));
}

#[test]
fn hostile_identity_fills_its_share_alone_over_unix_sockets() {
    let daemon = daemon();
    let Some(hostile) = daemon.peer_of(ONE) else { return };
    check_share(&daemon, hostile, daemon.peer_of(OTHER).expect("this test runs as root"));
}
