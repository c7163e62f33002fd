//! Features of existing servers of both eras through the daemon, for clients of both eras over
//! Streamable HTTP (UPS-10, UPS-12, UPS-15).

use std::fs;
use std::path::PathBuf;

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Config, Daemon, Home, Peer, marker, wait_until};
use serde_json::{Value, json};

use crate::http::kit::{Session, connect, headers};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const ABLE: &str = "io.modelcontextprotocol/clientCapabilities";
const TASKS: &str = "io.modelcontextprotocol/tasks";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// A server of the era that its first argument names, with every feature. `change` says that the
/// tools have changed, `update` that a resource was updated, `log` logs, `touch` writes a file, `work`
/// is a task of the extension where the client may have one, `pid` is the process.
const SERVER: &str = r#"
import json, os, sys
modern = sys.argv[1] == "modern"
META = "io.modelcontextprotocol/"
listens, watched, tasks = {}, set(), {}
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def answer(id, result):
    send({"id": id, "result": {"resultType": "complete", **result} if modern else result})
def text(id, text):
    answer(id, {"content": [{"type": "text", "text": text}]})
def note(method, params, wants):
    if not modern:
        return send({"method": method, "params": params})
    for listen, topics in listens.items():
        if wants(topics):
            send({"method": method, "params": {**params, "_meta": {META + "subscriptionId": listen}}})
def call(id, params):
    tool, arguments, meta = params["name"], params.get("arguments") or {}, params.get("_meta", {})
    if tool == "pid":
        text(id, str(os.getpid()))
    elif tool == "touch":
        open(arguments["file"], "w").close()
        text(id, "touched")
    elif tool == "change":
        note("notifications/tools/list_changed", {}, lambda topics: topics.get("toolsListChanged"))
        text(id, "changed")
    elif tool == "update":
        uri = arguments["uri"]
        if modern or uri in watched:
            note("notifications/resources/updated", {"uri": uri}, lambda topics: uri in topics.get("resourceSubscriptions", []))
        text(id, "updated")
    elif tool == "log":
        if not modern or META + "logLevel" in meta:
            send({"method": "notifications/message", "params": {"level": "warning", "data": "a message"}})
        text(id, "logged")
    elif tool == "work":
        able = meta.get(META + "clientCapabilities", {}).get("extensions", {})
        if META + "tasks" not in able:
            return text(id, "plain")
        tasks["t"] = 0
        answer(id, {"resultType": "task", **state("working")})
def state(status):
    now = "2026-01-01T00:00:00Z"
    return {"taskId": "t", "status": status, "createdAt": now, "lastUpdatedAt": now, "ttlMs": None, "pollIntervalMs": 50}
CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}, "logging": {}}
NAMES = ["pid", "touch", "change", "update", "log", "work"]
LISTS = {
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
    "resources/list": {"resources": [{"uri": "t://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "t://{x}", "name": "t"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "server/discover" and modern:
        answer(id, {"supportedVersions": ["2026-07-28"], "capabilities": {**CAPABILITIES, "extensions": {META + "tasks": {}}}})
    elif method == "initialize" and not modern:
        answer(id, {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": {"name": "s", "version": "1"}})
    elif method in LISTS:
        answer(id, LISTS[method])
    elif method == "prompts/get":
        answer(id, {"messages": [{"role": "user", "content": {"type": "text", "text": params["arguments"]["who"]}}], "odd": 1.5})
    elif method == "resources/read":
        answer(id, {"contents": [{"uri": params["uri"], "text": "content of " + params["uri"]}]})
    elif method == "completion/complete":
        answer(id, {"completion": {"values": [params["argument"]["value"] + "!"]}})
    elif method == "tools/call":
        call(id, params)
    elif method == "subscriptions/listen" and modern:
        listens[id] = params["notifications"]
        send({"method": "notifications/subscriptions/acknowledged", "params": {"_meta": {META + "subscriptionId": id}, "notifications": listens[id]}})
    elif method == "notifications/cancelled":
        listens.pop(params["requestId"], None)
    elif method in ("resources/subscribe", "resources/unsubscribe") and not modern:
        (watched.add if method.endswith("/subscribe") else watched.discard)(params["uri"])
        answer(id, {})
    elif method in ("logging/setLevel", "ping") and not modern:
        answer(id, {})
    elif method == "tasks/get" and modern:
        tasks["t"] += 1
        done = {"result": {"content": [{"type": "text", "text": "worked"}]}} if tasks["t"] > 2 else {}
        answer(id, {**state("completed" if done else "working"), **done})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "no " + method}})
"#;

/// A daemon with an HTTP listener and one server of this era; `more` is further lines of its entry.
fn daemon(era: &str, more: &str) -> Daemon {
    let home = Home::new();
    let script: PathBuf = home.path().join("features.py");
    fs::write(&script, SERVER).unwrap();
    let mark = marker();
    let tools = format!(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [[server]]\nname = \"s\"\nprefix = \"\"\nrun_as = \"daemon\"\n\
         command = [\"python3\", \"-S\", {script:?}, {era:?}, {mark:?}]\n{more}\n"
    );
    home.configure(&Config { tools: &tools, ..Config::default() });
    Daemon::start_in(home)
}

/// A client of one era over HTTP.
trait Client {
    /// Sends a request, and leaves its response to be read.
    fn begin(&mut self, method: &str, params: Value) -> Http;

    /// The result of a request.
    fn result(&mut self, method: &str, params: Value) -> Value {
        let answer = self.begin(method, params).answer();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn say(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.result("tools/call", json!({"name": tool, "arguments": arguments}));
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{result}")).to_owned()
    }
}

struct OfSession<'a> {
    daemon: &'a Daemon,
    session: Session,
    id: u64,
}

impl Client for OfSession<'_> {
    fn begin(&mut self, method: &str, params: Value) -> Http {
        self.id += 1;
        let body = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.session.post(self.daemon, &body.to_string())
    }
}

struct Stateless<'a> {
    daemon: &'a Daemon,
    capabilities: Value,
    id: u64,
}

impl Client for Stateless<'_> {
    /// Each request comes by a connection of its own.
    fn begin(&mut self, method: &str, mut params: Value) -> Http {
        self.id += 1;
        let meta = json!({VERSION: "2026-07-28", ABLE: self.capabilities, LEVEL: "info"});
        params["_meta"] = meta;
        let body = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        let name = ["name", "uri", "taskId"].iter().find_map(|name| params[name].as_str());
        let mut http = connect(self.daemon);
        http.post(&headers(method, name.unwrap_or_default()), &body.to_string());
        http
    }
}

fn session(daemon: &Daemon) -> OfSession<'_> {
    OfSession { daemon, session: Session::begin(daemon, "2025-11-25"), id: 100 }
}

fn stateless(daemon: &Daemon) -> Stateless<'_> {
    Stateless { daemon, capabilities: json!({}), id: 100 }
}

