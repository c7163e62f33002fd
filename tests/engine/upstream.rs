//! Relay of existing MCP servers: the rules UPS that the engine decides.

mod agents;
mod audiences;
mod early;
mod eras;
mod kit;
mod listen;
mod lists;
mod long_results;
mod neutral;
mod notifications;
mod pins;
mod places;
mod questions;
mod remote;
mod server_task;
mod skipped;
mod starts;
mod tasked;

use std::time::Duration;

use ceased_core::event::AfterInput;
use ceased_core::ids::InstanceId;
use ceased_core::policy::allow::Allow;
use ceased_core::upstream::interface::{ProcessEvidence, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{ConnId, Event, Identity};
use serde_json::{Value, json};

use self::kit::{Kit, call, cancel, initialize, tool};

fn server(name: &str) -> UpstreamServer {
    UpstreamServer { idle_exit: None, ..UpstreamServer::new(name) }
}

fn wrapped() -> UpstreamServer {
    UpstreamServer { transparent: true, ..server("s") }
}

fn shared() -> UpstreamServer {
    UpstreamServer { share: Share::Identity, ..server("s") }
}

/// A client, and an instance of the only server that has the tool `work`.
fn ready(server: UpstreamServer) -> (Kit, ConnId, ConnId, InstanceId) {
    let mut kit = Kit::new(vec![server]);
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.handshake(upstream, &[tool("work")]);
    kit.read(client);
    kit.wanted.clear();
    (kit, client, upstream, instance)
}

/// UPS-01: two hops; the client's revision is its own, and `initialize` is sent once.
#[test]
fn each_hop_negotiates_its_own_revision() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut kit = Kit::new(vec![wrapped()]);
        let client = kit.connect();
        kit.send(client, &initialize(version));
        kit.silent(client);
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        kit.handshake(upstream, &[]);
        let result = kit.one(client)["result"].clone();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"], json!({"name": "scripted", "version": "7"}));
        assert_eq!(result["instructions"], "Use it.");
        kit.send(client, &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
        assert_eq!(kit.one(client)["result"], json!({}));
        kit.silent(upstream);
        kit.send(upstream, &json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}));
        assert_eq!(kit.one(upstream), json!({"jsonrpc": "2.0", "id": 5, "result": {}}));
        kit.silent(client);
    }
}

/// UPS-01: a server without sessions is asked with claims of ours, once it has refused one.
#[test]
fn server_without_sessions_serves_a_session() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    assert_eq!(first["method"], "initialize");
    let error = json!({"code": -32022, "message": "no sessions"});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": first["id"], "error": error}));
    let probe = kit.one(upstream);
    assert_eq!(probe["method"], "server/discover");
    let version = "io.modelcontextprotocol/protocolVersion";
    assert_eq!(probe["params"]["_meta"][version], "2026-07-28");
    let found = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    kit.answer(upstream, &probe, &found);
    let list = kit.one(upstream);
    assert_eq!(
        (&list["method"], &list["params"]["_meta"][version]),
        (&json!("tools/list"), &json!("2026-07-28"))
    );
    kit.answer(upstream, &list, &json!({"tools": [tool("work")]}));
    kit.read(client);
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    assert_eq!(request["params"]["_meta"][version], "2026-07-28");
    assert_eq!(request["params"]["name"], "work");
}

/// UPS-02: equal ids of two clients on one instance come back byte-exact, each to its client.
#[test]
fn ids_of_clients_never_mix() {
    let (mut kit, ann, upstream, _) = ready(shared());
    let bob = kit.open();
    let ids = ["0", "-1", "\"a\"", "\"\\u0061b\"", "7.0", "99999999999999999999"];
    let mut sent = Vec::new();
    for id in ids {
        for client in [ann, bob] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work"}}}}"#
            );
            kit.line(client, &line);
            sent.push((client, id, kit.one(upstream)));
        }
    }
    let mut numbers: Vec<&Value> = sent.iter().map(|(.., request)| &request["id"]).collect();
    assert!(numbers.iter().all(|id| id.is_u64()));
    numbers.dedup();
    assert_eq!(numbers.len(), sent.len());
    for (at, (client, id, request)) in sent.iter().enumerate().rev() {
        kit.answer(upstream, request, &json!({"content": [], "at": at}));
        let lines = kit.lines(*client);
        assert!(lines.len() == 1 && lines[0].contains(&format!("\"id\":{id},")), "{lines:?}");
        let answer: Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!(answer["result"], json!({"content": [], "at": at}));
    }
    kit.answer(upstream, &sent[0].2, &json!({"content": []}));
    kit.silent(ann);
    kit.silent(bob);
}

