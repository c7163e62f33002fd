//! Files of hosts, as their users have them.

use std::collections::BTreeSet;

use super::*;
use crate::host_files::entry::Form;

const JSON: Format = Format::Json;

const BINARY: &str = "/usr/bin/ceased";

fn adopted(text: &str) -> String {
    adopt(text, JSON, &Binary::at(BINARY)).unwrap().apply(text)
}

/// Adopts a text, checks that undoing gives the same bytes again, and returns the adopted text.
#[track_caller]
fn round_trip(text: &str) -> String {
    let new = adopted(text);
    assert_ne!(new, text);
    assert_eq!(undo(&new, JSON).unwrap().apply(&new), text);
    // A second time changes nothing.
    assert_eq!(adopted(&new), new);
    new
}

/// The base of a file that belongs to no project.
fn nowhere() -> Base {
    Base::of(std::path::Path::new("/etc/mcp.json"))
}

fn left(text: &str) -> Vec<String> {
    let reason = |entry: Entry| match entry.form {
        Form::Left(why) => Some(format!("{}: {why}", entry.name)),
        Form::Command(_) | Form::Wrapped(_) | Form::Remote(_) | Form::Moved(..) => None,
    };
    entries(text, JSON).unwrap().into_iter().filter_map(reason).collect()
}

const CLAUDE_DESKTOP: &str = r#"{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/home/me/Desktop"
      ]
    },
    "memory": { "command": "/opt/memory server/run", "env": { "KEY": "secret" } }
  }
}
"#;

const CLAUDE_CODE: &str = r#"{"numStartups":7,"tip":"cut \ud83d here","mcpServers":{"time":{"type":"stdio","command":"uvx","args":["mcp-server-time"],"env":{}},"docs":{"type":"http","url":"https://example.org/mcp"}},"projects":{"/home/me/app":{"allowedTools":[],"mcpServers":{"git":{"command":"uvx","args":["mcp-server-git"]},"off":{"command":"x"}},"disabledMcpServers":["off"]}}}"#;

const CURSOR: &str = "{\r\n\t\"mcpServers\": {\r\n\t\t\"fetch\": {\r\n\t\t\t\"command\": \"uvx\",\r\n\t\t\t\"args\": [],\r\n\t\t\t\"envFile\": \".env\"\r\n\t\t}\r\n\t}\r\n}\r\n";

const WINDSURF: &str = r#"{
  "mcpServers": {
    "figma": { "serverUrl": "https://example.org/mcp" },
    "git": { "command": "uvx", "args": ["mcp-server-git"], "disabled": false }
  }
}"#;

const CLINE: &str = r#"{
  "mcpServers": {
    "off": { "command": "npx", "args": ["x"], "disabled": true },
    "on": { "autoApprove": ["a"], "args": ["x"], "timeout": 60, "command": "np\u0078" }
  }
}"#;

const VS_CODE: &str = r#"{
  // Asked once.
  "inputs": [{ "id": "token", "type": "promptString", "password": true }],
  "servers": {
    "github": {
      "type": "stdio",
      "command": "docker", // with a token
      "args": [
        /* no shell */ "run", "-i", "--rm",
        "ghcr.io/github/github-mcp-server",
      ],
      "env": { "TOKEN": "${input:token}" },
    },
    "remote": { "type": "http", "url": "https://example.org" },
  },
}
"#;

const ZED: &str = "\u{feff}// Zed settings\n{\n  \"theme\": \"One\",\n  \"context_servers\": {\n    \"old\": { \"command\": { \"path\": \"node\", \"args\": [\"s.js\"], \"env\": null }, \"settings\": {} },\n    \"new\": { \"source\": \"custom\", \"command\": \"node\" , /* none */ \"env\": {} },\n    \"extension\": { \"settings\": {} },\n    \"off\": { \"enabled\": false, \"command\": \"node\" },\n  },\n}\n";

