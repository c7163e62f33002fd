//! A scripted MCP server for tests: it answers by itself what every server must, and asks the
//! script about the rest.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a kit of tests"
)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::wait::Trigger;

/// What the script does about a message.
pub type Script = Box<dyn FnMut(&mut Talk, &Value) + Send>;

/// Everything a client sent, in order.
#[derive(Debug, Clone, Default)]
pub struct Received(Arc<Mutex<Vec<Value>>>);

impl Received {
    pub fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }

    /// The params of every message with this method.
    pub fn params(&self, method: &str) -> Vec<Value> {
        let all = self.all();
        all.iter().filter(|m| m["method"] == method).map(|m| m["params"].clone()).collect()
    }

    pub fn methods(&self) -> Vec<String> {
        self.all().iter().filter_map(|m| m["method"].as_str()).map(str::to_owned).collect()
    }
}

/// The server's side of a connection.
pub struct Talk {
    stream: UnixStream,
    /// Stands in for the user's Ctrl-C.
    pub ctrl_c: Arc<Trigger>,
    pub capabilities: Value,
}

impl Talk {
    pub fn new(stream: UnixStream, ctrl_c: Arc<Trigger>) -> Self {
        let capabilities = json!({
            "tools": {},
            "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
        });
        Self { stream, ctrl_c, capabilities }
    }

    /// Sends one line. The client may be gone: then there is nobody to tell.
    pub fn line(&mut self, line: &str) {
        self.piece(&format!("{line}\n"));
    }

    /// Sends a part of a line.
    pub fn piece(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes());
    }

    pub fn send(&mut self, message: &Value) {
        self.line(&message.to_string());
    }

    pub fn answer(&mut self, to: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": to["id"], "result": result}));
    }

    pub fn refuse(&mut self, to: &Value, error: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": to["id"], "error": error}));
    }

    pub fn unknown_method(&mut self, to: &Value) {
        self.refuse(to, json!({"code": -32601, "message": "no such method"}));
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub fn hang_up(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Serves until the client leaves.
    pub fn serve(&mut self, received: &Received, script: &mut Script) {
        let reader = BufReader::new(self.stream.try_clone().unwrap());
        for line in reader.lines() {
            let Ok(line) = line else { return };
            let message: Value = serde_json::from_str(&line).unwrap();
            received.0.lock().unwrap().push(message.clone());
            match message["method"].as_str() {
                Some("initialize") => {
                    let result = json!({
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": self.capabilities,
                        "serverInfo": {"name": "fake", "version": "0"},
                    });
                    self.answer(&message, result);
                }
                Some("notifications/initialized") => {}
                Some(_) | None => script(self, &message),
            }
        }
    }
}

/// Serves every client that connects to `path`, one after the other.
pub fn listen(path: &Path, ctrl_c: Arc<Trigger>, mut script: Script) -> Received {
    let listener = UnixListener::bind(path).unwrap();
    let received = Received::default();
    let theirs = received.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            Talk::new(stream.unwrap(), Arc::clone(&ctrl_c)).serve(&theirs, &mut script);
        }
    });
    received
}
