//! `[[server]]`: existing MCP servers behind the daemon (UPS-06 to UPS-15).

mod bounds;
mod crowd;
pub(crate) mod kit;
pub(crate) mod login;
mod profiles;
mod relay;
mod upstream_manifests;
mod views;
pub(crate) mod wrap;
mod wrap_options;
mod wrap_stderr;

use std::fs;

use ceased_tests::daemon::{Config, Daemon, Signal, wait_until};
use serde_json::json;

use self::kit::{Place, error, names, say};

/// UPS-11: with several sources of tools each server has a prefix, and calls, prompts and
/// resources reach the server that they name.
#[test]
fn several_servers_are_offered_with_prefixes() {
    let place = Place::new();
    let daemon = place.start(&(place.server("a", "") + &place.server("b", "prefix = \"x.\"")));
    let mut peer = daemon.peer();
    let all = names(&mut peer);
    for name in ["hang", "a_pid", "a_echo", "x.pid", "x.echo"] {
        assert!(all.iter().any(|there| there == name), "{name} is not in {all:?}");
    }
    assert!(!all.iter().any(|name| name == "pid"), "{all:?}");
    assert_eq!(say(&mut peer, "a_echo", r#"{"text":"one"}"#), "one");
    assert_ne!(say(&mut peer, "a_pid", "{}"), say(&mut peer, "x.pid", "{}"));
    let prompts = peer.result("prompts/list", "{}")["prompts"].clone();
    assert_eq!(prompts, json!([{"name": "a_greet"}, {"name": "x.greet"}]));
    let got = peer.result("prompts/get", r#"{"name":"x.greet"}"#);
    assert_eq!((&got["by"], &got["params"]["name"]), (&json!("b"), &json!("greet")));
    assert!(error(&mut peer, "b_pid", "{}").contains("b_pid"));
    let resources = peer.result("resources/list", "{}")["resources"].clone();
    let uris: Vec<_> = resources.as_array().unwrap().iter().map(|it| it["uri"].clone()).collect();
    assert!(uris.contains(&json!("t://a")) && uris.contains(&json!("t://b")), "{resources}");
    assert_eq!(peer.result("resources/read", r#"{"uri":"t://b"}"#)["by"], "b");
}

/// UPS-11: one server alone keeps the names of its tools.
#[test]
fn only_server_keeps_its_names() {
    let place = Place::new();
    let daemon =
        place.start_alone(&place.server("a", "tools = [\"p*\", \"echo\"]\nhide = [\"e*\"]"));
    let mut peer = daemon.peer();
    assert_eq!(names(&mut peer), ["pid"]);
    say(&mut peer, "pid", "{}");
    error(&mut peer, "echo", r#"{"text":"hidden"}"#);
}

/// A reload keeps the instances of unchanged servers, lets those of a changed one finish their
/// requests, and starts those of a new one.
#[test]
fn reload_keeps_instances_of_unchanged_servers() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.server(name, ""));
    let daemon = place.start(&format!("{a}{b}"));
    let mut peer = daemon.peer();
    let (of_a, of_b) = (say(&mut peer, "a_pid", "{}"), say(&mut peer, "b_pid", "{}"));
    let file = place.home.path().join("go");
    let waiting = peer.call("b_wait", &json!({"file": file}).to_string());
    place.configure(&(a.clone() + &place.server("b", "timeout = \"5m\"") + &place.server("c", "")));
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
    assert_eq!(say(&mut peer, "a_pid", "{}"), of_a);
    assert_ne!(say(&mut peer, "b_pid", "{}"), of_b, "a changed server has a new instance");
    say(&mut peer, "c_pid", "{}");
    assert!(!peer.has_answer(waiting));
    fs::write(&file, "").unwrap();
    assert_eq!(peer.text(waiting), "done", "the old instance finishes its request");
    wait_until("the old instance has ended", || place.processes() == 3);

    place.configure(&a);
    daemon.signal(Signal::HUP);
    wait_until("the instances of the others have ended", || place.processes() == 1);
    assert_eq!(say(&mut peer, "a_pid", "{}"), of_a);
    error(&mut peer, "b_pid", "{}");
}

/// A wrong file changes nothing, and names both servers of a clash.
#[test]
fn clash_rejects_the_reload() {
    let place = Place::new();
    let a = place.server("a", "");
    let daemon = place.start(&a);
    let mut peer = daemon.peer();
    let pid = say(&mut peer, "a_pid", "{}");
    place.configure(&(a + &place.server("b", "prefix = \"a_\"")));
    daemon.signal(Signal::HUP);
    wait_until("the log names the clash", || {
        let log = daemon.home.log().replace('\\', "");
        log.contains("the servers \"a\" and \"b\" have the same prefix \"a_\"")
    });
    assert_eq!(say(&mut peer, "a_pid", "{}"), pid);
}

/// UPS-13: a clean environment, the variables of the entry, its directory and its user.
#[test]
fn processes_get_what_their_entry_names() {
    let place = Place::new();
    let secrets = place.home.path().join("secrets.env");
    fs::write(&secrets, "FROM_FILE=f\nBOTH=f\n").unwrap();
    let more = format!(
        "cwd = \"/\"\nenv = {{ BOTH = \"e\" }}\npass_env = [\"TEST_PASSED\"]\nenv_file = {secrets:?}"
    );
    place.configure_alone(&place.server("a", &more));
    let mut command = place.home.command(&["serve"]);
    command.env("TEST_PASSED", "p").env("TEST_PLAIN", "no").env("CEASED_TOKEN", "secret");
    let daemon = Daemon::start_with(place.home.clone(), command);
    let mut peer = daemon.peer();
    let call = peer.call("env", "{}");
    let env = peer.answer(call)["result"]["structuredContent"].clone();
    let found = ["TEST_PASSED", "FROM_FILE", "BOTH"].map(|name| env[name].clone());
    assert_eq!(found, ["p", "f", "e"].map(|value| json!(value)));
    assert!(env["PATH"].is_string(), "{env}");
    assert!(env["TEST_PLAIN"].is_null() && env["CEASED_TOKEN"].is_null(), "{env}");
    let us = rustix::process::getuid().as_raw();
    assert_eq!(say(&mut peer, "where", "{}"), format!("/ {us}"));
}

/// Instances belong to a connection, to an identity or to a call.
#[test]
fn instances_are_shared_as_configured() {
    let place = Place::new();
    let servers = place.server("conn", "")
        + &place.server("id", "share = \"identity\"")
        + &place.server("call", "share = \"call\"\nwarm = 1\nrun_as = \"daemon\"");
    let daemon = place.start(&servers);
    let (mut one, mut two) = (daemon.peer(), daemon.peer());
    let mut pids = |tool: &str| [&mut one, &mut two].map(|peer| say(peer, tool, "{}"));
    let [first, second] = pids("conn_pid");
    assert_ne!(first, second);
    assert_eq!(pids("conn_pid"), [first, second]);
    let [first, second] = pids("id_pid");
    assert_eq!(first, second);
    let [first, second] = pids("call_pid");
    assert_ne!(first, second);
    assert!(!pids("call_pid").contains(&first));
    drop(two);
    wait_until("the instance of the connection has ended", || {
        // One of the other connection, one of the identity, one that waits warm.
        place.processes() == 3
    });
}

/// `allow` hides a server, and its processes run as their caller.
#[test]
fn server_runs_as_its_caller() {
    let place = Place::new();
    let more = "run_as = \"peer\"\nallow = [\"uid:1\"]";
    let daemon = place.start_alone(&place.server("a", more));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::set_permissions(place.home.path(), open).unwrap();
    assert_eq!(names(&mut daemon.peer()), Vec::<String>::new());
    error(&mut daemon.peer(), "where", "{}");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(daemon.socket(), open).unwrap();
    let Some(mut peer) = daemon.peer_of(1) else { return };
    assert!(say(&mut peer, "where", "{}").ends_with(" 1"));
}

/// UPS-08: a server that dies at each start is answered with its last lines, and others go on.
#[test]
fn server_that_cannot_start_harms_no_other() {
    let place = Place::new();
    let servers = place.server("good", "") + &place.server_with("bad", &["fail"], "");
    let daemon = place.start(&servers);
    let mut peer = daemon.peer();
    assert!(names(&mut peer).contains(&"good_pid".to_owned()));
    let why = error(&mut peer, "bad_pid", "{}");
    assert!(why.contains("exit code 1") && why.contains("cannot start"), "{why}");
    say(&mut peer, "good_pid", "{}");
    assert!(place.starts("bad") <= 2, "a server that fails backs off: {}", place.starts("bad"));
}

/// `ceased check` lists servers with their prefixes, and no value of a variable.
#[test]
fn check_lists_servers() {
    let place = Place::new();
    place.configure(&place.server("a", "env = { TOKEN = \"s3cret\" }"));
    let output = place.home.command(&["check"]).stdout(std::process::Stdio::piped()).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(output.contains("server a") && output.contains("prefix \"a_\""), "{output}");
    assert!(output.contains("env TOKEN") && !output.contains("s3cret"), "{output}");
}

/// The daemon of `Config::default()` has no server, and says nothing of servers.
#[test]
fn daemon_without_servers_starts_none() {
    let daemon = Daemon::start(&Config::default());
    assert!(!names(&mut daemon.peer()).iter().any(|name| name.contains("pid")));
}

/// `--mcp-servers` takes a host's file as it is, beside the configuration, and a reload reads it
/// again.
#[test]
fn hosts_file_is_served_as_it_is() {
    let place = Place::new();
    let file = place.home.path().join("mcp.json");
    let entry = |name: &str| {
        let args = json!(["-S", place.script(), name, place.home.path(), place.mark]);
        json!({"command": "python3", "args": args, "env": {"A": "${TEST_A}"}})
    };
    let write = |servers: serde_json::Value| {
        fs::write(&file, json!({"mcpServers": servers}).to_string()).unwrap();
    };
    write(json!({"one": entry("one"), "web": {"type": "ws", "url": "wss://example.org"}}));
    place.configure("");
    let mut command = place.home.command(&["serve", "--mcp-servers"]);
    command.arg(&file).env("TEST_A", "filled in");
    let daemon = Daemon::start_with(place.home.clone(), command);
    let mut peer = daemon.peer();
    let call = peer.call("one_env", "{}");
    assert_eq!(peer.answer(call)["result"]["structuredContent"]["A"], "filled in");
    assert!(daemon.home.log().contains("web (line 1) is left out"), "{}", daemon.home.log());
    let pid = say(&mut peer, "one_pid", "{}");
    write(json!({"one": entry("one"), "two": entry("two")}));
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
    say(&mut peer, "two_pid", "{}");
    assert_eq!(say(&mut peer, "one_pid", "{}"), pid);
    fs::write(&file, "{").unwrap();
    daemon.signal(Signal::HUP);
    wait_until("the log has the reason", || daemon.home.log().contains("not valid JSON"));
    assert_eq!(say(&mut peer, "one_pid", "{}"), pid);
}

/// A connection that is limited to one server sees its tools without the prefix, its name and its
/// instructions, and nothing else; one that is limited to several sees these.
#[test]
fn scope_shows_its_servers_alone() {
    let place = Place::new();
    let servers = ["a", "b", "c"].map(|name| place.server(name, "")).concat();
    let daemon = place.start(&servers);
    let mut one = daemon.connect();
    one.result("ceased/scope", r#"{"servers":["b"]}"#);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let shown = one.result("initialize", &params.to_string());
    assert_eq!(shown["serverInfo"]["name"], "scripted b", "{shown}");
    assert_eq!(shown["instructions"], "Use b");
    let all = names(&mut one);
    assert!(all.contains(&"pid".to_owned()) && !all.contains(&"hang".to_owned()), "{all:?}");
    say(&mut one, "pid", "{}");
    for hidden in ["hang", "a_pid", "b_pid"] {
        error(&mut one, hidden, "{}");
    }
    assert_eq!(one.result("prompts/list", "{}")["prompts"], json!([{"name": "greet"}]));
    let resources = one.result("resources/list", "{}")["resources"].clone();
    assert_eq!(resources, json!([{"uri": "t://b", "name": "b"}]));
    assert_eq!((place.starts("a"), place.starts("c")), (0, 0), "others are not started");

    let mut two = daemon.connect();
    two.result("ceased/scope", r#"{"servers":["a","c"]}"#);
    two.initialize();
    let all = names(&mut two);
    assert!(all.contains(&"a_pid".to_owned()) && all.contains(&"c_pid".to_owned()), "{all:?}");
    assert!(all.iter().all(|name| name.starts_with("a_") || name.starts_with("c_")), "{all:?}");
    error(&mut two, "b_pid", "{}");

    let mut wrong = daemon.connect();
    let id = wrong.request("ceased/scope", r#"{"servers":["nope"]}"#);
    let why = wrong.answer(id)["error"]["message"].to_string();
    assert!(why.contains("nope") && why.contains("a, b, c"), "{why}");
}

/// An eager server starts with its connection, one whose instances wait for calls with the daemon.
#[test]
fn eager_servers_start_at_once() {
    let place = Place::new();
    let call = "share = \"call\"\nstart = \"eager\"\nwarm = 2\nrun_as = \"daemon\"";
    let servers = place.server("warm", call) + &place.server("conn", "start = \"eager\"");
    let daemon = place.start(&(servers + &place.server("lazy", "")));
    wait_until("two instances wait", || place.starts("warm") == 2);
    assert_eq!(place.starts("conn"), 0);
    let _peer = daemon.peer();
    wait_until("the instance of the connection starts", || place.starts("conn") == 1);
    assert_eq!(place.starts("lazy"), 0);
}
