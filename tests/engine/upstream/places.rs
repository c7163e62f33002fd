//! Instances and starts of servers are shared between identities (UPS-09).

use std::collections::BTreeMap;
use std::sync::Arc;

use ceased_core::limits::ServerPlaces;
use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{ConnId, Event, Identity, Limits, Rights, Role, Settings};
use serde_json::{Value, json};

use super::kit::{Kit, call, cancel, initialize, tool};
use super::server;

/// A session of a user.
pub(super) fn open_as(kit: &mut Kit, uid: u32) -> ConnId {
    let conn = kit.conn();
    let identity = Identity::User(uid);
    kit.feed(Event::Opened { conn, identity, rights: Rights::Full, role: Role::Server });
    kit.send(conn, &initialize("2025-11-25"));
    kit.initialized(conn);
    kit.read(conn);
    conn
}

fn ask(kit: &mut Kit, conn: ConnId) {
    kit.send(conn, &call(&json!(1), "work"));
}

/// The owners of the instances that the engine wants started, in their order.
fn owners(kit: &mut Kit) -> Vec<u32> {
    let wanted = std::mem::take(&mut kit.wanted);
    let owner = |action: &UpstreamAction| match action {
        UpstreamAction::Start { owner: Some(Identity::User(uid)), .. } => Some(*uid),
        UpstreamAction::Start { .. }
        | UpstreamAction::Examine { .. }
        | UpstreamAction::EndStrays { .. }
        | UpstreamAction::Forget { .. }
        | UpstreamAction::End { .. }
        | UpstreamAction::SaveManifest { .. }
        | UpstreamAction::SaveApproval { .. }
        | UpstreamAction::ToolsDiffer { .. }
        | UpstreamAction::Warn { .. } => None,
    };
    let owners = wanted.iter().filter_map(owner).collect();
    kit.wanted = wanted;
    owners
}

/// Starts take turns: a crowd of one identity does not delay the first of another.
#[test]
fn starts_take_turns_between_identities() {
    let server = UpstreamServer { max_instances: 64, ..server("s") };
    let servers = vec![Arc::new(server)];
    let mut kit = Kit::with(Settings { servers, start_at_once: 1, ..Settings::default() });
    for _ in 0..10 {
        let conn = open_as(&mut kit, 1);
        ask(&mut kit, conn);
    }
    for uid in [2, 3] {
        let conn = open_as(&mut kit, uid);
        ask(&mut kit, conn);
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        order.extend(owners(&mut kit));
        let instance = kit.starts().remove(0);
        kit.wanted.clear();
        let upstream = kit.started(instance);
        kit.handshake(upstream, &[tool("work")]);
    }
    assert_eq!(order, [1, 2, 3, 1, 1]);
}

/// Starts that hang delay other identities for five seconds.
#[test]
fn slow_starts_delay_their_own_identity_alone() {
    let of = |name: &str| UpstreamServer { max_instances: 64, ..server(name) };
    let servers = vec![Arc::new(of("s"))];
    let mut kit = Kit::with(Settings { servers, start_at_once: 2, ..Settings::default() });
    for uid in [1, 1, 1, 1, 2, 3, 4] {
        let conn = open_as(&mut kit, uid);
        ask(&mut kit, conn);
    }
    assert_eq!(owners(&mut kit), [1, 1]);
    kit.pass(4_900);
    assert_eq!(owners(&mut kit), [1, 1]);
    kit.pass(200);
    assert_eq!(owners(&mut kit), [1, 1, 2, 3], "no more than twice as many");
    let starts = kit.starts();
    let upstream = kit.started(starts[2]);
    kit.handshake(upstream, &[tool("work")]);
    assert_eq!(owners(&mut kit), [4]);
}

