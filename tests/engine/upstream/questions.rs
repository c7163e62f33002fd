//! UPS-12: requests of servers to clients reach the client whose call caused them.

use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, call, cancel, tool};
use super::{server, shared};

const ABLE: &str = r#"{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"tasks":{}}"#;

fn able() -> Value {
    serde_json::from_str(ABLE).expect("JSON")
}

fn session() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}})
}

fn stateless() -> Value {
    json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
}

/// A client that answers everything, and its instance.
fn ready(of: UpstreamServer, identity: &Value) -> (Kit, ConnId, ConnId, Value) {
    let mut kit = Kit::new(vec![of]);
    let client = kit.open_with(&able());
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let declared = kit.settle(upstream, identity, &[tool("work")]);
    kit.read(client);
    kit.wanted.clear();
    (kit, client, upstream, declared)
}

fn elicit(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {
        "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}},
        "_meta": {"progressToken": 9, "x/y": [1.50]}}})
}

/// A call of a client without a session, that can be asked.
fn modern_call(id: u64, extra: &Value) -> Value {
    let mut request = call(&json!(id), "work");
    request["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "roots": {}},
    });
    for (name, value) in extra.as_object().expect("members") {
        request["params"][name] = value.clone();
    }
    request
}

/// The capabilities of the only client are declared, but for tasks, which are not passed on.
#[test]
fn instance_of_one_client_is_told_its_capabilities() {
    let (.., declared) = ready(server("s"), &session());
    let mut expected = able();
    expected.as_object_mut().expect("an object").remove("tasks");
    assert_eq!(declared, expected);
    let (.., declared) = ready(shared(), &session());
    assert_eq!(declared, json!({}), "several clients could be asked");
}

/// The id of the server's request comes back as it was, and ours is new; other bytes stay.
#[test]
fn question_reaches_the_client_of_the_call() {
    for id in [json!(0), json!("a"), json!(-7)] {
        let (mut kit, client, upstream, _) = ready(server("s"), &session());
        kit.send(client, &call(&json!(1), "work"));
        let relayed = kit.one(upstream);
        kit.send(upstream, &elicit(&id));
        let mut asked = kit.one(client);
        assert_eq!(asked["method"], "elicitation/create");
        assert_ne!(asked["id"], id);
        // UPS-17: the server wants progress, under a token of ours.
        let token = asked["params"]["_meta"].as_object_mut().expect("it").remove("progressToken");
        assert!(token.is_some_and(|token| token.as_str().is_some()));
        let meta = json!({"x/y": [1.50]});
        assert_eq!(
            (&asked["params"]["message"], &asked["params"]["_meta"]),
            (&json!("Sure?"), &meta)
        );
        let result = r#"{"action":"accept","content":{"a": 1.50}}"#;
        kit.line(client, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, asked["id"]));
        let answer = kit.lines(upstream);
        assert_eq!(answer, [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)]);
        kit.answer(client, &asked, &json!({}));
        kit.silent(upstream);
        kit.answer(upstream, &relayed, &json!({"content": []}));
        assert_eq!(kit.one(client)["id"], 1);
    }
}

