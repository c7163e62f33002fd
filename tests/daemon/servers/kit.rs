//! A daemon with scripted MCP servers behind it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ceased_tests::daemon::{Config, Daemon, Home, Peer, marker};
use serde_json::Value;

/// A server that speaks 2025-06-18. `pid` answers with its process id, `env` with its environment,
/// `stray` waits for a child in a session of its own and ignores a cancel, `wait` answers when its
/// file is there, `die` exits with 3. It takes a name, a file for notes, and options.
pub(crate) const SERVER: &str = r#"
import json, os, subprocess, sys, threading, time
name, dir, options = sys.argv[1], sys.argv[2], sys.argv[3:]
lock = threading.Lock()
print("log of", name, file=sys.stderr, flush=True)
with open(os.path.join(dir, name + ".starts"), "a") as notes:
    notes.write("%d\n" % os.getpid())
if "fail" in options:
    print("cannot start", file=sys.stderr, flush=True)
    sys.exit(1)
def send(message):
    with lock:
        print(json.dumps(message), flush=True)
def text(id, text):
    send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
def call(id, params):
    tool, arguments = params["name"], params.get("arguments") or {}
    if tool == "pid":
        text(id, str(os.getpid()))
    elif tool == "echo":
        text(id, arguments["text"])
    elif tool == "env":
        send({"jsonrpc": "2.0", "id": id, "result": {"content": [], "structuredContent": dict(os.environ)}})
    elif tool == "where":
        text(id, os.getcwd() + " " + str(os.getuid()))
    elif tool == "stray":
        subprocess.Popen(["setsid", "sleep", arguments["mark"]]).wait()
    elif tool == "wait":
        while not os.path.exists(arguments["file"]):
            time.sleep(0.01)
        text(id, "done")
    elif tool == "say":
        print(arguments["text"], file=sys.stderr, flush=True)
        text(id, "said")
    elif tool == "garbage":
        print("no message", flush=True)
        text(id, "printed")
    elif tool == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    else:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "Unknown tool: " + tool}})
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        if "slow" in options:
            time.sleep(1)
        if "hang" in options:
            continue
        send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": {"name": "scripted " + name, "version": "9"}, "instructions": "Use " + name}})
    elif method == "tools/list":
        names = ["pid", "echo", "env", "where", "stray", "wait", "say", "garbage", "die"]
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}})
    elif method == "prompts/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"prompts": [{"name": "greet"}]}})
    elif method == "resources/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"resources": [{"uri": "t://" + name, "name": name}]}})
    elif method == "resources/templates/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"resourceTemplates": []}})
    elif method in ("prompts/get", "resources/read"):
        send({"jsonrpc": "2.0", "id": id, "result": {"by": name, "params": message["params"]}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, message["params"]), daemon=True).start()
    elif method == "ping":
        send({"jsonrpc": "2.0", "id": id, "result": {}})
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
"#;

/// A directory with the script of a server. Each of its processes carries the mark of the place.
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) mark: String,
    /// Mark of children that servers leave.
    pub(crate) strays: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { home: Home::new(), mark: marker(), strays: marker() };
        fs::write(place.script(), SERVER).unwrap();
        place
    }

    pub(crate) fn script(&self) -> PathBuf {
        self.home.path().join("server.py")
    }

    /// A `[[server]]` table with further lines, of a server with these options.
    pub(crate) fn server_with(&self, name: &str, options: &[&str], more: &str) -> String {
        let (script, dir, mark) = (self.script(), self.home.path(), &self.mark);
        let mut command = format!("\"python3\", \"-S\", {script:?}, {name:?}, {dir:?}, {mark:?}");
        for option in options {
            command.push_str(&format!(", {option:?}"));
        }
        format!(
            "[[server]]\nname = {name:?}\ncommand = [{command}]\ncancel_grace = \"300ms\"\n\
             kill_grace = \"300ms\"\n{more}\n"
        )
    }

    pub(crate) fn server(&self, name: &str, more: &str) -> String {
        self.server_with(name, &[], more)
    }

    /// Writes a configuration with these servers, beside the usual tools.
    pub(crate) fn configure(&self, servers: &str) {
        self.home.configure(&Config { tools: servers, ..Config::default() });
    }

    /// Writes a configuration with these servers and nothing else.
    pub(crate) fn configure_alone(&self, servers: &str) {
        let socket = self.home.socket();
        let listen = format!("[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n");
        self.home.configure_as(&format!("{listen}{servers}"));
    }

    pub(crate) fn start(&self, servers: &str) -> Daemon {
        self.configure(servers);
        Daemon::start_in(self.home.clone())
    }

    pub(crate) fn start_alone(&self, servers: &str) -> Daemon {
        self.configure_alone(servers);
        Daemon::start_in(self.home.clone())
    }

    /// Number of times that a server was started.
    pub(crate) fn starts(&self, name: &str) -> usize {
        let path = self.home.path().join(format!("{name}.starts"));
        fs::read_to_string(path).unwrap_or_default().lines().count()
    }

    /// Children that servers of this place have left.
    pub(crate) fn strays(&self) -> usize {
        let pattern = format!("sleep {}", self.strays);
        let found = Command::new("pgrep").args(["-fxc", &pattern]).output().unwrap();
        String::from_utf8_lossy(&found.stdout).trim().parse().unwrap_or_default()
    }

    /// Processes of servers of this place.
    pub(crate) fn processes(&self) -> usize {
        let pattern = format!("server.py.*{}", self.mark);
        let found = Command::new("pgrep").args(["-fc", &pattern]).output().unwrap();
        String::from_utf8_lossy(&found.stdout).trim().parse().unwrap_or_default()
    }
}

/// Names of listed tools.
pub(crate) fn names(peer: &mut Peer) -> Vec<String> {
    let list = peer.result("tools/list", "{}");
    let tools = list["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The text that a tool answers with.
pub(crate) fn say(peer: &mut Peer, tool: &str, arguments: &str) -> String {
    let call = peer.call(tool, arguments);
    peer.text(call)
}

/// The error that a tool answers with.
pub(crate) fn error(peer: &mut Peer, tool: &str, arguments: &str) -> String {
    let call = peer.call(tool, arguments);
    let answer: Value = peer.answer(call);
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}
