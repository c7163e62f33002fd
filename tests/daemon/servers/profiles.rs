//! Profiles: lists, calls, prompts and resources are one decision (AUTH-03).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Daemon, Program, Ran};
use serde_json::{Value, json};

use super::kit::Place;

const TOKENS: [(&str, &str); 3] = [
    ("ann", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("bob", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
    ("cid", "cccccccccccccccccccccccccccccccc"),
];

const PROFILES: &str = r#"
[[profile]]
name = "read"
servers = ["a"]
tools = ["pid", "a_echo", "own_*"]
allow = ["token:ann", "token:bob"]
[[profile]]
name = "write"
servers = ["a", "b"]
hide = ["die", "b_pid"]
allow = ["token:bob"]
"#;

fn run(daemon: &Daemon, args: &[&str]) -> Ran {
    Program::start(&daemon.home, daemon.home.command(args)).wait()
}

fn start(place: &Place) -> Daemon {
    let tokens = place.home.path().join("tokens");
    let lines = TOKENS.map(|(name, token)| format!("{name} {token}\n")).concat();
    fs::write(&tokens, lines).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let listen = format!(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\ntoken_file = {tokens:?}\n"
    );
    let own = "[[tool]]\nname = \"own_echo\"\nbuiltin = \"echo\"\n\
               [[tool]]\nname = \"own_rootless\"\ncommand = [\"true\"]\n\
               [[tool]]\nname = \"hidden\"\nbuiltin = \"echo\"\n";
    let run_as = "run_as = \"daemon\"";
    let servers = place.server("a", run_as) + &place.server("b", run_as);
    let mine = format!(
        "[[profile]]\nname = \"mine\"\nservers = [\"a\"]\ntools = [\"a_echo\"]\nallow = [\"user:{}\"]\n",
        rustix::process::getuid().as_raw()
    );
    place.start(&format!("{listen}{own}{servers}{PROFILES}{mine}"))
}

fn ask(daemon: &Daemon, token: &str, path: &str, method: &str, params: &Value) -> (u16, Value) {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let mut params = params.clone();
    params["_meta"] = meta;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let bearer = format!("Bearer {token}");
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    if !name.is_empty() {
        headers.push(("mcp-name", name));
    }
    let mut http = Http::tcp(daemon.http_address());
    http.request(&format!("POST {path}"), &headers, &body);
    let reply = http.reply();
    (reply.status, serde_json::from_str(&reply.body).unwrap_or_default())
}

fn listed(daemon: &Daemon, token: &str, path: &str) -> BTreeSet<String> {
    let (status, answer) = ask(daemon, token, path, "tools/list", &json!({}));
    assert_eq!(status, 200, "{answer}");
    let tools = answer["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// AUTH-03: for every caller and path the list has exactly the tools that a call finds.
#[test]
fn list_has_what_a_call_permits() {
    let place = Place::new();
    let daemon = start(&place);
    let all = ["pid", "echo", "env", "where", "stray", "wait", "say", "garbage", "die"];
    let whole = |server: &str, hide: &[&str]| -> BTreeSet<String> {
        let kept = all.iter().filter(|name| !hide.contains(name));
        kept.map(|name| format!("{server}_{name}")).collect()
    };
    let mut read: BTreeSet<String> = ["a_pid", "a_echo", "own_echo"].map(Into::into).into();
    if !rustix::process::geteuid().is_root() {
        // A daemon of root has no user to run it as for a token.
        read.insert("own_rootless".into());
    }
    let write: BTreeSet<String> = &whole("a", &["die"]) | &whole("b", &["die", "pid"]);
    let known: BTreeSet<String> = &(&whole("a", &[]) | &whole("b", &[]))
        | &["own_echo", "own_rootless", "hidden"].map(Into::into).into();
    let [ann, bob, cid] = TOKENS.map(|(_, token)| token);
    for (token, path, expected) in [
        (ann, "/mcp", read.clone()),
        (ann, "/mcp/read", read.clone()),
        (bob, "/mcp", &read | &write),
        (bob, "/mcp/read", read.clone()),
        (bob, "/mcp/write", write.clone()),
        (cid, "/mcp", BTreeSet::new()),
    ] {
        assert_eq!(listed(&daemon, token, path), expected, "{token} {path}");
        for name in &known {
            let arguments = match name.ends_with("echo") {
                true => json!({"text": "x"}),
                false => json!({"file": "/", "text": "x", "mark": "0"}),
            };
            if !expected.contains(name) {
                let params = json!({"name": name, "arguments": arguments});
                let (_, answer) = ask(&daemon, token, path, "tools/call", &params);
                let message = answer["error"]["message"].as_str().unwrap_or_default();
                let has_no_user = *name == "own_rootless" && message.contains("run_as");
                let is_absent = has_no_user || message.contains("there is no tool");
                assert!(is_absent, "{token} {path} {name}: {answer}");
            } else if name.ends_with("echo") || name.ends_with("pid") {
                let params = json!({"name": name, "arguments": arguments});
                let (status, answer) = ask(&daemon, token, path, "tools/call", &params);
                assert!(status == 200 && answer["result"]["isError"] != true, "{name}: {answer}");
            }
        }
    }
    for (token, path) in [(ann, "/mcp/write"), (cid, "/mcp/read"), (bob, "/mcp/none")] {
        let (status, answer) = ask(&daemon, token, path, "tools/list", &json!({}));
        assert_eq!(status, 404, "{token} {path}: {answer}");
    }
}

/// AUTH-03: prompts and resources are those of the servers of the profiles.
#[test]
fn prompts_and_resources_are_of_seen_servers() {
    let place = Place::new();
    let daemon = start(&place);
    let [ann, bob, cid] = TOKENS.map(|(_, token)| token);
    for (token, path, prompts) in [
        (ann, "/mcp", vec!["a_greet"]),
        (bob, "/mcp/write", vec!["a_greet", "b_greet"]),
        (cid, "/mcp", vec![]),
    ] {
        listed(&daemon, token, path);
        let (_, answer) = ask(&daemon, token, path, "prompts/list", &json!({}));
        let names = answer["result"]["prompts"].as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, prompts, "{token} {path}");
        for server in ["a", "b"] {
            let params = json!({"uri": format!("t://{server}")});
            let (_, answer) = ask(&daemon, token, path, "resources/read", &params);
            let by = &answer["result"]["by"];
            let is_seen = prompts.contains(&format!("{server}_greet").as_str());
            assert_eq!(*by == server, is_seen, "{token} {path} {server}: {answer}");
        }
    }
}

/// AUTH-03: `ceased check --as` shows the decision, and `connect --profile` takes a profile of the
/// caller alone.
#[test]
fn view_of_a_caller_is_checked_beforehand() {
    let place = Place::new();
    let daemon = start(&place);
    let config = daemon.home.config_path();
    let check = |caller: &str| {
        run(&daemon, &["check", "--as", caller, "--config", config.to_str().unwrap()])
    };
    let ran = check("token:ann");
    let view = ran.out.split("token:ann sees").nth(1).unwrap_or_else(|| panic!("{ran:?}"));
    for (text, is_there) in
        [("profile read", true), ("tool own_echo", true), ("server a", true), ("hidden", false)]
    {
        assert_eq!(view.contains(text), is_there, "{text}: {ran:?}");
    }
    assert!(!view.contains("server b") && !view.contains("profile write"), "{view}");
    // Single tools of servers, as far as the daemon has met them.
    let unknown = "the tools of a, b are not known yet";
    assert!(view.contains(unknown), "{view}");
    let ran = run(&daemon, &["tools", "--profile", "mine"]);
    assert!(
        ran.code == Some(0) && ran.out.contains("a_echo") && !ran.out.contains("a_pid"),
        "{ran:?}"
    );
    let ran = run(&daemon, &["tools", "--profile", "read"]);
    assert!(ran.code == Some(2) && ran.err.contains("there is no profile"), "{ran:?}");
    // The server has told its tools by now.
    ceased_tests::daemon::wait_until("its tools are kept", || {
        check("token:bob").out.contains("tool a_echo")
    });
    let ran = check("token:bob");
    for (text, is_there) in
        [("tool a_pid\n", true), ("tool a_die\n", false), ("tools of b are", true)]
    {
        assert_eq!(ran.out.contains(text), is_there, "{text}: {ran:?}");
    }
    let ran = check("token:cid");
    assert!(ran.out.contains("token:cid sees\n  nothing"), "{ran:?}");
    let ran = check("cid");
    assert!(ran.code == Some(2) && ran.err.contains("is no caller"), "{ran:?}");
    let ran = run(&daemon, &["connect", "--profile", "read"]);
    assert!(ran.code == Some(2) && ran.err.contains("there is no profile"), "{ran:?}");
}
