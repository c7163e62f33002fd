//! Output of commands as a model, a client and a person read it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use ceased_tests::daemon::{Config, Daemon, Peer, wait_until};

const TOOLS: &str = r#"
[[tool]]
name = "suite"
description = "Fails as a test run does: colours, a rewritten bar, errors on standard error"
command = ["sh", "-c", '''
printf '\033[1mrunning 2 tests\033[0m\n'
for n in 10 50 100; do printf '\r%s%%' "$n"; done
printf '\ntest a ... \033[32mok\033[0m\n'
printf 'warning: \033[33mslow\033[0m\n' >&2
printf 'test b ... \033[31mFAILED\033[0m\n'
printf 'error: 1 of 2 failed\n' >&2
exit 101
''']
[[tool]]
name = "mixed"
command = ["sh", "-c", 'for n in 1 2 3 4 5 6 7 8 9; do echo "out $n"; echo "err $n" >&2; done']
[[tool]]
name = "silent"
command = ["true"]
[[tool]]
name = "long"
command = ["sh", "-c", 'i=0; while [ $i -lt 9000 ]; do echo "line $i"; i=$((i+1)); done']
text_limit = "2KiB"
[[tool]]
name = "slow"
task_support = "optional"
command = ["sh", "-c", 'echo begun; echo "trouble" >&2; echo "1 up" >&3; sleep 600']
[[tool]]
name = "numbers"
command = ["sh", "-c", 'echo "note" >&2; printf %s "$1"', "numbers", "{json}"]
output = "json"
output_schema = { type = "object", properties = { n = { type = "integer" } }, required = ["n"] }
[tool.input.json]
type = "string"
[[tool]]
name = "any"
command = ["printf", "%s", "{json}"]
output = "json"
[tool.input.json]
type = "string"
[[tool]]
name = "blocks"
command = ["printf", "%s", "{json}"]
output = "content"
[tool.input.json]
type = "string"
[[tool]]
name = "plain"
command = ["sh", "-c", 'echo out; echo err >&2; exit "$1"', "plain", "{code}"]
output = "stdout"
[tool.input.code]
type = "integer"
[[tool]]
name = "absent"
command = ["/no/such/program"]
"#;

fn daemon() -> Daemon {
    Daemon::start(&Config { tools: TOOLS, ..Config::default() })
}

/// A peer of this revision.
fn speaking(daemon: &Daemon, revision: &str) -> Peer {
    let mut peer = daemon.connect();
    let params = json!({
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"},
    });
    peer.result("initialize", &params.to_string());
    peer
}

fn result(peer: &mut Peer, tool: &str, arguments: &Value) -> Value {
    let call = peer.call(tool, &arguments.to_string());
    peer.answer(call)["result"].take()
}

fn texts(result: &Value) -> Vec<&str> {
    let blocks = result["content"].as_array().expect("content");
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// A failing test run reads as its terminal shows it, in the order in which it was printed.
#[test]
fn failing_output_is_plain_text_in_order() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let failed = result(&mut peer, "suite", &json!({}));
    let text = "running 2 tests\n100%\ntest a ... ok\nwarning: slow\ntest b ... FAILED\n\
                error: 1 of 2 failed\n";
    assert_eq!(texts(&failed), [text, "exited with code 101"]);
    assert_eq!(failed["isError"], true);
    let numbers = &failed["structuredContent"];
    assert_eq!((&numbers["exitCode"], &numbers["truncated"]), (&json!(101), &json!(false)));
    let members: Vec<&String> = numbers.as_object().expect("an object").keys().collect();
    assert_eq!(members, ["bytes", "durationMs", "exitCode", "signal", "truncated"]);
    let mixed = result(&mut peer, "mixed", &json!({}));
    let mut text = String::new();
    for n in 1..=9 {
        let _ = writeln!(text, "out {n}\nerr {n}");
    }
    assert_eq!(texts(&mixed), [text]);
    let silent = result(&mut peer, "silent", &json!({}));
    assert_eq!(silent["content"], json!([]), "no empty block");
}

