//! TSK-39: lists and failures of the instances of one identity are not shown to another.

use ceased_core::upstream::interface::{UpstreamAction, UpstreamEvent};
use ceased_core::upstream::manifest::Manifest;
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, call, tool};
use super::places::open_as;
use super::{server, shared};

fn list(kit: &mut Kit, client: ConnId) {
    kit.send(client, &json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"}));
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().expect("tools");
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

/// Each identity sees the tools of its own instance, may call those alone, and is told of its own
/// changes.
#[test]
fn tools_of_an_instance_belong_to_its_identity() {
    for of in [|| server("s"), shared] {
        let mut kit = Kit::new(vec![of()]);
        let clients = [(1, "own_1"), (2, "own_2")].map(|(uid, name)| {
            let client = open_as(&mut kit, uid);
            list(&mut kit, client);
            let instance = kit.starts().remove(0);
            let upstream = kit.started(instance);
            kit.silent(client);
            kit.handshake(upstream, &[tool(name)]);
            assert_eq!(names(&kit.one(client)), [name]);
            (client, upstream)
        });
        let [(ann, of_ann), (bob, of_bob)] = clients;
        kit.send(ann, &call(&json!(1), "own_2"));
        assert!(kit.one(ann)["error"].is_object());
        kit.send(bob, &call(&json!(1), "own_2"));
        assert_eq!(kit.one(of_bob)["params"]["name"], "own_2");
        kit.send(of_ann, &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        kit.lists(of_ann, &[tool("other")]);
        assert_eq!(kit.one(ann)["method"], "notifications/tools/list_changed");
        kit.silent(bob);
        list(&mut kit, bob);
        assert_eq!(names(&kit.one(bob)), ["own_2"]);
    }
}

/// A failing instance pauses its own identity, whose error alone has its last lines.
#[test]
fn failure_of_an_instance_belongs_to_its_identity() {
    let mut kit = Kit::new(vec![server("s")]);
    let ann = open_as(&mut kit, 1);
    for _ in 0..3 {
        kit.send(ann, &call(&json!(1), "work"));
        let instance = kit.starts().remove(0);
        kit.ended(instance, "exit code 1", "secret of ann\n");
        let error = kit.one(ann)["error"]["message"].to_string();
        assert!(error.contains("secret of ann"), "{error}");
        kit.send(ann, &call(&json!(2), "work"));
        let error = kit.one(ann)["error"]["message"].to_string();
        assert!(error.contains("may start again") && error.contains("secret of ann"), "{error}");
        kit.pass(4000);
    }
    kit.send(ann, &call(&json!(3), "work"));
    let instance = kit.starts().remove(0);
    kit.ended(instance, "exit code 1", "secret of ann\n");
    kit.read(ann);
    let bob = open_as(&mut kit, 2);
    kit.send(bob, &call(&json!(1), "work"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.handshake(upstream, &[tool("work")]);
    kit.silent(bob);
    // Nor does the success of one end the pause of the other.
    kit.send(ann, &call(&json!(4), "work"));
    let error = kit.one(ann)["error"]["message"].to_string();
    assert!(error.contains("may start again"), "{error}");
}

/// UPS-09: a manifest is kept with its clients, and answers those alone after a restart.
#[test]
fn kept_manifest_belongs_to_its_clients() {
    let mut kit = Kit::new(vec![server("s")]);
    let ann = open_as(&mut kit, 1);
    list(&mut kit, ann);
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.handshake(upstream, &[tool("own")]);
    let saved: Vec<Manifest> = { kit.wanted.iter() }
        .filter_map(|action| {
            let UpstreamAction::SaveManifest { manifest, .. } = action else { return None };
            Some((**manifest).clone())
        })
        .collect();
    assert_eq!(saved.len(), 1);
    assert_eq!(&*saved[0].audience, "session uid:1");
    let mut kit = Kit::new(vec![server("s")]);
    let known = UpstreamEvent::Known { server: "s", manifest: &saved[0] };
    kit.feed(Event::Upstream(known));
    let (bob, ann) = (open_as(&mut kit, 2), open_as(&mut kit, 1));
    list(&mut kit, bob);
    kit.silent(bob);
    list(&mut kit, ann);
    assert_eq!(names(&kit.one(ann)), ["own"]);
    // One for clients that are not known of is for no one.
    let odd = Manifest { audience: "all".into(), ..saved[0].clone() };
    let mut kit = Kit::new(vec![server("s")]);
    kit.feed(Event::Upstream(UpstreamEvent::Known { server: "s", manifest: &odd }));
    let bob = open_as(&mut kit, 2);
    list(&mut kit, bob);
    kit.silent(bob);
}

/// Instances for single calls have no identity: their manifest is everyone's.
#[test]
fn instances_for_calls_belong_to_everyone() {
    let mut kit = Kit::new(vec![UpstreamServer { share: Share::Call, ..server("s") }]);
    let ann = open_as(&mut kit, 1);
    list(&mut kit, ann);
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.handshake(upstream, &[tool("work")]);
    assert_eq!(names(&kit.one(ann)), ["work"]);
    let bob = open_as(&mut kit, 2);
    list(&mut kit, bob);
    assert_eq!(names(&kit.one(bob)), ["work"]);
}
