//! Requests of 2026-07-28 over HTTP: headers, statuses, and the end of the stream as the cancel
//! (HTTP-08, HTTP-09, MOD-06).

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Daemon, Signal, carriers, marker, wait_for_family, wait_until};
use serde_json::json;

use super::kit::{OPEN, connect, daemon, daemon_with, headers, initialize, modern, wait_gone};

fn call(id: u64, tool: &str, arguments: &str) -> String {
    modern(id, "tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

fn begin(daemon: &Daemon, tool: &str, mark: &str) -> Http {
    let mut http = connect(daemon);
    let body = call(1, tool, &format!(r#"{{"t":"{mark}"}}"#));
    http.post(&headers("tools/call", tool), &body);
    http
}

/// HTTP-01, HTTP-09: both eras on one connection, by the contents of each message.
#[test]
fn both_eras_share_the_endpoint() {
    let daemon = daemon();
    let mut http = connect(&daemon);
    for id in 1..4 {
        let reply =
            http.exchange(&headers("tools/call", "echo"), &call(id, "echo", r#"{"text":"x"}"#));
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("mcp-session-id"), None);
        assert_eq!(reply.json()["id"], json!(id));
        let reply = http.exchange(&[], &initialize("2025-11-25"));
        assert!(reply.header("mcp-session-id").is_some());
    }
    let reply = http.exchange(&headers("server/discover", ""), &modern(1, "server/discover", ""));
    assert_eq!(reply.status, 200, "{reply:?}");
    // A session id is ignored.
    let mut more = headers("tools/list", "");
    more.push(("mcp-session-id", "0123456789abcdef0123456789abcdef"));
    assert_eq!(http.exchange(&more, &modern(2, "tools/list", "")).status, 200);
    // A response has no place, and a batch neither.
    let version = [("mcp-protocol-version", "2026-07-28")];
    assert_eq!(http.exchange(&version, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).status, 400);
    assert_eq!(http.exchange(&version, &format!("[{}]", modern(1, "ping", ""))).status, 400);
    for line in ["GET /mcp", "DELETE /mcp"] {
        http.request(line, &version, "");
        assert_eq!(http.reply().status, 405, "{line}");
    }
}

/// HTTP-09: headers that are missing or differ, versions, metadata, methods.
#[test]
fn headers_repeat_the_body() {
    let daemon = daemon();
    let echo = call(1, "echo", r#"{"text":"x"}"#);
    let (version, method) = (("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"));
    let other = echo.replace("2026-07-28", "2099-01-01");
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let unable = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let list = ("mcp-method", "tools/list");
    let no_tasks = modern(1, "tasks/get", r#""taskId":"x""#);
    for (given, body, status, code) in [
        (vec![version, method, ("mcp-name", "echo")], &*echo, 200, 0),
        (vec![version, method, ("mcp-name", "=?base64?ZWNobw==?=")], &echo, 200, 0),
        (vec![version, method, ("mcp-name", "=?base64?ZWNob?=")], &echo, 400, -32020),
        (vec![version, method, ("mcp-name", "other")], &echo, 400, -32020),
        (vec![version, method], &echo, 400, -32020),
        (vec![version, ("mcp-method", "tools/list"), ("mcp-name", "echo")], &echo, 400, -32020),
        (vec![version, ("mcp-name", "echo")], &echo, 400, -32020),
        (vec![("mcp-protocol-version", "2025-11-25"), method], &echo, 400, -32020),
        (vec![method, ("mcp-name", "echo")], &echo, 400, -32020),
        (
            vec![("mcp-protocol-version", "2099-01-01"), method, ("mcp-name", "echo")],
            &other,
            400,
            -32022,
        ),
        (vec![version, list], bare, 400, -32602),
        (vec![version, list], unable, 400, -32602),
        (vec![version, ("mcp-method", "tasks/get"), ("mcp-name", "x")], &no_tasks, 400, -32021),
        (vec![version, ("mcp-method", "no/such")], &modern(1, "no/such", ""), 404, -32601),
    ] {
        let reply = connect(&daemon).exchange(&given, body);
        let found = reply.json()["error"]["code"].as_i64().unwrap_or(0);
        assert_eq!((reply.status, found), (status, code), "{given:?} {body} {reply:?}");
    }
}

/// HTTP-09: headers that repeat arguments, as the schema of a tool says.
#[test]
fn parameter_headers_repeat_arguments() {
    let tool = "[[tool]]\nname = \"at\"\ncommand = [\"true\"]\nrun_as = \"daemon\"\ninput_schema = { type = \"object\", properties = { region = { type = \"string\", x-mcp-header = \"Region\" }, n = { type = \"integer\", x-mcp-header = \"N\" } } }\n";
    let daemon = daemon_with(&format!("{OPEN}{tool}"));
    for (arguments, given, status) in [
        (r#"{"region":"eu","n":5}"#, vec![("mcp-param-region", "eu"), ("mcp-param-n", "5")], 200),
        (r#"{"region":"eu","n":5}"#, vec![("mcp-param-region", "eu"), ("mcp-param-n", "5.0")], 200),
        (r#"{"region":"eu"}"#, vec![("mcp-param-region", "=?base64?ZXU=?=")], 200),
        ("{}", vec![], 200),
        (r#"{"region":null}"#, vec![], 200),
        (r#"{"region":"eu"}"#, vec![], 400),
        (r#"{"region":"eu"}"#, vec![("mcp-param-region", "us")], 400),
        (r#"{"n":5}"#, vec![("mcp-param-n", "6")], 400),
        ("{}", vec![("mcp-param-n", "6")], 400),
    ] {
        let more = [headers("tools/call", "at"), given.clone()].concat();
        let reply = connect(&daemon).exchange(&more, &call(1, "at", arguments));
        assert_eq!(reply.status, status, "{arguments} {given:?} {reply:?}");
        if status == 400 {
            assert_eq!(reply.json()["error"]["code"], -32020);
        }
    }
}

/// HTTP-08, MOD-06: a closed connection is the cancel of its request, over both kinds of socket;
/// a posted cancel has no effect.
#[test]
fn closed_stream_is_the_cancel() {
    let text = format!(
        "{OPEN}[[listen]]\ntransport = \"http\"\npath = \"{{home}}/http.sock\"\n[log]\naudit = \"{{home}}/audit.jsonl\"\n"
    );
    let daemon = daemon_with(&text);
    let socket = daemon.home.path().join("http.sock");
    for is_tcp in [true, false] {
        let mark = marker();
        let body = call(1, "family", &format!(r#"{{"t":"{mark}"}}"#));
        let mut http = if is_tcp { connect(&daemon) } else { Http::unix(&socket) };
        http.post(&headers("tools/call", "family"), &body);
        let head = http.head();
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        assert_eq!(http.message()["method"], "notifications/progress");
        wait_for_family(&mark);
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let version = [("mcp-protocol-version", "2026-07-28")];
        assert_eq!(connect(&daemon).exchange(&version, cancel).status, 202);
        assert!(!carriers(&mark).is_empty());
        drop(http);
        wait_gone(&mark);
    }
    let audit = daemon.home.path().join("audit.jsonl");
    wait_until("both receipts say why", || {
        let text = std::fs::read_to_string(&audit).unwrap_or_default();
        text.lines()
            .filter(|line| line.contains("\"event\":\"cancel\"") && line.contains("disconnected"))
            .count()
            == 2
    });
    daemon.wait_idle();
}

/// HTTP-08: a client that closes its side and waits is answered; one that is gone is noticed
/// although it said nothing.
#[test]
fn half_closed_client_is_answered() {
    let daemon = daemon();
    for accept in ["application/json, text/event-stream", "application/json"] {
        let mut http = connect(&daemon);
        let body = call(1, "sleep", r#"{"ms":1200}"#);
        let json = ("content-type", "application/json");
        let more = [headers("tools/call", "sleep"), vec![json, ("accept", accept)]].concat();
        http.request("POST /mcp", &more, &body);
        http.half_close();
        assert!(http.answer()["result"].is_object(), "{accept}");
        assert!(http.is_closed());
    }
    let mark = marker();
    let http = begin(&daemon, "hang", &mark);
    wait_until("it hangs", || !carriers(&mark).is_empty());
    http.half_close();
    drop(http);
    wait_gone(&mark);
}

/// MOD-08 over HTTP: a subscription is a stream, and ends with its result.
#[test]
fn subscription_is_a_stream() {
    let mut daemon = daemon();
    let mut http = connect(&daemon);
    let body = modern(5, "subscriptions/listen", r#""notifications":{"toolsListChanged":true}"#);
    http.post(&headers("subscriptions/listen", ""), &body);
    assert_eq!(http.head().header("content-type"), Some("text/event-stream"));
    let event = http.event().expect("an acknowledgement");
    assert_eq!(event.id, None, "streams of this revision cannot be resumed");
    assert_eq!(event.json()["method"], "notifications/subscriptions/acknowledged");
    daemon.signal(Signal::TERM);
    assert_eq!(http.message()["id"], 5);
    assert_eq!(http.event(), None);
    assert!(daemon.wait().success());
}
