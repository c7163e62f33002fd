//! UPS-09: eager starts, and manifests of earlier processes.

use ceased_core::Event;
use ceased_core::upstream::interface::{UpstreamAction, UpstreamEvent};
use ceased_core::upstream::manifest::Manifest;
use ceased_core::upstream::server::{Share, StartWhen, UpstreamServer};
use serde_json::{Value, json};

use super::kit::{Kit, tool};
use super::{server, shared};

fn eager(of: UpstreamServer) -> UpstreamServer {
    UpstreamServer { start: StartWhen::Eager, ..of }
}

/// A server whose calls have instances of their own starts with the engine; others with the first
/// client, whose capabilities it is told of.
#[test]
fn eager_server_starts_before_it_is_needed() {
    let mut kit = Kit::new(vec![eager(UpstreamServer { share: Share::Call, ..server("s") })]);
    assert!(kit.engine.wants_turn());
    kit.feed(Event::Turn);
    assert_eq!(kit.starts().len(), 1);
    for of in [server("s"), shared()] {
        let mut kit = Kit::new(vec![eager(of), server("lazy")]);
        kit.connect();
        assert!(kit.starts().is_empty());
        kit.open_with(&json!({"roots": {}}));
        assert_eq!(kit.starts().len(), 1);
    }
    let mut kit = Kit::new(vec![eager(server("s"))]);
    let client = kit.connect();
    kit.send(
        client,
        &json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}}),
    );
    assert_eq!(kit.starts().len(), 1);
}

/// The live view asks for the status on a connection of its own.
#[test]
fn status_starts_no_eager_server() {
    let mut kit = Kit::new(vec![eager(server("s"))]);
    let viewer = kit.connect();
    kit.send(
        viewer,
        &json!({"jsonrpc": "2.0", "id": 1, "method": "ceased/status", "params": {
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}}),
    );
    assert_eq!(kit.one(viewer)["result"]["running"], 0);
    assert!(kit.starts().is_empty());
}

/// A manifest that the host kept answers lists at once; the engine has a changed one kept again.
#[test]
fn kept_manifest_answers_until_the_server_tells() {
    let mut kit = Kit::new(vec![server("s")]);
    let text = r#"{"name":"old","inputSchema":{}}"#;
    let manifest = Manifest {
        revision: "2025-06-18".into(),
        identity: r#"{"capabilities":{"tools":{"listChanged":true}}}"#.into(),
        tools: vec![text.into()],
        ..Manifest::default()
    };
    let known = UpstreamEvent::Known { server: "s", manifest: &manifest };
    kit.feed(Event::Upstream(known));
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    assert_eq!(kit.one(client)["result"]["tools"][0]["name"], "old");
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    // The era is known, too: no probe is sent.
    let capabilities = json!({"tools": {"listChanged": true}});
    let identity = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
    let first = kit.one(upstream);
    assert_eq!(first["method"], "initialize");
    kit.answer(upstream, &first, &identity);
    kit.lists(upstream, &[tool("new")]);
    assert_eq!(kit.one(client)["method"], "notifications/tools/list_changed");
    let saved = kit.wanted.iter().find_map(|action| {
        let UpstreamAction::SaveManifest { manifest, .. } = action else { return None };
        Some(manifest.clone())
    });
    let saved: Value = serde_json::to_value(saved.expect("it is kept")).expect("JSON");
    assert!(saved["tools"][0].as_str().expect("text").contains("new"));
    // The manifest of an earlier process does not replace it.
    kit.feed(Event::Upstream(UpstreamEvent::Known { server: "s", manifest: &manifest }));
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    assert_eq!(kit.one(client)["result"]["tools"][0]["name"], "new");
}
