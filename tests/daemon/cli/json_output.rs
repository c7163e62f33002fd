//! JSON output of every command, which satisfies its published schema.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use ceased_tests::daemon::{
    Config, Daemon, Home, Program, Ran, assert_none_left, marker, wait_until,
};
use ceased_tests::output_schema::OutputSchema;
use serde_json::{Value, json};

use crate::remote::kit::Remote;
use crate::servers::kit::{Place, say};
use crate::servers::login;

/// A listener for the link of the live view.
const LISTEN: &str = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n";

/// Commands in a home, whose output is validated.
struct Commands {
    home: Home,
    schema: OutputSchema,
    /// Definitions that some output was validated against.
    seen: RefCell<BTreeSet<String>>,
}

impl Commands {
    fn of(home: &Home) -> Self {
        let (schema, seen) = (OutputSchema::read(), RefCell::default());
        Self { home: home.clone(), schema, seen }
    }

    fn validate(&self, definition: &str, text: &str) -> Value {
        let value: Value =
            serde_json::from_str(text).unwrap_or_else(|why| panic!("{definition}: {why}: {text}"));
        self.schema
            .check(definition, &value)
            .unwrap_or_else(|why| panic!("{definition}: {why}: {value}"));
        self.seen.borrow_mut().insert(definition.to_owned());
        value
    }

    /// The document that a command prints.
    fn document(&self, definition: &str, code: i32, args: &[&str]) -> Value {
        self.validate(definition, &self.ran(code, args).out)
    }

    /// The document of a command in the directory `app` with this home directory.
    fn in_project(&self, definition: &str, args: &[&str]) -> Value {
        let mut command = self.home.command(args);
        let dir = self.home.path().join("app");
        command.current_dir(dir).env("HOME", self.home.path()).env_remove("CEASED_CONFIG");
        self.validate(definition, &self.run(command, 0).out)
    }

    fn ran(&self, code: i32, args: &[&str]) -> Ran {
        self.run(self.home.command(args), code)
    }

    fn run(&self, command: Command, code: i32) -> Ran {
        let words = format!("{command:?}");
        let ran = Program::start(&self.home, command).wait();
        assert_eq!(ran.code, Some(code), "{words}: {ran:?}");
        ran
    }
}

