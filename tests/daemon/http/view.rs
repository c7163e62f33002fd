//! The live view over plain sockets: its files, their headers, and its stream.

use std::fs;

use ceased_tests::daemon::http::{Http, Reply};
use ceased_tests::daemon::{Config, Daemon, Home, Signal, carriers, marker, wait_until};
use rustix::process::geteuid;
use serde_json::json;

use super::kit::{
    OPEN, TOKEN, connect, daemon, daemon_with, daemon_within, headers, initialize, modern,
    token_file, wait_gone,
};

const WITH_TOKENS: &str = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
                           token_file = \"{home}/http-tokens\"\n";
const FILES: [(&str, &str); 4] = [
    ("/", "text/html; charset=utf-8"),
    ("/style.css", "text/css; charset=utf-8"),
    ("/view.js", "text/javascript; charset=utf-8"),
    ("/icon.svg", "image/svg+xml"),
];

fn get(http: &mut Http, path: &str, headers: &[(&str, &str)]) -> Reply {
    http.request(&format!("GET {path}"), headers, "");
    http.reply()
}

/// Opens the stream with these headers and reads its head.
fn events(http: &mut Http, more: &[(&str, &str)]) -> Reply {
    let headers = [&[("accept", "text/event-stream")], more].concat();
    http.request("GET /events", &headers, "");
    http.head()
}

/// HTTP-02: the files need no token, and allow a browser nothing but themselves.
#[test]
fn files_have_a_strict_policy() {
    let daemon = daemon_with(WITH_TOKENS);
    let mut http = connect(&daemon);
    for (path, media_type) in FILES {
        let reply = get(&mut http, path, &[]);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some(media_type));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
        let policy = reply.header("content-security-policy").expect("a policy");
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        let tag = reply.header("etag").expect("a validator").to_owned();
        let weak = format!("\"other\", W/{tag}");
        for known in [tag.as_str(), &weak, "*"] {
            http.request(&format!("GET {path}"), &[("if-none-match", known)], "");
            let kept = http.reply();
            assert_eq!((kept.status, kept.body.as_str()), (304, ""), "{known}");
            assert_eq!(kept.header("etag"), Some(tag.as_str()));
        }
        assert_eq!(get(&mut http, path, &[("if-none-match", "\"other\"")]).status, 200);
        assert!(reply.header("date").is_some() && reply.header("cache-control").is_some());
        http.request(&format!("HEAD {path}?x=1"), &[], "");
        let head = http.head();
        assert_eq!((head.status, head.header("content-type")), (200, Some(media_type)));
        assert_eq!(head.header("content-length"), Some(&*reply.body.len().to_string()));
    }
    http.request("DELETE /", &[], "");
    let reply = http.reply();
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(get(&mut http, "/index.html", &[]).status, 404);
    http.request("POST /", &[], "x");
    assert_eq!(http.reply().status, 405);
}

/// HTTP-02: Host and Origin are checked as at the endpoint; not even an allowed page reads the
/// view.
#[test]
fn foreign_hosts_and_pages_are_refused() {
    let daemon = daemon_with(&format!("{OPEN}allow_origins = [\"https://app.example\"]\n"));
    for path in ["/", "/view.js", "/events"] {
        for (headers, expected) in [
            ([("host", "evil.example"), ("x-none", "")], 403),
            ([("host", "localhost"), ("origin", "https://evil.example")], 403),
            ([("host", "localhost"), ("origin", "null")], 403),
        ] {
            let reply = get(&mut connect(&daemon), path, &headers);
            assert_eq!(reply.status, expected, "{path} {headers:?}");
        }
        let app = [("origin", "https://app.example"), ("accept", "text/event-stream")];
        let mut http = connect(&daemon);
        http.request(&format!("GET {path}"), &app, "");
        assert_eq!(http.head().header("access-control-allow-origin"), None, "{path}");
    }
    for (site, expected) in
        [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]
    {
        let head = events(&mut connect(&daemon), &[("sec-fetch-site", site)]);
        assert_eq!(head.status, expected, "{site}");
    }
}