/// Lists, prompts, resources and completion, with the members that the daemon does not know.
fn check_offers(client: &mut dyn Client) {
    let lists = [
        ("tools/list", "tools", "work"),
        ("prompts/list", "prompts", "greet"),
        ("resources/list", "resources", "t://a"),
        ("resources/templates/list", "resourceTemplates", "t://{x}"),
    ];
    for (method, member, wanted) in lists {
        let listed = client.result(method, json!({}))[member].clone();
        assert!(listed.to_string().contains(wanted), "{method}: {listed}");
    }
    let params = json!({"name": "greet", "arguments": {"who": "ann"}});
    let prompt = client.result("prompts/get", params);
    assert_eq!(prompt["messages"][0]["content"]["text"], "ann");
    assert_eq!(prompt["odd"], 1.5);
    let read = client.result("resources/read", json!({"uri": "t://b"}));
    assert_eq!(read["contents"][0]["text"], "content of t://b");
    let of = json!({"ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "who", "value": "an"}});
    let completed = client.result("completion/complete", of);
    assert_eq!(completed["completion"]["values"], json!(["an!"]));
}

/// A client with a session: features, log messages, updates and changed lists on its GET stream.
fn check_session(daemon: &Daemon) {
    let mut client = session(daemon);
    check_offers(&mut client);
    let mut get = client.session.get(daemon, None);
    assert_eq!(get.head().status, 200);
    let mut heard = |wanted: &str| loop {
        let message = get.message();
        if message["method"] == wanted {
            return message["params"].clone();
        }
    };
    client.result("resources/subscribe", json!({"uri": "t://a"}));
    client.say("update", json!({"uri": "t://a"}));
    assert_eq!(heard("notifications/resources/updated"), json!({"uri": "t://a"}));
    client.result("resources/unsubscribe", json!({"uri": "t://a"}));
    client.say("change", json!({}));
    heard("notifications/tools/list_changed");
}

/// As [`check_session`], for a client of 2026-07-28 with a subscription.
fn check_stateless(daemon: &Daemon) {
    let mut client = stateless(daemon);
    check_offers(&mut client);
    let topics = json!({"toolsListChanged": true, "resourceSubscriptions": ["t://a"]});
    let mut listen = client.begin("subscriptions/listen", json!({"notifications": topics}));
    assert_eq!(listen.head().status, 200);
    let granted = listen.message();
    assert_eq!(granted["params"]["notifications"], topics, "{granted}");
    // The subscription at the server follows the one of the client.
    let mut heard = |wanted: &str, cause: &mut dyn FnMut()| {
        cause();
        loop {
            let message = listen.message();
            if message["method"] == wanted {
                return message["params"].clone();
            }
        }
    };
    let params = heard("notifications/resources/updated", &mut || {
        client.say("update", json!({"uri": "t://a"}));
    });
    assert_eq!(params["uri"], "t://a");
    heard("notifications/tools/list_changed", &mut || {
        client.say("change", json!({}));
    });
    let params = json!({"name": "log", "arguments": {}});
    let mut logged = client.begin("tools/call", params);
    logged.head();
    let message = logged.message();
    assert_eq!(message["method"], "notifications/message");
    assert_eq!(message["params"]["data"], "a message");
}

/// UPS-10: a server with sessions behind clients of both eras.
#[test]
fn session_server_is_relayed_over_http() {
    let daemon = daemon("session", "");
    check_session(&daemon);
    check_stateless(&daemon);
}

/// UPS-10: a server of 2026-07-28 behind clients of both eras.
#[test]
fn stateless_server_is_relayed_over_http() {
    let daemon = daemon("modern", "");
    check_session(&daemon);
    check_stateless(&daemon);
}

/// Log messages of a session reach it at the level that it has asked for, in the stream of its call
/// or its GET stream.
#[test]
fn session_hears_the_log_of_either_server() {
    for era in ["session", "modern"] {
        let daemon = daemon(era, "");
        let mut client = session(&daemon);
        let mut get = client.session.get(&daemon, None);
        assert_eq!(get.head().status, 200);
        client.result("logging/setLevel", json!({"level": "info"}));
        let mut call = client.begin("tools/call", json!({"name": "log", "arguments": {}}));
        let mut heard = Vec::new();
        if call.head().header("content-type") == Some("text/event-stream") {
            heard.extend(std::iter::from_fn(|| call.event()).filter(|it| !it.data.is_empty()));
        }
        let is_message = |data: &str| data.contains("a message");
        if !heard.iter().any(|event| is_message(&event.data)) {
            assert!(is_message(&get.message().to_string()), "{era}");
        }
    }
}

/// Requests of 2026-07-28 that each come by a connection of their own reach one instance of
/// `share = "connection"`; a session has its own.
#[test]
fn requests_without_a_session_share_an_instance() {
    let daemon = daemon("session", "share = \"connection\"");
    let mut client = stateless(&daemon);
    let first = client.say("pid", json!({}));
    assert_eq!(client.say("pid", json!({})), first);
    let mut one = session(&daemon);
    let mut two = session(&daemon);
    let of_session = one.say("pid", json!({}));
    assert_ne!(of_session, first);
    assert_eq!(one.say("pid", json!({})), of_session);
    assert_ne!(two.say("pid", json!({})), of_session);
    assert_eq!(stateless(&daemon).say("pid", json!({})), first);
}

/// UPS-15: without `task_support` a call is a task where the server makes one, and nowhere else.
#[test]
fn tasks_are_those_of_the_server_unless_configured() {
    let (of_session, of_modern) = (daemon("session", ""), daemon("modern", ""));
    let configured = daemon("session", "task_support = \"optional\"");
    for (daemon, tool, is_task) in [
        (&of_session, "work", false),
        (&of_modern, "work", true),
        (&of_modern, "pid", false),
        (&configured, "work", true),
    ] {
        let mut client = stateless(daemon);
        client.capabilities = json!({"extensions": {TASKS: {}}});
        let result = client.result("tools/call", json!({"name": tool, "arguments": {}}));
        assert_eq!(result["resultType"] == "task", is_task, "{tool}: {result}");
        if is_task {
            let params = json!({"taskId": result["taskId"]});
            let mut state = Value::Null;
            wait_until("the task has ended", || {
                state = client.result("tasks/get", params.clone());
                state["status"] == "completed"
            });
            let text = state["result"]["content"][0]["text"].as_str().unwrap();
            assert!(["worked", "plain"].contains(&text), "{state}");
        }
    }
}

/// A client on the Unix socket that answers questions.
fn asked_peer(daemon: &Daemon) -> Peer {
    let mut peer = daemon.connect();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "kit", "version": "0"}});
    peer.result("initialize", &params.to_string());
    peer
}

