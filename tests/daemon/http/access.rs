//! Access over HTTP: Host, Origin, tokens, pages of other origins (HTTP-02).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ceased_tests::daemon::{Daemon, wait_until};

use super::kit::{Session, TOKEN, call, connect, daemon, daemon_with, initialize};

fn with_tokens(more: &str) -> Daemon {
    daemon_with(&format!(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\ntoken_file = \"{{home}}/http-tokens\"\n{more}"
    ))
}

fn status(daemon: &Daemon, headers: &[(&str, &str)]) -> u16 {
    connect(daemon).exchange(headers, &initialize("2025-11-25")).status
}

/// HTTP-02: pages of other origins, and names pointed at this machine, are refused.
#[test]
fn foreign_hosts_and_origins_are_refused() {
    let daemon = daemon_with(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\nallow_origins = [\"https://app.example\"]\n",
    );
    let port = daemon.http_address().port();
    for (headers, expected) in [
        (vec![("host", format!("127.0.0.1:{port}"))], 200),
        (vec![("host", "localhost".into())], 200),
        (vec![("host", "[::1]:80".into())], 200),
        (vec![("host", "app.example".into())], 200),
        (vec![("host", "evil.example".into())], 403),
        (vec![("host", format!("evil.example:{port}"))], 403),
        (vec![("host", "localhost".into()), ("origin", "http://localhost:3000".into())], 200),
        (vec![("host", "localhost".into()), ("origin", "https://app.example".into())], 200),
        (vec![("host", "localhost".into()), ("origin", "https://evil.example".into())], 403),
        (vec![("host", "localhost".into()), ("origin", "null".into())], 403),
        (
            vec![("host", "localhost".into()), ("origin", "http://localhost.evil.example".into())],
            403,
        ),
    ] {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        assert_eq!(status(&daemon, &headers), expected, "{headers:?}");
    }
    let connections = daemon.status()["connections"].as_array().map_or(0, Vec::len);
    assert!(connections <= 8, "no session is made for a request that is refused: {connections}");
}

/// HTTP-02: a page of an allowed origin may read responses; others get no permission.
#[test]
fn allowed_pages_may_read_responses() {
    let daemon = daemon();
    let mut http = connect(&daemon);
    let origin = ("origin", "http://localhost:3000");
    http.request("OPTIONS /mcp", &[origin, ("access-control-request-method", "POST")], "");
    let reply = http.reply();
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert!(
        reply
            .header("access-control-allow-headers")
            .is_some_and(|it| it.contains("mcp-session-id"))
    );
    // HTTP-09: headers that repeat arguments have names of their own for each tool.
    let asked =
        ("access-control-request-headers", "mcp-param-region, X-Own,Mcp-Param-A b,MCP-PARAM-N");
    http.request("OPTIONS /mcp", &[origin, asked], "");
    let reply = http.reply();
    let names = reply.header("access-control-allow-headers").unwrap_or_default();
    let names: Vec<&str> = names.split(", ").collect();
    for name in
        ["authorization", "traceparent", "tracestate", "baggage", "mcp-param-region", "mcp-param-n"]
    {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|it| it.contains("own") || it.contains(' ')), "{names:?}");
    http.request("OPTIONS /mcp", &[("origin", "https://evil.example"), asked], "");
    assert_eq!(http.reply().header("access-control-allow-headers"), None);
    let reply = http.exchange(&[origin], &initialize("2025-11-25"));
    assert_eq!(reply.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert!(
        reply
            .header("access-control-expose-headers")
            .is_some_and(|it| it.contains("mcp-session-id"))
    );
    http.request("OPTIONS /mcp", &[("origin", "https://evil.example")], "");
    let reply = http.reply();
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
}

/// HTTP-02, HTTP-04: each request has its token; a session belongs to the identity that began it.
#[test]
fn tokens_are_checked_at_each_request() {
    let daemon = with_tokens("anonymous = \"allow\"\n");
    let bearer = format!("Bearer {TOKEN}");
    let ann = [("authorization", bearer.as_str())];
    let session = Session::begin_on(&mut connect(&daemon), &ann, "2025-11-25");
    let echo = call(1, "echo", r#"{"text":"x"}"#);
    let own = [session.headers(), ann.to_vec()].concat();
    assert_eq!(connect(&daemon).exchange(&own, &echo).status, 200);
    assert_eq!(connect(&daemon).exchange(&session.headers(), &echo).status, 404);
    let wrong = [("authorization", "Bearer 99999999999999999999999999999999")];
    let reply = connect(&daemon).exchange(&[session.headers(), wrong.to_vec()].concat(), &echo);
    assert_eq!(reply.status, 401);
    assert!(reply.header("www-authenticate").is_some_and(|it| it.contains("invalid_token")));
}

/// HTTP-02: without a token there is no access, and a revoked one ends its session.
#[test]
fn token_is_required_and_can_be_revoked() {
    let daemon = with_tokens("");
    let mut http = connect(&daemon);
    let reply = http.exchange(&[], &initialize("2025-11-25"));
    assert_eq!(reply.status, 401);
    assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"ceased\""));
    let bearer = format!("bearer {TOKEN}");
    let ann = [("authorization", bearer.as_str())];
    let session = Session::begin_on(&mut connect(&daemon), &ann, "2025-11-25");
    let mut headers = [session.headers(), ann.to_vec()].concat();
    headers.push(("accept", "text/event-stream"));
    let mut get = connect(&daemon);
    get.request("GET /mcp", &headers, "");
    assert_eq!(get.head().status, 200);
    let tokens = daemon.home.path().join("http-tokens");
    fs::write(&tokens, format!("bob {}\n", "b".repeat(32))).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    daemon.signal(ceased_tests::daemon::Signal::HUP);
    while get.event().is_some() {}
    wait_until("the token is refused", || status(&daemon, &ann) == 401);
}

/// Guessing tokens is slow, also over many connections.
#[test]
fn guesses_are_delayed() {
    let daemon = with_tokens("");
    let wrong = [("authorization", "Bearer 99999999999999999999999999999999")];
    let begin = std::time::Instant::now();
    for _ in 0..9 {
        assert_eq!(status(&daemon, &wrong), 401);
    }
    assert!(begin.elapsed() >= std::time::Duration::from_millis(50 + 100 + 200), "{begin:?}");
}
