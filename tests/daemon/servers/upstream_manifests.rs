//! Manifests and approvals of upstream servers outlive the daemon (UPS-09, UPS-19).

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ceased::process::Launch;
use ceased::{Daemon, UpstreamLaunch};
use ceased_core::upstream::server::{Pin, UpstreamServer};
use serde_json::{Value, json};

/// A server with one tool, whose description is in a file. While the file of its argument exists, it
/// says nothing at all.
const SERVER: &str = r#"
import json, os, sys, time
while os.path.exists(sys.argv[1]):
    time.sleep(0.02)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
        if os.path.exists(sys.argv[1] + ".text"):
            result["tools"][0]["description"] = open(sys.argv[1] + ".text").read()
    elif "id" in message:
        result = {"content": []}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        let mut client = Self { stream: BufReader::new(stream) };
        client.ask(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}}),
        );
        client
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        writeln!(self.stream.get_mut(), "{request}").expect("the daemon reads");
        loop {
            let mut line = String::new();
            assert_ne!(self.stream.read_line(&mut line).expect("an answer in time"), 0);
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == method {
                return message["result"].clone();
            }
        }
    }
}

fn daemon(state: &Path, script: &Path, hang: &Path, env: &str) -> Daemon {
    let mut launch =
        Launch::new(["python3".into(), "-S".into(), script.to_owned(), hang.to_owned()]);
    launch.inherit.also = vec!["PATH".into()];
    launch.env = vec![("MARK".into(), env.into())];
    let payload = UpstreamLaunch { launch, run_as: None }.into_payload();
    let kill_grace = Duration::from_millis(50);
    Daemon::new().state_dir(state).upstream(UpstreamServer {
        payload,
        kill_grace,
        pin: Pin::Refuse,
        ..UpstreamServer::new("s")
    })
}

/// A restarted daemon answers from the manifest of the last one while the server is silent; for
/// another environment it knows nothing.
#[test]
fn restarted_daemon_lists_tools_of_a_silent_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let (state, script, hang) =
        (dir.path().join("state"), dir.path().join("s.py"), dir.path().join("hang"));
    std::fs::write(&script, SERVER).expect("a script");
    let first = daemon(&state, &script, &hang, "one").start().expect("it starts");
    let mut client = Client::new(first.connect().expect("a connection"));
    let tools = client.ask("tools/list", &json!({}))["tools"].clone();
    assert_eq!(tools[0]["name"], "work");
    drop(client);
    first.shut_down().expect("it ends");
    assert_eq!(std::fs::read_dir(state.join("manifests")).expect("a directory").count(), 1);

    std::fs::write(&hang, "").expect("a file");
    let second = daemon(&state, &script, &hang, "one").start().expect("it starts");
    let mut client = Client::new(second.connect().expect("a connection"));
    assert_eq!(client.ask("tools/list", &json!({}))["tools"], tools);
    drop(client);
    second.shut_down().expect("it ends");

    let third = daemon(&state, &script, &hang, "two").start().expect("it starts");
    let mut client = Client::new(third.connect().expect("a connection"));
    let begun = std::time::Instant::now();
    let waits = Duration::from_millis(300);
    let thread = std::thread::spawn(move || {
        let tools = client.ask("tools/list", &json!({}))["tools"].clone();
        (tools, begun.elapsed())
    });
    while begun.elapsed() < waits {
        assert!(!thread.is_finished(), "nothing is known of a server with another environment");
        std::thread::yield_now();
    }
    std::fs::remove_file(&hang).expect("a file");
    let (tools, took) = thread.join().expect("an answer");
    assert!(tools[0]["name"] == "work" && took >= waits);
    third.shut_down().expect("it ends");
}

/// The text of a tool that differs from the one of an earlier process is not shown until it is approved,
/// also where a variable of the server is another now; the next process knows the approval.
#[test]
fn approvals_outlive_the_daemon() {
    let dir = tempfile::tempdir().expect("a directory");
    let (state, script, hang) =
        (dir.path().join("state"), dir.path().join("s.py"), dir.path().join("hang"));
    std::fs::write(&script, SERVER).expect("a script");
    let text = |text: &str| std::fs::write(dir.path().join("hang.text"), text).expect("a file");
    for (description, env, is_new) in
        [("works", "one", false), ("sends", "two", true), ("sends", "three", false)]
    {
        text(description);
        let daemon = daemon(&state, &script, &hang, env).start().expect("it starts");
        let mut client = Client::new(daemon.connect().expect("a connection"));
        let listed = client.ask("tools/list", &json!({}))["tools"].clone();
        if is_new {
            assert_eq!(listed, json!([]));
            let status = client.ask("ceased/status", &json!({"detail": true}));
            let warnings = status["servers"][0]["warnings"].to_string();
            assert!(warnings.contains("changed: work; see ceased approve s"), "{status}");
            let shown = client.ask("ceased/approve", &json!({"server": "s"}));
            assert_eq!(shown["changes"][0]["before"]["description"], "works", "{shown}");
            let params = json!({"server": "s", "revision": shown["revision"]});
            assert_eq!(client.ask("ceased/approve", &params)["approved"], true);
        }
        let listed = client.ask("tools/list", &json!({}))["tools"].clone();
        assert_eq!(listed[0]["description"], description, "{env}");
        drop(client);
        daemon.shut_down().expect("it ends");
    }
    assert_eq!(std::fs::read_dir(state.join("approvals")).expect("a directory").count(), 2);
}