/// Views of a daemon with a job, a task, a receipt and another user.
fn views(commands: &Commands, daemon: &Daemon) {
    let mut peer = daemon.peer();
    let mark = marker();
    let family = peer.call("family", &format!(r#"{{"t":"{mark}"}}"#));
    peer.wait_started(&[family]);
    let task = peer.create_task("sleep", r#"{"ms":600000}"#);
    let status = commands.document("ps", 0, &["ps", "--json"]);
    let job = &status["jobs"][0]["job"];
    assert_eq!(
        commands.document("status", 0, &["status", "--json"])["operator"],
        status["operator"]
    );
    let got = commands.document("get", 0, &["get", "--json", &format!("job:{job}")]);
    assert!(got["processes"].as_array().is_some_and(|list| list.len() >= 3), "{got}");
    assert!(got["arguments"].as_str().is_some_and(|text| text.contains(&mark)), "{got}");
    assert_eq!(commands.document("get", 0, &["get", "--json", &task])["taskId"], *task);
    if let Some(mut other) = daemon.peer_of(1) {
        let theirs = other.result("ceased/status", r#"{"detail":true}"#);
        commands.validate("ps", &theirs.to_string());
    }
    let ended = commands.document("cancel", 0, &["cancel", "--json", &format!("job:{job}")]);
    assert_eq!(ended["ended"], true);
    assert_none_left(&mark);
    let receipts = commands.document("ps", 0, &["ps", "--json"])["host"]["receipts"].clone();
    assert_eq!(receipts.as_array().map(Vec::len), Some(1), "{receipts}");
    commands.document("cancel", 0, &["cancel", "--json", &task]);
    // A cancel that is under way.
    let stubborn = peer.call("stubborn", &format!(r#"{{"t":"{mark}"}}"#));
    peer.wait_started(&[stubborn]);
    peer.cancel(stubborn);
    wait_until("it is being cancelled", || {
        let status = commands.document("ps", 0, &["ps", "--json"]);
        status["jobs"][0]["state"] == "cancelling"
    });
}

/// Calls, tasks and their output.
fn calls(commands: &Commands) {
    let result = commands.document("call", 0, &["call", "--json-result", "count", "n=2"]);
    assert_eq!(result["content"][0]["text"], "1\n2\n");
    let failed = commands.document("call", 1, &["call", "--json-result", "fail"]);
    assert_eq!(failed["isError"], true);
    let args = ["call", "--json-result", "--detach", "count", "n=2"];
    let task =
        commands.document("call", 0, &args)["taskId"].as_str().unwrap_or_default().to_owned();
    let result = commands.document("result", 0, &["result", "--json", &task]);
    assert_eq!(result["content"][0]["text"], "1\n2\n");
    assert!(
        commands
            .document("tasks", 0, &["tasks", "--json"])
            .as_array()
            .is_some_and(|list| !list.is_empty())
    );
    let watched = commands.ran(0, &["watch", "--json", &task]).out;
    for line in watched.lines() {
        assert_eq!(commands.validate("watch", line)["tool"], "count");
    }
    let printed = commands.ran(0, &["logs", "--json", "--follow", &task]).out;
    let lines: Vec<Value> = printed.lines().map(|line| commands.validate("logs", line)).collect();
    assert_eq!(lines[0]["text"], "1\n2\n");
    assert_eq!(lines.last().map(|line| &line["ended"]), Some(&Value::Bool(true)));
    let ran = commands.document("run", 0, &["run", "--json", "--", "echo", "here"]);
    assert_eq!(ran["content"][0]["text"], "here\n", "{ran}");
    assert!(commands.document("tools", 0, &["tools", "--json"]).is_array());
    assert_eq!(commands.document("tools", 0, &["tools", "--json", "count"])["name"], "count");
}

/// A server with an instance, its standard error, and its replacement.
fn servers(commands: &Commands, daemon: &Daemon) {
    let mut peer = daemon.peer();
    say(&mut peer, "notes_pid", "{}");
    let shown = commands.document("servers", 0, &["servers", "--json"]);
    let instance = &shown["servers"][0]["instances"][0];
    assert!(instance["processes"].as_array().is_some_and(|list| list.len() == 1), "{shown}");
    let status = commands.document("status", 0, &["status", "--json"]);
    let id = instance["instance"].to_string();
    assert_eq!(status["host"]["instances"][&id]["stderr"][0], "log of notes", "{status}");
    let printed = commands.ran(0, &["logs", "--json", "notes"]).out;
    let line = commands.validate("logs", printed.lines().next().unwrap_or_default());
    assert_eq!(line["text"], "log of notes\n");
    let link = commands.document("view", 0, &["view", "--json"]);
    assert!(link["url"].as_str().is_some_and(|url| url.contains("/#view-")), "{link}");
    let pinned = commands.document("approve", 0, &["approve", "--json", "notes"]);
    assert_eq!((&pinned["pin"], &pinned["changes"]), (&json!("warn"), &json!([])), "{pinned}");
    let restarted = commands.document("restart", 0, &["restart", "--json", "notes"]);
    assert_eq!(restarted["instances"], 1);
}

/// Logins at a server by URL, and its token.
fn logins(commands: &Commands) {
    let remote = Remote::guarded(&[]);
    let daemon = remote.daemon("");
    let begun = commands.validate("login", &login::document(&daemon.home));
    assert_eq!(begun["for"], "all");
    say(&mut daemon.peer(), "whoami", "{}");
    let print = |args: &[&str]| Program::start(&daemon.home, daemon.home.command(args)).wait().out;
    let shown = commands.validate("servers", &print(&["servers", "--json"]));
    assert_eq!(shown["servers"][0]["tokens"][0]["state"], "valid", "{shown}");
    let ended = commands.validate("logout", &print(&["logout", "far", "--json"]));
    assert_eq!(ended["removed"], true);
}

/// Configurations, stores and the end of the daemon.
fn operations(commands: &Commands, daemon: Daemon) {
    let home = &commands.home;
    let socket = daemon.socket();
    // A wrong configuration does not name the socket.
    let reload = ["reload", "--json", "--socket", &socket.to_string_lossy()];
    assert_eq!(commands.document("reload", 0, &reload)["reloaded"], true);
    let good = home.config_text();
    home.configure_as("[daemon]\nworkers = \"many\"\n");
    let refused = commands.document("reload", 2, &reload);
    assert!(refused["error"].as_str().is_some_and(|why| why.contains("workers")), "{refused}");
    let bad = commands.document("check", 2, &["check", "--json"]);
    assert_eq!((&bad["valid"], &bad["problems"][0]["line"]), (&false.into(), &2.into()), "{bad}");
    home.configure_as(&good);
    let checked = commands.document("check", 0, &["check", "--json"]);
    assert_eq!(checked["servers"][0]["name"], "notes", "{checked}");
    assert!(checked["tools"].as_array().is_some_and(|tools| tools.len() > 5), "{checked}");
    let stopped = commands.document("stop", 0, &["stop", "--json"]);
    assert_eq!(stopped["pid"], daemon.pid());
    assert_eq!(stopped["survivors"].as_array().map(Vec::len), Some(0));
    drop(daemon);
    let daemon = Daemon::start_in(home.clone());
    let drained = commands.document("drain", 0, &["drain", "--json"]);
    assert_eq!(drained["pid"], daemon.pid());
    drop(daemon);
    let store = commands.document("store-check", 0, &["store", "check", "--json"]);
    assert_eq!(store["intact"], true);
}

/// Files of projects and hosts.
fn files(commands: &Commands) {
    let home = commands.home.path();
    fs::create_dir(home.join("app")).unwrap();
    fs::write(home.join("app/Makefile"), "build:\n\t@echo built\n").unwrap();
    let printed = commands.in_project("init", &["init", "--print", "--json"]);
    assert_eq!(
        (&printed["path"], &printed["tools"][0]["outcome"]),
        (&Value::Null, &"not_run".into())
    );
    let written = commands.in_project("init", &["init", "--project", "--json"]);
    assert_eq!(written["tools"][0]["outcome"], "worked");
    let trusted = commands.in_project("trust", &["trust", "--json"]);
    assert_eq!(trusted["tools"][0]["name"], "build");
    let listed = commands.in_project("trust", &["trust", "--list", "--json"]);
    assert_eq!(listed[0]["state"], "trusted");
    commands.in_project("trust", &["trust", "--revoke", "--json"]);
    let host = home.join("mcp.json");
    let servers = r#"{"mcpServers":{"git":{"command":"uvx"},"docs":{"url":"https://example.org/mcp"},
        "empty":{}}}"#;
    fs::write(&host, servers).unwrap();
    let host = host.to_string_lossy();
    let shown = commands.document("import", 0, &["import", "--json", &host]);
    for (at, text) in [(0, "uvx"), (1, "url = ")] {
        let table = shown["entries"][at]["table"].as_str();
        assert!(table.is_some_and(|table| table.contains(text)), "{shown}");
    }
    assert!(shown["entries"][2]["reason"].is_string(), "{shown}");
    let shown = commands.document("adopt", 0, &["adopt", "--json", &host]);
    assert_eq!((&shown["written"], &shown["backup"]), (&false.into(), &Value::Null), "{shown}");
    let written = commands.document("adopt", 0, &["adopt", "--json", "--write", &host]);
    assert!(written["backup"].is_string(), "{written}");
    let probe = ["probe", "--json", "-", "--timeout", "1s", "--", "true"];
    let found = commands.document("probe", 1, &probe);
    assert_eq!(found["checks"][0]["verdict"], "deviates", "{found}");
}

/// A tool that ignores SIGTERM for longer than the test takes.
const STUBBORN: &str = r#"
[[tool]]
name = "stubborn"
command = ["sh", "-c", "trap '' TERM; echo 1/4 stirring >&3; sleep \"$1\" & wait; wait", "x", "{t}"]
kill_grace = "10s"
[tool.input.t]
type = "string"
required = true
"#;

#[test]
fn output_of_every_command_matches_its_schema() {
    let place = Place::new();
    let tools = place.server("notes", "pin = \"warn\"\n") + STUBBORN + LISTEN;
    let config = Config { daemon: "allow_run = true", tools: &tools, ..Config::default() };
    place.home.configure(&config);
    let daemon = Daemon::start_in(place.home.clone());
    let commands = Commands::of(&daemon.home);
    servers(&commands, &daemon);
    logins(&commands);
    calls(&commands);
    views(&commands, &daemon);
    operations(&commands, daemon);
    files(&commands);
    let seen = commands.seen.borrow();
    let mut commands = commands.schema.commands();
    // It needs a database: the tests of fleets validate it.
    assert!(commands.remove("fleet"));
    assert_eq!(*seen, commands, "every command of the schema has output here");
}