/// OUT-02: of a long output the result shows head and tail, says how much it leaves out, and links
/// to the whole.
#[test]
fn long_output_names_what_it_leaves_out() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let long = result(&mut peer, "long", &json!({}));
    let text = texts(&long)[0];
    assert!(text.len() < 2048 + 200, "{} bytes", text.len());
    assert!(text.starts_with("line 0\n") && text.ends_with("line 8999\n"), "{text}");
    let line = text.lines().find(|line| line.starts_with("[…")).expect("a line says so");
    let link = &long["content"][1];
    assert_eq!(link["type"], "resource_link");
    let uri = link["uri"].as_str().expect("a uri");
    assert!(line.contains("bytes omitted; all of it in") && line.contains(uri), "{line}");
    assert!(line.contains("ceased logs job:"), "{line}");
    let omitted: usize = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("bytes");
    let shown = text.len() - line.len() - 1;
    let bytes = long["structuredContent"]["bytes"].as_u64().expect("a number");
    assert_eq!(u64::try_from(shown + omitted), Ok(bytes));
    let whole = peer.result("resources/read", &json!({"uri": uri}).to_string());
    let whole = whole["contents"][0]["text"].as_str().expect("text");
    assert_eq!(whole.lines().count(), 9000);
    // A revision without links has the same text and no block that it does not know.
    let mut old = speaking(&daemon, "2025-03-26");
    let long = result(&mut old, "long", &json!({}));
    assert_eq!(long["content"].as_array().map(Vec::len), Some(1), "{long}");
}

/// OUT-01, OUT-02: the output of a cancelled call stays readable, as resource and as log.
#[test]
fn output_of_a_cancelled_call_stays_readable() {
    let daemon = daemon();
    let (mut peer, mut other) = (daemon.peer(), daemon.peer());
    let call = peer.call("slow", "{}");
    peer.note("notifications/progress");
    let job = daemon.status()["jobs"][0]["job"].as_u64().expect("it runs");
    let part = peer.result("ceased/logs", &json!({"job": job}).to_string());
    assert_eq!(
        (&part["stdout"]["text"], &part["ended"]),
        (&json!("begun\ntrouble\n"), &json!(false))
    );
    peer.cancel(call);
    wait_until("the job has ended", || {
        peer.result("ceased/logs", &json!({"job": job}).to_string())["ended"] == true
    });
    let uri = format!("ceased://jobs/{job}/output");
    let listed = other.result("resources/list", "{}");
    let found = |resource: &Value| resource["uri"] == *uri;
    assert!(listed["resources"].as_array().expect("a list").iter().any(found), "{listed}");
    let read = other.result("resources/read", &json!({"uri": uri}).to_string());
    assert_eq!(read["contents"][0]["text"], "begun\ntrouble\n");
    let unknown = other.request("resources/read", r#"{"uri":"ceased://jobs/999/output"}"#);
    assert_eq!(other.answer(unknown)["error"]["code"], -32002);
    let templates = other.result("resources/templates/list", "{}");
    let template = &templates["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(*template, "ceased://jobs/{id}/output");
    // The same by the command, which knows a job by its number.
    let logs = daemon.home.run(&["logs", &format!("job:{job}")]);
    assert_eq!(logs.out, "begun\ntrouble\n", "{}", logs.err);
    assert_eq!(logs.code, Some(0));
    let none = daemon.home.run(&["logs", "job:999"]);
    assert_eq!(none.code, Some(4), "{}", none.err);
}

/// A task is found by its id as well, also after its end.
#[test]
fn output_of_a_task_is_found_by_its_id() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let task = peer.create_task("slow", "{}");
    peer.note("notifications/progress");
    let of_task = json!({"task": task}).to_string();
    assert_eq!(peer.result("ceased/logs", &of_task)["stdout"]["text"], "begun\ntrouble\n");
    peer.result("tasks/cancel", &json!({"taskId": task}).to_string());
    wait_until("the job has ended", || peer.result("ceased/logs", &of_task)["ended"] == true);
    let uri = format!("ceased://jobs/{task}/output");
    let read = peer.result("resources/read", &json!({"uri": uri}).to_string());
    assert_eq!(read["contents"][0]["text"], "begun\ntrouble\n");
}

/// `output = "json"`: one object, which is checked.
#[test]
fn json_output_is_checked_structured_content() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let good = result(&mut peer, "numbers", &json!({"json": "{\"n\":7}"}));
    assert_eq!((&good["structuredContent"], &good["isError"]), (&json!({"n": 7}), &json!(false)));
    assert_eq!(texts(&good), ["{\"n\":7}"]);
    for (bad, why) in [("{\"n\":\"x\"}", "output/n"), ("[7]", "not an object"), ("{", "not JSON")] {
        let bad = result(&mut peer, "numbers", &json!({"json": bad}));
        assert_eq!(bad["isError"], true, "{bad}");
        assert!(texts(&bad).last().is_some_and(|text| text.contains(why)), "{bad}");
        assert_eq!(bad["structuredContent"], Value::Null);
    }
}

