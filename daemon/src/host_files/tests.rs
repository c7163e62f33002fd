//! Files of hosts, as their users have them.

use std::collections::BTreeSet;

use super::*;
use crate::host_files::entry::Form;

const BINARY: &str = "/usr/bin/ceased";

fn adopted(text: &str) -> String {
    adopt(text, &Binary::at(BINARY)).unwrap().apply(text)
}

/// Adopts a text, checks that undoing gives the same bytes again, and returns the adopted text.
#[track_caller]
fn round_trip(text: &str) -> String {
    let new = adopted(text);
    assert_ne!(new, text);
    assert_eq!(undo(&new).unwrap().apply(&new), text);
    // A second time changes nothing.
    assert_eq!(adopted(&new), new);
    new
}

fn left(text: &str) -> Vec<String> {
    let reason = |entry: Entry| match entry.form {
        Form::Left(why) => Some(format!("{}: {why}", entry.name)),
        Form::Command(_) | Form::Wrapped(_) => None,
    };
    entries(text).unwrap().into_iter().filter_map(reason).collect()
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
    assert_eq!(left(WINDSURF).len(), 1);
    assert_eq!(left(CLINE), ["off: it is disabled"]);
    assert_eq!(left(ZED), ["extension: it has no command", "off: it is disabled"]);
    let found = left(CLAUDE_CODE);
    assert!(found[0].starts_with("docs: it is reached over HTTP"), "{found:?}");
    assert_eq!(found[1], "off: it is disabled");
    let ours = r#"{"mcpServers": {"a": {"command": "/x/ceased", "args": ["stdio"]}}}"#;
    assert_eq!(left(ours), ["a: it is ceased itself"]);
    assert_eq!(adopted(ours), ours);
}

#[test]
fn doubtful_entries_are_left() {
    for (entry, why) in [
        (r#"{"command": "a", "command": "b"}"#, "twice"),
        (r#"{"command": ["a"]}"#, "neither"),
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
        let error = entries(&text).unwrap_err();
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
    let new = undo(text).unwrap().apply(text);
    let found = entries(&new).unwrap();
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
    let outcome = adopt(CLAUDE_DESKTOP, &Binary::at(BINARY)).unwrap();
    let shown = diff("f.json", CLAUDE_DESKTOP, &outcome.edits);
    assert!(shown.starts_with("--- f.json\n+++ f.json\n@@ -2,"), "{shown}");
    assert!(shown.contains("-      \"command\": \"npx\",\n"), "{shown}");
    assert!(shown.contains("+      \"command\": \"/usr/bin/ceased\",\n"), "{shown}");
    let outcome = adopt(CLAUDE_CODE, &Binary::at(BINARY)).unwrap();
    let long = CLAUDE_CODE.replace("cut", &"x".repeat(5000));
    let outcome_long = adopt(&long, &Binary::at(BINARY)).unwrap();
    let shown = diff("f.json", &long, &outcome_long.edits);
    assert_eq!(outcome.edits.len(), outcome_long.edits.len());
    assert!(shown.len() < 3000 && shown.contains("+…"), "{shown}");
}

#[test]
fn tables_are_valid_toml_with_unique_names() {
    let text = r#"{"mcpServers": {"my server": {"command": "a\"b", "args": ["${X}", "\u0007"],
        "env": {"A": "${A}", "B": "${env:C}", "N": 7}, "cwd": "/d"},
        "my-server": {"command": "ceased", "args": ["wrap", "--", "x", "y"]}}}"#;
    let found = tables(&entries(text).unwrap(), &BTreeSet::new());
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
        let names: Vec<_> = entries(text).unwrap().into_iter().map(|it| Ok(it.name)).collect();
        let new = share(text, &Binary::at(BINARY), &names, &[]).unwrap().apply(text);
        assert!(new.contains("--server"), "{new}");
        assert_eq!(undo(&new).unwrap().apply(&new), text);
    }
}

#[test]
fn variables_of_the_host_are_filled_in() {
    let text = r#"{"servers": {"a": {"command": "${X}/run", "args": ["${env:Y:-z}", "${W}", "${"],
        "env": {"A": "-${env:X}-"}, "cwd": "${X}"}}}"#;
    let found = entries(text).unwrap();
    let Form::Command(command) = &found[0].form else { panic!("{found:?}") };
    let filled = command.expanded(&|name| (name == "X").then(|| "/x".to_owned()));
    assert_eq!(filled.argv(), ["/x/run", "z", "${W}", "${"]);
    assert_eq!(filled.env, [("A".to_owned(), "-/x-".to_owned())]);
    assert_eq!(filled.cwd.as_deref(), Some("/x"));
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
    let outcome = adopt(text, &Binary::at("/usr/bin/ceased")).unwrap();
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
    assert_eq!(undo(&new).unwrap().apply(&new), text);
    let agents = tables(&entries(text).unwrap(), &BTreeSet::new());
    assert_eq!(agents.iter().filter(|table| table.is_ok()).count(), 1, "agents are no servers");
}
