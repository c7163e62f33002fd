//! Servers by URL behind the daemon (REM-01 to REM-05).

pub(crate) mod kit;
mod nginx;
mod proxy;

use std::process::Command;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use self::kit::{Remote, proof};
use crate::probe::tls::Certificates;
use crate::servers::kit::{error, names, say};

/// Revisions of clients.
const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// REM-01: servers of every transport are found, listed and called, and calls are told from each
/// other.
#[test]
fn servers_of_every_transport_are_called() {
    for era in ["session", "modern", "sse"] {
        let remote = Remote::start(era, &[]);
        let daemon = remote.daemon("");
        let mut peer = daemon.peer();
        assert!(names(&mut peer).iter().any(|name| name == "echo"), "{era}");
        assert_eq!(say(&mut peer, "echo", r#"{"text":"one"}"#), "one", "{era}");
        let [first, second] =
            ["a", "b"].map(|it| peer.call("echo", &format!(r#"{{"text":"{it}"}}"#)));
        assert_eq!((peer.text(second), peer.text(first)), ("b".into(), "a".into()), "{era}");
        if era != "sse" {
            assert_eq!(say(&mut peer, "stream", "{}"), "streamed");
        }
        let call = remote.wait_for("tools/call", 1).remove(0);
        let headers = &call["headers"];
        match era {
            "session" => {
                assert_eq!(headers["mcp-session-id"], "session-1");
                assert_eq!(headers["mcp-protocol-version"], "2025-06-18");
            }
            "modern" => {
                assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
                assert_eq!(
                    (&headers["mcp-method"], &headers["mcp-name"]),
                    (&json!("tools/call"), &json!("echo"))
                );
                assert!(headers.get("mcp-session-id").is_none());
            }
            _ => assert_eq!(call["path"], "/post?session=1"),
        }
    }
}

/// REM-01: headers repeat the arguments that a tool names, without a session alone; a tool whose
/// headers cannot be sent is left out with a warning.
#[test]
fn headers_repeat_arguments_without_a_session() {
    for era in ["modern", "session"] {
        let is_modern = era == "modern";
        let remote = Remote::start(era, &[]);
        let daemon = remote.daemon("");
        let mut peer = daemon.peer();
        assert_eq!(names(&mut peer).iter().any(|name| name == "unfit"), !is_modern);
        assert_eq!(say(&mut peer, "echo", r#"{"text":"ü","deep":{"n":7},"x":1}"#), "ü");
        let headers = remote.wait_for("tools/call", 1).remove(0)["headers"].clone();
        let sent = ["mcp-param-text", "mcp-param-n"].map(|name| headers.get(name).cloned());
        match is_modern {
            true => assert_eq!(sent, [Some(json!("=?base64?w7w=?=")), Some(json!("7"))]),
            false => assert_eq!(sent, [None, None]),
        }
        assert_eq!(daemon.home.log().contains("cannot be sent: unfit ("), is_modern);
    }
}

/// REM-02, REM-03: a cancel reaches a server with sessions as a notification with the server's id in
/// its session, once; the stream is closed after the grace, the session stays.
#[test]
fn cancel_reaches_a_session() {
    for (tool, expected) in [("hold", "told"), ("obey", "answered"), ("late", "answered")] {
        let remote = Remote::start("session", &[]);
        let daemon = remote.daemon("");
        let mut peer = daemon.peer();
        let call = peer.call(tool, "{}");
        let posted = remote.wait_for("tools/call", 1).remove(0);
        peer.cancel(call);
        let told = remote.wait_for("notifications/cancelled", 1).remove(0);
        assert_eq!(told["body"]["params"]["requestId"], posted["body"]["id"], "{tool}");
        assert_eq!(told["headers"]["mcp-session-id"], "session-1");
        assert_ne!(told["port"], posted["port"], "the stream of the call is read on");
        assert_eq!(proof(&daemon), expected, "{tool}");
        if tool == "hold" {
            remote.wait_closed(&posted["body"]["id"]);
        }
        assert_eq!(say(&mut peer, "echo", r#"{"text":"x"}"#), "x");
        assert_eq!(remote.wait_for("notifications/cancelled", 1).len(), 1);
        assert_eq!(remote.posts("initialize").len(), 1, "the session stays");
        assert!(remote.requests("DELETE").is_empty() && !peer.has_answer(call));
    }
}

/// REM-02, REM-03: a cancel closes the connection of a request without a session, and no other.
#[test]
fn cancel_closes_the_stream_of_a_request_without_a_session() {
    let remote = Remote::start("modern", &[]);
    let daemon = remote.daemon("");
    let mut peer = daemon.peer();
    let [first, second] =
        [1, 2].map(|number| peer.call("hold", &format!(r#"{{"number":{number}}}"#)));
    // On connections of their own they arrive in any order.
    let mut posts = remote.wait_for("tools/call", 2);
    posts.sort_by_key(|post| post["body"]["params"]["arguments"]["number"].as_u64());
    assert_ne!(posts[0]["port"], posts[1]["port"], "a connection for each running call");
    peer.cancel(first);
    assert_eq!(proof(&daemon), "stream_closed");
    remote.wait_closed(&posts[0]["body"]["id"]);
    assert!(remote.posts("notifications/cancelled").is_empty());
    assert!(remote.notes().iter().all(|it| it["closed"] != posts[1]["body"]["id"]));
    peer.cancel(second);
    remote.wait_closed(&posts[1]["body"]["id"]);
}

/// REM-01, REM-02, REM-03: clients of every revision call servers of every one, and their cancels become
/// those of the server, with its own id.
#[test]
fn revisions_of_clients_and_servers_may_differ() {
    for era in ["session", "modern", "sse"] {
        let remote = Remote::start(era, &[]);
        let daemon = remote.daemon("");
        for (at, revision) in REVISIONS.iter().enumerate() {
            let (mut peer, is_modern) = (daemon.connect(), *revision == "2026-07-28");
            if !is_modern {
                let begin = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "kit", "version": "0"}});
                let begun = peer.result("initialize", &begin.to_string());
                assert_eq!(begun["protocolVersion"], *revision);
                peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            }
            let params = |tool: &str, arguments: Value| {
                let mut params = json!({"name": tool, "arguments": arguments});
                if is_modern {
                    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(revision);
                    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
                }
                params.to_string()
            };
            let told = peer.result("tools/call", &params("echo", json!({"text": revision})));
            assert_eq!(told["content"][0]["text"], *revision, "{era}");
            let call = peer.request("tools/call", &params("hold", json!({})));
            let posted = remote.wait_for("tools/call", 2 * at + 2).remove(2 * at + 1);
            peer.cancel(call);
            let expected = if era == "modern" { "stream_closed" } else { "told" };
            assert_eq!(kit::proofs(&daemon, at + 1)[at], expected, "{era} {revision}");
            if era == "modern" {
                remote.wait_closed(&posted["body"]["id"]);
            } else {
                let told = remote.wait_for("notifications/cancelled", at + 1);
                assert_eq!(told[at]["body"]["params"]["requestId"], posted["body"]["id"], "{era}");
            }
            assert!(!peer.has_answer(call), "CAN-08: {era} {revision}");
        }
        let told = remote.posts("notifications/cancelled").len();
        assert_eq!(told, if era == "modern" { 0 } else { REVISIONS.len() }, "{era}");
    }
}

/// REM-03: an ignored cancel ends a session of one client, if the settings say so, or of one call.
#[test]
fn ignored_cancel_ends_the_session_where_it_may() {
    for (more, options, expected) in [
        ("on_ignored_cancel = \"replace\"", &[][..], "session_ended"),
        ("on_ignored_cancel = \"replace\"", &["stays"], "told"),
        ("share = \"call\"\nwarm = 0", &[], "session_ended"),
        ("on_ignored_cancel = \"replace\"\nshare = \"identity\"", &[], "told"),
    ] {
        let remote = Remote::start("session", options);
        let daemon = remote.daemon(more);
        let mut peer = daemon.peer();
        let call = peer.call("hold", "{}");
        let posted = remote.wait_for("tools/call", 1).remove(0);
        peer.cancel(call);
        assert_eq!(proof(&daemon), expected, "{more} {options:?}");
        let count = usize::from(!more.contains("identity"));
        wait_until("the session is ended", || remote.requests("DELETE").len() >= count);
        let ended = remote.requests("DELETE");
        assert_eq!(ended.len(), count, "{more}");
        for ended in ended {
            assert_eq!(ended["headers"]["mcp-session-id"], posted["headers"]["mcp-session-id"]);
        }
        assert_eq!(say(&mut peer, "echo", r#"{"text":"x"}"#), "x", "a new session serves on");
    }
}

/// REM-04: a forgotten session is begun anew, and the call that met the loss is made in it.
#[test]
fn forgotten_session_is_begun_anew() {
    let remote = Remote::start("session", &[]);
    let daemon = remote.daemon("");
    let mut peer = daemon.peer();
    assert_eq!(say(&mut peer, "forget", "{}"), "forgotten");
    assert_eq!(say(&mut peer, "echo", r#"{"text":"again"}"#), "again");
    let begun = remote.wait_for("initialize", 2);
    assert_eq!(begun.len(), 2);
    assert!(begun[1]["headers"].get("mcp-session-id").is_none());
    assert!(remote.requests("DELETE").is_empty(), "a session that is not there is not ended");
}

/// REM-04: a broken stream with an event id is resumed behind it.
#[test]
fn broken_stream_is_resumed() {
    let remote = Remote::start("session", &[]);
    let daemon = remote.daemon("");
    let mut peer = daemon.peer();
    assert_eq!(say(&mut peer, "resume", "{}"), "resumed");
    let resumed = || {
        let got = remote.requests("GET").into_iter();
        got.filter(|it| it["headers"]["last-event-id"] == "e1").count()
    };
    wait_until("the stream is resumed", || resumed() > 0);
    assert_eq!(resumed(), 1);
    assert_eq!(remote.wait_for("tools/call", 1).len(), 1, "the call is not made again");
}

/// REM-04: a call that was cut off has an unknown outcome, unless it may be made twice.
#[test]
fn cut_call_is_made_again_only_if_it_may_be() {
    for era in ["session", "modern"] {
        let remote = Remote::start(era, &[]);
        let daemon = remote.daemon("");
        let mut peer = daemon.peer();
        let told = error(&mut peer, "drop", "{}");
        assert!(told.contains("the outcome of the call is unknown"), "{told}");
        assert_eq!(remote.wait_for("tools/call", 1).len(), 1);

        let remote = Remote::start(era, &["idempotent"]);
        let daemon = remote.daemon("");
        let mut peer = daemon.peer();
        names(&mut peer);
        assert_eq!(say(&mut peer, "drop", "{}"), "second");
        assert_eq!(remote.wait_for("tools/call", 2).len(), 2);
    }
}

/// REM-01: messages of a server that belong to no request arrive by its stream.
#[test]
fn messages_of_the_server_arrive() {
    let remote = Remote::start("session", &["listens"]);
    let daemon = remote.daemon("");
    let mut peer = daemon.peer();
    names(&mut peer);
    wait_until("the stream is asked for", || !remote.requests("GET").is_empty());
    let lists = remote.posts("tools/list").len();
    assert_eq!(say(&mut peer, "say", "{}"), "said");
    remote.wait_for("tools/list", lists + 1);
}

/// REM-05: redirects are followed within the origin alone.
#[test]
fn redirect_to_another_origin_is_refused() {
    let remote = Remote::start("session", &[]);
    let base = format!("http://127.0.0.1:{}", remote.port);
    let daemon = remote.daemon_at(&format!("{base}/moved"), "");
    assert_eq!(say(&mut daemon.peer(), "echo", r#"{"text":"x"}"#), "x");
    let daemon = remote.daemon_at(&format!("{base}/away"), "");
    let told = error(&mut daemon.peer(), "echo", "{}");
    assert!(told.contains("169.254.169.254") && told.contains("not followed"), "{told}");
}

/// Credentials come from files, nothing of the client's goes upstream (REM-05), and a refusal says
/// the remedy.
#[test]
fn token_of_a_file_is_sent() {
    let remote = Remote::start("session", &["token"]);
    let home = Home::new();
    let path = home.path().join("token");
    kit::write_secret(&path, "secret\n");
    let more = format!("token_file = {path:?}\nheaders = {{ X-Team = \"one\" }}");
    kit::configure(&home, &remote.url(), &more);
    let daemon = Daemon::start_in(home);
    assert_eq!(say(&mut daemon.peer(), "echo", r#"{"text":"x"}"#), "x");
    let call = remote.wait_for("tools/call", 1).remove(0);
    assert_eq!(call["headers"]["x-team"], "one");
    let daemon = remote.daemon("");
    let told = error(&mut daemon.peer(), "echo", "{}");
    assert!(told.contains("HTTP 401") && told.contains("ceased login far"), "{told}");
}

/// A server that is not there fails its calls with the address and the reason, and holds up no
/// other.
#[test]
fn missing_server_is_told() {
    let remote = Remote::start("session", &[]);
    let daemon = remote.daemon_at("http://127.0.0.1:9/mcp", "");
    let told = error(&mut daemon.peer(), "echo", "{}");
    assert!(told.contains("127.0.0.1:9") && told.contains("refused"), "{told}");
}

/// REM-01: HTTP on a Unix socket.
#[test]
fn server_behind_a_unix_socket_is_called() {
    let home = Home::new();
    let path = home.path().join("far.sock");
    let remote = Remote::start("session", &[path.to_str().unwrap()]);
    kit::configure(&home, &format!("unix:{}", path.display()), "");
    let daemon = Daemon::start_in(home);
    let mut peer = daemon.peer();
    assert_eq!(say(&mut peer, "echo", r#"{"text":"x"}"#), "x");
    assert_eq!(remote.wait_for("tools/call", 1)[0]["path"], "/mcp");
}

/// REM-05: certificates are verified against `ca_file`; an expired one, one of another name and one
/// of an unknown authority are refused, each with its reason.
#[test]
fn certificates_are_verified() {
    let Some(made) = Certificates::new() else { return };
    let ca = format!("ca_file = {:?}", made.path("ca.pem"));
    let good = made.signed("good", "IP:127.0.0.1", 2049);
    let old = made.signed("old", "IP:127.0.0.1", 2021);
    let other = made.signed("other", "DNS:example.org", 2049);
    let own = made.authority("own");
    for (certificate, more, why) in [
        (&good, &*ca, None),
        (&good, "", Some("no authority that is trusted")),
        (&old, &ca, Some("has expired")),
        (&other, &ca, Some("is for example.org")),
        (&own, &ca, Some("(self-signed, CA:TRUE)")),
    ] {
        let remote = Remote::start("modern", &[&format!("tls:{}", certificate.display())]);
        let daemon = remote.daemon_at(&format!("https://127.0.0.1:{}/mcp", remote.port), more);
        let mut peer = daemon.peer();
        match why {
            None => {
                assert_eq!(say(&mut peer, "echo", r#"{"text":"x"}"#), "x");
                let call = peer.call("hold", "{}");
                let posted = remote.wait_for("tools/call", 2).remove(1);
                peer.cancel(call);
                assert_eq!(proof(&daemon), "stream_closed");
                remote.wait_closed(&posted["body"]["id"]);
            }
            Some(why) => {
                let told = error(&mut peer, "echo", "{}");
                assert!(told.contains(why), "{told}");
                assert!(remote.notes().is_empty(), "no request is sent");
            }
        }
    }
}

/// Keys about processes have no meaning with a URL, and `ceased check` says so.
#[test]
fn keys_of_commands_are_refused_with_a_url() {
    let home = Home::new();
    let more = "command = [\"x\"]\nrun_as = \"daemon\"\nmemory_max = \"1GiB\"\nkill_grace = \"1s\"";
    kit::configure(&home, "https://example.org/mcp", more);
    let checked =
        Command::new(ceased()).arg("check").arg("--config").arg(home.config_path()).output();
    let checked = checked.unwrap();
    let text = String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success());
    for key in ["command", "run_as", "memory_max", "kill_grace"] {
        let what = format!("`{key}` in [[server]] has no meaning for a server with `url`");
        assert!(text.contains(&what), "{text}");
    }
}

/// `import` and `--mcp-servers` take entries with a URL and headers.
#[test]
fn entries_of_hosts_are_taken() {
    let home = Home::new();
    home.configure_as(&format!("[[listen]]\ntransport = \"unix\"\npath = {:?}\n", home.socket()));
    let remote = Remote::start("session", &["token"]);
    let file = home.path().join("mcp.json");
    let entries = json!({"mcpServers": {
        "far": {"type": "http", "url": remote.url(), "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}},
        "missing": {"url": "https://example.org/mcp", "headers": {"X-Key": "${input:key}"}},
    }});
    std::fs::write(&file, entries.to_string()).unwrap();
    let imported = Command::new(ceased()).arg("import").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&imported.stdout);
    assert!(text.contains(&format!("url = {:?}", remote.url())), "{text}");
    assert!(text.contains("Bearer ${FAR_TOKEN}"), "{text}");
    let mut command = home.command(&["serve", "--mcp-servers", file.to_str().unwrap()]);
    command.env("FAR_TOKEN", "secret");
    let daemon = Daemon::start_with(home, command);
    assert!(daemon.home.log().contains("only the host can fill in ${input:key}"));
    assert_eq!(say(&mut daemon.peer(), "echo", r#"{"text":"x"}"#), "x");
}

/// Calls that a server does not answer hold its own places: those of another server and of a tool go on
/// with a single worker, and the end of one lets the next begin.
#[test]
fn server_without_answers_holds_up_no_other() {
    let (silent, other) = (Remote::start("modern", &[]), Remote::start("session", &[]));
    let more = format!(
        "prefix = \"far.\"\nmax_running = 3\nmax_running_per_identity = 2\n\
         [[server]]\nname = \"near\"\nurl = {:?}\n[[tool]]\nname = \"sleep\"\nbuiltin = \"sleep\"\n\
         [daemon]\nworkers = 1",
        other.url()
    );
    let daemon = silent.daemon(&more);
    let mut peer = daemon.peer();
    assert!(names(&mut peer).iter().any(|name| name == "far.hold"));
    let held: Vec<u64> = (0..3).map(|_| peer.call("far.hold", "{}")).collect();
    assert_eq!(silent.wait_for("tools/call", 2).len(), 2);
    assert_eq!(say(&mut peer, "near_echo", r#"{"text":"near"}"#), "near");
    let slept = peer.call("sleep", r#"{"ms":1}"#);
    assert!(peer.answer(slept)["result"].is_object());
    assert_eq!(silent.posts("tools/call").len(), 2, "the third call waits");
    let status = daemon.status();
    let counts = ["running", "relayed", "queued"].map(|name| status[name].as_u64());
    assert_eq!(counts, [Some(2), Some(2), Some(1)]);
    peer.cancel(held[0]);
    silent.wait_for("tools/call", 3);
}
