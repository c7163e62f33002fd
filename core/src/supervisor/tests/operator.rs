//! Cancels by a person in place of the client.

use alloc::format;

use crate::supervisor::effect::Input;
use crate::supervisor::tests::kit::{CANCEL, World, terms};

/// Number of the first prompt in [`World::with_session`], after `initialize` and `session/new`.
const JOB: u64 = 3;

/// SUP-02, ACP-12: the agent gets the cancel of its dialect, and the receipt names the operator.
#[test]
fn obeyed_cancel_of_an_operator_names_it() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    assert_eq!(world.operator_cancels(JOB), [format!("agent {CANCEL}")]);
    assert_eq!(world.operator_cancels(JOB), [""; 0], "one cancel is enough");
    let done = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    let (passed, receipt) = (format!("client {done}"), "receipt requested answered by uid:7");
    assert_eq!(world.agent(done), [&*passed, receipt]);
    assert_eq!(world.operator_cancels(JOB), [""; 0], "it is over");
}

/// SUP-02: the ladder of a client's cancel; the answer is one, and its job is listed until no
/// process is left.
#[test]
fn ignored_cancel_of_an_operator_replaces_the_agent() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.operator_cancels(JOB);
    let other = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#;
    assert_eq!(world.wait(), [format!("agent {other}")]);
    assert_eq!(world.wait(), ["examine"]);
    let given_up = world.input(Input::Examined { check: JOB, born: Some(0), cpu: None });
    let answer = r#"client {"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    assert_eq!(given_up, [answer, "end"]);
    let listed = |world: &World| {
        world
            .supervision
            .works()
            .filter_map(|work| Some((work.job?.get(), work.is_cancelling)))
            .collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(listed(&world), [(JOB, true)]);
    assert_eq!(world.ended(), ["receipt requested ended by uid:7"]);
    assert_eq!(listed(&world), []);
}

/// SUP-04: a cancel that crosses the answer has no effect, on a later prompt neither.
#[test]
fn late_cancel_of_an_operator_hits_no_other_turn() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.operator_says_cancel(JOB);
    world.agent(r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#);
    assert_eq!(world.turn(), [""; 0]);
    world.prompt(3, "s");
    assert_eq!(world.operator_cancels(JOB), [""; 0]);
}

/// A request beside a turn is cancelled by its id.
#[test]
fn other_request_is_cancelled_by_its_id() {
    let mut world = World::with_session(terms(), "{}");
    world.client(r#"{"jsonrpc":"2.0","id":"x","method":"session/list"}"#);
    let cancel =
        r#"agent {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}"#;
    assert_eq!(world.operator_cancels(JOB), [cancel]);
}