/// Errors of the client are the server's answer, with their code and data.
#[test]
fn error_of_the_client_reaches_the_server() {
    let (mut kit, client, upstream, _) = ready(server("s"), &session());
    kit.send(client, &call(&json!(1), "work"));
    kit.one(upstream);
    kit.send(upstream, &elicit(&json!(5)));
    let asked = kit.one(client);
    let error = json!({"code": -1, "message": "declined", "data": {"x": 1}});
    kit.send(client, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    assert_eq!(kit.one(upstream), json!({"jsonrpc": "2.0", "id": 5, "error": error}));
}

/// Outside every call, and during several, the only client of an instance is asked itself.
#[test]
fn only_client_is_asked_without_a_call() {
    let (mut kit, client, upstream, _) = ready(server("s"), &session());
    for calls in 0..3 {
        if calls > 0 {
            kit.send(client, &call(&json!(calls), "work"));
            kit.one(upstream);
        }
        let roots = json!({"jsonrpc": "2.0", "id": calls, "method": "roots/list"});
        kit.send(upstream, &roots);
        let asked = kit.one(client);
        assert_eq!(asked["method"], "roots/list");
        kit.answer(client, &asked, &json!({"roots": [{"uri": "file:///x"}]}));
        assert_eq!(kit.one(upstream)["result"]["roots"][0]["uri"], "file:///x");
    }
    kit.send(client, &json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    assert_eq!(kit.one(upstream)["method"], "notifications/roots/list_changed");
}

/// On a shared instance a question needs one call in flight, or names its call.
#[test]
fn question_on_a_shared_instance_is_never_guessed() {
    let (mut kit, ann, upstream, _) = ready(shared(), &session());
    let bob = kit.open_with(&able());
    let mut calls = Vec::new();
    for client in [ann, bob] {
        let mut request = call(&json!(1), "work");
        request["params"]["_meta"] = json!({"progressToken": "t"});
        kit.send(client, &request);
        calls.push(kit.one(upstream));
        if client == ann {
            kit.send(upstream, &elicit(&json!("first")));
            let asked = kit.one(ann);
            kit.answer(ann, &asked, &json!({"action": "decline"}));
            assert_eq!(kit.one(upstream)["id"], "first");
        }
    }
    kit.send(upstream, &elicit(&json!("guess")));
    assert_eq!(kit.one(upstream)["error"]["code"], -32601);
    kit.silent(ann);
    kit.silent(bob);
    let mut named = elicit(&json!("named"));
    // The token as a text of its digits names the same call.
    named["params"]["_meta"]["progressToken"] =
        json!(calls[1]["params"]["_meta"]["progressToken"].to_string());
    kit.send(upstream, &named);
    kit.silent(ann);
    let asked = kit.one(bob);
    // Ann cannot answer for Bob, even with the right id.
    kit.answer(ann, &asked, &json!({"action": "accept"}));
    kit.silent(upstream);
    kit.answer(bob, &asked, &json!({"action": "accept"}));
    assert_eq!(kit.one(upstream)["id"], "named");
    // A cancelled call counts as one that the server may still work on.
    kit.send(ann, &cancel(&json!(1)));
    kit.pong(upstream);
    kit.send(upstream, &elicit(&json!("late")));
    assert_eq!(kit.one(upstream)["error"]["code"], -32601);
}

/// A client that did not declare a capability is not asked.
#[test]
fn undeclared_capability_is_not_used() {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.open_with(&json!({"roots": {}}));
    kit.send(client, &call(&json!(1), "work"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    assert_eq!(kit.settle(upstream, &session(), &[tool("work")]), json!({"roots": {}}));
    kit.read(client);
    kit.send(upstream, &elicit(&json!(2)));
    assert_eq!(kit.one(upstream)["error"]["code"], -32601);
    kit.silent(client);
}

/// CAN-01, CAN-08: the server withdraws its question; a late answer reaches it no more.
#[test]
fn server_withdraws_its_question() {
    let (mut kit, client, upstream, _) = ready(server("s"), &session());
    for calls in 1..3 {
        kit.send(client, &call(&json!(calls), "work"));
        kit.one(upstream);
        kit.send(upstream, &elicit(&json!("q")));
        let asked = kit.one(client);
        kit.send(upstream, &cancel(&json!("q")));
        let told = kit.one(client);
        assert_eq!(told["method"], "notifications/cancelled");
        assert_eq!(told["params"], json!({"requestId": asked["id"], "reason": "enough"}));
        kit.answer(client, &asked, &json!({"action": "accept"}));
        kit.send(upstream, &cancel(&json!("q")));
        kit.silent(upstream);
        kit.silent(client);
    }
}

/// A question is withdrawn together with its call at any end of that, and answered with an error.
#[test]
fn question_ends_with_its_call() {
    for way in ["cancelled", "answered"] {
        let (mut kit, client, upstream, _) = ready(server("s"), &session());
        kit.send(client, &call(&json!(1), "work"));
        let relayed = kit.one(upstream);
        kit.send(upstream, &elicit(&json!(3)));
        let asked = kit.one(client);
        match way {
            "cancelled" => kit.send(client, &cancel(&json!(1))),
            _ => kit.answer(upstream, &relayed, &json!({"content": []})),
        }
        let told = kit.read(client);
        assert_eq!(told[0]["params"]["requestId"], asked["id"], "{way}");
        let answers = kit.pong(upstream);
        let error = answers.iter().find(|message| message["id"] == 3).expect("an answer");
        assert!(error["error"].is_object(), "{way}");
        assert_eq!(answers.len(), if way == "cancelled" { 2 } else { 1 });
    }
}

/// The end of either side leaves no question behind.
#[test]
fn question_ends_with_client_and_server() {
    let (mut kit, client, upstream, _) = ready(shared(), &session());
    kit.send(client, &call(&json!(1), "work"));
    kit.one(upstream);
    kit.send(upstream, &elicit(&json!(3)));
    kit.one(client);
    kit.feed(Event::Closed { conn: client });
    let answers = kit.pong(upstream);
    assert!(answers.iter().any(|message| message["id"] == 3 && message["error"].is_object()));

    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.open_with(&able());
    kit.send(client, &call(&json!(1), "work"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &session(), &[tool("work")]);
    kit.read(client);
    kit.send(upstream, &elicit(&json!(3)));
    let asked = kit.one(client);
    kit.ended(instance, "signal 9", "");
    let told = kit.read(client);
    assert_eq!(told[0]["params"]["requestId"], asked["id"]);
    assert!(told[1]["error"].is_object());
}

/// A server with sessions asks a client without one: the question is its answer, and the retry
/// goes on with the same call of the server.
#[test]
fn old_server_asks_a_new_client() {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.connect();
    kit.send(client, &modern_call(1, &json!({})));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let declared = kit.settle(upstream, &session(), &[tool("work")]);
    assert_eq!(declared, json!({"elicitation": {"form": {}}, "roots": {}}));
    let relayed = kit.early.remove(0);
    assert!(relayed["params"].get("_meta").is_none(), "{relayed}");
    kit.send(upstream, &elicit(&json!(4)));
    let asks = kit.one(client);
    assert_eq!(asks["result"]["resultType"], "input_required");
    let inputs = asks["result"]["inputRequests"].as_object().expect("inputs");
    let (key, input) = inputs.iter().next().expect("one input");
    assert_eq!(input["method"], "elicitation/create");
    let retry = json!({"requestState": asks["result"]["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {}}}});
    kit.send(client, &modern_call(2, &retry));
    let answer = kit.one(upstream);
    assert_eq!((&answer["id"], &answer["result"]["action"]), (&json!(4), &json!("accept")));
    kit.answer(upstream, &relayed, &json!({"content": []}));
    let done = kit.one(client);
    assert_eq!((&done["id"], &done["result"]["resultType"]), (&json!(2), &json!("complete")));
}

/// Both sides without sessions: the question passes, and the state reaches the server byte for
/// byte with the retry.
#[test]
fn state_of_a_server_passes_through() {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.connect();
    kit.send(client, &modern_call(1, &json!({})));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &stateless(), &[tool("work")]);
    let relayed = kit.early.remove(0);
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let own = json!({"elicitation": {"form": {}}, "roots": {}});
    assert_eq!(relayed["params"]["_meta"][capabilities], own);
    let asks = r#""resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?", "x":1.50}}},"requestState":"a\u0062\/c""#;
    kit.line(
        upstream,
        &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{{asks}}}}}"#, relayed["id"]),
    );
    let line = kit.lines(client).remove(0);
    assert!(line.contains(r#""requestState":"a\u0062\/c""#), "{line}");
    assert!(
        line.contains(r#""resultType":"input_required""#) && !line.contains("complete"),
        "{line}"
    );
    let retry = modern_call(2, &json!({"inputResponses": {"k": {"action": "accept"}}})).to_string();
    let retry = retry.replacen(r#""name":"#, r#""requestState":"a\u0062\/c","name":"#, 1);
    kit.line(client, &retry);
    let line = kit.lines(upstream).remove(0);
    assert!(line.contains(r#""requestState":"a\u0062\/c""#), "{line}");
    assert!(line.contains(r#""inputResponses":{"k":{"action":"accept"}}"#), "{line}");
    let again: Value = serde_json::from_str(&line).expect("JSON");
    kit.answer(upstream, &again, &json!({"resultType": "complete", "content": []}));
    assert_eq!(kit.one(client)["result"]["resultType"], "complete");
}

/// A server without sessions asks a client with one: it is asked by requests, and the call is sent
/// again with its answers.
#[test]
fn new_server_asks_an_old_client() {
    let (mut kit, client, upstream, _) = ready(server("s"), &stateless());
    kit.send(client, &call(&json!(1), "work"));
    let mut relayed = kit.one(upstream);
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    assert_eq!(relayed["params"]["_meta"][capabilities]["sampling"], json!({"tools": {}}));
    for round in 0..2 {
        let asks = json!({"resultType": "input_required", "requestState": format!("s{round}"),
            "inputRequests": {"a": {"method": "roots/list"},
                "b": {"method": "elicitation/create", "params": {"message": "?"}}}});
        kit.answer(upstream, &relayed, &asks);
        let asked = kit.read(client);
        assert_eq!(asked.len(), 2);
        kit.answer(client, &asked[1], &json!({"second": 2}));
        kit.silent(upstream);
        kit.answer(client, &asked[0], &json!({"first": 1}));
        let again = kit.one(upstream);
        assert_ne!(again["id"], relayed["id"]);
        assert_eq!(again["params"]["requestState"], format!("s{round}"));
        assert_eq!(again["params"]["name"], "work");
        let mut responses: Vec<String> = again["params"]["inputResponses"]
            .as_object()
            .expect("all")
            .values()
            .map(Value::to_string)
            .collect();
        responses.sort();
        assert_eq!(responses, [r#"{"first":1}"#, r#"{"second":2}"#]);
        relayed = again;
    }
    kit.answer(upstream, &relayed, &json!({"resultType": "complete", "content": [1]}));
    assert_eq!(kit.one(client)["result"]["content"], json!([1]));
    // A cancel while the client is asked leaves nothing behind.
    kit.send(client, &call(&json!(2), "work"));
    let relayed = kit.one(upstream);
    let asks =
        json!({"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}});
    kit.answer(upstream, &relayed, &asks);
    kit.one(client);
    kit.send(client, &cancel(&json!(2)));
    assert_eq!(kit.one(client)["method"], "notifications/cancelled");
    assert_eq!(kit.proof(), Some("answered"));
    kit.silent(upstream);
}

/// Only a confirmed call of a relayed tool is sent.
#[test]
fn relayed_tool_runs_after_its_confirmation() {
    let of = UpstreamServer {
        confirm: [("work".into(), "Really work?".into())].into(),
        prefix: "p_".into(),
        ..server("s")
    };
    let (mut kit, client, upstream, _) = ready(of, &session());
    for (answer, runs) in [("decline", false), ("accept", true)] {
        kit.send(client, &call(&json!(answer), "p_work"));
        kit.silent(upstream);
        let asked = kit.one(client);
        assert_eq!(asked["params"]["message"], "Really work?");
        kit.answer(client, &asked, &json!({"action": answer}));
        if runs {
            let relayed = kit.one(upstream);
            kit.answer(upstream, &relayed, &json!({"content": []}));
        } else {
            kit.silent(upstream);
        }
        let result = kit.one(client)["result"].clone();
        assert_eq!(result["isError"] == true, !runs, "{result}");
    }
    kit.send(client, &call(&json!(9), "p_work"));
    kit.one(client);
    kit.send(client, &cancel(&json!(9)));
    assert_eq!(kit.proof(), Some("unsent"));
    kit.silent(upstream);
    // A client that cannot be asked runs nothing.
    let mute = kit.open();
    kit.send(mute, &call(&json!(1), "p_work"));
    assert_eq!(kit.one(mute)["result"]["isError"], true);
}

/// A call that has an instance of its own is asked for without doubt.
#[test]
fn instance_of_one_call_asks_its_client() {
    let of = UpstreamServer { share: Share::Call, warm: 0, ..server("s") };
    let mut kit = Kit::new(vec![of]);
    let clients = [kit.open_with(&able()), kit.open_with(&able())];
    let mut upstreams = Vec::new();
    for client in clients {
        kit.send(client, &call(&json!(1), "work"));
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        let declared = kit.settle(upstream, &session(), &[tool("work")]);
        assert!(declared["elicitation"].is_object());
        upstreams.push(upstream);
        kit.read(client);
    }
    for (client, upstream) in clients.into_iter().zip(upstreams).rev() {
        kit.send(upstream, &elicit(&json!(1)));
        let asked = kit.one(client);
        kit.answer(client, &asked, &json!({"action": "accept"}));
        assert_eq!(kit.one(upstream)["result"]["action"], "accept");
    }
}
