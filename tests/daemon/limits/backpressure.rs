//! Peers that do not read: their requests are refused, their cancels still work, finally they are
//! closed; other peers are unaffected.

use std::thread;
use std::time::Duration;

use ceased_tests::daemon::peer::{cancel, request};
use ceased_tests::daemon::{
    Config, Daemon, Peer, Vitals, assert_none_left, carriers, marker, wait_until,
};
use ceased_tests::modern;
use rustix::io::read;
use serde_json::{Value, json};

const LIMIT_REACHED: i64 = -31003;
/// Text requested at a time.
const TEXT_BYTES: usize = 48 * 1024;
/// Memory in KiB that the allocator may hold beyond the bounded buffers.
const SLACK_KIB: usize = 16 * 1024;

fn refusals(daemon: &Daemon) -> u64 {
    daemon.status()["counters"]["refused"].as_u64().expect("a counter")
}

/// Sends requests without reading until one is refused; returns their ids.
fn ask_until_refused(daemon: &Daemon, peer: &mut Peer) -> Vec<u64> {
    let text = "x".repeat(TEXT_BYTES);
    let mut asked = Vec::new();
    let before = refusals(daemon);
    wait_until("a request is refused", || {
        let arguments = format!(r#"{{"text":"{text}"}}"#);
        asked.push(peer.call("echo", &arguments));
        // One request at a time: several answers at once may exceed twice the buffer and close the
        // peer.
        wait_until("the request is answered or refused", || {
            let status = daemon.status();
            let is_echo = |job: &Value| job["tool"] == "echo";
            !status["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(is_echo))
        });
        refusals(daemon) > before
    });
    asked
}

/// TSK-36: a peer that does not read is refused as busy, its cancels still work, and it is served
/// again once it reads.
#[test]
fn busy_peer_can_still_cancel() {
    let daemon =
        Daemon::start(&Config { limits: "write_buffer_bytes = \"64KiB\"", ..Config::default() });
    let mark = marker();
    let mut peer = daemon.peer();
    let hang = peer.call("family", &format!(r#"{{"t":"{mark}"}}"#));
    peer.wait_started(&[hang]);
    let asked = ask_until_refused(&daemon, &mut peer);
    // The cancel follows all unread answers.
    peer.cancel(hang);
    wait_until("the cancelled processes are gone", || carriers(&mark).is_empty());

    let (mut served, mut refused) = (0, 0);
    for id in asked {
        let answer = peer.answer(id);
        if answer["error"].is_null() {
            assert_eq!(answer["result"]["content"][0]["text"].as_str().unwrap().len(), TEXT_BYTES);
            served += 1;
        } else {
            assert_eq!(answer["error"]["code"], LIMIT_REACHED);
            assert_eq!(
                answer["error"]["data"],
                json!({"limit": "write_buffer_bytes", "max": 64 * 1024})
            );
            refused += 1;
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    assert_eq!(peer.result("ping", "{}"), json!({}));
    assert!(!peer.has_answer(hang), "a cancelled call was answered");
    drop(peer);
    daemon.wait_idle();
}

/// P7: beyond twice the buffer the peer is closed, its jobs are stopped, and its memory is
/// released; other peers are unaffected.
#[test]
fn peer_is_closed_beyond_twice_its_buffer() {
    const BUFFER_KIB: usize = 1024;
    let daemon =
        Daemon::start(&Config { limits: "write_buffer_bytes = \"1MiB\"", ..Config::default() });
    let mark = marker();
    let mut bystander = daemon.peer();
    let before = daemon.vitals();
    let mut peer = daemon.peer();
    peer.call("hang", &format!(r#"{{"t":"{mark}"}}"#));
    wait_until("it hangs", || !carriers(&mark).is_empty());
    // Until the daemon closes; the bound is for a daemon that never does.
    let flood = (request(900, "tools/list", "{}") + "\n").repeat(100);
    let mut sent = 0_usize;
    while peer.try_send(flood.as_bytes()).is_ok() {
        sent += flood.len();
        assert!(sent < 1 << 30, "never closed");
        assert_eq!(bystander.result("ping", "{}"), json!({}));
    }
    wait_until("its call is stopped", || carriers(&mark).is_empty());
    let grown = daemon.vitals().memory_peak_kib.saturating_sub(before.memory_peak_kib);
    // A growing buffer doubles and briefly exists twice.
    assert!(grown < 2 * BUFFER_KIB * 3 + SLACK_KIB, "{grown} KiB for a peer that does not read");
    assert!(refusals(&daemon) > 0);
    drop((peer, bystander));
    daemon.wait_idle();
    before.wait_back(daemon.pid());
}

/// A peer that reads nothing for `write_stall` is closed, even if it keeps sending.
#[test]
fn stalled_peer_is_closed() {
    let limits = "write_buffer_bytes = \"64KiB\"\nwrite_stall = \"2s\"";
    let daemon = Daemon::start(&Config { limits, tcp: true, ..Config::default() });
    let before = Vitals::of(daemon.pid());
    for (is_tcp, talks) in [(false, false), (true, false), (false, true), (true, true)] {
        let mark = marker();
        let mut peer = if is_tcp { daemon.tcp_peer() } else { daemon.peer() };
        peer.call("hang", &format!(r#"{{"t":"{mark}"}}"#));
        wait_until("it hangs", || !carriers(&mark).is_empty());
        ask_until_refused(&daemon, &mut peer);
        wait_until("the peer is closed and its call is stopped", || {
            if talks {
                // A message without an answer.
                let _ = peer.try_send((cancel(77) + "\n").as_bytes());
            }
            carriers(&mark).is_empty()
        });
        drop(peer);
        daemon.wait_idle();
        assert_none_left(&mark);
    }
    before.wait_back(daemon.pid());
}

/// The same for a peer that keeps cancelling its unread requests (MOD-04) and sending new ones.
#[test]
fn stalled_peer_is_closed_despite_cancels() {
    let limits = "write_buffer_bytes = \"64KiB\"\nwrite_stall = \"5s\"";
    let daemon = Daemon::start(&Config { limits, ..Config::default() });
    let mut viewer = daemon.peer();
    // Requests received from the other peer, those in flight, and its unsent bytes.
    let mut seen = || {
        let status = viewer.result("ceased/status", r#"{"detail":true}"#);
        let peers = status["peers"].as_array().expect("the connected peers");
        let other = peers.iter().find(|peer| peer["connection"] != status["connection"])?;
        Some(["requests", "inFlight", "unsentBytes"].map(|of| other[of].as_u64().expect("a count")))
    };
    let mut peer = daemon.connect();
    let arguments = json!({"text": "x".repeat(TEXT_BYTES / 4)});
    let echo = |id: u64| {
        let params = modern::plain(json!({"name": "echo", "arguments": arguments}));
        modern::request(json!(id), "tools/call", params)
    };
    // One request at a time, so that the socket takes each answer completely or not at all.
    let mut asked = 0;
    wait_until("unsent bytes wait for the peer", || {
        asked += 1;
        peer.send(&echo(asked));
        wait_until("the request is answered", || {
            seen().is_some_and(|[all, open, _]| (all, open) == (asked, 0))
        });
        seen().is_some_and(|[.., unsent]| unsent > 0)
    });
    // In one write, so that the outbox is never empty.
    let cancels = (1..=asked).map(|id| modern::cancel(json!(id)));
    let list = modern::request(json!("list"), "tools/list", modern::plain(json!({})));
    let frames: Vec<String> = cancels.chain([list]).collect();
    peer.send(&frames.join("\n"));
    wait_until("the peer is closed", || seen().is_none());
}

/// Reads of a slow reader: their number times the pause is more than `WRITE_STALL`, and the pause is
/// far less, so that a busy machine does not turn a slow reader into a stalled one.
const READS: usize = 14;
const PAUSE: Duration = Duration::from_millis(400);
const SLOW_READER: &str = "write_buffer_bytes = \"1MiB\"\nwrite_stall = \"4s\"";

/// A slow reader is not stalled: it is served as long as it reads.
#[test]
fn slow_reader_is_served() {
    let daemon = Daemon::start(&Config { limits: SLOW_READER, ..Config::default() });
    let mut peer = daemon.peer();
    // The socket holds a few of the answers, the buffer all others.
    let text = "y".repeat(48 * 1024);
    let ids: Vec<u64> =
        (0..READS + 6).map(|_| peer.call("echo", &format!(r#"{{"text":"{text}"}}"#))).collect();
    for (read, id) in ids.into_iter().enumerate() {
        if read < READS {
            thread::sleep(PAUSE);
        }
        let answer = peer.answer(id);
        assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), Some(text.len()));
    }
}

/// The same for a peer that reads so little that the kernel reports no writability.
#[test]
fn very_slow_reader_is_served() {
    let daemon = Daemon::start(&Config { limits: SLOW_READER, ..Config::default() });
    let mut peer = daemon.peer();
    let arguments = format!(r#"{{"text":"{}"}}"#, "y".repeat(100 * 1024));
    for _ in 0..8 {
        peer.call("echo", &arguments);
    }
    let (mut taken, mut answers) = (0, 0);
    while answers < 8 {
        if taken < READS {
            thread::sleep(PAUSE);
        }
        let mut piece = vec![0; 16 * 1024];
        let length = read(peer.fd(), &mut piece).unwrap();
        assert!(length > 0, "closed after {taken} pieces and {answers} answers");
        taken += 1;
        answers += piece.iter().filter(|byte| **byte == b'\n').count();
    }
}

/// Progress for a peer that does not read is coalesced: only the latest is kept, and sent before
/// the answer.
#[test]
fn progress_is_coalesced_for_a_slow_reader() {
    let tools = r#"
[[tool]]
name = "gate"
max_output = "64KiB"
command = ["sh", "-c", 'i=0; while [ ! -e go ]; do i=$((i + 1)); echo "$i waiting" >&3; sleep 0.01; done; echo "1000000 last" >&3']
"#;
    let daemon = Daemon::start(&Config {
        limits: "write_buffer_bytes = \"64KiB\"",
        tools,
        ..Config::default()
    });
    let mut peer = daemon.peer();
    let gate = peer.call("gate", "{}");
    peer.wait_started(&[gate]);
    let asked = ask_until_refused(&daemon, &mut peer);
    std::fs::write(daemon.home.path().join("go"), "").unwrap();
    wait_until("the tool ends", || daemon.status()["jobs"].as_array().is_some_and(Vec::is_empty));
    let answer = peer.answer(gate);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let mut last = 0.0;
    while last < 1_000_000.0 {
        let note = peer.note("notifications/progress");
        let now = note["params"]["progress"].as_f64().unwrap();
        assert!(now > last, "progress grows");
        last = now;
    }
    for id in asked {
        peer.answer(id);
    }
}

/// Many large answers at once do not close a reading peer: its jobs end at any time, regardless of
/// buffer space.
#[test]
fn peer_that_reads_is_not_dropped_for_large_answers() {
    let tools = r#"
[[tool]]
name = "print"
command = ["sh", "-c", 'while [ ! -e "$1" ]; do sleep 0.05; done; head -c 1000000 /dev/zero | tr "\\0" x', "print", "{go}"]
text_limit = "4MiB"
[tool.input.go]
type = "string"
required = true
"#;
    let daemon = Daemon::start(&Config { tools, ..Config::default() });
    let mut peer = daemon.peer();
    let go = daemon.home.path().join("go");
    let arguments = serde_json::json!({ "go": go }).to_string();
    let calls: Vec<u64> = (0..16).map(|_| peer.call("print", &arguments)).collect();
    peer.result("ping", "{}");
    std::fs::write(&go, "").expect("a file");
    for call in calls {
        let answer = peer.answer(call);
        let text = answer["result"]["content"][0]["text"].as_str().expect("a text");
        assert_eq!(text.len(), 1_000_000);
    }
}
