//! Manifests of upstream servers outlive the daemon (UPS-09).

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ceased::process::Launch;
use ceased::{Daemon, UpstreamLaunch};
use ceased_core::upstream::server::UpstreamServer;
use serde_json::{Value, json};

/// A server with one tool. While the file of its argument exists, it says nothing at all.
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
