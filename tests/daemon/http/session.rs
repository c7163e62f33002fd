//! Sessions over HTTP: methods, media types, ids, revisions, ends (HTTP-01, HTTP-03 to HTTP-05).

use ceased_tests::daemon::{carriers, marker, wait_until};
use serde_json::json;

use super::kit::{
    OPEN, Session, call, cancel, connect, daemon, daemon_with, daemon_within, initialize, wait_gone,
};

const VERSIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// HTTP-04, HTTP-03: a session, a call with a JSON answer, and the end of the session, over both
/// kinds of socket.
#[test]
fn session_calls_a_tool() {
    let text = format!("{OPEN}[[listen]]\ntransport = \"http\"\npath = \"{{home}}/http.sock\"\n");
    let daemon = daemon_with(&text);
    let socket = daemon.home.path().join("http.sock");
    for version in VERSIONS {
        for is_tcp in [true, false] {
            let open = || match is_tcp {
                true => connect(&daemon),
                false => ceased_tests::daemon::http::Http::unix(&socket),
            };
            // After half a second, as on a busy machine, a stream begins instead.
            assert!((0..10).any(|_| is_answered_at_once(&mut open(), version)), "{version}");
        }
    }
}

/// Runs a session on a connection; false if its call is answered as a stream.
fn is_answered_at_once(http: &mut ceased_tests::daemon::http::Http, version: &str) -> bool {
    let session = Session::begin_on(http, &[], version);
    assert!(session.id.len() >= 32 && session.id.bytes().all(|b| b.is_ascii_graphic()));
    // The connection is kept alive.
    let reply = http.exchange(&session.headers(), &call(1, "echo", r#"{"text":"hi"}"#));
    assert_eq!(reply.status, 200);
    if reply.header("content-type") == Some("text/event-stream") {
        return false;
    }
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json()["result"]["content"][0]["text"], "hi");
    http.request("DELETE /mcp", &session.headers(), "");
    assert_eq!(http.reply().status, 204);
    let reply = http.exchange(&session.headers(), &call(2, "echo", r#"{"text":"hi"}"#));
    assert_eq!(reply.status, 404, "{reply:?}");
    true
}

/// HTTP-04: a missing id is 400, an unknown one 404, and a failed `initialize` makes no session.
#[test]
fn session_id_is_required_and_known() {
    let daemon = daemon();
    let mut http = connect(&daemon);
    let reply = http.exchange(&[], &call(1, "echo", "{}"));
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["code"], -32600);
    let unknown = [("mcp-session-id", "0123456789abcdef0123456789abcdef")];
    assert_eq!(http.exchange(&unknown, &call(1, "echo", "{}")).status, 404);
    assert_eq!(http.exchange(&unknown, &initialize("2025-11-25")).status, 404);
    http.request("DELETE /mcp", &unknown, "");
    assert_eq!(http.reply().status, 404);
    http.request("GET /mcp", &[unknown[0], ("accept", "text/event-stream")], "");
    assert_eq!(http.reply().status, 404);
    let bad = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let reply = http.exchange(&[], bad);
    assert_eq!(reply.header("mcp-session-id"), None);
    assert_eq!(reply.json()["error"]["code"], -32602);
    assert_eq!(
        daemon.status()["connections"].as_array().map_or(1, Vec::len),
        1,
        "the status's own"
    );
}

/// HTTP-05: an unsupported revision is 400, an absent one is that of the session.
#[test]
fn revision_of_a_request_is_checked() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-06-18");
    let id = ("mcp-session-id", session.id.as_str());
    for (version, status) in [("2025-06-18", 200), ("2025-03-26", 200), ("1999-01-01", 400)] {
        let reply = connect(&daemon).exchange(
            &[id, ("mcp-protocol-version", version)],
            &call(1, "echo", r#"{"text":"x"}"#),
        );
        assert_eq!(reply.status, status, "{version}");
    }
    let reply = connect(&daemon).exchange(&[id], &call(1, "echo", r#"{"text":"x"}"#));
    assert_eq!(reply.status, 200);
}

/// HTTP-01: unknown paths, unknown methods, and GET and DELETE without a session.
#[test]
fn paths_and_methods_are_checked() {
    let daemon = daemon();
    for (line, status, allow) in [
        ("GET /other", 404, None),
        ("POST /mcp/", 404, None),
        ("PUT /mcp", 405, Some("GET, POST, DELETE, OPTIONS")),
        ("HEAD /mcp", 405, Some("GET, POST, DELETE, OPTIONS")),
        ("GET /mcp", 405, Some("GET, POST, DELETE, OPTIONS")),
        ("DELETE /mcp", 405, Some("GET, POST, DELETE, OPTIONS")),
        ("OPTIONS /mcp", 204, Some("GET, POST, DELETE, OPTIONS")),
    ] {
        let mut http = connect(&daemon);
        http.request(line, &[("accept", "*/*"), ("content-type", "application/json")], "");
        let reply = http.head();
        assert_eq!((reply.status, reply.header("allow")), (status, allow), "{line}");
        // RFC 9110, 6.6.1: a response of a server with a clock has its date.
        let date = reply.header("date").unwrap_or_default();
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{line}: {date:?}");
    }
}

/// HTTP-03: media types, texts that are no messages, and notifications.
#[test]
fn messages_and_media_types_are_checked() {
    let daemon = daemon_within("message_bytes = \"8KiB\"", OPEN);
    let session = Session::begin(&daemon, "2025-11-25");
    let echo = call(1, "echo", r#"{"text":"x"}"#);
    let post = |headers: &[(&str, &str)], body: &str| {
        let mut http = connect(&daemon);
        http.request("POST /mcp", &[&session.headers(), headers].concat(), body);
        http.reply()
    };
    let json = ("content-type", "application/json");
    for (headers, status) in [
        (vec![json, ("accept", "application/json, text/event-stream")], 200),
        (vec![("content-type", "application/json; charset=utf-8"), ("accept", "*/*")], 200),
        (vec![json], 200),
        (vec![json, ("accept", "application/json")], 200),
        (vec![json, ("accept", "text/html")], 406),
        (vec![json, ("accept", "application/json;q=0")], 406),
        (vec![("content-type", "text/plain"), ("accept", "*/*")], 415),
        (vec![("accept", "*/*")], 415),
    ] {
        assert_eq!(post(&headers, &echo).status, status, "{headers:?}");
    }
    assert_eq!(post(&[json], &echo).header("cache-control"), Some("no-store"));
    let events = post(&[json, ("accept", "text/event-stream")], &echo);
    assert!(events.header("date").is_some(), "{events:?}");
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert!(events.body.contains("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\""), "{events:?}");
    for (body, code) in
        [("{", -32700), ("", -32700), ("7", -32600), ("[]", -32600), ("[1]", -32600)]
    {
        let reply = post(&[json], body);
        assert_eq!(
            (reply.status, reply.json()["error"]["code"].clone()),
            (400, json!(code)),
            "{body}"
        );
    }
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(9000));
    assert_eq!(post(&[json], &long).status, 413);
    let null = r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#;
    assert_eq!(post(&[json], null).status, 400);
    let response = r#"{"jsonrpc":"2.0","id":77,"result":{}}"#;
    assert_eq!(post(&[json], response).status, 202);
    let reply = post(&[json], r#"{"jsonrpc":"2.0","id":5,"method":"no/such"}"#);
    assert_eq!((reply.status, reply.json()["error"]["code"].clone()), (200, json!(-32601)));
}

/// HTTP-03: batches belong to 2025-03-26; their answers come in one array.
#[test]
fn batch_is_answered_by_an_array() {
    let daemon = daemon();
    let batch =
        format!("[{},{}]", call(1, "echo", r#"{"text":"a"}"#), call(2, "sleep", r#"{"ms":1}"#));
    let session = Session::begin(&daemon, "2025-03-26");
    let answers = session.post(&daemon, &batch).answer();
    let mut ids: Vec<u64> =
        answers.as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2], "{answers}");
    let done = r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#;
    assert_eq!(session.exchange(&daemon, done).status, 202);
    let session = Session::begin(&daemon, "2025-06-18");
    assert_eq!(session.exchange(&daemon, &batch).status, 400);
}

/// HTTP-07, CAN-08: after `notifications/cancelled` the work is stopped, and the stream ends
/// without an answer.
#[test]
fn cancelled_call_is_stopped_and_not_answered() {
    let daemon = daemon();
    for version in VERSIONS {
        let session = Session::begin(&daemon, version);
        let mark = marker();
        let mut stream = session.post(&daemon, &call(7, "family", &format!(r#"{{"t":"{mark}"}}"#)));
        assert_eq!(stream.head().header("content-type"), Some("text/event-stream"));
        assert_eq!(stream.message()["method"], "notifications/progress");
        ceased_tests::daemon::wait_for_family(&mark);
        let reply = session.exchange(&daemon, &cancel(7));
        assert_eq!((reply.status, reply.body.as_str()), (202, ""));
        while let Some(event) = stream.event() {
            assert!(!event.data.contains("\"id\":7"), "{event:?}");
        }
        wait_gone(&mark);
        // The id is free again.
        let again = session.post(&daemon, &call(7, "echo", r#"{"text":"x"}"#)).answer();
        assert_eq!(again["result"]["content"][0]["text"], "x");
    }
}

/// RPC-02: a second request with an id in flight is refused; the first one keeps its stream.
#[test]
fn id_in_flight_is_not_taken_again() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let mark = marker();
    let mut stream = session.post(&daemon, &call(3, "hang", &format!(r#"{{"t":"{mark}"}}"#)));
    wait_until("it hangs", || !carriers(&mark).is_empty());
    let reply = session.exchange(&daemon, &call(3, "echo", r#"{"text":"x"}"#));
    assert_eq!((reply.status, reply.json()["error"]["code"].clone()), (400, json!(-32600)));
    assert_eq!(session.exchange(&daemon, &cancel(3)).status, 202);
    stream.head();
    while stream.event().is_some() {}
    wait_gone(&mark);
}

/// HTTP-04: a session whose client is away ends after `session_idle`, and its calls with it; an
/// open stream holds a session.
#[test]
fn idle_session_ends() {
    // Longer than a busy machine takes between two requests of the test.
    let daemon = daemon_with(&format!("{OPEN}session_idle = \"2s\"\n"));
    let held = Session::begin(&daemon, "2025-11-25");
    let mut stream = held.get(&daemon, None);
    assert_eq!(stream.head().status, 200);
    let session = Session::begin(&daemon, "2025-11-25");
    let mark = marker();
    let call = session.post(&daemon, &call(3, "hang", &format!(r#"{{"t":"{mark}"}}"#)));
    wait_until("it hangs", || !carriers(&mark).is_empty());
    drop(call);
    wait_gone(&mark);
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    wait_until("the session has ended", || session.exchange(&daemon, ping).status == 404);
    assert_eq!(held.exchange(&daemon, ping).status, 200);
    drop(stream);
}

/// HTTP-04, HTTP-07: a session whose client has lost its streams ends after `gone`, and its calls with
/// it; a client that resumes a stream within that time misses nothing, and one that keeps no stream
/// open stays for `session_idle`.
#[test]
fn session_ends_after_the_loss_of_its_connections() {
    // Longer than a busy machine takes between the loss of a stream and its resumption.
    let daemon = daemon_with(&format!("{OPEN}gone = \"4s\"\n"));
    let quiet = Session::begin(&daemon, "2025-11-25");
    let lost = Session::begin(&daemon, "2025-11-25");
    let mut get = lost.get(&daemon, None);
    assert_eq!(get.head().status, 200);
    let mark = marker();
    let mut stream = lost.post(&daemon, &call(3, "hang", &format!(r#"{{"t":"{mark}"}}"#)));
    assert_eq!(stream.head().status, 200);
    let first = stream.event().expect("an event that the stream is resumed at");
    wait_until("it hangs", || !carriers(&mark).is_empty());
    drop((get, stream));
    let mut stream = lost.get(&daemon, first.id.as_deref());
    assert_eq!(stream.head().status, 200);
    assert!(!carriers(&mark).is_empty(), "a disconnect is no cancel");
    drop(stream);
    wait_gone(&mark);
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    assert_eq!(lost.exchange(&daemon, ping).status, 404);
    assert_eq!(quiet.exchange(&daemon, ping).status, 200);
}

/// Sessions that are never ended make room for new ones, the longest unused first.
#[test]
fn unused_sessions_make_room() {
    let daemon = daemon_with(&format!("{OPEN}sessions_per_identity = 3\n"));
    let sessions: Vec<Session> = (0..4).map(|_| Session::begin(&daemon, "2025-11-25")).collect();
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    let statuses: Vec<u16> = sessions.iter().map(|it| it.exchange(&daemon, ping).status).collect();
    assert_eq!(statuses, [404, 200, 200, 200]);
    let mut streams: Vec<_> = sessions[1..].iter().map(|it| it.get(&daemon, None)).collect();
    for stream in &mut streams {
        assert_eq!(stream.head().status, 200);
    }
    let reply = connect(&daemon).exchange(&[], &initialize("2025-11-25"));
    assert_eq!((reply.status, reply.json()["error"]["code"].clone()), (503, json!(-31003)));
}