/// One identity has its share of the places and no more; the rest of its calls wait.
#[test]
fn identity_has_its_share_of_instances() {
    for share in [Share::Connection, Share::Call] {
        let server = UpstreamServer {
            share,
            max_instances: 3,
            max_instances_per_identity: 2,
            warm: 0,
            ..server("s")
        };
        let mut kit = Kit::new(vec![server]);
        let own: Vec<ConnId> = (0..4)
            .map(|_| {
                let conn = open_as(&mut kit, 1);
                ask(&mut kit, conn);
                conn
            })
            .collect();
        let first = kit.starts();
        assert_eq!(first.len(), 2, "{share:?}");
        let other = open_as(&mut kit, 2);
        ask(&mut kit, other);
        let third = kit.starts();
        assert_eq!(third.len(), 1, "{share:?}");
        // A place that is free goes to the next of the same identity.
        let mut upstreams = BTreeMap::new();
        for instance in first.iter().chain(&third) {
            let upstream = kit.started(*instance);
            kit.handshake(upstream, &[tool("work")]);
            upstreams.insert(*instance, upstream);
        }
        let request = kit.early.remove(0);
        kit.answer(upstreams[&first[0]], &request, &json!({"content": []}));
        assert!(kit.wanted.iter().any(|action| matches!(action, UpstreamAction::End { .. })));
        kit.ended(first[0], "exit code 0", "");
        assert_eq!(kit.starts().len(), 1, "{share:?}");
        assert!(own.iter().any(|conn| !kit.read(*conn).is_empty()));
    }
}

/// Calls that wait for a place get it one identity after the other, not in the order of arrival.
#[test]
fn places_go_round_between_identities() {
    let server = UpstreamServer { share: Share::Call, max_instances: 1, warm: 0, ..server("s") };
    let mut kit = Kit::new(vec![server]);
    for uid in [1, 1, 1, 2, 3] {
        let conn = open_as(&mut kit, uid);
        let mut request = call(&json!(1), "work");
        request["params"]["arguments"]["of"] = json!(uid);
        kit.send(conn, &request);
    }
    let mut served = Vec::new();
    for _ in 0..5 {
        let instance = kit.starts().remove(0);
        let upstream = kit.started(instance);
        kit.handshake(upstream, &[tool("work")]);
        let request = kit.early.remove(0);
        served.push(request["params"]["arguments"]["of"].as_u64().expect("a user"));
        kit.answer(upstream, &request, &json!({"content": []}));
        kit.ended(instance, "exit code 0", "");
    }
    assert_eq!(served, [1, 1, 2, 3, 1]);
}

/// Two servers that have as many places.
fn servers(max: usize, share: usize) -> Vec<Arc<UpstreamServer>> {
    let of = |name: &str| UpstreamServer {
        prefix: format!("{name}_").into(),
        share: Share::Identity,
        places: ServerPlaces { max: Some(max), per_identity: Some(share) },
        ..server(name)
    };
    ["a", "b"].map(|name| Arc::new(of(name))).into()
}

/// Two servers, both ready, for a client of each of these users.
fn two_servers(
    max: usize,
    share: usize,
    users: &[u32],
) -> (Kit, Vec<ConnId>, BTreeMap<&'static str, Vec<ConnId>>) {
    let servers = servers(max, share);
    let limits = Limits { running_max: 1, ..Limits::default() };
    let mut kit = Kit::with(Settings { servers, limits, ..Settings::default() });
    let clients: Vec<ConnId> = users.iter().map(|uid| open_as(&mut kit, *uid)).collect();
    let mut upstreams: BTreeMap<&str, Vec<ConnId>> = BTreeMap::new();
    for client in &clients {
        for name in ["a", "b"] {
            kit.send(*client, &call(&json!(name), &format!("{name}_work")));
            let instance = kit.starts().remove(0);
            kit.wanted.clear();
            let upstream = kit.started(instance);
            kit.handshake(upstream, &[tool("work")]);
            let request = kit.early.remove(0);
            kit.answer(upstream, &request, &json!({"content": []}));
            assert_eq!(kit.one(*client)["id"], name);
            upstreams.entry(name).or_default().push(upstream);
        }
    }
    (kit, clients, upstreams)
}