/// `output = "json"`: texts that others print are passed on as they are, with and without a schema.
#[test]
fn json_output_keeps_the_text_of_its_values() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    for tool in ["any", "numbers"] {
        for (printed, kept) in [
            (r#"{"n":1,"a":"\ud83d"}"#, r#"{"n":1,"a":"\ud83d"}"#),
            (r#"{"n":18446744073709551616}"#, r#"{"n":18446744073709551616}"#),
            ("{\r\n \"n\": 1.0,\n \"m\": 1e999}\n", r#"{   "n": 1.0,  "m": 1e999}"#),
            ("\u{feff}{\"n\":2,\"n\":2.50}", r#"{"n":2,"n":2.50}"#),
        ] {
            if tool == "numbers" && (printed.contains("1e999") || printed.contains("\"n\":2,")) {
                continue;
            }
            let call = peer.call(tool, &json!({"json": printed}).to_string());
            let line = peer.line().expect("an answer");
            assert!(line.contains(&format!("\"structuredContent\":{kept},")), "{call}: {line}");
        }
    }
    let deep = format!("{{\"n\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let bad = result(&mut peer, "any", &json!({"json": deep}));
    assert!(texts(&bad).last().is_some_and(|text| text.contains("nests deeper")), "{bad}");
}

/// `output = "content"`: blocks of the protocol, which are checked.
#[test]
fn content_output_is_blocks_of_the_protocol() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let blocks = json!([
        {"type": "text", "text": "a"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ]);
    let arguments = json!({"json": blocks.to_string()});
    assert_eq!(result(&mut peer, "blocks", &arguments)["content"], blocks);
    let mut old = speaking(&daemon, "2024-11-05");
    let types: Vec<Value> = result(&mut old, "blocks", &arguments)["content"]
        .as_array()
        .expect("blocks")
        .iter()
        .map(|block| block["type"].clone())
        .collect();
    assert_eq!(types, ["text", "image", "text", "text"]);
    for bad in ["{}", r#"[{"type":"image","data":"?","mimeType":"a/b"}]"#, r#"[{"type":"x"}]"#] {
        let bad = result(&mut peer, "blocks", &json!({"json": bad}));
        assert_eq!(bad["isError"], true, "{bad}");
    }
}

/// `output = "stdout"`: standard error is shown when the tool fails.
#[test]
fn stdout_output_shows_errors_of_a_failure() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    assert_eq!(texts(&result(&mut peer, "plain", &json!({"code": 0}))), ["out\n"]);
    let failed = result(&mut peer, "plain", &json!({"code": 3}));
    assert_eq!(texts(&failed), ["out\n", "err\n", "exited with code 3"]);
}

/// TOOL-01: a wrong argument and a program that is not there are results in the revisions that have
/// it so, and errors before.
#[test]
fn correctable_errors_are_results() {
    let daemon = daemon();
    for (revision, correctable) in
        [("2024-11-05", false), ("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)]
    {
        let mut peer = speaking(&daemon, revision);
        for (tool, arguments, code, why) in [
            ("plain", json!({"code": "x"}), -32602, "arguments/code"),
            ("absent", json!({}), -32603, "/no/such/program"),
        ] {
            let call = peer.call(tool, &arguments.to_string());
            let answer = peer.answer(call);
            if correctable {
                assert_eq!(answer["result"]["isError"], true, "{answer}");
                assert!(texts(&answer["result"])[0].contains(why), "{answer}");
            } else {
                assert_eq!(answer["error"]["code"], code, "{answer}");
            }
        }
        let call = peer.call("unknown", "{}");
        assert_eq!(peer.answer(call)["error"]["code"], -32602, "an unknown tool stays an error");
    }
}

/// The declared schema matches the structured content.
#[test]
fn tools_declare_the_schema_of_their_output() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let listed = peer.result("tools/list", "{}");
    let schema = |name: &str| {
        let tools = listed["tools"].as_array().expect("tools");
        tools.iter().find(|tool| tool["name"] == name).expect("it is listed")["outputSchema"]
            .clone()
    };
    assert_eq!(schema("suite")["required"][0], "exitCode");
    assert_eq!(schema("numbers")["required"], json!(["n"]));
    let mut old = speaking(&daemon, "2025-03-26");
    let listed = old.result("tools/list", "{}");
    assert_eq!(listed["tools"][0]["outputSchema"], Value::Null);
}
