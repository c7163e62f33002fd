//! Shares of identities: connections and workers, and operators' places (TSK-36,
//! TSK-37), and totals that are one's own (TSK-39).

use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::protocol::role::Role;
use ceased_core::reason::CloseReason;
use ceased_core::settings::Settings;
use ceased_core::tool::Catalog;
use ceased_simulator::tools::tool;
use ceased_simulator::world::{NEWEST, Rigged, World};
use proptest::prelude::*;
use serde_json::{Value, json};

const ROOT: Identity = Identity::User(0);
const OWNER: Identity = Identity::User(7);

/// A world whose operators are [`ROOT`] and [`OWNER`].
fn operated(limits: Limits) -> World {
    let settings = Settings {
        outputs: true,
        limits,
        catalog: Catalog::new([tool("sleep"), tool("echo")]).expect("good tools"),
        operators: vec![ROOT, OWNER],
        ..Settings::default()
    };
    World::made_of(Arc::new(settings), Rigged::default())
}

fn call(w: &mut World, conn: ConnId, id: usize) {
    let params = json!({"name": "sleep", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    w.send(conn, &call.to_string());
}

fn refusal(w: &mut World, identity: Identity) -> Value {
    let conn = w.connect(identity);
    let told = w.next(conn)["error"].take();
    assert_eq!(told["code"], -31003);
    assert_eq!(w.closed.last(), Some(&(conn, CloseReason::TooMany)));
    let noted =
        |note: &AuditEvent| matches!(note, AuditEvent::Refused { conn: of, .. } if *of == conn);
    assert!(w.notes.iter().any(noted), "a refused connection is recorded");
    told["data"].clone()
}

/// TSK-36: connections of one identity leave room for those of others.
#[test]
fn connections_of_one_identity_leave_room_for_others() {
    let limits =
        Limits { connections_max: 5, connections_per_identity_max: 3, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let one: Vec<ConnId> = (0..3).map(|_| w.open_as(Identity::User(1), NEWEST)).collect();
    let data = json!({"limit": "connections_per_identity", "max": 3});
    assert_eq!(refusal(&mut w, Identity::User(1)), data);
    for _ in 0..2 {
        w.open_as(Identity::User(2), NEWEST);
    }
    // The limit of all holds for identities that have none.
    let all = json!({"limit": "connections", "max": 5});
    assert_eq!(refusal(&mut w, Identity::Token("ci".into())), all);
    w.lose(one[0]);
    w.open_as(Identity::User(1), NEWEST);
    assert_eq!(refusal(&mut w, Identity::User(1)), all);
}

/// TSK-36: anonymous peers have one share together: a peer cannot make up identities.
#[test]
fn anonymous_peers_share_one_share() {
    let limits = Limits { connections_per_identity_max: 2, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    for _ in 0..2 {
        w.open_as(Identity::Anonymous, NEWEST);
    }
    assert_eq!(refusal(&mut w, Identity::Anonymous)["max"], 2);
    w.open_as(Identity::User(1), NEWEST);
}

/// TSK-36: operators connect to a daemon that is full, and cancel the jobs that fill it.
#[test]
fn operators_connect_and_cancel_when_all_is_full() {
    let limits = Limits {
        connections_max: 4,
        operator_connections: 2,
        running_max: 2,
        queued_max: 0,
        ..Limits::default()
    };
    let mut w = operated(limits);
    let crowd: Vec<ConnId> = (0..4).map(|_| w.open_as(Identity::User(1), NEWEST)).collect();
    for (id, conn) in crowd.iter().take(2).enumerate() {
        call(&mut w, *conn, id);
    }
    assert_eq!(refusal(&mut w, Identity::User(2))["limit"], "connections");
    for (operator, busy) in [(ROOT, Some((2, 0))), (OWNER, Some((1, 1)))] {
        for _ in 0..2 {
            let conn = w.open_as(operator.clone(), NEWEST);
            let status = w.result(conn, "ceased/status", json!({}));
            assert_eq!(status["running"].as_u64().zip(status["cancelling"].as_u64()), busy);
        }
        // More of them take the place of those that are idle for longest.
        let conn = w.open_as(operator, NEWEST);
        let job = w.started[0].get();
        w.result(conn, "ceased/cancel", json!({"job": job}));
    }
    assert_eq!(w.stops[0].0, w.started[0]);
    let displaced = w.closed.iter().filter(|(_, why)| *why == CloseReason::Displaced);
    assert_eq!(displaced.count(), 2);
    assert_eq!(refusal(&mut w, Identity::User(1))["limit"], "connections");
}

/// SEC-05: a process inside a job has no operator's rights, whatever its identity: no place of an
/// operator, no job of others, no order, and no output of others.
#[test]
fn operator_inside_a_job_is_none() {
    let limits = Limits { connections_max: 3, operator_connections: 3, ..Limits::default() };
    let mut w = operated(limits);
    let other = w.open_as(Identity::User(1), NEWEST);
    call(&mut w, other, 1);
    let theirs = w.started[0].get();
    let inside = w.open_inside_job(ROOT, NEWEST);
    let status = w.result(inside, "ceased/status", json!({}));
    assert_eq!((&status["operator"], &status["identity"]), (&json!(false), &json!("uid:0")));
    assert_eq!(status["jobs"], json!([]));
    for (method, code) in [
        ("ceased/reload", -31011),
        ("ceased/restart", -31011),
        ("ceased/shutdown", -31011),
        ("ceased/cancel", -32602),
    ] {
        let params = json!({"name": "server", "job": theirs});
        assert_eq!(w.refusal(inside, method, params).0, code, "{method}");
    }
    let params = json!({"uri": format!("ceased://jobs/{theirs}/output")});
    let line = json!({"jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": params});
    w.send(inside, &line.to_string());
    let query = w.reads.pop().expect("the host is asked");
    assert!(!query.viewer.sees_all && query.viewer.rights == Rights::InsideJob, "{query:?}");
    assert!(w.stops.is_empty());
    // It is the requestor of its identity's jobs.
    let outside = w.open_as(ROOT, NEWEST);
    call(&mut w, outside, 1);
    let own = w.started[1].get();
    w.result(inside, "ceased/cancel", json!({"job": own}));
    assert_eq!(w.stops[0].0, w.started[1]);
    // All places are taken, and those of operators are for the identity outside alone.
    let refused = w.connect_with(ROOT, Rights::InsideJob, Role::Server);
    assert_eq!(w.next(refused)["error"]["data"]["limit"], "connections");
    w.open_as(ROOT, NEWEST);
}

/// TSK-36: however many connections an operator has left open, it can connect again; a connection
/// at work is not closed for that.
#[test]
fn operators_replace_the_connection_idle_for_longest() {
    let limits = Limits {
        connections_max: 100,
        connections_per_identity_max: 3,
        operator_connections: 3,
        ..Limits::default()
    };
    let mut w = operated(limits);
    let mut own: Vec<ConnId> = Vec::new();
    for _ in 0..3 {
        w.advance(Duration::from_secs(1));
        own.push(w.open_as(OWNER, NEWEST));
    }
    // The oldest works, the second has just said something: the third is idle for longest.
    call(&mut w, own[0], 1);
    w.advance(Duration::from_secs(1));
    w.result(own[1], "ping", json!({}));
    let new = w.open_as(OWNER, NEWEST);
    assert_eq!(w.closed, [(own[2], CloseReason::Displaced)]);
    let told = w.next(own[2]);
    assert_eq!(told["error"]["code"], -31003);
    assert!(told["error"]["message"].as_str().unwrap().contains("idle for longest"), "{told}");
    // When all work there is none to close.
    call(&mut w, own[1], 2);
    call(&mut w, new, 3);
    assert_eq!(refusal(&mut w, OWNER), json!({"limit": "connections_per_identity", "max": 3}));
    w.open_as(ROOT, NEWEST);
}

fn of(w: &World, owner: &Identity) -> usize {
    w.started.iter().filter(|job| w.owner(**job) == Some(owner)).count()
}

/// TSK-37: slow calls of one identity leave workers to others, whose calls start at once.
#[test]
fn slow_calls_of_one_identity_leave_workers_to_others() {
    let limits = Limits { running_max: 8, running_per_identity_max: 6, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let (one, two) = (Identity::User(1), Identity::User(2));
    let (slow, other) = (w.open_as(one.clone(), NEWEST), w.open_as(two.clone(), NEWEST));
    for id in 0..200 {
        call(&mut w, slow, id);
    }
    assert_eq!((w.started.len(), of(&w, &one)), (6, 6));
    assert!(!w.wants_turn(), "jobs that cannot start keep no loop busy");
    let before = w.started.len();
    call(&mut w, other, 0);
    let quick = w.last_started();
    assert_eq!((w.started.len(), of(&w, &two)), (before + 1, 1));
    w.done(quick, "quick");
    assert_eq!(w.next(other)["id"], 0);
    // Its place is not for operators that have theirs; one of their own is.
    assert_eq!(of(&w, &one), 6);
    let first = w.started[0];
    w.done(first, "slow");
    assert_eq!(of(&w, &one), 6);
    assert_eq!(w.started.len(), 8);
}

/// TSK-37: jobs that are being stopped hold their worker: they count for their identity.
#[test]
fn jobs_being_stopped_count_for_their_identity() {
    let limits = Limits { running_max: 4, running_per_identity_max: 1, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = w.open_as(Identity::User(1), NEWEST);
    call(&mut w, c, 1);
    call(&mut w, c, 2);
    let first = w.last_started();
    let cancel = json!({"requestId": 1});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel});
    w.send(c, &cancel.to_string());
    assert_eq!(w.started, [first]);
    w.done(first, "stopped after all");
    assert_eq!(w.started.len(), 2);
}

/// TSK-39: an ordinary peer counts its own things, an operator all.
#[test]
fn totals_of_a_peer_are_its_own() {
    let mut w = operated(Limits { running_max: 3, ..Limits::default() });
    let (a, b) = (Identity::User(1), Identity::Token("ci".into()));
    let (one, two) = (w.open_as(a.clone(), NEWEST), w.open_as(b, NEWEST));
    let again = w.open_as(a, NEWEST);
    let nobody = w.open_as(Identity::Anonymous, NEWEST);
    let another = w.open_as(Identity::Anonymous, NEWEST);
    let operator = w.open_as(ROOT, NEWEST);
    call(&mut w, one, 1);
    call(&mut w, two, 2);
    call(&mut w, nobody, 3);
    call(&mut w, again, 4);
    let mut totals = |conn| {
        let status = w.result(conn, "ceased/status", json!({}));
        let of = |name: &str| status[name].as_u64().expect("a number");
        let counters = status["counters"].as_object().expect("an object").len();
        (of("connections"), of("running"), of("queued"), counters > 0)
    };
    assert_eq!(totals(one), (2, 1, 1, false));
    assert_eq!(totals(again), (2, 1, 1, false));
    assert_eq!(totals(two), (1, 1, 0, false));
    assert_eq!(totals(nobody), (1, 1, 0, false));
    assert_eq!(totals(another), (1, 0, 0, false));
    assert_eq!(totals(operator), (6, 3, 1, true));
}

/// TSK-39, TSK-40: tasks are counted for their owner and for operators.
#[test]
fn task_totals_are_of_their_owner() {
    let mut w = World::new();
    let (one, two) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(2), NEWEST));
    let nobody = w.open_as(Identity::Anonymous, NEWEST);
    for conn in [one, one, two, nobody] {
        w.task(conn, "sleep");
    }
    for (conn, total) in [(one, 2), (two, 1), (nobody, 0)] {
        let tasks = w.result(conn, "ceased/status", json!({}))["tasks"].take();
        assert_eq!((&tasks["total"], &tasks["working"]), (&json!(total), &json!(total)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// TSK-37: whatever is asked for and whichever jobs end, no identity runs more than its share,
    /// no worker is idle while a job may start, and every job starts once.
    #[test]
    fn shares_hold_and_no_worker_idles(
        steps in prop::collection::vec((0_u32..4, any::<bool>(), any::<prop::sample::Index>()), 1..120),
        running_max in 1_usize..6,
        share in 1_usize..6,
    ) {
        let limits =
            Limits { running_max, running_per_identity_max: share, ..Limits::default() };
        let mut w = World::with(limits, TaskPolicy::default());
        let conns: Vec<ConnId> =
            (0..4).map(|user| w.open_as(Identity::User(user), NEWEST)).collect();
        let (mut asked, mut running): ([usize; 4], Vec<(usize, JobId)>) = ([0; 4], Vec::new());
        let mut seen = 0;
        let mut started = [0_usize; 4];
        for (id, (user, ends, which)) in steps.into_iter().enumerate() {
            if ends && !running.is_empty() {
                let (_, job) = running.remove(which.index(running.len()));
                w.done(job, "done");
            } else {
                asked[user as usize] += 1;
                call(&mut w, conns[user as usize], id);
            }
            let begun = w.started[seen..].to_vec();
            for job in begun {
                let Some(Identity::User(user)) = w.owner(job).cloned() else {
                    panic!("{job} has an owner");
                };
                started[user as usize] += 1;
                running.push((user as usize, job));
            }
            seen = w.started.len();
            let run = |user: usize| running.iter().filter(|(of, _)| *of == user).count();
            for user in 0..4 {
                prop_assert!(run(user) <= share);
                let may_start = started[user] < asked[user] && run(user) < share;
                prop_assert!(!may_start || running.len() == running_max, "a worker idles");
            }
        }
    }
}
