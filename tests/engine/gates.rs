//! `max_running` and locks of tools: calls wait for each other, and delay no other call.

use std::sync::Arc;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::Settings;
use ceased_core::tool::{Catalog, Tool};
use ceased_simulator::tools::{self, optional, tool};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Settings with tools that have these limits and locks.
fn settings(gates: &[(&str, Option<usize>, Option<&str>)]) -> Arc<Settings> {
    let gated = gates.iter().map(|(name, max_running, lock)| Tool {
        max_running: *max_running,
        lock: lock.map(Into::into),
        ..optional(name)
    });
    let limits = Limits { running_max: 8, ..Limits::default() };
    let usual = tools::settings(limits, TaskPolicy::default());
    Arc::new(Settings {
        catalog: Catalog::new(gated.chain([tool("free")])).unwrap(),
        ..Settings::clone(&usual)
    })
}

fn world(gates: &[(&str, Option<usize>, Option<&str>)]) -> World {
    World::made_of(settings(gates), Rigged::default())
}

/// Sends a call; its job starts where it may.
fn call(w: &mut World, conn: ConnId, id: u64, tool: &str, arguments: &Value) {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
    let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    w.frame(conn, &line.to_string());
    w.feed(Input::Turn);
}

fn cancel(w: &mut World, conn: ConnId, id: u64) {
    let params = json!({"requestId": id});
    let method = "notifications/cancelled";
    w.frame(conn, &json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    w.feed(Input::Turn);
}

/// GATE-01: calls that wait for each other start one after the other, in the order they came, and
/// the others at once. A row: `max_running` and `lock` of the tools `a` and `b`, the calls, and the
/// numbers of those that start at once and after each end of the first that runs.
#[test]
fn calls_of_a_gate_start_as_others_end() {
    type Gates = (Option<usize>, Option<&'static str>);
    type Calls = &'static [(&'static str, &'static str)];
    let none: Gates = (None, None);
    let rows: &[(Gates, Gates, Calls, &[&[u64]])] = &[
        ((Some(1), None), none, &[("a", ""), ("a", ""), ("b", "")], &[&[0, 2], &[1], &[], &[]]),
        ((Some(2), None), none, &[("a", ""); 4], &[&[0, 1], &[2], &[3], &[], &[]]),
        ((None, Some("l")), (None, Some("l")), &[("a", ""), ("b", "")], &[&[0], &[1], &[]]),
        ((None, Some("a")), (None, Some("b")), &[("a", ""), ("b", "")], &[&[0, 1], &[], &[]]),
        // A tool and a lock of the same name are not the same gate.
        ((Some(1), None), (None, Some("a")), &[("a", ""), ("b", "")], &[&[0, 1], &[], &[]]),
        (
            (None, Some("l:{x}")),
            none,
            &[("a", "1"), ("a", "2"), ("a", "1"), ("a", "2")],
            &[&[0, 1], &[2], &[3], &[], &[]],
        ),
        // A call before one closed gate does not keep others from the open one.
        (
            (Some(1), Some("l")),
            (None, Some("l")),
            &[("b", ""), ("a", ""), ("b", ""), ("free", "")],
            &[&[0, 3], &[1], &[], &[2], &[]],
        ),
    ];
    for (at, (a, b, calls, starts)) in rows.iter().enumerate() {
        let mut w = world(&[("a", a.0, a.1), ("b", b.0, b.1)]);
        let c = w.open();
        for (id, (tool, x)) in (0..).zip(calls.iter()) {
            call(&mut w, c, id, tool, &json!({"x": x}));
        }
        let first = w.last_started().get() - w.last_started().get();
        let mut seen = 0;
        let mut running: Vec<JobId> = Vec::new();
        let mut base = None;
        for (turn, wanted) in starts.iter().enumerate() {
            if turn > 0 {
                let job = running.remove(0);
                w.done(job, "done");
            }
            let new: Vec<JobId> = w.started[seen..].to_vec();
            seen = w.started.len();
            let base = *base.get_or_insert_with(|| new[0].get());
            let numbers: Vec<u64> = new.iter().map(|job| job.get() - base + first).collect();
            assert_eq!(numbers, *wanted, "row {at}, after {turn} ends");
            running.extend(new);
        }
        assert_eq!(w.started.len(), calls.len(), "row {at}");
    }
}

/// GATE-01: a call that is cancelled while it waits frees its place at once; one that is stopping
/// holds the lock until it has ceased.
#[test]
fn lock_is_free_when_its_holder_has_ceased() {
    let mut w = world(&[("a", None, Some("l"))]);
    let c = w.open();
    for id in 0..3 {
        call(&mut w, c, id, "a", &json!({}));
    }
    let first = w.last_started();
    cancel(&mut w, c, 1);
    assert_eq!(w.sizes().jobs, 2, "the one that waited is gone");
    cancel(&mut w, c, 0);
    assert_eq!(w.last_started(), first, "the holder is still there");
    w.stopped(first);
    assert_eq!(w.last_started().get(), first.get() + 2);
}

/// GATE-02: turns at a gate go round, also for an identity that has just started something else.
#[test]
fn lock_goes_round_among_identities() {
    let mut w = world(&[("a", None, Some("l"))]);
    let (ann, bob) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(2), NEWEST));
    for id in 0..6 {
        call(&mut w, ann, id, "a", &json!({}));
    }
    let mut holder = w.last_started();
    for id in 0..3 {
        call(&mut w, bob, id, "a", &json!({}));
    }
    let mut owners = Vec::new();
    for id in 10..15 {
        // The turn of the queue is always after bob's.
        call(&mut w, bob, id, "free", &json!({}));
        w.done(holder, "done");
        holder = w.last_started();
        owners.push(w.owner(holder).cloned().unwrap());
    }
    let users: Vec<Identity> = [2, 1, 2, 1, 2].map(Identity::User).into();
    assert_eq!(owners, users);
}

