//! UPS-10, MOD-08: changes of lists and updates of resources between clients and servers of every
//! revision.

use ceased_core::ids::InstanceId;
use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{ConnId, Event, Rights, Role};
use serde_json::{Value, json};

use super::kit::{Kit, USER, cancel, tool};
use super::{server, shared};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const ABLE: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn modern() -> Value {
    json!({"supportedVersions": ["2026-07-28"], "capabilities": {
        "tools": {"listChanged": true}, "prompts": {"listChanged": true},
        "resources": {"subscribe": true}}})
}

fn session() -> Value {
    json!({"protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"},
        "capabilities": {"tools": {}, "prompts": {"listChanged": true},
            "resources": {"subscribe": true}}})
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn note(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params})
}

fn listen(id: u64, topics: &Value) -> Value {
    let meta = json!({VERSION: "2026-07-28", ABLE: {}});
    request(id, "subscriptions/listen", &json!({"_meta": meta, "notifications": topics}))
}

/// A client with a session, and an instance of this kind of server; requests of the handshake
/// that are no lists are among the early ones.
fn ready(of: UpstreamServer, identity: &Value) -> (Kit, ConnId, ConnId, InstanceId) {
    let mut kit = Kit::new(vec![of]);
    let client = kit.open();
    kit.send(client, &request(0, "tools/list", &json!({})));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, identity, &[tool("work")]);
    kit.read(client);
    kit.wanted.clear();
    (kit, client, upstream, instance)
}

/// Acknowledges a subscription of the engine with all that it names.
fn acknowledge(kit: &mut Kit, upstream: ConnId, listen: &Value) {
    assert_eq!(listen["method"], "subscriptions/listen", "{listen}");
    let params = json!({"_meta": {SUBSCRIPTION: listen["id"]},
        "notifications": listen["params"]["notifications"]});
    kit.send(upstream, &note("subscriptions/acknowledged", &params));
}

fn changed(kit: &mut Kit, upstream: ConnId, listen: &Value, list: &str) {
    let meta = json!({"_meta": {SUBSCRIPTION: listen["id"]}});
    kit.send(upstream, &note(&format!("{list}/list_changed"), &meta));
}

/// The engine listens to the lists that a server declares, and clients of both eras hear of a
/// change, also if the list is the same again afterwards.
#[test]
fn changed_lists_of_a_stateless_server_reach_every_client() {
    let (mut kit, client, upstream, _) = ready(shared(), &modern());
    let asked = kit.early.remove(0);
    assert_eq!(asked["params"]["_meta"][VERSION], "2026-07-28");
    let topics = json!({"toolsListChanged": true, "promptsListChanged": true});
    assert_eq!(asked["params"]["notifications"], topics);
    acknowledge(&mut kit, upstream, &asked);
    let listener = kit.connect();
    kit.send(listener, &listen(7, &json!({"toolsListChanged": true})));
    assert_eq!(kit.one(listener)["method"], "notifications/subscriptions/acknowledged");

    changed(&mut kit, upstream, &asked, "tools");
    kit.lists(upstream, &[tool("work")]);
    assert_eq!(kit.one(client)["method"], "notifications/tools/list_changed");
    let told = kit.one(listener);
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"][SUBSCRIPTION], 7);

    // A list that is another one is announced once.
    changed(&mut kit, upstream, &asked, "tools");
    kit.lists(upstream, &[tool("other")]);
    assert_eq!(kit.one(client)["method"], "notifications/tools/list_changed");
    kit.one(listener);
    // A list that the client has not opted into is not announced to it.
    changed(&mut kit, upstream, &asked, "prompts");
    kit.lists(upstream, &[tool("other")]);
    assert_eq!(kit.one(client)["method"], "notifications/prompts/list_changed");
    kit.silent(listener);
}

/// A change that one client's own instance tells of is not news for the clients of others.
#[test]
fn unchanged_list_is_told_to_the_clients_of_its_instance_alone() {
    let (mut kit, client, upstream, _) = ready(server("s"), &session());
    let other = kit.open();
    kit.send(upstream, &note("prompts/list_changed", &json!({})));
    kit.lists(upstream, &[tool("work")]);
    assert_eq!(kit.one(client)["method"], "notifications/prompts/list_changed");
    kit.silent(other);
}

