//! Bytes that are held for one identity, over every socket of the real daemon: a hostile identity
//! fills its share, and another one is served (TSK-36).

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Daemon, Peer, assert_none_left, carriers, marker, wait_until};
use serde_json::{Value, json};

use crate::fair::{ANN, BOB, ONE, OTHER, token_peer, with_tokens};
use crate::http::kit::{headers, modern};

const SHARE: usize = 4 << 20;
/// Memory that it may take: the share, and what its messages take until they are refused.
const GROWTH_KIB_MAX: usize = 48 * 1024;
/// Length of one argument.
const LONG: usize = 900_000;
/// Connections of the hostile identity.
const CROWD: usize = 6;

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

/// Requests that are held until they are answered: long arguments, long ids with long progress
/// tokens, and subscriptions of many URIs.
fn fill(kind: &str, number: usize) -> Value {
    let name = |letter: &str| format!("{number:06}{}", letter.repeat(8000));
    let call = |id: Value, text: &str, token: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "echo", "arguments": {"text": text}, "_meta": {"progressToken": token}}})
    };
    match kind {
        "arguments" => call(json!(number), &"x".repeat(LONG), json!(number)),
        "names" => call(json!(name("i")), "x", json!(name("t"))),
        _ => {
            let uris: Vec<String> = (0..100).map(|of| format!("x://{of}/{}", name("u"))).collect();
            let mut listen: Value =
                serde_json::from_str(&modern(1, "subscriptions/listen", "")).expect("JSON");
            listen["id"] = json!(number);
            listen["params"]["notifications"] = json!({"resourceSubscriptions": uris});
            listen
        }
    }
}

/// Fills the share of an identity, whose calls occupy its workers, by connections of its own.
fn attack(mut connect: impl FnMut() -> Peer, mark: &str) -> Vec<Peer> {
    let mut crowd: Vec<Peer> = (0..CROWD).map(|_| connect()).collect();
    let arguments = json!({"t": mark}).to_string();
    for _ in 0..7 {
        crowd[0].call("hang", &arguments);
    }
    wait_until("its workers are busy", || carriers(mark).len() == 7);
    for (kind, count) in [("arguments", 12), ("names", 600), ("subscriptions", 12)] {
        let mut is_refused = false;
        for number in 0..count {
            let peer = &mut crowd[1 + number % (CROWD - 1)];
            peer.send(&fill(kind, 1000 + number).to_string());
        }
        for peer in &mut crowd[1..] {
            let ping = peer.request("ping", "{}");
            loop {
                let answer = peer.message().expect("the connection stays open");
                is_refused |= is_refusal(&answer);
                if answer["id"] == ping {
                    break;
                }
            }
        }
        assert!(is_refused, "{kind} have a share");
    }
    crowd
}

/// Another identity calls with arguments of its own while the share of the first is full.
fn is_served(mut other: Peer) {
    for _ in 0..3 {
        let text = "y".repeat(LONG);
        let call = other.call("echo", &json!({"text": text}).to_string());
        assert_eq!(other.text(call).len(), LONG);
    }
}

#[test]
fn hostile_identity_fills_its_share_alone_over_a_unix_socket() {
    let (daemon, mark) = (daemon(), marker());
    if daemon.peer_of(ONE).is_none() {
        return;
    }
    let before = daemon.vitals();
    let crowd = attack(|| daemon.peer_of(ONE).expect("this test runs as root"), &mark);
    is_served(daemon.peer_of(OTHER).expect("this test runs as root"));
    check_memory(&daemon, before.memory_peak_kib);
    drop(crowd);
    wait_until("its calls have ended", || carriers(&mark).is_empty());
    is_served(daemon.peer_of(ONE).expect("this test runs as root"));
}

#[test]
fn hostile_identity_fills_its_share_alone_over_tcp() {
    let (daemon, mark) = (daemon(), marker());
    let before = daemon.vitals();
    let crowd = attack(|| token_peer(&daemon, ANN), &mark);
    is_served(token_peer(&daemon, BOB));
    check_memory(&daemon, before.memory_peak_kib);
    drop(crowd);
    wait_until("its calls have ended", || carriers(&mark).is_empty());
    is_served(token_peer(&daemon, ANN));
    assert_none_left(&mark);
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
    let refusal = |http: &mut Http| is_refusal(&http.reply().json());
    assert!(refusal(&mut call(ANN, 20, "echo", &long)), "arguments have a share");
    // What is left of the share goes to long ids.
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