/// UPS-03: the token comes back with its value and type, and nothing follows the answer.
#[test]
fn progress_token_is_restored() {
    let (mut kit, ann, upstream, _) = ready(shared());
    let bob = kit.open();
    for (client, token) in [(ann, json!("t")), (bob, json!(7)), (ann, json!("7"))] {
        let mut request = call(&token, "work");
        request["params"]["_meta"] = json!({"progressToken": token, "mine/key": {"a": [1.5]}});
        kit.send(client, &request);
        let asked = kit.one(upstream);
        let meta = &asked["params"]["_meta"];
        assert_eq!(meta["mine/key"], json!({"a": [1.5]}));
        assert_ne!(meta["progressToken"], token);
        let progress = |value: f64| {
            json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": meta["progressToken"], "progress": value}})
        };
        kit.send(upstream, &progress(1.0));
        assert_eq!(kit.one(client)["params"], json!({"progressToken": token, "progress": 1}));
        kit.answer(upstream, &asked, &json!({"content": []}));
        kit.one(client);
        kit.send(upstream, &progress(2.0));
        kit.silent(client);
    }
    kit.send(ann, &call(&json!(1), "work"));
    assert!(kit.one(upstream)["params"].get("_meta").is_none());
}

/// UPS-03: progress of a server that stands or falls is a sign of life, passed with its message and
/// a value that grows by the smallest step; a value that grows passes unchanged.
#[test]
fn progress_that_stands_is_passed_on() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    let mut request = call(&json!(1), "work");
    request["params"]["_meta"] = json!({"progressToken": 7});
    kit.send(client, &request);
    let asked = kit.one(upstream);
    let token = &asked["params"]["_meta"]["progressToken"];
    let mut passed = |progress: f64, total: Option<u32>, message: &str| {
        let mut params = json!({"progressToken": token, "progress": progress, "message": message});
        if let Some(total) = total {
            params["total"] = json!(total);
        }
        let method = "notifications/progress";
        kit.send(upstream, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        let told = kit.one(client)["params"].clone();
        assert_eq!((&told["progressToken"], &told["message"]), (&json!(7), &json!(message)));
        (told["progress"].as_f64().unwrap(), told["total"].as_u64())
    };
    assert_eq!(passed(0.0, None, "one"), (0.0, None));
    assert_eq!(passed(0.0, None, "two"), (0.000_001, None));
    assert_eq!(passed(0.0, Some(9), "three"), (0.000_002, Some(9)));
    assert_eq!(passed(9.0, Some(9), "four"), (9.0, Some(9)));
    assert_eq!(passed(3.0, Some(9), "again"), (9.000_001, None));
    assert_eq!(passed(10.0, None, "more"), (10.0, None));
}

/// PRG-01: a relayed call with a token has heartbeats while its server tells nothing.
#[test]
fn relayed_calls_have_heartbeats() {
    let heartbeat = Some(Duration::from_secs(10));
    let (mut kit, client, upstream, _) = ready(UpstreamServer { heartbeat, ..server("s") });
    let mut request = call(&json!(1), "work");
    kit.send(client, &request);
    let silent = kit.one(upstream);
    kit.pass(30_000);
    kit.silent(client);
    kit.answer(upstream, &silent, &json!({"content": []}));
    kit.one(client);
    request["params"]["_meta"] = json!({"progressToken": "t"});
    kit.send(client, &request);
    let asked = kit.one(upstream);
    kit.pass(9_000);
    let params = json!({"progressToken": asked["params"]["_meta"]["progressToken"], "progress": 1});
    let method = "notifications/progress";
    kit.send(upstream, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
    assert_eq!(kit.one(client)["params"]["progress"], 1);
    kit.pass(9_999);
    kit.silent(client);
    kit.pass(1);
    let told = kit.one(client)["params"].clone();
    assert_eq!(told, json!({"progressToken": "t", "progress": 1.000_001, "message": "19s"}));
    // UPS-03: nothing is sent down after a cancel.
    kit.send(client, &cancel(&json!(1)));
    kit.pass(20_000);
    kit.silent(client);
}

/// CAN-10, UPS-03: a server that makes texts of the numbers of requests is understood.
#[test]
fn ids_as_texts_of_their_digits_are_the_numbers() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    let text = |id: &Value| json!(id.to_string());
    for is_error in [false, true] {
        let mut request = call(&json!(1), "work");
        request["params"]["_meta"] = json!({"progressToken": "t"});
        kit.send(client, &request);
        let asked = kit.one(upstream);
        let token = text(&asked["params"]["_meta"]["progressToken"]);
        let params = json!({"progressToken": token, "progress": 1});
        let method = "notifications/progress";
        kit.send(upstream, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        assert_eq!(kit.one(client)["params"]["progressToken"], "t");
        let id = text(&asked["id"]);
        let padded = json!(format!("0{}", asked["id"]));
        kit.send(upstream, &json!({"jsonrpc": "2.0", "id": padded, "result": {"content": []}}));
        kit.silent(client);
        let answer = match is_error {
            true => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -7, "message": "no"}}),
            false => json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}),
        };
        kit.send(upstream, &answer);
        let told = kit.one(client);
        assert_eq!((&told["id"], told.get("error").is_some()), (&json!(1), is_error), "{told}");
    }
}

