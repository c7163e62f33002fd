//! The era of a server is that of its client, where it has exactly one (UPS-01, UPS-12).

use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::upstream::spoken::Revision;
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, call, initialize, tool};
use super::{server, shared, wrapped};

const SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

fn claim() -> Value {
    json!({VERSION: "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}, "sampling": {}}})
}

/// The first request of a client of 2026-07-28.
pub(super) fn discover() -> Value {
    json!({"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": {"_meta": claim()}})
}

fn refuse(kit: &mut Kit, conn: ConnId, request: &Value) {
    let error = json!({"code": -32601, "message": "unknown\nmethod"});
    kit.send(conn, &json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
}

/// The first request of a client, of its era.
fn greet(revision: &str) -> Value {
    match revision {
        "2026-07-28" => discover(),
        _ => {
            let mut request = initialize(revision);
            request["params"]["capabilities"] =
                json!({"elicitation": {}, "roots": {}, "sampling": {}});
            request
        }
    }
}

/// Answers as a server of both eras, which the first message decides. Returns that message.
fn dual(kit: &mut Kit, upstream: ConnId) -> Value {
    let first = kit.one(upstream);
    let capabilities = json!({"tools": {}});
    let result = match first["method"].as_str() {
        Some("initialize") => {
            let version = &first["params"]["protocolVersion"];
            json!({"protocolVersion": version, "capabilities": capabilities})
        }
        _ => json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities}),
    };
    kit.answer(upstream, &first, &result);
    kit.lists(upstream, &[tool("work")]);
    first
}

fn started(kit: &mut Kit) -> ConnId {
    let instance = kit.starts().remove(0);
    kit.started(instance)
}

/// `ceased wrap` and an instance of one connection: the server is asked in the client's revision.
#[test]
fn server_of_one_client_is_in_its_era() {
    for of in [wrapped, || server("s"), || UpstreamServer { share: Share::Call, ..wrapped() }] {
        for revision in SESSIONS.into_iter().chain(["2026-07-28"]) {
            let mut kit = Kit::new(vec![of()]);
            let client = kit.connect();
            kit.send(client, &greet(revision));
            let list = match revision {
                "2026-07-28" => json!({"_meta": claim()}),
                _ => json!({}),
            };
            kit.send(
                client,
                &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": list}),
            );
            let upstream = started(&mut kit);
            let first = dual(&mut kit, upstream);
            match (revision, of().share) {
                ("2026-07-28", _) => assert_eq!(first["method"], "server/discover"),
                (_, Share::Call) => assert_eq!(first["method"], "initialize"),
                (_, Share::Connection | Share::Identity) => {
                    assert_eq!(first["params"]["protocolVersion"], revision);
                    let told = json!({"elicitation": {}, "roots": {}, "sampling": {}});
                    assert_eq!(first["params"]["capabilities"], told);
                }
            }
        }
    }
}

/// UPS-12: each question of a server reaches a session of every revision that has it.
#[test]
fn server_of_both_eras_asks_a_session() {
    for revision in SESSIONS {
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            if method == "elicitation/create" && revision < "2025-06-18" {
                continue;
            }
            let mut kit = Kit::new(vec![wrapped()]);
            let client = kit.connect();
            kit.send(client, &greet(revision));
            let upstream = started(&mut kit);
            dual(&mut kit, upstream);
            kit.initialized(client);
            kit.read(client);
            kit.send(client, &call(&json!(1), "work"));
            kit.one(upstream);
            let params = json!({"message": "?", "requestedSchema": {"type": "object",
                "properties": {}}, "messages": [], "maxTokens": 1});
            kit.send(
                upstream,
                &json!({"jsonrpc": "2.0", "id": 4, "method": method, "params": params}),
            );
            let asked = kit.one(client);
            assert_eq!(asked["method"], method, "{revision}");
            kit.answer(client, &asked, &json!({"said": method}));
            assert_eq!(kit.one(upstream)["result"]["said"], method);
            // Log lines come without a level.
            let line = json!({"level": "debug", "data": "x"});
            kit.send(
                upstream,
                &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": line}),
            );
            assert_eq!(kit.one(client)["params"], line);
        }
    }
}

