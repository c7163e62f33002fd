//! Commands against a scripted server: output, messages on the wire, exit codes.

mod call;
mod common;
mod tasks;

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use ceased_client::Trigger;
use ceased_client::fake::{Received, Talk, listen};

/// A command that has not ended by then never will.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// A server, and what a command sees of the world.
struct Stage {
    dir: tempfile::TempDir,
    received: Received,
    interrupts: Option<Interrupts>,
    out_is_terminal: bool,
    env: Env,
}

/// What a command did.
#[derive(Debug)]
struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

/// A server that does what `script` says about everything but the handshake.
fn stage(script: impl FnMut(&mut Talk, &Value) + Send + 'static) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let (interrupts, trigger) = Interrupts::manual().unwrap();
    let received =
        listen(&dir.path().join("s.sock"), Arc::<Trigger>::new(trigger), Box::new(script));
    let own = vec![dir.path().join("run/ceased/ceased.sock")];
    let env = Env { sockets: SocketPaths { own, system: None }, ..Env::default() };
    Stage { dir, received, interrupts: Some(interrupts), out_is_terminal: false, env }
}

impl Stage {
    fn socket(&self) -> String {
        self.dir.path().join("s.sock").to_str().unwrap().to_owned()
    }

    /// Runs `ceased ARGS --socket <the server's>`.
    fn run(&mut self, args: &[&str]) -> Ran {
        let socket = self.socket();
        let mut args = args.to_vec();
        args.extend(["--socket", &socket]);
        self.run_with(&args, &ClientOnly)
    }

    fn run_with(&mut self, args: &[&str], backend: &dyn Backend) -> Ran {
        let (done, is_done) = mpsc::channel::<()>();
        let command = args.join(" ");
        thread::spawn(move || {
            if is_done.recv_timeout(HANGS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("`ceased {command}` hangs");
                std::process::abort();
            }
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let (input, output) = (io::stdin(), io::stdout());
        let mut interrupts = self.interrupts.take();
        let mut io = Io {
            out: &mut out,
            err: &mut err,
            out_is_terminal: self.out_is_terminal,
            err_is_terminal: false,
            input: input.as_fd(),
            output: output.as_fd(),
            interrupts: &mut || Ok(interrupts.take().expect("taken once")),
            env: self.env.clone(),
        };
        let args = std::iter::once("ceased").chain(args.iter().copied()).map(OsString::from);
        let exit = run(args, &mut io, backend);
        drop(done);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { exit, out: text(out), err: text(err) }
    }
}

/// A list of tools, as a server sends it.
fn tools() -> Value {
    json!({"tools": [
        {
            "name": "build",
            "description": "Build the workspace\nand more",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "package": {"type": "string", "description": "Cargo package name"},
                    "jobs": {"type": "integer"},
                    "ratio": {"type": "number"},
                    "release": {"type": "boolean"},
                    "features": {"type": "array"},
                    "seed": {"type": ["integer", "null"]},
                },
                "required": ["package"],
            },
            "execution": {"taskSupport": "optional"},
        },
        {"name": "echo", "description": "Says it again", "inputSchema": {"type": "object"}},
        {
            "name": "backup",
            "inputSchema": {"type": "object", "additionalProperties": false},
            "execution": {"taskSupport": "required"},
        },
    ]})
}

/// A task, as a server sends it.
fn task(id: &str, status: &str) -> Value {
    json!({
        "taskId": id, "status": status, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:01Z", "ttl": 3_600_000, "pollInterval": 100,
    })
}

fn unknown_task(talk: &mut Talk, message: &Value) {
    talk.refuse(message, json!({"code": -32602, "message": "no such task"}));
}

fn method(message: &Value) -> &str {
    message["method"].as_str().unwrap_or_default()
}

/// The server reads in its own time; waits until it has.
fn wait_for(has_happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !has_happened() {
        assert!(start.elapsed() < HANGS_AFTER, "it never happened");
        thread::yield_now();
    }
}
