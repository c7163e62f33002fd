//! UPS-10: subscriptions, log messages and changed lists through the relay.

use ceased_core::ids::InstanceId;
use ceased_core::policy::allow::Allow;
use ceased_core::upstream::interface::{RemoteNews, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{ConnId, Event, Identity, Rights, Settings};
use serde_json::{Value, json};
use std::sync::Arc;

use super::kit::{Kit, call, initialize, tool};
use super::{server, shared, wrapped};

fn whole() -> Value {
    json!({"protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"},
        "capabilities": {"tools": {}, "prompts": {}, "logging": {}, "completions": {},
            "resources": {"subscribe": true}}})
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn note(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params})
}

fn ready(of: UpstreamServer) -> (Kit, ConnId, ConnId, InstanceId) {
    let mut kit = Kit::new(vec![of]);
    let client = kit.open();
    kit.send(client, &request(0, "tools/list", &json!({})));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &whole(), &[tool("work")]);
    kit.read(client);
    kit.wanted.clear();
    (kit, client, upstream, instance)
}

fn subscribe(kit: &mut Kit, client: ConnId, upstream: ConnId, uri: &str) {
    kit.send(client, &request(1, "resources/subscribe", &json!({"uri": uri})));
    let asked = kit.one(upstream);
    assert_eq!(
        (&asked["method"], &asked["params"]["uri"]),
        (&json!("resources/subscribe"), &json!(uri))
    );
    kit.answer(upstream, &asked, &json!({}));
    assert_eq!(kit.one(client)["result"], json!({}));
}

/// Updates reach the subscribed sessions, and those of a containing resource, and no other.
#[test]
fn update_reaches_subscribed_sessions_alone() {
    let (mut kit, ann, upstream, _) = ready(shared());
    let (bob, eve) = (kit.open(), kit.open());
    subscribe(&mut kit, ann, upstream, "x://a");
    subscribe(&mut kit, bob, upstream, "x://b");
    kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a", "x": 1.5})));
    assert_eq!(kit.one(ann)["params"], json!({"uri": "x://a", "x": 1.5}));
    kit.silent(bob);
    kit.send(upstream, &note("resources/updated", &json!({"uri": "x://b/part"})));
    assert_eq!(kit.one(bob)["params"]["uri"], "x://b/part");
    kit.silent(ann);
    kit.silent(eve);
    // Unsubscribing of one of two stays here; that of the last is passed on.
    subscribe(&mut kit, bob, upstream, "x://a");
    kit.send(ann, &request(2, "resources/unsubscribe", &json!({"uri": "x://a"})));
    assert_eq!(kit.one(ann)["result"], json!({}));
    kit.silent(upstream);
    kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a"})));
    kit.silent(ann);
    kit.one(bob);
    kit.feed(Event::Closed { conn: bob });
    let left = kit.read(upstream);
    let uris: Vec<&Value> = left.iter().map(|message| &message["params"]["uri"]).collect();
    assert!(left.iter().all(|message| message["method"] == "resources/unsubscribe"), "{left:?}");
    assert_eq!(uris, ["x://a", "x://b"]);
}

/// A refused subscription is none.
#[test]
fn refused_subscription_gets_no_updates() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &request(1, "resources/subscribe", &json!({"uri": "x://a"})));
    let asked = kit.one(upstream);
    let error = json!({"code": -32002, "message": "no"});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    assert_eq!(kit.one(client)["error"], error);
    kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a"})));
    kit.silent(client);
}

/// A new instance is subscribed again; a watched one does not rest.
#[test]
fn subscription_survives_its_instance() {
    let of = UpstreamServer {
        idle_exit: Some(std::time::Duration::from_secs(10)),
        ..UpstreamServer::new("s")
    };
    let (mut kit, client, upstream, instance) = ready(of);
    subscribe(&mut kit, client, upstream, "x://a");
    kit.pass(60_000);
    assert!(kit.wanted.is_empty(), "{:?}", kit.wanted);
    kit.ended(instance, "signal 9", "");
    let again = kit.starts().remove(0);
    let upstream = kit.started(again);
    kit.settle(upstream, &whole(), &[tool("work")]);
    let asked = kit.early.remove(0);
    assert_eq!(
        (&asked["method"], &asked["params"]),
        (&json!("resources/subscribe"), &json!({"uri": "x://a"}))
    );
    kit.read(client);
    kit.send(upstream, &note("resources/updated", &json!({"uri": "x://a"})));
    assert_eq!(kit.one(client)["params"]["uri"], "x://a");
    kit.feed(Event::Closed { conn: client });
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
}