/// How many requests an upstream was sent.
fn sent(kit: &mut Kit, upstream: ConnId) -> usize {
    kit.read(upstream).len()
}

/// A server that does not answer holds its own places alone: no call of another server waits for it, and
/// no own tool, of any identity.
#[test]
fn silent_server_holds_up_no_other() {
    let (mut kit, clients, upstreams) = two_servers(3, 2, &[1, 2, 3]);
    for client in &clients {
        for id in 0..4 {
            kit.send(*client, &call(&json!(id), "a_work"));
        }
    }
    let of_a: Vec<usize> = upstreams["a"].iter().map(|it| sent(&mut kit, *it)).collect();
    assert_eq!(of_a.iter().sum::<usize>(), 3, "{of_a:?}");
    assert!(of_a.iter().all(|count| *count <= 2), "{of_a:?}");
    for (client, upstream) in clients.iter().zip(&upstreams["b"]) {
        kit.send(*client, &call(&json!("other"), "b_work"));
        let request = kit.one(*upstream);
        kit.answer(*upstream, &request, &json!({"content": []}));
        assert_eq!(kit.one(*client)["id"], "other");
    }
}

/// A place of a server that is free again goes to the next that waits, one identity after the other, and
/// a cancelled call that waits is never sent.
#[test]
fn places_of_a_server_go_round_between_identities() {
    let (mut kit, clients, upstreams) = two_servers(1, 1, &[1, 2]);
    let a = &upstreams["a"];
    for client in &clients {
        for id in 1..=3 {
            kit.send(*client, &call(&json!(id), "a_work"));
        }
    }
    kit.send(clients[0], &cancel(&json!(2)));
    let mut order = Vec::new();
    for _ in 0..5 {
        let sent: Vec<(usize, Value)> = (0..2)
            .flat_map(|at| kit.read(a[at]).into_iter().map(move |request| (at, request)))
            .collect();
        let [(at, request)] = &sent[..] else { panic!("one request at once: {sent:?}") };
        kit.answer(a[*at], request, &json!({"content": []}));
        order.push((*at, kit.one(clients[*at])["id"].clone()));
    }
    let order: Vec<(usize, u64)> =
        order.into_iter().map(|(at, id)| (at, id.as_u64().expect("a number"))).collect();
    assert_eq!(order, [(0, 1), (1, 1), (0, 3), (1, 2), (1, 3)]);
    assert!(a.iter().all(|upstream| kit.read(*upstream).is_empty()));
}

/// A reload changes the places of a server for the calls from then on, and waiting calls have one bound for all.
#[test]
fn queue_of_a_silent_server_is_bounded() {
    let (mut kit, clients, upstreams) = two_servers(1, 1, &[1]);
    let settings = Settings {
        limits: Limits { queued_max: 2, ..Limits::default() },
        servers: servers(2, 2),
        ..Settings::default()
    };
    for id in 0..2 {
        kit.send(clients[0], &call(&json!(id), "a_work"));
    }
    assert_eq!(sent(&mut kit, upstreams["a"][0]), 1);
    kit.feed(Event::Configured { settings: Arc::new(settings) });
    for id in 2..5 {
        kit.send(clients[0], &call(&json!(id), "a_work"));
    }
    kit.feed(Event::Turn);
    assert_eq!(kit.engine.occupancy().queued, 2, "two of four calls hold a place");
    let said = kit.read(clients[0]).pop().expect("a refusal");
    let error = &said["error"];
    assert_eq!((&error["code"], &error["data"]["limit"]), (&json!(-31003), &json!("queue")));
    // A call of the other server finds a place, though no further one may wait.
    kit.send(clients[0], &call(&json!("other"), "b_work"));
    assert_eq!(kit.engine.occupancy().queued, 2);
}