/// UPS-04: a request that was not written is removed from the queue.
#[test]
fn cancel_removes_an_unsent_request() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    kit.send(client, &call(&json!(2), "work"));
    kit.send(client, &cancel(&json!(2)));
    assert_eq!(kit.proof(), Some("unsent"));
    let left = kit.read(upstream);
    assert_eq!(left.len(), 1, "{left:?}");
    kit.answer(upstream, &left[0], &json!({"content": []}));
    assert_eq!(kit.one(client)["id"], 1);
}

/// UPS-04: the cancel of a written request goes ahead of queued data, once, with the reason.
#[test]
fn cancel_goes_ahead_of_queued_data() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    let first = kit.one(upstream);
    let mut large = call(&json!(2), "work");
    large["params"]["arguments"]["x"] = json!("y".repeat(500_000));
    kit.send(client, &large);
    kit.engine.send_queue(upstream).expect("it is open").advance(10);
    kit.send(client, &call(&json!(3), "work"));
    kit.send(client, &cancel(&json!(1)));
    let lines = kit.lines(upstream);
    assert!(lines[0].len() > 400_000, "a begun line is finished first");
    let told: Value = serde_json::from_str(&lines[1]).expect("JSON");
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"], json!({"requestId": first["id"], "reason": "enough"}));
    let cancels = lines.iter().filter(|line| line.contains("notifications/cancelled"));
    assert_eq!(cancels.count(), 1);
    kit.send(client, &cancel(&json!(1)));
    kit.silent(upstream);
}

/// Cancels a call of its only client and returns its check at the judgement.
fn cancelled(
    kit: &mut Kit,
    client: ConnId,
    upstream: ConnId,
) -> (Value, ceased_core::ids::CheckId) {
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    kit.pass(500);
    kit.send(client, &cancel(&json!(1)));
    let told = kit.pong(upstream);
    assert_eq!(told.len(), 1);
    kit.pass(1900);
    let UpstreamAction::Examine { instance, check, .. } = kit.want() else { panic!("examine") };
    kit.examined(instance, check, 0, 100);
    kit.pass(100);
    assert!(matches!(kit.want(), UpstreamAction::Examine { .. }));
    (request, check)
}

/// UPS-05, UPS-16: an answer is evidence; the client gets none (CAN-08).
#[test]
fn answer_to_a_cancelled_request_is_evidence() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    kit.send(client, &cancel(&json!(1)));
    kit.pong(upstream);
    kit.answer(upstream, &request, &json!({"content": []}));
    kit.silent(client);
    assert_eq!(kit.proof(), Some("answered"));
    kit.pass(10_000);
    assert!(kit.wanted.is_empty());
}

/// UPS-05, UPS-16: a quiet server is left alone.
#[test]
fn quiet_server_is_left_alone() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let (_, check) = cancelled(&mut kit, client, upstream);
    kit.examined(instance, check, 0, 110);
    assert_eq!(kit.proof(), Some("quiet"));
    assert!(kit.wanted.is_empty());
}

/// UPS-05: a fact that the kernel does not tell is no evidence.
#[test]
fn unknown_cpu_time_is_no_evidence() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let (_, check) = cancelled(&mut kit, client, upstream);
    let processes = ProcessEvidence { born: Some(0), cpu: None, waited: None };
    kit.feed(Event::Upstream(UpstreamEvent::Examined { instance, check, processes }));
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
}