#[test]
fn files_of_every_host_come_back_byte_for_byte() {
    for text in [CLAUDE_DESKTOP, CLAUDE_CODE, CURSOR, WINDSURF, CLINE, VS_CODE, ZED] {
        round_trip(text);
    }
}

#[test]
fn wrap_comes_before_the_command() {
    let new = round_trip(CLAUDE_DESKTOP);
    assert!(new.contains(r#""command": "/usr/bin/ceased","#), "{new}");
    assert!(new.contains("        \"wrap\", \"--\", \"npx\", \"-y\",\n"), "{new}");
    let memory = r#""memory": { "command": "/usr/bin/ceased", "args": ["wrap","--","/opt/memory server/run"], "env""#;
    assert!(new.contains(memory), "{new}");
    let new = round_trip(CLINE);
    assert!(new.contains(r#""args": ["wrap", "--", "np\u0078", "x"]"#), "{new}");
    assert!(
        round_trip(ZED)
            .contains(r#""path": "/usr/bin/ceased", "args": ["wrap", "--", "node", "s.js"]"#)
    );
    let new = round_trip(CURSOR);
    assert!(new.contains(r#""args": ["wrap", "--", "uvx"]"#), "{new}");
    let new = round_trip(CLAUDE_CODE);
    assert!(new.contains(
        r#"{"git":{"command":"/usr/bin/ceased","args":["wrap", "--", "uvx", "mcp-server-git"]}"#
    ));
}

#[test]
fn entries_that_start_nothing_are_left() {
    assert_eq!(left(WINDSURF), [""; 0]);
    assert_eq!(left(CLINE), ["off: it is disabled"]);
    assert_eq!(left(ZED), ["extension: it has no command", "off: it is disabled"]);
    assert_eq!(left(CLAUDE_CODE), ["off: it is disabled"]);
    let ours = r#"{"mcpServers": {"a": {"command": "/x/ceased", "args": ["stdio"]}}}"#;
    assert_eq!(left(ours), ["a: it is ceased itself"]);
    assert_eq!(adopted(ours), ours);
}

#[test]
fn doubtful_entries_are_left() {
    for (entry, why) in [
        (r#"{"command": "a", "command": "b"}"#, "twice"),
        (r#"{"command": [1]}"#, "list of strings"),
        (r#"{"command": 7}"#, "neither"),
        (r#"{"command": ""}"#, "empty"),
        (r#"{"command": "a", "args": "b"}"#, "no array"),
        (r#"{"command": "a", "args": [1]}"#, "strings"),
        ("7", "no object"),
    ] {
        let text = format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
        let found = left(&text);
        assert!(found.len() == 1 && found[0].contains(why), "{text} {found:?}");
    }
    let twice = r#"{"mcpServers": {"a": {"command": "b"}, "a": {"command": "c"}}}"#;
    assert!(left(twice)[0].contains("name of an entry above"));
}

#[test]
fn texts_that_are_no_file_of_a_host_are_refused() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases = [
        (String::new(), "no JSON object"),
        ("[]".into(), "no JSON object"),
        ("{}".into(), "no servers"),
        ("{'mcpServers': {}}".into(), "not valid JSON"),
        ("{\"a\": 1 \"b\": 2}".into(), "not valid JSON"),
        (format!("{{\"a\": {deep}}}"), "not valid JSON"),
        (r#"{"mcpServers": {}, "mcpServers": {}}"#.into(), "second"),
        ("{\"servers\": {".into(), "not valid JSON"),
    ];
    for (text, why) in cases {
        let error = entries(&text, JSON).unwrap_err();
        assert!(error.what.contains(why), "{error}");
    }
}

#[test]
fn undo_takes_a_changed_file_and_options_of_wrap() {
    let text = r#"{"mcpServers": {"a": {"command": "ceased",
        "args": [
          "wrap",
          "--name", "x",
          "--",
          "npx",
          "-y", "server"
        ]}, "b": {"command": "new"}, "c": {"command": "ceased", "args": ["wrap", "--", "z",]}}}"#;
    let new = undo(text, JSON).unwrap().apply(text);
    let found = entries(&new, JSON).unwrap();
    let argv: Vec<_> = found
        .iter()
        .map(|entry| {
            let Form::Command(command) = &entry.form else { panic!("{:?}", entry.form) };
            command.argv().join(" ")
        })
        .collect();
    assert_eq!(argv, ["npx -y server", "new", "z"]);
}

#[test]
fn diff_shows_changed_lines_with_context() {
    let outcome = adopt(CLAUDE_DESKTOP, JSON, &Binary::at(BINARY)).unwrap();
    let shown = diff("f.json", CLAUDE_DESKTOP, JSON, &outcome.edits).unwrap();
    assert!(shown.starts_with("--- f.json\n+++ f.json\n@@ -3,"), "{shown}");
    assert!(shown.contains("-      \"command\": \"npx\",\n"), "{shown}");
    assert!(shown.contains("+      \"command\": \"/usr/bin/ceased\",\n"), "{shown}");
    let outcome = adopt(CLAUDE_CODE, JSON, &Binary::at(BINARY)).unwrap();
    let long = CLAUDE_CODE.replace("cut", &"x".repeat(5000));
    let outcome_long = adopt(&long, JSON, &Binary::at(BINARY)).unwrap();
    let shown = diff("f.json", &long, JSON, &outcome_long.edits).unwrap();
    assert_eq!(outcome.edits.len(), outcome_long.edits.len());
    assert!(shown.len() < 3000 && shown.contains("+…"), "{shown}");
}

#[test]
fn tables_are_valid_toml_with_unique_names() {
    let text = r#"{"mcpServers": {"my server": {"command": "a\"b", "args": ["${X}", "\u0007"],
        "env": {"A": "${A}", "B": "${env:C}", "N": 7}, "cwd": "/d"},
        "my-server": {"command": "ceased", "args": ["wrap", "--", "x", "y"]}}}"#;
    let found = tables(&entries(text, JSON).unwrap(), &nowhere(), &BTreeSet::new(), &|_| None);
    let all: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    let joined: String = all.iter().map(|table| table.text.as_str()).collect();
    let read: toml::Table = joined.parse().unwrap();
    let servers = read["server"].as_array().unwrap();
    assert_eq!(servers[0]["name"].as_str(), Some("my-server"));
    assert_eq!(servers[0]["command"].as_array().unwrap()[0].as_str(), Some("a\"b"));
    assert_eq!(servers[0]["pass_env"][0].as_str(), Some("A"));
    assert_eq!(servers[0]["env"]["N"].as_str(), Some("7"));
    assert_eq!(servers[1]["name"].as_str(), Some("my-server-2"));
    assert_eq!(servers[1]["command"].as_array().unwrap().len(), 2);
    assert_eq!(all[0].unresolved, ["${X}", "${env:C}"]);
    assert!(all[0].has_values && !all[1].has_values);
}

#[test]
fn shared_entries_come_back_byte_for_byte() {
    for text in [CLAUDE_DESKTOP, CLAUDE_CODE, CURSOR, WINDSURF, CLINE, VS_CODE, ZED] {
        let names: Vec<_> =
            entries(text, JSON).unwrap().into_iter().map(|it| Ok(it.name)).collect();
        let new = share(text, JSON, &Binary::at(BINARY), &names, &[]).unwrap().apply(text);
        assert!(new.contains("--server"), "{new}");
        assert_eq!(undo(&new, JSON).unwrap().apply(&new), text);
    }
}

/// Entries by URL move into the daemon, in every spelling, and come back with their very bytes.
#[test]
fn entries_by_url_are_shared_and_come_back() {
    let text = "{\"mcpServers\":{\"a\":{\"url\":\"https:\\/\\/a\"},\n\
                \"b\" : { \"type\" : \"sse\", // why\n \"headers\": {\"X\": \"1\"}, \"serverUrl\" :\t\"https://b\" },\n\
                \"c\":{\"httpUrl\":\"https://c\",\"type\":\"streamable-http\",\"timeout\":5,},\n\
                \"d\":{\"type\":\"remote\",\"headers\":{},\"url\":\"https://d\"}}}";
    let names = ["a", "b", "c", "d"].map(|name| Ok(name.to_owned()));
    let outcome = share(text, JSON, &Binary::at(BINARY), &names, &[]).unwrap();
    let new = outcome.apply(text);
    let Change::Left(why) = &outcome.entries[3].1 else { panic!("{new}") };
    assert!(why.contains("`ceased import`"), "{why}");
    let args = r#"["connect", "--spawn", "--server", "c", "--", "--httpUrl", "https://c", "streamable-http"]"#;
    let c = format!(r#""c":{{"command":"{BINARY}", "args":{args},"type":"stdio","timeout":5,}}"#);
    assert!(new.contains(&c), "{new}");
    assert_eq!(undo(&new, JSON).unwrap().apply(&new), text);
    let urls = |text: &str| -> Vec<String> {
        tables(&entries(text, JSON).unwrap(), &nowhere(), &BTreeSet::new(), &|_| None)
            .into_iter()
            .map(|table| table.unwrap().text)
            .collect()
    };
    assert_eq!(urls(&new), urls(text), "`import` sees the same servers");
    assert!(urls(text)[1].contains("url = \"https://b\"\nheaders = { X = \"1\" }"));
    // A host has written its file anew.
    let anew: serde_json::Value =
        serde_json::from_str(&new.replace(" // why\n", "").replace(",}", "}")).unwrap();
    let anew = serde_json::to_string_pretty(&anew).unwrap();
    let back = undo(&anew, JSON).unwrap().apply(&anew);
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&back)["mcpServers"]["a"]["url"], "https://a", "{back}");
}

/// So do those of hosts with TOML, YAML, or commands in one list, unless something of them would be lost.
#[test]
fn entries_by_url_of_every_format_are_shared_and_come_back() {
    let shared = |text: &str, format| {
        let all = entries(text, format).unwrap();
        let names: Vec<_> = all.iter().map(|it| Ok(it.name.clone())).collect();
        let outcome = share(text, format, &Binary::at("/c/ceased"), &names, &[]).unwrap();
        let is_left = outcome.entries.iter().map(|it| matches!(it.1, Change::Left(_))).collect();
        let new = outcome.apply(text);
        assert_eq!(undo(&new, format).unwrap().apply(&new), text, "{new}");
        let urls = |text: &str| -> Vec<Option<String>> {
            let all = entries(text, format).unwrap();
            all.iter().map(|it| it.remote().map(|it| it.url.clone())).collect()
        };
        assert_eq!(urls(&new), urls(text), "{new}");
        (new, is_left)
    };
    let connect = |name| format!(r#""connect", "--spawn", "--server", "{name}", "--""#);
    let toml = "[mcp_servers.a]\nurl = 'https://a/mcp'   # why\nenabled = true\n\n[mcp_servers.b]\n\
                url = \"https://b\"\nbearer_token_env_var = \"T\"\n\n\
                [mcp_servers]\nc = { url = \"https://c\" }\nd.url = \"https://d\"";
    for text in [toml.to_owned(), toml.replace('\n', "\r\n")] {
        let (new, is_left): (String, Vec<bool>) = shared(&text, Format::Toml);
        assert_eq!(is_left, [false, true, false, false]);
        let new = new.replace('\r', "");
        let a = format!("args = [{}, \"--url\", 'https://a/mcp']", connect("a"));
        assert!(new.contains(&format!("command = \"/c/ceased\"\n{a}   # why\nen")), "{new}");
        assert!(new.contains("c = { command = \"/c/ceased\", args = ["), "{new}");
        assert!(new.contains("\nd.command = \"/c/ceased\"\nd.args = ["), "{new}");
    }
    let yaml = "extensions:\n  a:\n    enabled: true\n    headers: {}\n    name: a\n    type: streamable_http\n    \
                uri: https://a/mcp\n  b:\n    headers:\n      X: y\n    type: sse\n    uri: https://b\n  \
                c:\n    uri: \"https://c\" # why\n    type: sse\n";
    let (new, is_left) = shared(yaml, Format::Yaml);
    assert_eq!(is_left, [false, true, false]);
    let a = format!("args: [{}, \"--uri\", https://a/mcp, streamable_http]", connect("a"));
    assert!(
        new.contains(&format!("    type: \"stdio\"\n    cmd: \"/c/ceased\"\n    {a}\n")),
        "{new}"
    );
    // Goose has written its file anew.
    let lines = "    args:\n    - connect\n    - --server\n    - a\n    - --\n    - --uri\n    - https://a/mcp\n    \
                 - streamable_http\n";
    let anew = |before, after| {
        let head = "extensions:\n  a:\n    type: stdio\n";
        format!("{head}{before}    cmd: /c/ceased\n{after}    name: a\n")
    };
    for anew in [anew("", lines), anew(lines, "")] {
        let want =
            "extensions:\n  a:\n    type: streamable_http\n    uri: https://a/mcp\n    name: a\n";
        assert_eq!(undo(&anew, Format::Yaml).unwrap().apply(&anew), want);
    }
    let list =
        "mcpServers:\n  - url: https://a\n    name: a\n  - name: b\n    url: 'https://b/{x}'\n";
    let (new, is_left) = shared(list, Format::Yaml);
    assert_eq!(is_left, [false, true]);
    assert!(new.contains("  - command: \"/c/ceased\"\n    args: ["), "{new}");
    let opencode = r#"{"mcp":{"a":{"type":"remote","url":"https:\/\/a","enabled":true},
        "b":{"url" : "https://b", "oauth": {}, "type":"remote"}}}"#;
    let (new, is_left) = shared(opencode, JSON);
    assert_eq!(is_left, [false, true]);
    let a = format!(r#"["/c/ceased", {}, "--url", "https:\/\/a", "remote"]"#, connect("a"));
    assert!(new.contains(&format!(r#"{{"type":"local","command":{a},"enabled":true}}"#)), "{new}");
}

/// Agents of Zed and JetBrains get `ceased wrap --acp --`, and get their very spelling back.
#[test]
fn agents_are_wrapped_as_agents() {
    let text = r#"{
  // Zed keeps both in one file.
  "context_servers": { "git": { "command": "uvx", "args": ["mcp-server-git"] } },
  "agent_servers": {
    "claude": { "type": "custom", "command": "npx", "args": ["-y", "@agentclientprotocol/claude-agent-acp"], "env": {} },
    "gemini": { "command": "gemini", "args": ["--experimental-acp"], },
    "bare": { "command": "my-agent" },
    "codex": { "type": "registry", "env": {} },
  },
}"#;
    let outcome = adopt(text, JSON, &Binary::at("/usr/bin/ceased")).unwrap();
    let new = outcome.apply(text);
    assert!(
        new.contains(
            r#""command": "/usr/bin/ceased", "args": ["wrap", "--acp", "--", "npx", "-y","#
        ),
        "{new}"
    );
    assert!(new.contains(r#"["wrap", "--acp", "--", "gemini", "--experimental-acp"], }"#), "{new}");
    assert!(new.contains(r#""args": ["wrap","--acp","--","my-agent"]"#), "{new}");
    assert!(new.contains(r#"["wrap", "--", "uvx", "mcp-server-git"]"#), "{new}");
    let left = outcome.entries.iter().filter(|(_, change)| matches!(change, Change::Left(_)));
    assert_eq!(left.map(|(entry, _)| &*entry.name).collect::<Vec<_>>(), ["codex"]);
    assert_eq!(undo(&new, JSON).unwrap().apply(&new), text);
    let agents = tables(&entries(text, JSON).unwrap(), &nowhere(), &BTreeSet::new(), &|_| None);
    assert_eq!(agents.iter().filter(|table| table.is_ok()).count(), 1, "agents are no servers");
}

const CODEX: &str = r#"# Codex
model = "gpt"   # chosen

[mcp_servers.context7] # docs
command = "npx" # node
args = ["-y", "@upstash/context7-mcp"]
env = { "API_KEY" = "s3cret" }

[mcp_servers.bare]
command = 'my-server'   # no arguments
startup_timeout_sec = 20

[mcp_servers.bare.env]
KEY = """
-----BEGIN
s3cret
-----END"""

[mcp_servers.web]
url = "https://example.org/mcp"

[mcp_servers."with.dots"]
enabled = false
command = "off"

[mcp_servers]
inline = { command = "uvx", env_vars = ["HOME"] }
dotted.command = "dotted-server"
dotted.args = [
  "one", # first
]
"#;

const OPENCODE: &str = r#"{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    // Local.
    "everything": {
      "type": "local",
      "command": ["npx", "-y", "@modelcontextprotocol/server-everything"],
      "enabled": true,
      "environment": { "KEY": "s3cret" }
    },
    "alone": { "type": "local", "command": ["server"] },
    "web": { "type": "remote", "url": "https://example.org" },
    "off": { "type": "local", "command": ["x"], "enabled": false }
  }
}
"#;

const GOOSE: &str = "GOOSE_PROVIDER: openai # mine
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    type: builtin
  git:
    # A comment.
    args:
    - mcp-server-git
    - --repository
    - /work
    cmd: uvx
    enabled: true
    env_keys: []
    envs:
      TOKEN: s3cret
    name: git
    timeout: 300
    type: stdio
  bare:
    cmd: 'server' # quoted
    args: []
    enabled: true
    type: stdio
  none:
    type: stdio
    cmd: server
    enabled: true
  flow: {type: stdio, cmd: node, args: [a.js]}
  web:
    type: streamable_http
    uri: https://example.org/mcp
    enabled: true
  off:
    cmd: x
    enabled: false
";

const CONTINUE: &str = "name: Mine
version: 0.0.1
schema: v1
mcpServers:
  - name: SQLite
    command: npx
    args:
      - \"-y\"
      - \"mcp-sqlite\"
    env:
      KEY: |
        -----BEGIN
        s3cret
  - command: uvx
    name: git
  - name: web
    type: streamable-http
    url: https://example.org
";

/// Adopts a text, checks that undoing gives the same bytes again, also after a share, and returns the
/// adopted text.
#[track_caller]
fn round_trip_of(text: &str, format: Format) -> String {
    let binary = Binary::at(BINARY);
    let new = adopt(text, format, &binary).unwrap().apply(text);
    assert_ne!(new, text);
    assert_eq!(undo(&new, format).unwrap().apply(&new), text);
    assert_eq!(adopt(&new, format, &binary).unwrap().apply(&new), new);
    let names: Vec<_> = entries(text, format).unwrap().into_iter().map(|it| Ok(it.name)).collect();
    let shared = share(text, format, &binary, &names, &[]).unwrap().apply(text);
    assert!(shared.contains("--server"), "{shared}");
    assert_eq!(undo(&shared, format).unwrap().apply(&shared), text);
    new
}

/// The command of each entry that has one.
fn commands(text: &str, format: Format) -> Vec<(String, String)> {
    let all = entries(text, format).unwrap().into_iter();
    all.filter_map(|it| Some((it.name.clone(), it.command()?.argv().join(" ")))).collect()
}

#[test]
fn codex_comes_back_byte_for_byte() {
    let new = round_trip_of(CODEX, Format::Toml);
    let read: toml::Table = new.parse().unwrap();
    let server = |name: &str| read["mcp_servers"][name].clone();
    assert_eq!(server("context7")["args"].as_array().unwrap().len(), 5, "{new}");
    assert!(new.contains("args = [\"wrap\", \"--\", \"npx\", \"-y\", \"@upstash"), "{new}");
    assert!(
        new.contains(
            "command = \"/usr/bin/ceased\"   # no arguments\nargs = [\"wrap\",\"--\",'my-server']\n"
        ),
        "{new}"
    );
    assert!(
        new.contains(
            "inline = { command = \"/usr/bin/ceased\", args = [\"wrap\",\"--\",\"uvx\"], env_vars"
        ),
        "{new}"
    );
    assert_eq!(server("dotted")["args"].as_array().unwrap().len(), 4, "{new}");
    let dotted = "[mcp_servers]\na.command = \"x\"";
    let new = round_trip_of(dotted, Format::Toml);
    assert!(new.ends_with("\na.args = [\"wrap\",\"--\",\"x\"]"), "{new}");
    round_trip_of(&CODEX.replace('\n', "\r\n"), Format::Toml);
}

#[test]
fn opencode_comes_back_byte_for_byte() {
    let new = round_trip_of(OPENCODE, JSON);
    let want = r#""command": ["/usr/bin/ceased", "wrap", "--", "npx", "-y","#;
    assert!(new.contains(want), "{new}");
    assert!(new.contains(r#"["/usr/bin/ceased", "wrap", "--", "server"]"#), "{new}");
    assert_eq!(left(OPENCODE), ["off: it is disabled"]);
}

#[test]
fn goose_and_continue_come_back_byte_for_byte() {
    let new = round_trip_of(GOOSE, Format::Yaml);
    let want = "    args:\n    - \"wrap\"\n    - \"--\"\n    - uvx\n    - mcp-server-git\n";
    assert!(new.contains(want), "{new}");
    assert!(new.contains("    args: [\"wrap\", \"--\", 'server']\n"), "{new}");
    assert!(
        new.contains(
            "    cmd: \"/usr/bin/ceased\"\n    args: [\"wrap\",\"--\",server]\n    enabled"
        ),
        "{new}"
    );
    assert!(
        new.contains("cmd: \"/usr/bin/ceased\", args: [\"wrap\", \"--\", node, a.js]}"),
        "{new}"
    );
    assert_eq!(commands(&new, Format::Yaml).len(), 4);
    let new = round_trip_of(CONTINUE, Format::Yaml);
    assert!(
        new.contains(
            "  - command: \"/usr/bin/ceased\"\n    args: [\"wrap\",\"--\",uvx]\n    name: git\n"
        ),
        "{new}"
    );
    round_trip_of(&GOOSE.replace('\n', "\r\n"), Format::Yaml);
    round_trip_of(&format!("# é ü\n{CONTINUE}"), Format::Yaml);
}

#[test]
fn yaml_that_is_bound_to_its_place_is_left() {
    let text = "extensions:\n  a: &a\n    cmd: x\n  b:\n    <<: *a\n  c:\n    cmd: &c y\n  d:\n    cmd: z\n    \
                args: *a\n  e:\n    cmd: |\n      z\n";
    let found = entries(text, Format::Yaml).unwrap();
    assert!(found.iter().all(|entry| matches!(entry.form, Form::Left(_))), "{found:?}");
    for text in ["a: [", "a: 1\n---\nb: 2\n", "\"a", &"[".repeat(100_000), &"- ".repeat(100_000)] {
        assert!(entries(text, Format::Yaml).is_err());
    }
    assert!(
        entries("a = \"s3cret", Format::Toml).is_err_and(|why| !why.to_string().contains("s3cret"))
    );
}

/// A command without an address starts a process, also with another type (`local` of Copilot).
#[test]
fn reasons_are_true() {
    let of = |entry: &str| left(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#));
    for kind in ["local", "stdio", "custom", "http", "new"] {
        assert!(of(&format!(r#"{{"type": "{kind}", "command": "x"}}"#)).is_empty(), "{kind}");
    }
    for entry in [r#"{"type": "sse"}"#, r#"{"url": "u", "command": "x"}"#] {
        assert!(of(entry)[0].contains("HTTP"), "{entry}");
    }
    assert!(of(r#"{"type": "local"}"#)[0].contains("no command"));
    for line in ["python3 -m http.server", "/usr/bin/python3 -m x", "npx -y x"] {
        let found = of(&format!(r#"{{"command": "{line}"}}"#));
        assert!(found[0].contains("command line in one string"), "{found:?}");
    }
    assert!(of(r#"{"command": "/opt/my server/run"}"#).is_empty());
    let docker =
        r#"{"mcpServers": {"a": {"command": "/usr/bin/docker", "args": ["run", "-i", "x"]}}}"#;
    let warning = entries(docker, JSON).unwrap()[0].warning().unwrap();
    assert!(warning.contains("container"), "{warning}");
    let wrapped = adopted(docker);
    assert!(entries(&wrapped, JSON).unwrap()[0].warning().is_some());
}

/// No line of a secret is in a diff, in any format and position.
#[test]
fn diffs_show_no_secret() {
    let pem = r"-----BEGIN\ns3cret\n-----END";
    let json = format!(
        r#"{{"mcpServers": {{
  "a": {{"command": "x", "env": {{"K": "{pem}"}}, "args": ["--token", "s3cret", "a\ns3cret"]}},
  // "TOKEN": "s3cret"
  "b": {{"command": "y", "headers": {{"A": "s3cret"}}}}}},
  "other": "s3cret"}}"#
    );
    for (text, format) in [
        (&*json, JSON),
        (CODEX, Format::Toml),
        (OPENCODE, JSON),
        (GOOSE, Format::Yaml),
        (CONTINUE, Format::Yaml),
    ] {
        let edits = adopt(text, format, &Binary::at(BINARY)).unwrap().edits;
        let shown = diff("f", text, format, &edits).unwrap();
        assert!(shown.contains("ceased") && !shown.contains("s3cret"), "{shown}");
        let tables =
            tables(&entries(text, format).unwrap(), &nowhere(), &BTreeSet::new(), &|_| None);
        for table in tables.into_iter().flatten() {
            assert!(!table.shown.contains("s3cret"), "{}", table.shown);
        }
    }
}

/// Entries of a project's file mean the same in another directory.
#[test]
fn tables_of_a_project_have_absolute_paths() {
    let base = Base::of(std::path::Path::new("/srv/app/.mcp.json"));
    let text = r#"{"mcpServers": {
        "a": {"command": "node", "args": ["./s.js", "${workspaceFolder}/x"], "envFile": ".env"},
        "b": {"command": "./run", "cwd": "sub"}, "c": {"command": "x", "cwd": "/d"}}}"#;
    let found = entries(text, JSON).unwrap();
    let all = tables(&found, &base, &BTreeSet::new(), &|_| None);
    let texts: Vec<_> = all.into_iter().map(|it| it.unwrap().text).collect();
    assert!(texts[0].contains(r#"command = ["node", "./s.js", "/srv/app/x"]"#), "{}", texts[0]);
    assert!(texts[0].contains("cwd = \"/srv/app\"\nenv_file = \"/srv/app/.env\""), "{}", texts[0]);
    assert!(texts[1].contains("[\"/srv/app/run\"]\ncwd = \"/srv/app/sub\""), "{}", texts[1]);
    assert!(texts[2].contains("cwd = \"/d\""), "{}", texts[2]);
    let all = tables(&found, &nowhere(), &BTreeSet::new(), &|_| None);
    let flaws: Vec<_> = all.into_iter().map(|it| it.unwrap().flaw()).collect();
    assert!(flaws[0].is_some() && flaws[1].is_some() && flaws[2].is_none(), "{flaws:?}");
}