/// A shared instance is in the revision whose requests name their client's capabilities.
#[test]
fn shared_server_is_without_sessions_where_it_can() {
    let mut kit = Kit::new(vec![shared()]);
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let upstream = started(&mut kit);
    assert_eq!(dual(&mut kit, upstream)["method"], "server/discover");
}

/// `revision` decides, whatever the client speaks.
#[test]
fn revision_of_the_entry_decides() {
    let cases = [
        ("session", "2026-07-28", "initialize", "2025-11-25"),
        ("session", "2025-03-26", "initialize", "2025-03-26"),
        ("2025-06-18", "2025-11-25", "initialize", "2025-06-18"),
        ("2025-06-18", "2026-07-28", "initialize", "2025-06-18"),
        ("2026-07-28", "2025-11-25", "server/discover", ""),
        ("2026-07-28", "2026-07-28", "server/discover", ""),
    ];
    for (word, client_speaks, method, asked) in cases {
        let revision = Revision::of(word).expect("a word");
        let mut kit = Kit::new(vec![UpstreamServer { revision, ..wrapped() }]);
        let client = kit.connect();
        kit.send(client, &greet(client_speaks));
        let upstream = started(&mut kit);
        let first = dual(&mut kit, upstream);
        assert_eq!(first["method"], method, "{word}");
        let version = first["params"]["protocolVersion"].as_str().unwrap_or_default();
        assert_eq!(version, asked, "{word} {client_speaks}");
        assert!(kit.one(client)["result"].is_object());
    }
}

/// A server that does not have the only wanted revision fails with a clear text, and gets no
/// further message.
#[test]
fn wanted_revision_that_is_missing_is_an_error() {
    let modern = UpstreamServer { revision: Revision::Stateless, ..wrapped() };
    let mut kit = Kit::new(vec![modern]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    kit.pass(5000);
    kit.silent(upstream);
    refuse(&mut kit, upstream, &first);
    kit.silent(upstream);
    kit.ended(instance, "exit code 0", "");
    let error = kit.one(client)["error"]["message"].to_string();
    assert!(error.contains("does not speak 2026-07-28"), "{error}");
    let session = UpstreamServer { revision: Revision::Session, ..wrapped() };
    let mut kit = Kit::new(vec![session]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    refuse(&mut kit, upstream, &first);
    kit.silent(upstream);
    kit.ended(instance, "exit code 0", "");
    let error = kit.one(client)["error"]["message"].to_string();
    assert!(error.contains("refuses initialize: unknown method"), "{error}");
}

/// A probe went out, and was not answered with a result: whatever the process does instead of a
/// handshake, it is started again without the probe, once, and the server gets none any more.
#[test]
fn probe_never_costs_a_start() {
    let ways = ["dies", "dies late", "refuses", "refuses late", "closes its output"];
    for way in ways {
        let mut kit = Kit::new(vec![server("s")]);
        let client = kit.connect();
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
            "params": {"_meta": claim()}});
        kit.send(client, &list);
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        let probe = kit.one(upstream);
        assert_eq!(probe["method"], "server/discover");
        if way.ends_with("late") {
            kit.pass(20_000);
            assert_eq!(kit.one(upstream)["method"], "initialize");
        }
        match way {
            "dies" | "dies late" => kit.ended(instance, "exit code 1", "initialize first\n"),
            "closes its output" => {
                kit.feed(Event::Closed { conn: upstream });
                assert!(matches!(kit.want(), UpstreamAction::End { .. }));
                kit.ended(instance, "signal 15", "");
            }
            _ => {
                refuse(&mut kit, upstream, &probe);
                let initialize = kit.read(upstream).pop();
                let id = initialize.map_or(json!(2), |request| request["id"].clone());
                refuse(&mut kit, upstream, &json!({"id": id}));
                assert!(matches!(kit.want(), UpstreamAction::End { .. }), "{way}");
                kit.silent(client);
                kit.ended(instance, "exit code 0", "");
            }
        }
        kit.silent(client);
        let again = kit.starts().remove(0);
        let upstream = kit.started(again);
        kit.handshake(upstream, &[tool("work")]);
        assert_eq!(kit.one(client)["result"]["tools"][0]["name"], "work", "{way}");
        // It is remembered for the server.
        kit.ended(again, "exit code 1", "");
        let mut request = call(&json!(2), "work");
        request["params"]["_meta"] = claim();
        kit.send(client, &request);
        let upstream = started(&mut kit);
        assert_eq!(kit.one(upstream)["method"], "initialize", "{way}");
    }
}