const CONFIRM: &str = "confirm = { \"touch\" = \"Really touch it?\" }";

/// `confirm` of a relayed tool: the question goes to its client, and only a yes is relayed.
#[test]
fn relayed_tool_runs_after_a_yes_alone() {
    for era in ["session", "modern"] {
        let daemon = daemon(era, CONFIRM);
        let mut peer = asked_peer(&daemon);
        for (action, runs) in [("decline", false), ("cancel", false), ("accept", true)] {
            let file = daemon.home.path().join(format!("of-{era}-{action}"));
            let call = peer.call("touch", &json!({"file": file}).to_string());
            let asked = loop {
                let message = peer.message().expect("the daemon is connected");
                if message["method"] == "elicitation/create" {
                    break message;
                }
            };
            assert_eq!(asked["params"]["message"], "Really touch it?");
            assert!(!file.exists(), "it is not relayed before the answer");
            let result = json!({"action": action, "content": {}});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
            peer.send(&answer.to_string());
            let result = peer.answer(call)["result"].clone();
            assert_eq!(result["isError"].as_bool().unwrap_or_default(), !runs, "{result}");
            // The server handles one call after the other: this one is behind.
            let pid = peer.call("pid", "{}");
            peer.text(pid);
            assert_eq!(file.exists(), runs, "{era} {action}");
        }
    }
}

/// `confirm` for a client of 2026-07-28 over HTTP: by its result and a retry. A client that cannot
/// be asked gets a result that says so.
#[test]
fn relayed_tool_is_confirmed_without_a_session() {
    let daemon = daemon("modern", CONFIRM);
    for (action, runs) in [("decline", false), ("accept", true)] {
        let mut client = stateless(&daemon);
        client.capabilities = json!({"elicitation": {"form": {}}});
        let file = daemon.home.path().join(action);
        let mut params = json!({"name": "touch", "arguments": {"file": file}});
        let asked = client.result("tools/call", params.clone());
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["params"]["message"], "Really touch it?");
        assert!(!file.exists());
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({key.as_str(): {"action": action, "content": {}}});
        let result = client.result("tools/call", params);
        assert_eq!(result["isError"].as_bool().unwrap_or_default(), !runs, "{result}");
        assert_eq!(file.exists(), runs, "{action}");
    }
    let mut client = stateless(&daemon);
    let file = daemon.home.path().join("unasked");
    let params = json!({"name": "touch", "arguments": {"file": file}});
    let result = client.result("tools/call", params);
    assert_eq!(result["isError"], true, "{result}");
    assert!(result.to_string().contains("does not support"), "{result}");
    assert!(!file.exists());
}
