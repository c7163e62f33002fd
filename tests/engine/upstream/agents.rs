//! Messages that the supervisor of agents writes itself, against the published schemas of both versions.

use std::sync::Arc;

use ceased_core::Settings;
use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::UpstreamServer;
use ceased_simulator::schema;
use serde_json::{Value, json};

use super::kit::Kit;

/// An agent of a version, the client of it, and a session `s` with one prompt under way, which the
/// client cancels; the agent ignores that. Returns the messages of the supervisor to both sides.
fn ignored_cancel(version: u64) -> Vec<Value> {
    let agent = Arc::new(UpstreamServer::new("bot"));
    let settings = Settings { agents: vec![agent], agent_only: true, ..Settings::default() };
    let mut kit = Kit::with(settings);
    let client = kit.connect();
    let instance = kit.starts().remove(0);
    let agent = kit.started(instance);
    let able = json!({"protocolVersion": version, "capabilities": {"session": {}},
        "agentCapabilities": {}});
    let ask = |kit: &mut Kit, id: u64, method: &str, params: Value, result: Option<Value>| {
        kit.send(client, &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let asked = kit.read(agent);
        if let (Some(result), Some(asked)) = (result, asked.first()) {
            kit.answer(agent, asked, &result);
            kit.read(client);
        }
    };
    ask(&mut kit, 0, "initialize", json!({"protocolVersion": version}), Some(able));
    ask(&mut kit, 1, "session/new", json!({"cwd": "/"}), Some(json!({"sessionId": "s"})));
    let says = |kit: &mut Kit, update: Value| {
        let params = json!({"sessionId": "s", "update": update});
        let method = "session/update";
        kit.send(agent, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        kit.read(client);
    };
    let accepted = (version == 2).then(|| json!({"messageId": "m"}));
    ask(&mut kit, 2, "session/prompt", json!({"sessionId": "s", "prompt": []}), accepted);
    if version == 2 {
        for terminal in ["t1", "t2"] {
            says(
                &mut kit,
                json!({"sessionUpdate": "terminal_update", "terminalId": terminal,
                "capabilities": {"cancel": {}}}),
            );
        }
        let list = json!([{"type": "terminal", "terminalId": "t1"}, {"type": "_x"},
            {"type": "tool_call", "toolCallId": "c1"}]);
        says(
            &mut kit,
            json!({"sessionUpdate": "state_update", "state": "running",
            "background": list}),
        );
        let of = json!({"sessionId": "s", "terminalId": "t2"});
        ask(&mut kit, 3, "terminal/cancel", of, None);
    }
    let cancel =
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}});
    kit.send(client, &cancel);
    let mut said = kit.read(agent);
    for _ in 0..40 {
        kit.pass(1_000);
        while !kit.wanted.is_empty() {
            match kit.want() {
                UpstreamAction::Examine { instance, check, .. } => {
                    kit.examined(instance, check, 0, 0);
                }
                UpstreamAction::EndStrays { instance, check, .. } => {
                    kit.strays_ended(instance, check, 1);
                }
                UpstreamAction::End { instance, .. } => kit.ended(instance, "signal 15", ""),
                UpstreamAction::Start { .. }
                | UpstreamAction::Forget { .. }
                | UpstreamAction::Warn { .. }
                | UpstreamAction::SaveManifest { .. }
                | UpstreamAction::SaveApproval { .. }
                | UpstreamAction::ToolsDiffer { .. } => {}
            }
        }
        said.extend(kit.read(client));
        said.extend(kit.read(agent));
    }
    said
}

/// SUP-02, SUP-05, SUP-06: every message that the supervisor writes is valid in the version that is
/// spoken: cancels, answers, states with background work, and the ends of lost work.
#[test]
fn messages_of_the_supervisor_are_valid_in_both_versions() {
    for (version, schema, update, cancel, expected) in [
        (1, schema::ACP, "SessionNotification", "CancelNotification", 3),
        (2, schema::ACP_2, "UpdateSessionNotification", "CancelSessionNotification", 6),
    ] {
        let said = ignored_cancel(version);
        assert!(said.len() >= expected, "{version}: {said:#?}");
        for message in &said {
            let valid = |definition: &str, value: &Value| {
                schema::check(schema, definition, value).unwrap_or_else(|why| panic!("{why}"));
            };
            match (message["method"].as_str(), message.get("result")) {
                (Some("session/update"), _) => valid(update, &message["params"]),
                (Some("session/cancel"), _) => valid(cancel, &message["params"]),
                (Some("$/cancel_request"), _) => {
                    valid("CancelRequestNotification", &message["params"]);
                }
                (None, Some(result)) if version == 1 => valid("PromptResponse", result),
                (None, Some(result)) => valid("CancelTerminalResponse", result),
                (None, None) => valid("Error", &message["error"]),
                (Some(other), _) => panic!("{other} is not expected: {message}"),
            }
        }
        let idle = said.iter().find(|it| it["params"]["update"]["state"] == "idle");
        let background = idle.map(|it| it["params"]["update"]["background"].clone());
        let listed = background.and_then(|list| list.as_array().map(Vec::len));
        assert_eq!(listed, (version == 2).then_some(3), "{said:#?}");
    }
}
