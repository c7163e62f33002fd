//! Requests and changes of servers wait until their client is initialized (2025-11-25, lifecycle).

use ceased_core::ConnId;
use serde_json::{Value, json};

use super::kit::{Kit, cancel, initialize, tool};
use super::wrapped;

/// A client that waits for the answer to `initialize`, and its server after its handshake.
fn ready() -> (Kit, ConnId, ConnId) {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    let mut request = initialize("2025-11-25");
    request["params"]["capabilities"] = json!({"roots": {"listChanged": true}});
    kit.send(client, &request);
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    let capabilities = json!({"tools": {"listChanged": true}});
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities});
    kit.answer(upstream, &first, &result);
    (kit, client, upstream)
}

fn roots(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"})
}

/// Neither comes before the client says that it is initialized, then both, in their order.
#[test]
fn questions_and_changes_wait_for_initialized() {
    for by_request in [false, true] {
        let (mut kit, client, upstream) = ready();
        kit.send(upstream, &roots(5));
        kit.send(upstream, &roots(6));
        kit.lists(upstream, &[tool("work")]);
        kit.send(
            upstream,
            &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        );
        kit.lists(upstream, &[tool("work"), tool("other")]);
        let answer = kit.one(client);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        kit.send(client, &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
        assert_eq!(kit.one(client)["id"], 1);
        match by_request {
            false => kit.initialized(client),
            // A client that makes requests is initialized, whatever it has said.
            true => kit.send(client, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})),
        }
        let said = kit.read(client);
        let methods: Vec<&str> = said.iter().filter_map(|it| it["method"].as_str()).collect();
        assert_eq!(methods, ["roots/list", "roots/list", "notifications/tools/list_changed"]);
        for (asked, id) in said.iter().zip([5, 6]) {
            kit.answer(client, asked, &json!({"roots": []}));
            let told = kit.read(upstream);
            let answer = told.iter().find(|message| message.get("result").is_some());
            assert_eq!(answer.expect("it is answered")["id"], id);
        }
        // Nothing is held from then on.
        kit.send(upstream, &roots(7));
        assert_eq!(kit.one(client)["method"], "roots/list");
    }
}

/// CAN-08: a request that its server withdraws meanwhile never reaches the client.
#[test]
fn withdrawn_question_does_not_come() {
    let (mut kit, client, upstream) = ready();
    kit.lists(upstream, &[]);
    kit.read(client);
    kit.send(upstream, &roots(5));
    kit.send(upstream, &cancel(&json!(5)));
    kit.initialized(client);
    kit.silent(client);
    kit.silent(upstream);
}

/// The held requests are bounded as those under way, and an end of the client answers them.
#[test]
fn held_questions_are_bounded_and_answered() {
    let (mut kit, client, upstream) = ready();
    kit.lists(upstream, &[]);
    kit.read(client);
    let max = ceased_core::limits::Limits::default().calls_max as u64;
    for id in 0..=max {
        kit.send(upstream, &roots(id));
    }
    let refused = kit.one(upstream);
    assert_eq!(refused["id"], max);
    kit.feed(ceased_core::Event::Closed { conn: client });
    let answers = kit.read(upstream);
    assert_eq!(answers.iter().filter(|it| it["error"].is_object()).count() as u64, max);
}
