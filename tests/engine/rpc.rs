//! JSON-RPC underneath: errors, ids, sessions, tools.

use ceased_core::identity::Identity;
use ceased_core::limits::{FrameLimits, Limits, TaskPolicy};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::Catalog;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, REVISIONS, Rigged, World, result_of, unreadable};
use serde_json::{Value, json};

/// RPC-01: an id is echoed exactly, byte for byte, in results and in errors.
#[test]
fn ids_are_echoed_exactly() {
    for revision in REVISIONS {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        for id in [
            "0",
            "-0",
            "-1",
            "9007199254740993",
            "9223372036854775807",
            "-9223372036854775808",
            r#""""#,
            r#""1""#,
            r#""a\/b""#,
            r#""a/b""#,
            r#""\u00e9\n\"\\""#,
            "\"é€🦀\u{7f}\u{2028}\"",
            r#""\ud83e\udd80""#,
        ] {
            let member = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
            w.send(c, &format!(r#"{member}"method":"ping"}}"#));
            assert_eq!(w.raw(c), format!(r#"{member}"result":{{}}}}"#));
            w.send(c, &format!(r#"{member}"method":"nothing"}}"#));
            let raw = w.raw(c);
            assert!(raw.starts_with(&format!(r#"{member}"error":{{"code":-32601,"#)), "{raw}");
            // Through a job and back.
            w.send(c, &format!(r#"{member}"method":"tools/call","params":{{"name":"echo"}}}}"#));
            let job = w.last_started();
            w.end(job, result_of(&json!({"content": []})));
            assert_eq!(w.raw(c), format!(r#"{member}"result":{{"content":[]}}}}"#));
        }
    }
}

/// RPC-01: the codes, with the id where it could be read.
#[test]
fn codes_of_json_rpc() {
    for revision in REVISIONS {
        let mut w = World::new();
        // Answers to unreadable frames match no request.
        w.strict = false;
        let c = w.open_as(Identity::User(1), revision);
        let none = unreadable(revision);
        let one = Some(json!(1));
        let cases: [(&str, i64, &Option<Value>); 20] = [
            ("{", -32700, &none),
            ("nonsense", -32700, &none),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#, -32700, &none),
            (r#"7 x"#, -32700, &none),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a"#, -32700, &none),
            ("7", -32600, &none),
            (r#""text""#, -32600, &none),
            ("null", -32600, &none),
            ("{}", -32600, &none),
            ("[]", -32600, &none),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600, &one),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600, &one),
            (r#"{"id":1,"method":"ping"}"#, -32600, &one),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600, &one),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#, -32600, &one),
            (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}"#, -32600, &none),
            (r#"{"jsonrpc":"2.0","id":1,"method":"rpc.nothing"}"#, -32601, &one),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, -32602, &one),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#, -32602, &one),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none"}}"#,
                -32602,
                &one,
            ),
        ];
        for (frame, code, id) in cases {
            w.send(c, frame);
            let answer = w.next(c);
            assert_eq!(answer["error"]["code"], code, "{frame}: {answer}");
            assert_eq!(answer.get("id"), id.as_ref(), "{revision} {frame}: {answer}");
            assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
            w.silent(c);
        }
        w.feed(Input::Frame(c, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec()));
        assert_eq!(w.next(c)["error"]["code"], -32700);
        // A tool that hands in no object: internal trouble.
        let job = w.call(c, json!(1), "echo");
        w.end(job, result_of(&json!([1])));
        w.expect_error(c, json!(1), -32603);
        w.result(c, "ping", json!({}));
    }
}

/// RPC-01: a line over the limit and one that nests too deep are refused; the session goes on.
#[test]
fn lines_too_long_and_too_deep() {
    let frames = FrameLimits { frame_bytes_max: 1000 };
    let limits = Limits { frames, depth_max: 10, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = w.open();
    for (skeleton, id) in [
        ("", None),
        (r#"{"jsonrpc":"2.0","method":"tools/call","params":{}}"#, None),
        (r#"{"jsonrpc":"2.0","method":"tools/call","params":{},"id":{}}"#, None),
        (r#"{"method":"tools/call","params":{},"jsonrpc":"2.0","id":1.0}"#, Some(json!(1.0))),
        (r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}"#, Some(json!("a"))),
    ] {
        w.overlong(c, skeleton);
        let answer = w.next(c);
        assert_eq!(answer["error"]["code"], -32600);
        assert_eq!(answer.get("id"), id.as_ref(), "{skeleton}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("1000"), "{answer}");
    }
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","method":"x","params":{open}{close}}}"#)
    };
    w.send(c, &nested(9));
    w.silent(c);
    w.send(c, &nested(10));
    assert_eq!(w.next(c)["error"]["code"], -32700);
    w.send(c, &nested(10).replace("\"method\"", "\"id\":7,\"method\""));
    w.expect_error(c, json!(7), -32700);
    w.result(c, "ping", json!({}));
}

/// RPC-01: an answer that is too long or nests too deep counts as an error of the peer.
#[test]
fn skipped_answer_is_an_error_for_its_question() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    for is_deep in [false, true] {
        let mut w = World::new();
        let c = w.open_with(Identity::User(1), "2025-11-25", json!({"roots": {}}));
        let job = w.call(c, json!(1), "echo");
        let caller = w.asked(job, 1, "roots/list");
        let question = w.next(c);
        let answer = format!(r#"{{"result":{{}},"jsonrpc":"2.0","id":{}}}"#, question["id"]);
        match is_deep {
            true => w.send(c, &answer.replace("{}", &deep)),
            false => w.overlong(c, &answer),
        }
        w.silent(c);
        let [(told, words)] = w.told_words().try_into().expect("one answer");
        assert_eq!(told, caller);
        assert!(words.starts_with("error {\"code\":-31003,"), "{words}");
    }
}

/// RPC-02: ids that are none get -32600 and harm nothing in flight.
#[test]
fn ids_that_are_none() {
    for revision in REVISIONS {
        let mut w = World::new();
        w.strict = false;
        let c = w.open_as(Identity::User(1), revision);
        let job = w.call(c, json!(1), "echo");
        for id in ["null", "true", "false", "[]", "[1]", "{}", r#"{"id":1}"#] {
            w.send(c, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
            let answer = w.next(c);
            assert_eq!(answer["error"]["code"], -32600, "{id}");
            assert_eq!(answer.get("id"), unreadable(revision).as_ref(), "{id}");
            w.silent(c);
        }
        w.done(job, "ok");
        assert_eq!(w.next(c)["id"], 1);
        w.silent(c);
    }
}

/// RPC-02: an id still in flight is refused, whatever the second request is; the first is
/// answered once; the same id on another connection is another request.
#[test]
fn id_in_flight_is_not_taken_twice() {
    let mut w = World::new();
    let (c, other) = (w.open(), w.open());
    let (task, task_job) = w.task(c, "sleep");
    let first = w.call(c, json!(1), "echo");
    let wait =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": task}});
    w.send(c, &wait.to_string());
    let elsewhere = w.call(other, json!(1), "echo");
    for id in [1, 2] {
        for (method, params) in [
            ("ping", json!({})),
            ("tools/call", json!({"name": "echo"})),
            ("tools/call", json!({"name": "sleep", "task": {}})),
            ("tasks/result", json!({"taskId": task})),
            ("tasks/cancel", json!({"taskId": task})),
            ("initialize", json!({"protocolVersion": "2025-11-25"})),
        ] {
            let again = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            w.send(c, &again.to_string());
            w.expect_error(c, json!(id), -32600);
        }
    }
    assert_eq!((w.started.len(), w.sizes().tasks), (3, 1));
    w.done(first, "first");
    assert_eq!(w.next(c)["result"]["content"][0]["text"], "first");
    w.done(task_job, "slept");
    let told = w.rest(c);
    assert_eq!(told.iter().filter(|message| message["id"] == 2).count(), 1);
    w.done(elsewhere, "elsewhere");
    assert_eq!(w.next(other)["result"]["content"][0]["text"], "elsewhere");
    // Free again once it was answered.
    let again = w.call(c, json!(1), "echo");
    w.done(again, "again");
    assert_eq!(w.next(c)["id"], 1);
}

/// RPC-04: before initialize nothing but ping is served; after it there is no second one; a
/// revision we do not know is answered with the newest.
#[test]
fn sessions_begin_with_initialize() {
    let mut w = World::new();
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2024-10-07", "2025-11-25"),
        ("", "2025-11-25"),
        ("9999", "2025-11-25"),
    ] {
        let c = w.connect(Identity::User(1));
        w.result(c, "ping", json!({}));
        for method in
            ["tools/list", "tools/call", "tasks/list", "logging/setLevel", "ceased/status", "nope"]
        {
            let (code, message) = w.refusal(c, method, json!({"name": "echo"}));
            assert_eq!(code, -32600, "{method}");
            assert!(message.contains("initialize"), "{message}");
        }
        for params in [json!({}), json!({"protocolVersion": 1}), json!({"protocolVersion": null})] {
            assert_eq!(w.refusal(c, "initialize", params).0, -32602);
        }
        let client = json!({"name": "p", "version": "1"});
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": client});
        let result = w.result(c, "initialize", params.clone());
        assert_eq!(result["protocolVersion"], answered, "{asked}");
        assert_eq!(result["serverInfo"], json!({"name": "world", "version": "1.2.3"}));
        assert_eq!(w.refusal(c, "initialize", params).0, -32600);
        w.result(c, "tools/list", json!({}));
        w.result(c, "ping", json!({}));
    }
    assert!(w.started.is_empty());
}

/// RPC-03: each request of many at once is answered exactly once, in whatever order the jobs end.
#[test]
fn every_request_is_answered_once() {
    let mut w = World::new();
    let conns = [w.open(), w.open(), w.open()];
    let mut jobs = Vec::new();
    for id in 0..60 {
        jobs.push(w.call(conns[id % 3], json!(id), "echo"));
    }
    for round in [2, 0, 1] {
        for (at, job) in jobs.iter().enumerate().filter(|(at, _)| at % 3 == round).rev() {
            if at % 2 == 0 { w.done(*job, "ok") } else { w.fail(*job, 1, "no") }
        }
    }
    for (at, conn) in conns.into_iter().enumerate() {
        let ids: Vec<u64> = w.rest(conn).iter().map(|m| m["id"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = (0..20).map(|n| 57 + at as u64 - 3 * n).collect();
        assert_eq!(ids, expected);
    }
    assert_eq!((w.sizes().requests, w.sizes().jobs), (0, 0));
}

/// TSK-05, TSK-06: `tools/list` in each revision has the members that revision has.
#[test]
fn tools_are_listed_as_the_revision_knows_them() {
    for revision in REVISIONS {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        let list = w.result(c, "tools/list", json!({}));
        let tools = list["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["echo", "sleep", "slow", "build", "report", "strict"]);
        for tool in tools {
            assert_eq!(tool["inputSchema"], json!({"type": "object"}));
            assert_eq!(tool.get("title").is_some(), revision >= "2025-06-18");
            assert_eq!(tool.get("execution").is_some(), revision == NEWEST);
        }
        assert_eq!(tools[3].get("outputSchema").is_some(), revision >= "2025-06-18");
        if revision == NEWEST {
            let support: Vec<&Value> =
                tools.iter().map(|tool| &tool["execution"]["taskSupport"]).collect();
            let expected =
                ["forbidden", "optional", "optional", "optional", "required", "optional"];
            assert_eq!(support, expected);
        }
        assert!(list.get("nextCursor").is_none());
        assert_eq!(w.refusal(c, "tools/list", json!({"cursor": "x"})).0, -32602);
    }
}

/// RPC-01: arguments are checked before anything starts or takes up room, plain or as a task.
#[test]
fn arguments_are_checked_first() {
    let mut w = World::new();
    let c = w.open();
    for task in [None, Some(json!({}))] {
        for arguments in [json!({}), json!({"text": 7}), json!([]), json!("x"), json!(7)] {
            let mut params = json!({"name": "strict", "arguments": arguments});
            if let Some(task) = &task {
                params["task"] = task.clone();
            }
            // TOOL-01: an object may be corrected; a task that was asked for is refused.
            if task.is_none() && arguments.is_object() {
                let result = w.result(c, "tools/call", params);
                assert_eq!(result["isError"], true, "{arguments}");
                continue;
            }
            assert_eq!(w.refusal(c, "tools/call", params).0, -32602, "{arguments}");
        }
    }
    let wrong = w.result(c, "tools/call", json!({"name": "strict"}));
    assert_eq!(wrong["content"][0]["text"], "/text must be a string");
    assert_eq!((w.sizes().jobs, w.sizes().tasks, w.started.len()), (0, 0, 0));
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"strict","arguments":{"text" : "a\u0062"}}}"#;
    w.send(c, line);
    assert_eq!(w.running[&w.last_started()].arguments, r#"{"text" : "a\u0062"}"#);
}

/// RPC-01: a `_meta` that is no object has no members by their places.
#[test]
fn list_is_no_meta() {
    for (method, more) in
        [("tools/call", r#""name":"sleep","arguments":{},"#), ("tasks/get", r#""taskId":"x","#)]
    {
        let mut w = World::new();
        w.strict = false;
        let c = w.open();
        w.send(
            c,
            &format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{more}"_meta":["tok"]}}}}"#
            ),
        );
        assert_eq!(w.next(c)["error"]["code"], -32602, "{method}");
        assert!(w.started.is_empty());
    }
}

/// RPC-01: the text of every error is bounded and has no control characters.
#[test]
fn errors_do_not_repeat_what_they_refuse() {
    let mut w = World::new();
    let c = w.open();
    let fresh = w.connect(Identity::User(1));
    let long = "\u{1b}[31m\n".repeat(20_000);
    for (method, params) in [
        (long.as_str(), json!({})),
        ("tools/call", json!({"name": long})),
        ("tools/call", json!({"name": "sleep", "_meta": long})),
        ("tools/call", json!({"name": "sleep", "task": {"ttl": long}})),
        ("tools/call", json!({"name": [long]})),
        ("tasks/get", json!({"taskId": long})),
        ("tasks/get", json!({"taskId": "x", "_meta": long})),
        ("tasks/cancel", json!({"taskId": long})),
        ("tasks/list", json!({"cursor": long})),
        ("logging/setLevel", json!({"level": long})),
    ] {
        let (_, message) = w.refusal(c, method, params);
        assert!(message.len() < 3000, "{} bytes: {:.200}", message.len(), message);
        assert!(!message.contains(char::is_control), "{message:.200}");
    }
    w.refusal(fresh, &long, json!({}));
    let long = "\u{1b}[31m\n".repeat(500);
    w.call(c, json!(long), "echo");
    let again = json!({"jsonrpc": "2.0", "id": long, "method": "ping"});
    w.send(c, &again.to_string());
    let message = w.expect_error(c, json!(long), -32600);
    assert!(message.len() < 3000, "{} bytes", message.len());
}

/// RPC-04: a server says its own name, and its tools theirs, whatever is in it.
#[test]
fn names_are_written_as_json() {
    let server = ServerInfo::new("q\"\\\n", "\u{1f}");
    let catalog = Catalog::new([tools::tool("a\"b")]).expect("a good tool");
    let settings = Settings { server, catalog, ..Settings::default() };
    let mut w = World::made_of(settings.into(), Rigged::default());
    let c = w.open();
    let list = w.result(c, "tools/list", json!({}));
    assert_eq!(list["tools"][0]["name"], "a\"b");
}

/// CAN-01: a host may ask whether a peer has anything to cancel.
#[test]
fn open_requests_are_known() {
    let mut w = World::new();
    let (c, other) = (w.open(), w.open());
    assert!(!w.has_open_requests(c));
    let job = w.call(c, json!(1), "sleep");
    assert!(w.has_open_requests(c) && !w.has_open_requests(other));
    w.end(job, result_of(&json!({"content": []})));
    assert!(!w.has_open_requests(c), "it was answered");
    w.call(c, json!(2), "sleep");
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    assert!(!w.has_open_requests(c), "it was cancelled");
    w.lose(c);
    assert!(!w.has_open_requests(c), "it is gone");
}