/// REM-04: the session behind a forgotten one is subscribed again, at the log level of before.
#[test]
fn forgotten_session_is_subscribed_again() {
    let of = UpstreamServer { is_remote: true, ..UpstreamServer::new("s") };
    let (mut kit, client, upstream, instance) = ready(of);
    subscribe(&mut kit, client, upstream, "x://a");
    kit.send(client, &request(2, "logging/setLevel", &json!({"level": "debug"})));
    kit.read(upstream);
    kit.read(client);
    let news = RemoteNews::SessionLost;
    kit.feed(Event::Upstream(UpstreamEvent::Remote { instance, news }));
    kit.ended(instance, "", "");
    let again = kit.starts().remove(0);
    let upstream = kit.started(again);
    kit.settle(upstream, &whole(), &[tool("work")]);
    let asked = |method: &str| {
        kit.early.iter().find(|it| it["method"] == method).map(|it| it["params"].clone())
    };
    assert_eq!(asked("resources/subscribe"), Some(json!({"uri": "x://a"})));
    assert_eq!(asked("logging/setLevel"), Some(json!({"level": "debug"})));
}

/// The level of a shared instance is the lowest asked; each client gets only its level.
#[test]
fn each_client_gets_its_log_level() {
    let (mut kit, ann, upstream, _) = ready(shared());
    let bob = kit.open();
    let levels =
        [(ann, "error", Some("error")), (bob, "debug", Some("debug")), (ann, "info", None)];
    for (client, level, told) in levels {
        kit.send(client, &request(1, "logging/setLevel", &json!({"level": level})));
        assert_eq!(kit.one(client)["result"], json!({}));
        let asked = kit.read(upstream);
        assert_eq!(asked.first().map(|m| m["params"]["level"].clone()), told.map(Into::into));
    }
    let message =
        |level: &str| note("message", &json!({"level": level, "logger": "l", "data": [1.50]}));
    kit.send(upstream, &message("debug"));
    kit.silent(ann);
    let expected = json!({"level": "debug", "logger": "l", "data": [1.50]});
    assert_eq!(kit.one(bob)["params"], expected);
    kit.send(upstream, &message("info"));
    kit.one(ann);
    kit.one(bob);
    // Without the other client the lowest level is this one's, for the next instance.
    kit.send(upstream, &note("message", &json!({"level": "loud", "data": 1})));
    kit.silent(bob);
}

/// A client without a session gets the messages of its own requests, at their level.
#[test]
fn messages_follow_the_level_of_a_request() {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.connect();
    let mut asked = call(&json!(1), "work");
    asked["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "notice",
    });
    kit.send(client, &asked);
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &whole(), &[tool("work")]);
    assert_eq!(kit.early[0]["params"], json!({"level": "notice"}));
    for (level, heard) in [("info", false), ("error", true)] {
        kit.send(upstream, &note("message", &json!({"level": level, "data": 1})));
        assert_eq!(kit.read(client).len(), usize::from(heard), "{level}");
    }
    kit.answer(upstream, &kit.early[1].clone(), &json!({"content": []}));
    kit.one(client);
    kit.send(upstream, &note("message", &json!({"level": "error", "data": 1})));
    kit.silent(client);
}

/// Each list that differs is announced, to the clients that may use the server.
#[test]
fn changed_lists_are_announced_one_by_one() {
    let allow = Allow::only([Identity::User(1000)]);
    let (mut kit, client, upstream, _) = ready(UpstreamServer { allow, ..shared() });
    let stranger = kit.conn();
    let identity = Identity::User(7);
    kit.feed(Event::Opened {
        conn: stranger,
        identity,
        rights: Rights::Full,
        role: ceased_core::Role::Server,
    });
    kit.send(stranger, &initialize("2025-11-25"));
    kit.read(stranger);
    for (changed, method) in [
        ("tools/list", "notifications/tools/list_changed"),
        ("prompts/list", "notifications/prompts/list_changed"),
        ("resources/list", "notifications/resources/list_changed"),
        ("resources/templates/list", "notifications/resources/list_changed"),
    ] {
        kit.send(upstream, &json!({"jsonrpc": "2.0", "method": method}));
        let mut known = known_lists();
        known.insert(changed.into(), changed_list(changed));
        answer_lists(&mut kit, upstream, &known);
        let told: Vec<Value> = kit.read(client).into_iter().map(|m| m["method"].clone()).collect();
        assert_eq!(told, [method], "{changed}");
        // Back again; and where nothing differs, as the server says.
        for said in [method, "notifications/tools/list_changed"] {
            kit.send(upstream, &json!({"jsonrpc": "2.0", "method": said}));
            answer_lists(&mut kit, upstream, &known_lists());
            assert_eq!(kit.one(client)["method"], said);
        }
    }
    kit.silent(stranger);
}

fn known_lists() -> serde_json::Map<String, Value> {
    let lists = json!({"tools/list": {"tools": [tool("work")]},
        "prompts/list": {"prompts": [{"name": "ask"}]},
        "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
        "resources/templates/list": {"resourceTemplates": []}});
    lists.as_object().expect("an object").clone()
}