/// A session's `resources/subscribe` becomes a topic of the subscription at the server, and is
/// answered with its acknowledgement; the one before is cancelled after that.
#[test]
fn session_subscribes_to_a_resource_of_a_stateless_server() {
    let (mut kit, client, upstream, _) = ready(server("s"), &modern());
    let first = kit.early.remove(0);
    kit.send(client, &request(1, "resources/subscribe", &json!({"uri": "x://a"})));
    kit.silent(upstream);
    acknowledge(&mut kit, upstream, &first);
    let second = kit.one(upstream);
    assert_eq!(second["params"]["notifications"]["resourceSubscriptions"], json!(["x://a"]));
    assert_eq!(second["params"]["notifications"]["toolsListChanged"], true);
    kit.silent(client);
    acknowledge(&mut kit, upstream, &second);
    let ended = kit.one(upstream);
    assert_eq!(ended["method"], "notifications/cancelled");
    assert_eq!(ended["params"]["requestId"], first["id"]);
    assert_eq!(kit.one(client)["result"], json!({}));

    let meta = json!({SUBSCRIPTION: second["id"], "k": 1});
    let params = json!({"uri": "x://a", "_meta": meta});
    kit.send(upstream, &note("resources/updated", &params));
    assert_eq!(kit.one(client)["params"], json!({"uri": "x://a", "_meta": {"k": 1}}));

    kit.send(client, &request(2, "resources/unsubscribe", &json!({"uri": "x://a"})));
    assert_eq!(kit.one(client)["result"], json!({}));
    let third = kit.one(upstream);
    assert_eq!(third["params"]["notifications"].get("resourceSubscriptions"), None);
    kit.send(upstream, &note("resources/updated", &params));
    kit.silent(client);
}

/// A resource that the server does not grant is an error, and not watched.
#[test]
fn resource_without_updates_is_refused() {
    let (mut kit, client, upstream, _) = ready(server("s"), &modern());
    let first = kit.early.remove(0);
    acknowledge(&mut kit, upstream, &first);
    kit.send(client, &request(1, "resources/subscribe", &json!({"uri": "x://a"})));
    let mut second = kit.one(upstream);
    second["params"]["notifications"]["resourceSubscriptions"] = json!([]);
    acknowledge(&mut kit, upstream, &second);
    let error = kit.one(client)["error"].clone();
    assert_eq!(error["code"], -32601, "{error}");
    assert!(error["message"].as_str().unwrap().contains("x://a"), "{error}");
    kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a"})));
    kit.silent(client);
}

/// A server that refuses to listen is not asked again, and subscriptions are refused.
#[test]
fn server_without_subscriptions_is_asked_once() {
    let (mut kit, client, upstream, _) = ready(server("s"), &modern());
    let first = kit.early.remove(0);
    let error = json!({"code": -32601, "message": "no"});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": first["id"], "error": error}));
    kit.silent(upstream);
    kit.send(client, &request(1, "resources/subscribe", &json!({"uri": "x://a"})));
    assert_eq!(kit.one(client)["error"]["code"], -32601);
    kit.silent(upstream);
}

/// A server may end a subscription by its answer or by a cancel; another one follows, unless each
/// ends at once.
#[test]
fn ended_subscription_is_opened_again() {
    let (mut kit, _, upstream, _) = ready(server("s"), &modern());
    let mut open = kit.early.remove(0);
    for by_cancel in [false, true] {
        acknowledge(&mut kit, upstream, &open);
        kit.pass(1000);
        match by_cancel {
            false => kit.answer(upstream, &open, &json!({"resultType": "complete"})),
            true => kit.send(upstream, &cancel(&open["id"])),
        }
        open = kit.one(upstream);
        assert_eq!(open["method"], "subscriptions/listen");
    }
    acknowledge(&mut kit, upstream, &open);
    kit.answer(upstream, &open, &json!({"resultType": "complete"}));
    kit.silent(upstream);
}