/// UPS-05: a server that tells of progress long after the cancel goes on with the call.
#[test]
fn progress_after_the_cancel_is_no_evidence() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let mut request = call(&json!(1), "work");
    request["params"]["_meta"] = json!({"progressToken": 1});
    kit.send(client, &request);
    let token = kit.one(upstream)["params"]["_meta"]["progressToken"].clone();
    kit.send(client, &cancel(&json!(1)));
    kit.pong(upstream);
    kit.pass(1900);
    let UpstreamAction::Examine { check, .. } = kit.want() else { panic!("examine") };
    kit.examined(instance, check, 0, 100);
    let params = json!({"progressToken": token, "progress": 1});
    let method = "notifications/progress";
    kit.send(upstream, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
    kit.silent(client);
    kit.pass(100);
    kit.want();
    kit.examined(instance, check, 0, 100);
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
}

/// UPS-05, UPS-16: processes of the call are ended, and the server is looked at again.
#[test]
fn strays_of_the_call_are_ended() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let (_, check) = cancelled(&mut kit, client, upstream);
    kit.examined(instance, check, 2, 110);
    assert!(matches!(kit.want(), UpstreamAction::EndStrays { .. }));
    kit.strays_ended(instance, check, 2);
    assert!(matches!(kit.want(), UpstreamAction::Examine { .. }));
    kit.examined(instance, check, 0, 110);
    kit.pass(100);
    assert!(matches!(kit.want(), UpstreamAction::Examine { .. }));
    kit.examined(instance, check, 0, 110);
    assert_eq!(kit.proof(), Some("children_ended"));
}

/// UPS-05, UPS-16: a server that goes on computing is ended.
#[test]
fn busy_server_is_ended() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let (_, check) = cancelled(&mut kit, client, upstream);
    kit.examined(instance, check, 0, 200);
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
    assert_eq!(kit.proof(), None, "it has not ended yet");
    kit.ended(instance, "signal 15", "");
    assert_eq!(kit.proof(), Some("ended"));
    kit.silent(client);
    // The session survives: the next call starts the server again.
    kit.send(client, &call(&json!(2), "work"));
    let again = kit.starts().remove(0);
    let upstream = kit.started(again);
    assert_eq!(kit.one(upstream)["method"], "initialize");
}

/// UPS-06: the other client's call completes on the old instance, a new one goes to a fresh one.
#[test]
fn replaced_instance_finishes_the_calls_of_others() {
    let (mut kit, ann, upstream, instance) = ready(shared());
    let bob = kit.open();
    kit.send(bob, &call(&json!(1), "work"));
    let of_bob = kit.one(upstream);
    let (_, check) = cancelled(&mut kit, ann, upstream);
    kit.examined(instance, check, 1, 200);
    assert!(kit.wanted.is_empty(), "{:?}", kit.wanted);
    kit.send(ann, &call(&json!(2), "work"));
    let fresh = kit.starts().remove(0);
    let second = kit.started(fresh);
    kit.handshake(second, &[tool("work")]);
    kit.silent(upstream);
    assert_eq!(kit.early.len(), 1, "the new call goes to the fresh instance");
    kit.answer(upstream, &of_bob, &json!({"content": []}));
    assert_eq!(kit.one(bob)["id"], 1);
    let UpstreamAction::End { instance: ended, .. } = kit.want() else { panic!("end") };
    assert_eq!(ended, instance);
    kit.ended(instance, "signal 15", "");
    assert!(matches!(kit.proof(), Some("replaced" | "ended")));
    kit.silent(ann);
}

/// UPS-06: at the drain deadline every open request gets one error, and none is replayed.
#[test]
fn drain_deadline_answers_what_is_open() {
    let (mut kit, ann, upstream, instance) = ready(shared());
    let bob = kit.open();
    kit.send(bob, &call(&json!(1), "work"));
    kit.one(upstream);
    let (_, check) = cancelled(&mut kit, ann, upstream);
    kit.examined(instance, check, 1, 200);
    kit.pass(30_000);
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
    kit.ended(instance, "signal 9", "");
    let error = kit.one(bob);
    assert_eq!(error["id"], 1);
    assert!(error["error"]["message"].as_str().is_some_and(|text| text.contains("was ended")));
    assert_eq!(kit.proof(), Some("replaced"));
    assert!(kit.starts().is_empty(), "nothing is replayed");
}