/// GATE-03: a call and a task that wait at a gate are told which it is.
#[test]
fn waiting_job_names_its_gate() {
    let rows = [
        (None, Some("cargo:{x}"), "waiting for lock \"cargo:y\""),
        (Some(1), None, "waiting for another call of this tool"),
        (Some(2), None, "waiting for one of 2 calls of this tool"),
    ];
    for (max_running, lock, text) in rows {
        let mut w = world(&[("a", max_running, lock)]);
        let c = w.open();
        for id in 0..2 {
            call(&mut w, c, id, "a", &json!({"x": "y"}));
        }
        let params = json!({"name": "a", "arguments": {"x": "y"}, "task": {}});
        let made = w.result(c, "tools/call", params);
        let id = made["task"]["taskId"].clone();
        let shown = made["task"]["statusMessage"].as_str().unwrap();
        assert_eq!(shown, text);
        assert_eq!(w.result(c, "tasks/get", json!({"taskId": id}))["statusMessage"], text);
        let listed = w.result(c, "tasks/list", json!({}));
        assert_eq!(listed["tasks"][0]["statusMessage"], text);
        let mut ended = 0;
        while let Some(job) = w.started.get(ended).copied().filter(|_| w.started.len() < 3) {
            w.done(job, "done");
            ended += 1;
        }
        let task = w.result(c, "tasks/get", json!({"taskId": id}));
        assert_eq!((&task["status"], task.get("statusMessage")), (&json!("working"), None));
    }
}

/// GATE-01: a reload gives new calls the new limit, and those that wait keep theirs.
#[test]
fn reload_changes_the_gate_for_new_calls() {
    let mut w = world(&[("a", Some(1), None)]);
    let c = w.open();
    for id in 0..2 {
        call(&mut w, c, id, "a", &json!({}));
    }
    let first = w.last_started();
    w.feed(Input::Configured(settings(&[("a", Some(2), None)])));
    call(&mut w, c, 2, "a", &json!({}));
    assert_eq!(w.last_started().get(), first.get() + 2, "two may run now");
    call(&mut w, c, 3, "a", &json!({}));
    assert_eq!(w.started.len(), 2);
    w.done(first, "done");
    assert_eq!(w.last_started().get(), first.get() + 3, "the second waits to be alone");
    w.feed(Input::Configured(settings(&[])));
    let (second, third) = (JobId::new(first.get() + 2), JobId::new(first.get() + 3));
    w.done(second, "done");
    w.done(third, "done");
    assert_eq!(w.last_started().get(), first.get() + 1, "a tool that is gone frees its gate");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// GATE-01: in any history no gate has more behind it than its limit, a call that may start
    /// does not wait, and all of them end.
    #[test]
    fn gates_keep_their_limits(steps in prop::collection::vec((0_u8..6, 0_usize..4, 0_u32..3), 1..80)) {
        let tools = [("a", Some(1), None), ("b", Some(2), Some("l")), ("c", None, Some("l"))];
        let mut w = world(&tools);
        let conns: Vec<ConnId> =
            (0..3).map(|user| w.open_as(Identity::User(user), NEWEST)).collect();
        let names = ["a", "b", "c", "free"];
        let base = {
            call(&mut w, conns[0], 1000, "free", &json!({}));
            let job = w.last_started();
            w.done(job, "done");
            job.get() + 1
        };
        let mut called: Vec<usize> = Vec::new();
        let tool_of = |called: &[usize], job: JobId| {
            called[usize::try_from(job.get() - base).unwrap()]
        };
        let mut ended = 1;
        let mut running: Vec<JobId> = Vec::new();
        let mut seen = 1;
        let settle = |w: &World, running: &mut Vec<JobId>, seen: &mut usize| {
            running.extend(&w.started[*seen..]);
            *seen = w.started.len();
        };
        for (kind, tool, user) in steps {
            if kind < 4 {
                let id = called.len() as u64;
                called.push(tool);
                call(&mut w, conns[user as usize], id, names[tool], &json!({}));
            } else if !running.is_empty() {
                let job = running.remove(tool % running.len());
                w.done(job, "done");
                ended += 1;
            }
            settle(&w, &mut running, &mut seen);
            let count = |tool: usize| {
                running.iter().filter(|job| tool_of(&called, **job) == tool).count()
            };
            let [a, b, c, _] = [0, 1, 2, 3].map(count);
            prop_assert!(a <= 1 && b <= 2 && b + c <= 1, "{a} {b} {c}");
            let waits = |tool: usize| called.iter().filter(|t| **t == tool).count()
                > w.started.iter().skip(1).filter(|job| tool_of(&called, **job) == tool).count();
            if running.len() < 8 {
                prop_assert!(!(waits(3) || waits(0) && a == 0));
                prop_assert!(!((waits(1) || waits(2)) && b + c == 0));
            }
        }
        while !running.is_empty() {
            let job = running.remove(0);
            w.done(job, "done");
            ended += 1;
            settle(&w, &mut running, &mut seen);
        }
        prop_assert_eq!(ended, called.len() + 1);
    }
}
