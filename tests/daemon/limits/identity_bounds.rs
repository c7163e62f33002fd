//! Bounds of messages and identities in the real daemon: message size, nesting, results, rates, and
//! shares of the queue. `limits` has the others.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, assert_none_left, carriers, marker, wait_until,
};
use serde_json::{Value, json};

const LIMIT_REACHED: i64 = -31003;
const INVALID_REQUEST: i64 = -32600;
const PARSE_ERROR: i64 = -32700;

fn with(mark: &str) -> String {
    format!(r#"{{"t":"{mark}"}}"#)
}

fn task(id: &str) -> String {
    format!(r#"{{"taskId":"{id}"}}"#)
}

/// Runs `check` over a Unix socket, TCP and standard input, each with a peer after the handshake.
fn over_each_transport(limits: &str, check: impl Fn(&mut Peer)) {
    let config = Config { limits, tcp: true, ..Config::default() };
    let daemon = Daemon::start(&config);
    check(&mut daemon.peer());
    check(&mut daemon.tcp_peer());
    let home = Home::new();
    home.configure(&config);
    let mut command = home.command(&["stdio"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("the binary can be started");
    let input = OwnedFd::from(child.stdout.take().expect("a pipe"));
    let output = OwnedFd::from(child.stdin.take().expect("a pipe"));
    let mut peer = Peer::of_pipes(input, output);
    peer.initialize();
    check(&mut peer);
    peer.finish();
    assert!(child.wait().expect("the child can be waited for").success());
}

/// TSK-36: a message that is too long is refused with the name of the limit, complete or not, and
/// the next one is served.
#[test]
fn too_long_messages_are_refused() {
    const MAX: usize = 4096;
    over_each_transport(&format!("message_bytes = {MAX}"), |peer| {
        let line = |len: usize, id_is_last: bool| {
            let line = |pad: usize| {
                let params = format!(r#"{{"pad":"{}"}}"#, "x".repeat(pad));
                match id_is_last {
                    true => {
                        format!(r#"{{"method":"ping","params":{params},"jsonrpc":"2.0","id":900}}"#)
                    }
                    false => request(900, "ping", &params),
                }
            };
            line(len - line(0).len())
        };
        let lens =
            [(MAX, true), (MAX + 1, false), (20 * MAX, false), (60 * MAX, false), (MAX, true)];
        let orders = [false, true];
        for ((len, fits), id_is_last) in
            lens.into_iter().flat_map(|it| orders.map(|order| (it, order)))
        {
            peer.send(&line(len, id_is_last));
            let answer = peer.message().expect("the connection stays open");
            assert_eq!(answer["id"], 900, "{len}: {answer}");
            if fits {
                assert_eq!(answer["result"], json!({}), "{len}");
                continue;
            }
            assert_eq!(answer["error"]["code"], INVALID_REQUEST, "{len}: {answer}");
            let message = answer["error"]["message"].as_str().expect("a message");
            assert!(message.contains("message_bytes = 4096"), "{message}");
            assert_eq!(peer.result("ping", "{}"), json!({}));
        }
    });
}

/// TSK-36: a message that nests too deep is refused with the name of the limit, and the next one is
/// served.
#[test]
fn too_deep_messages_are_refused() {
    const MAX: usize = 16;
    over_each_transport(&format!("json_depth = {MAX}"), |peer| {
        // The message and its params are the first two levels.
        let line = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
            request(900, "ping", &format!(r#"{{"deep":{open}{close}}}"#))
        };
        for (depth, fits) in [(MAX, true), (MAX + 1, false), (100_000, false), (MAX, true)] {
            peer.send(&line(depth));
            let answer = peer.message().expect("the connection stays open");
            if fits {
                assert_eq!(answer["result"], json!({}), "{depth}");
                continue;
            }
            let code = answer["error"]["code"].as_i64();
            assert!(matches!(code, Some(INVALID_REQUEST | PARSE_ERROR)), "{depth}: {answer}");
            let message = answer["error"]["message"].as_str().expect("a message");
            assert!(message.contains("json_depth = 16"), "{message}");
            assert_eq!(answer["id"], 900);
            assert_eq!(peer.result("ping", "{}"), json!({}));
        }
        // Brackets in a string do not count.
        let text = format!(r#"{{"text":"{}"}}"#, "[".repeat(1000));
        let echo = peer.call("echo", &text);
        assert!(peer.answer(echo)["result"].is_object());
    });
}

const LOUD: &str = r#"
[[tool]]
name = "loud"
command = ["sh", "-c", 'echo first; i=0; while [ "$i" -lt 5000 ]; do echo "line $i"; i=$((i+1)); done; echo last']
max_output = "4KiB"
task_support = "optional"
"#;

/// A large result loses its middle and says so.
#[test]
fn large_result_loses_its_middle() {
    let daemon = Daemon::start(&Config { tools: LOUD, ..Config::default() });
    let mut peer = daemon.peer();
    let call = peer.call("loud", "{}");
    let plain = peer.answer(call)["result"].take();
    let id = peer.create_task("loud", "{}");
    let as_task = peer.result("tasks/result", &task(&id));
    for result in [plain, as_task] {
        let structured = &result["structuredContent"];
        assert_eq!((&structured["truncated"], &structured["exitCode"]), (&json!(true), &json!(0)));
        let out = result["content"][0]["text"].as_str().expect("text");
        assert!(out.len() <= 4096 + 200, "{} bytes", out.len());
        assert!(out.starts_with("first\n") && out.ends_with("last\n"), "{out}");
    }
}

/// TSK-37: task requests beyond the rate are refused with the time of the next try; that time is
/// exact, and cancels and other requests continue.
#[test]
fn task_requests_beyond_the_rate_are_refused() {
    const RATE: usize = 5;
    let limits = format!("task_ops_per_second = {RATE}");
    let daemon = Daemon::start(&Config { limits: &limits, ..Config::default() });
    let (mut peer, mut again) = (daemon.peer(), daemon.peer());
    let id = peer.create_task("sleep", r#"{"ms":86400000}"#);
    // More than the rate allows within the time of sending, even on a slow machine.
    let asked: Vec<u64> = (0..200).map(|_| peer.request("tasks/get", &task(&id))).collect();
    let answers: Vec<Value> = asked.into_iter().map(|asked| peer.answer(asked)).collect();
    let refused: Vec<&Value> = answers.iter().filter(|a| !a["error"].is_null()).collect();
    assert!(answers.len() - refused.len() >= RATE - 1, "a second's worth is served");
    assert!(refused.len() >= 100, "{} refused", refused.len());
    for answer in &refused {
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["data"]["limit"]),
            (&json!(LIMIT_REACHED), &json!("task_ops_per_second"))
        );
        assert_eq!(error["data"]["max"], RATE);
        let millis = error["data"]["retryAfterMs"].as_u64().expect("a time");
        assert!((1..=200).contains(&millis), "{millis} ms");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(&format!("try again in {millis} ms")), "{message}");
    }
    // The rate belongs to the identity, not to the connection. A peer that waits as told is served.
    for method in ["tasks/list", "tasks/get", "tasks/result", "tools/call"] {
        let mut tries = 0..200;
        let millis = tries.find_map(|_| {
            let asked = again.request("tasks/list", "{}");
            again.answer(asked)["error"]["data"]["retryAfterMs"].as_u64()
        });
        let millis = millis.expect("the burst is exhausted");
        sleep(Duration::from_millis(millis));
        let asked = match method {
            "tools/call" => {
                again.request(method, r#"{"name":"sleep","arguments":{"ms":0},"task":{}}"#)
            }
            _ => again.request(method, &task(&id)),
        };
        if method == "tasks/result" {
            // The request was accepted and blocks: a later request is answered first.
            again.result("ping", "{}");
            assert!(!again.has_answer(asked), "after {millis} ms");
            continue;
        }
        let answer = again.answer(asked);
        assert!(answer["error"].is_null(), "{method} after {millis} ms: {answer}");
    }
    again.result("ping", "{}");
    assert_eq!(again.result("tasks/cancel", &task(&id))["status"], "cancelled");
}

/// TSK-36, TSK-37: an identity that floods the daemon is refused at its own share of the queue and
/// its own rate; another identity's call runs next and is answered while the flood waits.
#[test]
fn flood_of_one_identity_does_not_starve_another() {
    let config = Config {
        daemon: "workers = 1\nqueue = 16",
        limits: "queue_per_identity = 12\ntask_ops_per_second = 5",
        ..Config::default()
    };
    let daemon = Daemon::start(&config);
    let mut one = daemon.peer();
    let Some(mut other) = daemon.peer_of(1) else { return };
    let mark = marker();
    let running = one.call("hang", &with(&mark));
    wait_until("it runs", || carriers(&mark).len() == 1);
    let flood: Vec<u64> = (0..20).map(|_| one.call("hang", &with(&mark))).collect();
    for refused in &flood[12..] {
        let answer = one.answer(*refused);
        assert_eq!(answer["error"]["code"], LIMIT_REACHED);
        assert_eq!(answer["error"]["data"], json!({"limit": "queue_per_identity", "max": 12}));
    }
    let polls: Vec<u64> = (0..100).map(|_| one.request("tasks/list", "{}")).collect();
    // The other identity's call is next and is not refused.
    let count = other.call("count", r#"{"n":2}"#);
    other.result("tasks/list", "{}");
    assert_eq!(daemon.status()["queued"], 13);
    one.cancel(running);
    assert_eq!(other.answer(count)["result"]["content"][0]["text"], "1\n2\n");
    wait_until("the flood continues", || carriers(&mark).len() == 1);
    assert!(
        flood[..12].iter().all(|call| !one.has_answer(*call)),
        "a queued call of the flood was answered first"
    );
    let refused = polls.into_iter().filter(|id| !one.answer(*id)["error"].is_null()).count();
    assert!(refused >= 50, "{refused} of one's own requests refused");
    drop(one);
    daemon.wait_until_no_job();
    assert_none_left(&mark);
}
