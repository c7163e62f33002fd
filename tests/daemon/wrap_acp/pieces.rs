//! Single pieces of a turn of version 2, with real processes.

use std::fs;
use std::process::Command;

use ceased_tests::daemon::{Home, marker, wait_until};
use serde_json::{Value, json};

use super::kit::Editor;

const AGENT: &str = include_str!("pieces.py");

/// Number of the processes with this mark.
fn count(mark: &str) -> usize {
    let found = Command::new("pgrep").args(["-c", "-f", mark]).output().expect("pgrep runs");
    String::from_utf8_lossy(&found.stdout).trim().parse().expect("a number")
}

/// SUP-06: a terminal whose cancel the agent ignores ends with all of its processes; the other one and
/// the turn go on. In a tier, as the user of the test or as an ordinary one; false if the tier is not
/// to be had.
fn ignored_cancel_of_a_terminal(tier: &str, is_ordinary: bool) -> bool {
    let (home, mark) = (Home::new(), marker());
    let (script, audit) = (home.path().join("pieces.py"), home.path().join("audit.jsonl"));
    fs::write(&script, AGENT).expect("a file is written");
    let mut args = vec!["wrap", "--acp", "--cancel-grace=300ms", "--kill-grace=300ms", "--audit"];
    args.extend([audit.to_str().expect("text"), "--", "python3", "-S"]);
    args.extend([script.to_str().expect("text"), &mark]);
    let command = match is_ordinary {
        true => home.command_limited(0, 60, &args),
        false => Some(home.command(&args)),
    };
    let Some(mut command) = command else { return false };
    command.env("CEASED_CONTAINMENT", tier);
    let mut editor = Editor::over(command, home.path(), &mark, false);
    let mut ask = |id: u64, method: &str, params: Value| {
        editor.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    };
    ask(
        1,
        "initialize",
        json!({"protocolVersion": 2, "info": {"name": "e", "version": "1"}, "capabilities": {}}),
    );
    ask(2, "session/new", json!({"cwd": "/", "mcpServers": []}));
    ask(3, "session/prompt", json!({"sessionId": "s", "prompt": [{"type": "text", "text": "x"}]}));
    let (one, two) = (format!("{mark}-one"), format!("{mark}-two"));
    while editor.hear()["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
    wait_until("both terminals run", || count(&one) == 3 && count(&two) == 3);
    let receipt = |object: &str| {
        let text = fs::read_to_string(&audit).unwrap_or_default();
        let mut records = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        records.find(|it| it["event"] == "cancel" && it["object"] == object)
    };
    for (name, id, other) in [("one", 4, 3), ("two", 5, 0)] {
        let params = json!({"sessionId": "s", "terminalId": name});
        let cancel =
            json!({"jsonrpc": "2.0", "id": id, "method": "terminal/cancel", "params": params});
        editor.say(&cancel);
        assert_eq!(editor.answer(&json!(id))["result"], json!({}));
        wait_until("the receipt is written", || receipt(name).is_some());
        let receipt = receipt(name).expect("a receipt");
        assert_eq!(receipt["proof"], "children_ended", "{tier}: {receipt}");
        assert_eq!(receipt["kind"], "terminal");
        assert_eq!((count(&one), count(&two)), (0, other), "{tier}: after the cancel of {name}");
        editor.say(&json!({"jsonrpc": "2.0", "id": 6, "method": "_x/echo", "params": {}}));
        assert_eq!(editor.answer(&json!(6))["result"], json!({}), "{tier}: the agent");
    }
    editor.close_input();
    assert!(editor.child.wait().expect("it ends").success());
    true
}

#[test]
fn terminal_whose_cancel_is_ignored_ends_in_every_tier() {
    for (tier, is_ordinary) in
        [("guard", false), ("groups", false), ("guard", true), ("groups", true)]
    {
        let is_run = ignored_cancel_of_a_terminal(tier, is_ordinary);
        assert!(is_run || is_ordinary, "{tier}");
    }
    if crate::service::shutdown::tiers().contains(&"cgroup") {
        assert!(ignored_cancel_of_a_terminal("cgroup", false));
    }
}
