//! Instances and starts of servers are shared between identities (UPS-09).

use std::collections::BTreeMap;

use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{ConnId, Event, Identity, Rights, Role, Settings};
use serde_json::json;

use super::kit::{Kit, call, initialize, tool};
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
    let servers = vec![std::sync::Arc::new(server)];
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
    let servers = vec![std::sync::Arc::new(of("s"))];
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