fn changed_list(method: &str) -> Value {
    match method {
        "tools/list" => json!({"tools": [tool("other")]}),
        "prompts/list" => json!({"prompts": []}),
        "resources/list" => json!({"resources": []}),
        _ => json!({"resourceTemplates": [{"uriTemplate": "x://{a}", "name": "t"}]}),
    }
}

fn answer_lists(kit: &mut Kit, upstream: ConnId, lists: &serde_json::Map<String, Value>) {
    loop {
        let asked = kit.read(upstream);
        if asked.is_empty() {
            return;
        }
        for message in asked {
            let method = message["method"].as_str().expect("a request");
            kit.answer(upstream, &message, &lists[method]);
        }
    }
}

/// The capabilities of a transparent server show through; those of several are the union.
#[test]
fn capabilities_say_what_is_relayed() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &whole(), &[]);
    let shown = kit.read(client).remove(0)["result"]["capabilities"].clone();
    assert_eq!(shown["resources"], json!({"subscribe": true}));
    for name in ["tools", "prompts", "logging", "completions"] {
        assert!(shown[name].is_object(), "{name}");
    }
    let (mut kit, ..) = ready(server("s"));
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let shown = kit.read(client).remove(0)["result"]["capabilities"].clone();
    assert_eq!(shown["resources"], json!({"subscribe": true, "listChanged": true}));
    assert_eq!(shown["prompts"], json!({"listChanged": true}));
    assert_eq!(shown["completions"], json!({}));
}

/// A subscription of the revision without sessions hears of prompts and resources, too.
#[test]
fn listener_hears_of_every_list() {
    let (mut kit, _, upstream, _) = ready(shared());
    let client = kit.connect();
    kit.send(
        client,
        &request(
            5,
            "subscriptions/listen",
            &json!({
        "notifications": {"promptsListChanged": true, "resourcesListChanged": true},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}),
        ),
    );
    let agreed = kit.one(client)["params"]["notifications"].clone();
    assert_eq!(agreed, json!({"promptsListChanged": true, "resourcesListChanged": true}));
    kit.send(upstream, &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    let mut lists = known_lists();
    lists.insert("prompts/list".into(), changed_list("prompts/list"));
    lists.insert("tools/list".into(), changed_list("tools/list"));
    answer_lists(&mut kit, upstream, &lists);
    let told = kit.one(client);
    assert_eq!(told["method"], "notifications/prompts/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 5);
}

/// UPS-11: of two servers with one URI the second is reached by a wrapped one.
#[test]
fn clashing_uris_are_wrapped() {
    let of = |name: &str| UpstreamServer { prefix: format!("{name}_").into(), ..server(name) };
    let mut kit = Kit::new(vec![of("a"), of("b")]);
    let client = kit.open();
    kit.send(client, &request(0, "resources/list", &json!({})));
    let starts = kit.starts();
    let upstreams: Vec<ConnId> = starts.into_iter().map(|id| kit.started(id)).collect();
    for upstream in &upstreams {
        kit.settle(*upstream, &whole(), &[]);
    }
    let list = kit.read(client).remove(0)["result"]["resources"].clone();
    assert_eq!((&list[0]["uri"], &list[1]["uri"]), (&json!("x://a"), &json!("x://b/a")));
    // The form of earlier versions is understood.
    for (shown, at) in [("x://a", 0), ("x://b/a", 1), ("ceased://servers/b/x://a", 1)] {
        for method in ["resources/read", "resources/subscribe"] {
            kit.send(client, &request(1, method, &json!({"uri": shown})));
            let asked = kit.one(upstreams[at]);
            assert_eq!(
                (&asked["method"], &asked["params"]["uri"]),
                (&json!(method), &json!("x://a"))
            );
            kit.answer(upstreams[at], &asked, &json!({}));
            kit.one(client);
        }
        kit.send(upstreams[at], &note("resources/updated", &json!({"uri": "x://a"})));
        let told = kit.one(client)["params"]["uri"].clone();
        assert_eq!(told, ["x://a", "x://b/a"][at]);
        kit.silent(upstreams[1 - at]);
    }
    // A completion names its prompt as the server does.
    let of = json!({"ref": {"type": "ref/prompt", "name": "b_ask"}, "argument": {}});
    kit.send(client, &request(2, "completion/complete", &of));
    assert_eq!(kit.one(upstreams[1])["params"]["ref"]["name"], "ask");
}

/// A reload announces every list.
#[test]
fn reload_announces_every_list() {
    let (mut kit, client, ..) = ready(server("s"));
    let servers = vec![Arc::new(server("t"))];
    let settings = Settings { servers, start_at_once: 4, ..Settings::default() };
    kit.feed(Event::Configured { settings: Arc::new(settings) });
    let told: Vec<Value> = kit.read(client).into_iter().map(|m| m["method"].clone()).collect();
    assert_eq!(
        told,
        ["tools", "prompts", "resources"].map(|of| format!("notifications/{of}/list_changed"))
    );
}