/// The start after the probe fails as any other, and does not loop.
#[test]
fn failure_without_the_probe_is_one() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &discover());
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.one(upstream);
    kit.ended(instance, "exit code 1", "");
    let again = kit.starts().remove(0);
    let upstream = kit.started(again);
    let first = kit.one(upstream);
    refuse(&mut kit, upstream, &first);
    let probe = kit.one(upstream);
    assert_eq!(probe["method"], "server/discover", "it may have no sessions");
    refuse(&mut kit, upstream, &probe);
    kit.ended(again, "exit code 1", "no key\n");
    let error = kit.one(client)["error"]["message"].to_string();
    assert!(error.contains("refuses initialize") && error.contains("no key"), "{error}");
    assert!(kit.starts().is_empty());
}

/// A client that asks `server/discover` first and then begins a session has one with its server.
#[test]
fn session_after_a_probe_of_the_client_renews_its_server() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &discover());
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    assert_eq!(dual(&mut kit, upstream)["method"], "server/discover");
    kit.one(client);
    kit.wanted.clear();
    kit.send(client, &greet("2025-06-18"));
    assert!(kit.wanted.iter().any(|action| matches!(action, UpstreamAction::End { .. })));
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    kit.send(client, &call(&json!(2), "work"));
    let upstream = started(&mut kit);
    let first = dual(&mut kit, upstream);
    assert_eq!(first["params"]["protocolVersion"], "2025-06-18");
}

/// With `share = "call"` a warm instance of the other era gives way to one of the caller's.
#[test]
fn instance_of_a_call_is_in_the_era_of_its_client() {
    let mut kit = Kit::new(vec![UpstreamServer { share: Share::Call, ..server("s") }]);
    let (session, modern) = (kit.open(), kit.connect());
    kit.send(session, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let upstream = started(&mut kit);
    assert_eq!(dual(&mut kit, upstream)["method"], "initialize");
    kit.read(session);
    let mut request = call(&json!(1), "work");
    request["params"]["_meta"] = claim();
    kit.send(modern, &request);
    let starts = kit.starts();
    assert_eq!(starts.len(), 2, "one for the call, and a warm one");
    for instance in starts {
        let upstream = kit.started(instance);
        assert_eq!(dual(&mut kit, upstream)["method"], "server/discover");
    }
}

/// A server that declares nothing has its tools listed all the same.
#[test]
fn tools_of_a_server_without_capabilities_are_listed() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let upstream = started(&mut kit);
    let identity = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    kit.settle(upstream, &identity, &[tool("work")]);
    kit.read(client);
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    kit.lists(upstream, &[tool("work")]);
    assert_eq!(kit.one(client)["result"]["tools"][0]["name"], "work");
}

/// A revision before the first published one has its messages; any other unknown one is named.
#[test]
fn unknown_revision_of_a_server_is_named() {
    for (answer, is_known) in [("2024-10-07", true), ("2099-01-01", false), ("latest", false)] {
        let mut kit = Kit::new(vec![wrapped()]);
        let client = kit.connect();
        kit.send(client, &initialize("2025-11-25"));
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        let first = kit.one(upstream);
        let identity = json!({"protocolVersion": answer, "capabilities": {"tools": {}}});
        kit.answer(upstream, &first, &identity);
        kit.lists(upstream, &[tool("work")]);
        if !is_known {
            kit.ended(instance, "exit code 0", "");
        }
        let said = kit.one(client);
        match is_known {
            true => assert_eq!(said["result"]["protocolVersion"], "2025-11-25"),
            false => {
                let error = said["error"]["message"].to_string();
                assert!(error.contains(answer) && error.contains("2024-11-05"), "{error}");
            }
        }
    }
}