/// UPS-07: the instance of a client that is gone is ended, also in the middle of a call.
#[test]
fn client_takes_its_instance_along() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    kit.read(upstream);
    kit.feed(Event::Closed { conn: client });
    let UpstreamAction::End { instance: ended, .. } = kit.want() else { panic!("end") };
    assert_eq!(ended, instance);
    kit.ended(instance, "exit code 0", "");
    assert_eq!(kit.engine.sizes().jobs, 0);
    assert_eq!(kit.engine.sizes().timers, 0);
}

/// UPS-07: a shutdown ends all instances at once, and waits for them.
#[test]
fn shutdown_ends_every_instance() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    kit.read(upstream);
    let by = ceased_core::Instant::ZERO + Duration::from_secs(60);
    kit.feed(Event::Drain { by });
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
    assert_eq!(kit.exits, 0);
    kit.ended(instance, "signal 15", "");
    assert_eq!(kit.exits, 1);
}

/// UPS-08: a dead server fails its calls with its status and its last lines, and starts again.
#[test]
fn dead_server_fails_its_calls_at_once() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    kit.read(upstream);
    kit.ended(instance, "signal 9", "boom\nlast words\n");
    let error = kit.one(client)["error"].clone();
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("signal 9") && message.contains("last words"), "{message}");
    assert_eq!(error["data"]["server"], "s");
    kit.send(client, &call(&json!(2), "work"));
    assert_eq!(kit.starts().len(), 1);
}

/// UPS-08: the client's initialize is answered with the standard error of a server that exits.
#[test]
fn failed_start_is_told_with_its_standard_error() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let instance = kit.starts().remove(0);
    kit.ended(instance, "exit code 1", "npm ERR! 404\n");
    let error = kit.one(client)["error"]["message"].to_string();
    assert!(error.contains("exit code 1") && error.contains("npm ERR! 404"), "{error}");
}

/// UPS-08: a server that dies at each start does not loop: it is refused until its backoff is over.
#[test]
fn failing_server_is_not_started_in_a_loop() {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.open();
    for round in 0..3 {
        kit.send(client, &call(&json!(round), "work"));
        let instance = kit.starts().remove(0);
        kit.ended(instance, "exit code 1", "no module\n");
        assert!(kit.one(client)["error"]["message"].to_string().contains("no module"));
        kit.send(client, &call(&json!("again"), "work"));
        let error = kit.one(client)["error"]["message"].to_string();
        assert!(error.contains("may start again in"), "{error}");
        assert!(kit.wanted.is_empty());
        kit.pass(500 << round);
    }
}

/// UPS-08: one that never answers is ended within start_timeout.
#[test]
fn handshake_that_hangs_is_ended() {
    for (request, first, second) in [
        (initialize("2025-11-25"), "initialize", None),
        (eras::discover(), "server/discover", Some("initialize")),
    ] {
        let mut kit = Kit::new(vec![wrapped()]);
        let client = kit.connect();
        kit.send(client, &request);
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        assert_eq!(kit.one(upstream)["method"], first);
        kit.pass(1000);
        let methods: Vec<Value> = kit.read(upstream).iter().map(|m| m["method"].clone()).collect();
        assert_eq!(methods, second.into_iter().collect::<Vec<_>>());
        kit.pass(58_999);
        assert!(kit.wanted.is_empty());
        kit.pass(1);
        assert!(matches!(kit.want(), UpstreamAction::End { .. }));
        kit.ended(instance, "signal 15", "waiting\n");
        let error = kit.one(client)["error"]["message"].to_string();
        assert!(error.contains("start_timeout") && error.contains("waiting"), "{error}");
        // A process that says nothing after the probe may have waited for another beginning.
        kit.pass(500);
        kit.send(
            client,
            &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list",
            "params": request["params"]}),
        );
        let again = kit.starts().remove(0);
        let upstream = kit.started(again);
        assert_eq!(kit.one(upstream)["method"], "initialize");
    }
}