/// A cancelled `resources/subscribe` is not a topic any more.
#[test]
fn cancelled_subscribe_is_forgotten() {
    let (mut kit, client, upstream, _) = ready(server("s"), &modern());
    let first = kit.early.remove(0);
    acknowledge(&mut kit, upstream, &first);
    kit.send(client, &request(1, "resources/subscribe", &json!({"uri": "x://a"})));
    let second = kit.one(upstream);
    kit.send(client, &cancel(&json!(1)));
    acknowledge(&mut kit, upstream, &second);
    let rest = kit.read(upstream);
    let third = rest.iter().find(|message| message["method"] == "subscriptions/listen");
    let third = third.expect("the topics are others now");
    assert_eq!(third["params"]["notifications"].get("resourceSubscriptions"), None);
    kit.silent(client);
}

/// A subscription to a resource by `subscriptions/listen` reaches servers of both eras, and is
/// taken back when it ends, by its cancel or with its connection.
#[test]
fn listener_watches_a_resource_of_either_era() {
    for identity in [modern(), session()] {
        for by_cancel in [true, false] {
            let is_modern = identity.get("supportedVersions").is_some();
            let (mut kit, session, upstream, _) = ready(shared(), &identity);
            if is_modern {
                let first = kit.early.remove(0);
                acknowledge(&mut kit, upstream, &first);
            }
            let listener = kit.connect();
            let uris = json!({"resourceSubscriptions": ["x://a", "y://unknown"]});
            kit.send(listener, &listen(3, &uris));
            let told = kit.one(listener);
            assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
            let granted = &told["params"]["notifications"]["resourceSubscriptions"];
            assert!(granted.as_array().unwrap().contains(&json!("x://a")), "{told}");
            let mut asked = kit.read(upstream);
            match is_modern {
                true => {
                    let open = asked.pop().unwrap();
                    let uris = &open["params"]["notifications"]["resourceSubscriptions"];
                    assert!(uris.as_array().unwrap().contains(&json!("x://a")), "{open}");
                    acknowledge(&mut kit, upstream, &open);
                    let rest = kit.one(upstream);
                    assert_eq!(rest["method"], "notifications/cancelled", "one takes all topics");
                }
                false => {
                    assert_eq!(asked[0]["method"], "resources/subscribe");
                    assert_eq!(asked[0]["params"]["uri"], "x://a");
                }
            }
            kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a", "x": 1})));
            let told = kit.one(listener);
            assert_eq!(told["method"], "notifications/resources/updated");
            let meta = json!({SUBSCRIPTION: 3});
            assert_eq!(told["params"], json!({"uri": "x://a", "x": 1, "_meta": meta}));
            kit.silent(session);
            match by_cancel {
                true => kit.send(listener, &cancel(&json!(3))),
                false => kit.feed(Event::Closed { conn: listener }),
            }
            let left = kit.read(upstream);
            let methods: Vec<&Value> = left.iter().map(|message| &message["method"]).collect();
            match is_modern {
                true => assert!(!methods.is_empty(), "the topics are others now"),
                false => assert!(methods.contains(&&json!("resources/unsubscribe")), "{left:?}"),
            }
            kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a"})));
            kit.silent(listener);
        }
    }
}

/// A server that declares no updates grants none.
#[test]
fn listener_is_granted_what_servers_declare() {
    let quiet = json!({"protocolVersion": "2025-06-18", "capabilities": {"resources": {}}});
    let calls = UpstreamServer { share: Share::Call, ..server("s") };
    for (of, identity) in [(server("s"), quiet), (calls, session())] {
        let mut kit = Kit::new(vec![of]);
        let listener = kit.open();
        kit.send(listener, &request(0, "tools/list", &json!({})));
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        kit.settle(upstream, &identity, &[]);
        kit.read(listener);
        kit.send(listener, &listen(3, &json!({"resourceSubscriptions": ["x://a"]})));
        let told = kit.one(listener);
        assert_eq!(told["params"]["notifications"], json!({"resourceSubscriptions": []}));
        kit.silent(upstream);
    }
}