/// HTTP-02, TSK-39: the stream has the identity of its token, and shows the status of the daemon as
/// `ceased/status` shows it to that identity.
#[test]
fn stream_shows_an_identity_its_own_jobs() {
    let daemon = daemon_with(WITH_TOKENS);
    let head = events(&mut connect(&daemon), &[]);
    assert_eq!(head.status, 401);
    assert_eq!(head.header("www-authenticate"), Some("Bearer realm=\"ceased\""));
    let wrong = [("authorization", "Bearer 99999999999999999999999999999999")];
    assert_eq!(events(&mut connect(&daemon), &wrong).status, 401);
    let bearer = format!("Bearer {TOKEN}");
    let ann = ("authorization", bearer.as_str());
    let mut stream = connect(&daemon);
    let head = events(&mut stream, &[ann]);
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(stream.message()["result"]["jobs"], json!([]));
    // One job of the token, and one of another identity.
    let (mark, other) = (marker(), marker());
    let mut call = connect(&daemon);
    let body = modern(1, "tools/call", &format!(r#""name":"hang","arguments":{{"t":"{mark}"}}"#));
    call.post(&[headers("tools/call", "hang"), vec![ann]].concat(), &body);
    let mut peer = daemon.peer();
    peer.call("hang", &format!(r#"{{"t":"{other}"}}"#));
    wait_until("both jobs run", || carriers(&mark).len() + carriers(&other).len() == 2);
    let status = loop {
        let message = stream.message();
        assert_eq!(message["result"]["identity"], json!("token:ann"));
        let processes = &message["result"]["host"]["processes"];
        if processes.as_object().is_some_and(|jobs| !jobs.is_empty()) {
            break message["result"].clone();
        }
    };
    let jobs = status["jobs"].as_array().expect("a list");
    assert_eq!(jobs.len(), 1, "{status}");
    assert_eq!((&jobs[0]["tool"], &jobs[0]["identity"]), (&json!("hang"), &json!("token:ann")));
    assert_eq!(daemon.status()["running"], json!(2));
}

/// TSK-39: a token in `operators` sees the jobs of all users, and cancels them.
#[test]
fn operator_by_token_sees_and_cancels_all_jobs() {
    let home = Home::new();
    token_file(&home);
    let listener = WITH_TOKENS.replace("{home}", home.path().to_str().expect("a path"));
    let operators = "operators = [\"token:ann\"]";
    home.configure(&Config { daemon: operators, tools: &listener, ..Config::default() });
    let daemon = Daemon::start_in(home);
    let mark = marker();
    let mut peer = daemon.peer();
    let call = peer.call("hang", &format!(r#"{{"t":"{mark}"}}"#));
    let bearer = format!("Bearer {TOKEN}");
    let ann = ("authorization", bearer.as_str());
    let mut stream = connect(&daemon);
    assert_eq!(events(&mut stream, &[ann]).status, 200);
    let job = loop {
        let status = stream.message()["result"].clone();
        assert_eq!(status["operator"], json!(true));
        if let Some(job) = status["jobs"].get(0) {
            break job["job"].clone();
        }
    };
    let body = modern(1, "ceased/cancel", &format!(r#""job":{job},"reason":"enough""#));
    let headers = [headers("ceased/cancel", ""), vec![ann]].concat();
    assert_eq!(connect(&daemon).exchange(&headers, &body).status, 200);
    assert_eq!(peer.answer(call)["result"]["isError"], json!(true));
    wait_gone(&mark);
}

/// The stream is for clients that take events, and goes on.
#[test]
fn stream_repeats_the_status() {
    let daemon = daemon();
    let mut http = connect(&daemon);
    assert_eq!(get(&mut http, "/events", &[("accept", "application/json")]).status, 406);
    http.request("POST /events", &[], "");
    let reply = http.reply();
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));
    let mut stream = connect(&daemon);
    assert_eq!(events(&mut stream, &[]).status, 200);
    let uptime = |message: &serde_json::Value| message["result"]["host"]["uptimeMs"].as_u64();
    let first = uptime(&stream.message()).expect("a time");
    let third = (stream.message(), stream.message()).1;
    assert!(uptime(&third).expect("a time") >= first + 1500, "{first} {third}");
    // A client that closes only its side is served on.
    stream.half_close();
    assert!(uptime(&stream.message()).is_some());
}

/// Streams count as connections of their address and of their identity.
#[test]
fn streams_are_limited() {
    let daemon = daemon_within(
        "connections_per_identity = 2\n",
        &format!("{OPEN}connections_per_address = 3\n"),
    );
    let mut open = Vec::new();
    for expected in [200, 200, 503] {
        let mut http = connect(&daemon);
        assert_eq!(events(&mut http, &[]).status, expected);
        open.push(http);
    }
    drop(open);
    wait_until("a place is free again", || {
        let mut http = connect(&daemon);
        http.try_send(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").is_ok()
            && !http.is_closed()
            && http.head().status == 200
    });
}

/// A client that does not read its stream is closed after `write_stall`.
#[test]
fn client_that_does_not_read_is_closed() {
    let listener = "[[listen]]\ntransport = \"http\"\npath = \"{home}/http.sock\"\n";
    let daemon = daemon_within("write_stall = \"500ms\"\n", listener);
    // A long list for an operator, so that two events fill the buffers of a socket.
    let mut peer = daemon.peer();
    let calls: Vec<u64> = (0..800).map(|_| peer.call("sleep", r#"{"ms":600000}"#)).collect();
    wait_until("all calls are accepted", || {
        let status = daemon.status();
        status["running"].as_u64().zip(status["queued"].as_u64()).map(|(a, b)| a + b) == Some(800)
    });
    let mut stream = Http::unix(&daemon.home.path().join("http.sock"));
    assert_eq!(events(&mut stream, &[]).status, 200);
    let listed = stream.message()["result"]["jobs"].as_array().map(Vec::len);
    assert_eq!(listed, Some(calls.len()));
    // The caller, and the connection that looks.
    wait_until("the stream is closed", || daemon.status()["connections"] == json!(2));
    peer.finish();
}

/// A listener serves the view unless `view = false`, also after a reload.
#[test]
fn view_can_be_switched_off() {
    let daemon = daemon_with(OPEN);
    let mut stream = connect(&daemon);
    assert_eq!(events(&mut stream, &[]).status, 200);
    stream.message();
    let text = daemon.home.config_text();
    let off = text.replace(OPEN, &format!("{OPEN}view = false\n"));
    assert_ne!(off, text);
    daemon.home.configure_as(&off);
    daemon.signal(Signal::HUP);
    while stream.event().is_some() {}
    for path in ["/", "/view.js", "/events"] {
        assert_eq!(get(&mut connect(&daemon), path, &[]).status, 404, "{path}");
    }
}

/// A shutdown ends the streams.
#[test]
fn shutdown_ends_the_streams() {
    let mut daemon = daemon();
    let mut stream = connect(&daemon);
    assert_eq!(events(&mut stream, &[]).status, 200);
    stream.message();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
}

/// Asks for a link as the user of the Unix socket; returns its address and its code.
fn link(daemon: &Daemon) -> (String, String) {
    let link = daemon.peer().result("ceased/view", "{}");
    assert_eq!(link["identity"], json!(format!("uid:{}", geteuid().as_raw())));
    assert_eq!(link["expiresInMs"], json!(60_000));
    let url = link["url"].as_str().expect("an address");
    let (page, code) = url.split_once('#').expect("a code");
    (page.to_owned(), format!("Bearer {code}"))
}

/// The token that a code is exchanged for.
fn exchanged(daemon: &Daemon, code: &str) -> (Http, String) {
    let mut http = connect(daemon);
    let head = events(&mut http, &[("authorization", code), ("sec-fetch-site", "same-origin")]);
    assert_eq!(head.status, 200, "{head:?}");
    let token = head.header("ceased-view-token").expect("a token");
    (http, format!("Bearer {token}"))
}

/// TSK-39: a link has the identity of the user that asked for it, once; its token sees and cancels
/// the jobs of that user, and calls nothing.
#[test]
fn link_sees_and_cancels_the_jobs_of_its_user_and_calls_nothing() {
    for listener in [OPEN, WITH_TOKENS] {
        let daemon = daemon_with(listener);
        let mark = marker();
        let mut peer = daemon.peer();
        peer.call("hang", &format!(r#"{{"t":"{mark}"}}"#));
        wait_until("the job runs", || carriers(&mark).len() == 1);
        let (page, code) = link(&daemon);
        assert_eq!(page, format!("http://{}/", daemon.http_address()));
        let (mut http, token) = exchanged(&daemon, &code);
        let status = http.message();
        assert_eq!(status["result"]["jobs"][0]["tool"], "hang", "{status}");
        let job = status["result"]["jobs"][0]["job"].clone();
        // The code is used, and is no token for a call.
        let mut again = connect(&daemon);
        assert_eq!(events(&mut again, &[("authorization", &code)]).status, 401);
        // A token is taken at the stream again, and is exchanged for nothing.
        let mut second = connect(&daemon);
        let head = events(&mut second, &[("authorization", &token)]);
        assert_eq!((head.status, head.header("ceased-view-token")), (200, None));
        let never = marker();
        let begin = format!(r#""name":"hang","arguments":{{"t":"{never}"}}"#);
        for (method, name, params) in [
            ("tools/call", "hang", begin.as_str()),
            ("tools/list", "", ""),
            ("ceased/run", "", r#""command":["true"]"#),
            ("ceased/shutdown", "", ""),
            ("ceased/status", "", ""),
            ("tasks/get", "x", r#""taskId":"x""#),
        ] {
            let mut headers = headers(method, name);
            headers.push(("authorization", &token));
            let reply = connect(&daemon).exchange(&headers, &modern(1, method, params));
            assert_eq!(reply.status, 403, "{method}: {reply:?}");
        }
        // Nor by a header of another method, by a session, a batch or another HTTP method.
        let mut lying = headers("ceased/cancel", "");
        lying.push(("authorization", &token));
        let body = modern(1, "tools/call", &begin);
        for body in [body.clone(), format!("[{body}]"), initialize("2025-11-25")] {
            let reply = connect(&daemon).exchange(&lying, &body);
            assert_eq!(reply.status, 403, "{body}: {reply:?}");
        }
        for method in ["GET /mcp", "DELETE /mcp"] {
            let mut http = connect(&daemon);
            http.request(method, &[("authorization", &token), ("mcp-session-id", "x")], "");
            assert_eq!(http.reply().status, 403);
        }
        assert_eq!(carriers(&never).len(), 0);
        let body = modern(2, "ceased/cancel", &format!(r#""job":{job}"#));
        assert_eq!(connect(&daemon).exchange(&lying, &body).status, 200);
        wait_gone(&mark);
    }
}

/// HTTP-02: a link is taken from the page of its own origin alone, and another page cannot use up
/// its code.
#[test]
fn link_is_for_its_own_page() {
    let daemon = daemon_with(&format!("{OPEN}allow_origins = [\"https://app.example\"]\n"));
    let (_, code) = link(&daemon);
    let port = daemon.http_address().port();
    let other_port = format!("http://127.0.0.1:{}", port ^ 1);
    let own = format!("http://127.0.0.1:{port}");
    for (name, value) in [
        ("origin", "https://app.example"),
        ("origin", &other_port),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let mut http = connect(&daemon);
        let head = events(&mut http, &[("authorization", &code), (name, value)]);
        assert_eq!(head.status, 403, "{name}: {value}");
        assert_eq!(head.header("ceased-view-token"), None);
    }
    // A cancel does not exchange the code.
    let mut headers = headers("ceased/cancel", "");
    headers.push(("authorization", &code));
    let reply = connect(&daemon).exchange(&headers, &modern(1, "ceased/cancel", r#""job":1"#));
    assert_eq!(reply.status, 401, "{reply:?}");
    let mut http = connect(&daemon);
    let host = own.trim_start_matches("http://");
    let head = events(&mut http, &[("authorization", &code), ("origin", &own), ("host", host)]);
    assert_eq!(head.status, 200, "{head:?}");
    let unknown = format!("Bearer view-{}", "0".repeat(64));
    let mut http = connect(&daemon);
    assert_eq!(events(&mut http, &[("authorization", &unknown)]).status, 401);
}

/// Reloads the configuration, and waits until it holds.
fn reload(daemon: &Daemon) {
    assert_eq!(daemon.home.run(&["reload"]).code, Some(0));
}

/// HTTP-02: access by a link outlives a reload, but not a listener, whose port another user of the
/// machine may take.
#[test]
fn link_ends_with_a_listener() {
    let second = OPEN.replace("127.0.0.1", "127.0.0.2");
    let daemon = daemon_with(&format!("{second}{OPEN}"));
    let (_, code) = link(&daemon);
    let (mut stream, token) = exchanged(&daemon, &code);
    let (_, unused) = link(&daemon);
    reload(&daemon);
    stream.message();
    assert_eq!(events(&mut connect(&daemon), &[("authorization", &token)]).status, 200);
    let text = daemon.home.config_text();
    let fewer = text.replace(&second, "");
    assert_ne!(fewer, text);
    daemon.home.configure_as(&fewer);
    reload(&daemon);
    stream.read_to_end();
    for bearer in [&token, &unused] {
        assert_eq!(events(&mut connect(&daemon), &[("authorization", bearer)]).status, 401);
    }
    let (_, code) = link(&daemon);
    exchanged(&daemon, &code);
}

/// HTTP-02: a token of a token file may begin as those of links do.
#[test]
fn token_of_a_file_may_look_like_one_of_a_link() {
    let daemon = daemon_with(WITH_TOKENS);
    let tokens = daemon.home.path().join("http-tokens");
    let token = "view-of-the-team-0123456789abcdef";
    fs::write(&tokens, format!("ann {token}\n")).expect("the token file can be written");
    reload(&daemon);
    let bearer = format!("Bearer {token}");
    let mut stream = connect(&daemon);
    assert_eq!(events(&mut stream, &[("authorization", &bearer)]).status, 200);
    assert_eq!(stream.message()["result"]["identity"], "token:ann");
}

/// TSK-39, TSK-40: an anonymous peer and one with a token get no link, and without a listener for
/// the view there is none.
#[test]
fn link_is_for_users_of_the_unix_socket() {
    let daemon = daemon_with(WITH_TOKENS);
    let bearer = format!("Bearer {TOKEN}");
    let mut with_token = headers("ceased/view", "");
    with_token.push(("authorization", &bearer));
    let body = modern(1, "ceased/view", "");
    let reply = connect(&daemon).exchange(&with_token, &body);
    assert_eq!(reply.json()["error"]["code"], -31011, "{reply:?}");
    let daemon = daemon_with(OPEN);
    let reply = connect(&daemon).exchange(&headers("ceased/view", ""), &body);
    assert_eq!(reply.json()["error"]["code"], -31011, "{reply:?}");
    let daemon = daemon_with(&format!("{OPEN}view = false\n"));
    let mut peer = daemon.peer();
    let id = peer.request("ceased/view", "{}");
    let error = peer.answer(id)["error"].clone();
    assert!(error["message"].as_str().is_some_and(|text| text.contains("[[listen]]")), "{error}");
}