/// UPS-09: never more than the bound start at once; lists come from the manifest meanwhile.
#[test]
fn starts_are_bounded_and_manifests_answer_at_once() {
    let manifest = |at: usize| ceased_core::upstream::manifest::Manifest {
        revision: "2025-06-18".into(),
        identity: r#"{"capabilities":{"tools":{}}}"#.into(),
        tools: vec![format!(r#"{{"name":"t{at}","inputSchema":{{}}}}"#).into()],
        ..Default::default()
    };
    let servers = (0..100)
        .map(|at| UpstreamServer { manifest: Some(manifest(at)), ..server(&format!("s{at:02}")) });
    let mut kit = Kit::new(servers.collect());
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let tools = kit.one(client)["result"]["tools"].as_array().expect("a list").len();
    assert_eq!(tools, 100);
    let (mut seen, mut running) = (0, kit.starts());
    while let Some(instance) = running.pop() {
        seen += 1;
        assert!(running.len() < 4);
        let upstream = kit.started(instance);
        kit.handshake(upstream, &[tool("other")]);
        running.extend(kit.starts());
    }
    assert_eq!(seen, 100);
    let changes = kit.read(client);
    assert!(changes.iter().all(|m| m["method"] == "notifications/tools/list_changed"));
    assert_eq!(changes.len(), 100);
}

/// UPS-10: all pages are read, members that are not known stay, and results are raw.
#[test]
fn lists_and_results_pass_through_whole() {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}});
    kit.answer(upstream, &first, &result);
    for page in 0..3 {
        let list = kit.read(upstream).pop().expect("a request");
        let cursor = (page > 0).then(|| json!(format!("p{page}")));
        assert_eq!(list["params"].get("cursor").cloned(), cursor);
        let name = format!("t{page}");
        let next =
            if page < 2 { format!(r#","nextCursor":"p{}""#, page + 1) } else { String::new() };
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":[{{"name":"{name}", "x-odd" : 1.50e0}}]{next}}}}}"#,
            list["id"]
        );
        kit.line(upstream, &line);
    }
    let lines = kit.lines(client);
    for page in 0..3 {
        let element = format!(r#"{{"name":"t{page}", "x-odd" : 1.50e0}}"#);
        assert!(lines[0].contains(&element), "{lines:?}");
    }
    kit.send(client, &call(&json!(1), "t1"));
    let request = kit.one(upstream);
    let result = r#"{"content":[{"type":"audio","data":"","x":1.0}],"_meta":{"a/b": [ ]}}"#;
    kit.line(upstream, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request["id"]));
    assert!(kit.lines(client)[0].contains(result));
    let error = json!({"code": -7, "message": "no", "data": {"x": 1}});
    kit.send(client, &call(&json!(2), "t1"));
    let request = kit.one(upstream);
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
    assert_eq!(kit.one(client)["error"], error);
}

/// UPS-11: prefixes keep equal names of two servers apart.
#[test]
fn prefixes_keep_servers_apart() {
    let of = |name: &str| UpstreamServer { prefix: format!("{name}_").into(), ..server(name) };
    let mut kit = Kit::new(vec![of("a"), of("b")]);
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let starts = kit.starts();
    let upstreams: Vec<ConnId> = starts.into_iter().map(|id| kit.started(id)).collect();
    for upstream in &upstreams {
        kit.handshake(*upstream, &[tool("work")]);
    }
    let tools = kit.one(client)["result"]["tools"].clone();
    assert_eq!((&tools[0]["name"], &tools[1]["name"]), (&json!("a_work"), &json!("b_work")));
    kit.send(client, &call(&json!(1), "b_work"));
    assert_eq!(kit.one(upstreams[1])["params"]["name"], "work");
    kit.silent(upstreams[0]);
}

/// UPS-12: requests of a server that were not declared to it are refused.
#[test]
fn undeclared_requests_of_a_server_are_refused() {
    let (mut kit, client, upstream, _) = ready(shared());
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}));
    assert_eq!(kit.one(upstream)["error"]["code"], -32601);
    kit.silent(client);
}

/// UPS-14: garbage is skipped without a word; a line that is too long fails its request alone.
#[test]
fn garbage_of_a_server_is_skipped() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    for line in ["Server running", "\u{1b}[31mred", "[]", "{}", "null", "{\"jsonrpc\":\"2.0\"}"] {
        kit.line(upstream, line);
    }
    kit.feed(Event::Frame { conn: upstream, frame: b"\xff\xfe" });
    kit.feed(Event::NotJsonRpc { conn: upstream, bytes: b"GET / HTTP/1.1" });
    kit.silent(upstream);
    kit.send(client, &call(&json!(1), "work"));
    kit.one(upstream);
    kit.feed(Event::TooLong { conn: upstream, skeleton: "" });
    assert!(kit.one(client)["error"]["message"].to_string().contains("message_bytes"));
    assert!(kit.wanted.is_empty());
}