/// The topics of a subscription are strings, and bounded together with those of the connection.
#[test]
fn topics_are_checked() {
    let (mut kit, _, _, _) = ready(server("s"), &session());
    let listener = kit.connect();
    for odd in [json!("x://a"), json!([1]), json!({"a": 1})] {
        kit.send(listener, &listen(1, &json!({"resourceSubscriptions": odd})));
        assert_eq!(kit.one(listener)["error"]["code"], -32602);
    }
    let many: Vec<String> = (0..10_000).map(|number| format!("x://{number}")).collect();
    let mut unknown = Kit::new(vec![shared()]);
    let first = unknown.connect();
    // Too many topics do not wait for a server that has declared nothing yet.
    for (kit, listener) in [(&mut kit, listener), (&mut unknown, first)] {
        kit.send(listener, &listen(1, &json!({"resourceSubscriptions": many})));
        let error = kit.one(listener)["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("subscriptions_per_connection"), "{error}");
    }
}

/// Connections of a client without a session share the instance of their identity, whatever comes
/// and goes; a session on another connection has its own.
#[test]
fn connections_without_a_session_share_an_instance() {
    let mut kit = Kit::new(vec![UpstreamServer {
        idle_exit: Some(std::time::Duration::from_secs(10)),
        ..UpstreamServer::new("s")
    }]);
    let open = |kit: &mut Kit| {
        let conn = kit.conn();
        kit.feed(Event::Opened {
            conn,
            identity: USER,
            rights: Rights::Full,
            role: Role::Stateless,
        });
        conn
    };
    let call = |id: u64| {
        let meta = json!({VERSION: "2026-07-28", ABLE: {}});
        request(id, "tools/call", &json!({"name": "work", "arguments": {}, "_meta": meta}))
    };
    let one = open(&mut kit);
    kit.send(one, &call(1));
    let starts = kit.starts();
    assert_eq!(starts.len(), 1);
    let upstream = kit.started(starts[0]);
    kit.settle(upstream, &session(), &[tool("work")]);
    let asked = kit.early.remove(0);
    kit.answer(upstream, &asked, &json!({"content": []}));
    kit.one(one);
    kit.feed(Event::Closed { conn: one });
    assert!(kit.wanted.iter().all(|action| !matches!(action, UpstreamAction::End { .. })));
    let two = open(&mut kit);
    kit.send(two, &call(2));
    assert_eq!(kit.starts(), []);
    let asked = kit.one(upstream);
    kit.answer(upstream, &asked, &json!({"content": []}));
    kit.one(two);
    let session = kit.open();
    kit.send(session, &request(3, "tools/call", &json!({"name": "work"})));
    assert_eq!(kit.starts().len(), 1);
    kit.pass(10_000);
    let ends = |action: &UpstreamAction| matches!(action, UpstreamAction::End { .. });
    assert_eq!(kit.wanted.iter().filter(|action| ends(action)).count(), 1, "it was idle");
}

/// A subscription to a resource waits for a server that has never run, and is granted its updates; a
/// server that fails to start delays it no longer than its start.
#[test]
fn first_listener_waits_for_the_server() {
    for starts in [true, false] {
        let mut kit = Kit::new(vec![shared()]);
        let listener = kit.connect();
        kit.send(listener, &listen(3, &json!({"resourceSubscriptions": ["x://a"]})));
        kit.silent(listener);
        let instance = kit.starts().remove(0);
        if !starts {
            kit.ended(instance, "exit code 1", "");
            let told = kit.one(listener);
            assert_eq!(told["params"]["notifications"], json!({"resourceSubscriptions": []}));
            continue;
        }
        let upstream = kit.started(instance);
        kit.settle(upstream, &session(), &[tool("work")]);
        let told = kit.one(listener);
        assert_eq!(told["params"]["notifications"], json!({"resourceSubscriptions": ["x://a"]}));
        let asked = kit.early.remove(0);
        assert_eq!(asked["method"], "resources/subscribe");
        kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a"})));
        assert_eq!(kit.one(listener)["params"]["uri"], "x://a");
    }
    // A cancel ends the wait.
    let mut kit = Kit::new(vec![shared()]);
    let listener = kit.connect();
    kit.send(listener, &listen(3, &json!({"resourceSubscriptions": ["x://a"]})));
    kit.send(listener, &cancel(&json!(3)));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &session(), &[]);
    kit.silent(listener);
    assert!(kit.early.is_empty(), "{:?}", kit.early);
}
