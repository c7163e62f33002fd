//! OAuth: the official clients authorize by themselves, and a checker of PyPI finds no fault
//! (AUTH-01, AUTH-02). The authorization server is a script of the tests.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ceased_tests::daemon::{Config, Daemon, Home};
use serde_json::Value;

use super::install::{self, Client};

/// An authorization server, and a daemon that takes its tokens.
struct Place {
    issuer: Child,
    issuer_url: String,
    url: String,
    daemon: Daemon,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.issuer.kill();
        let _ = self.issuer.wait();
    }
}

impl Place {
    fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("daemon/http/issuer.mjs");
        let mut issuer =
            Command::new("node").arg(script).stdout(Stdio::piped()).spawn().expect("node runs");
        let mut line = String::new();
        let mut output = BufReader::new(issuer.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let issuer_url = line.trim().to_owned();
        // The metadata name the port before the daemon has chosen one.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let url = format!("http://{address}/mcp");
        let listen = format!(
            "[[listen]]\ntransport = \"http\"\naddress = \"{address}\"\nresource = \"{url}\"\n\
             issuer = [\"{issuer_url}\"]\nscopes = [\"mcp-use\"]\n"
        );
        let home = Home::new();
        home.configure(&Config { tools: &listen, ..Config::default() });
        Self { issuer, issuer_url, url, daemon: Daemon::start_in(home) }
    }

    fn run(&self, client: &Client, arguments: &[&str]) -> String {
        let mut command = Command::new(&client.program);
        command.arg(&client.script).args(arguments).env("HOME", self.daemon.home.path());
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        let ran = command.output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{out}\n{err}");
        out.trim().to_owned()
    }
}

/// AUTH-01: challenge, metadata, registration, code with PKCE, token, call.
#[test]
fn typescript_client_authorizes() {
    let Some(client) = install::typescript_oauth() else { return };
    let place = Place::new();
    assert_eq!(place.run(&client, &[&place.url]), "authorized mcp-use");
}

/// AUTH-01: the same with the Python client.
#[test]
fn python_client_authorizes() {
    let Some(client) = install::python_oauth() else { return };
    let place = Place::new();
    assert_eq!(place.run(&client, &[&place.url]), "authorized mcp-use");
}

/// AUTH-01, AUTH-02: every check of mcp-authlab, with a login for tokens of this and another
/// resource. Plain HTTP on this machine is its only remark.
#[test]
fn checker_finds_no_fault() {
    let (Some(client), Some(_)) = (install::authlab(), install::typescript_oauth()) else { return };
    let place = Place::new();
    place.run(&client, &["login", &place.url, "--no-browser", "--scope", "mcp-use"]);
    let report = place.run(&client, &["scan", &place.url, "--tool", "echo", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let all = report["results"].as_array().unwrap();
    let faults: Vec<String> = all
        .iter()
        .filter(|it| it["status"] != "pass")
        .filter(|it| it["id"] != "TLS-01")
        .map(ToString::to_string)
        .collect();
    assert!(faults.is_empty(), "{faults:#?} of {}", place.issuer_url);
    assert!(all.len() >= 33, "{}", all.len());
}