/// UPS-15: a plain tool runs as a task where the settings say so.
#[test]
fn plain_tool_runs_as_a_task() {
    let support = Some(ceased_core::tool::TaskSupport::Optional);
    let (mut kit, client, upstream, _) =
        ready(UpstreamServer { task_support: support, ..shared() });
    let mut request = call(&json!(1), "work");
    request["params"]["task"] = json!({});
    kit.send(client, &request);
    let task = kit.one(client)["result"]["task"]["taskId"].clone();
    let asked = kit.one(upstream);
    assert!(asked["params"].get("task").is_none(), "the server knows no tasks");
    kit.answer(upstream, &asked, &json!({"content": [], "x": 1}));
    kit.read(client);
    kit.send(
        client,
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": task}}),
    );
    assert_eq!(kit.one(client)["result"]["x"], 1);
}

/// UPS-06: with one instance for each call, a call ends its instance and warm ones wait.
#[test]
fn instance_of_one_call_ends_with_it() {
    let of = UpstreamServer { share: Share::Call, warm: 1, ..server("s") };
    let mut kit = Kit::new(vec![of]);
    let client = kit.open();
    kit.send(client, &call(&json!(1), "work"));
    let starts = kit.starts();
    assert_eq!(starts.len(), 2, "one for the call, one that waits");
    let upstream = kit.started(starts[0]);
    kit.handshake(upstream, &[tool("work")]);
    let request = kit.early.remove(0);
    kit.answer(upstream, &request, &json!({"content": []}));
    assert_eq!(kit.one(client)["id"], 1);
    let ends = |action: &UpstreamAction| matches!(action, UpstreamAction::End { .. });
    assert!(kit.wanted.iter().any(ends));
}

/// UPS-10: a server that shows through answers for a name that it has not listed.
#[test]
fn unlisted_name_is_judged_by_a_transparent_server() {
    let (mut kit, client, upstream, _) = ready(wrapped());
    kit.send(client, &call(&json!(1), "hidden"));
    let relayed = kit.one(upstream);
    assert_eq!(relayed["params"]["name"], "hidden");
    kit.answer(upstream, &relayed, &json!({"content": [], "isError": true}));
    assert_eq!(kit.one(client)["result"]["isError"], true);
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &call(&json!(1), "hidden"));
    assert_eq!(kit.one(client)["error"]["code"], -32602);
    kit.silent(upstream);
}

/// TSK-39, UPS-10: prompts, resources and completion reach only a server that the identity may
/// use.
#[test]
fn server_of_others_is_not_reached_by_any_method() {
    let allow = Allow::only([Identity::User(7)]);
    let mut kit = Kit::new(vec![UpstreamServer { allow, ..server("s") }]);
    let client = kit.open();
    for (id, (method, params)) in [
        ("prompts/get", json!({"name": "p"})),
        ("resources/read", json!({"uri": "x://y"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "p"}})),
        ("tools/call", json!({"name": "work"})),
    ]
    .into_iter()
    .enumerate()
    {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        kit.send(client, &request);
        let code = if method == "resources/read" { -32002 } else { -32602 };
        assert_eq!(kit.one(client)["error"]["code"], code, "{method}");
        assert!(kit.starts().is_empty(), "{method}");
    }
}

/// A client that has closed its input is answered however long its server takes to start.
#[test]
fn start_of_a_server_outlasts_the_end_of_the_input() {
    let grace = Duration::from_secs(1);
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.open();
    kit.send(client, &call(&json!(1), "work"));
    kit.send(client, &call(&json!(2), "work"));
    let instance = kit.starts().remove(0);
    kit.feed(Event::Finished { conn: client, then: AfterInput::AnswerWithin(grace) });
    kit.pass(20_000);
    kit.silent(client);
    let upstream = kit.started(instance);
    kit.handshake(upstream, &[tool("work")]);
    let relayed = kit.early.clone();
    assert_eq!(relayed.len(), 2, "{relayed:?}");
    kit.answer(upstream, &relayed[0], &json!({"content": []}));
    let ids: Vec<Value> = kit.read(client).iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!("init"), json!(1)]);
    kit.pass(900);
    kit.silent(client);
}
