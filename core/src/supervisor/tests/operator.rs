//! Cancels by a person in place of the client.

use alloc::format;

use crate::identity::Identity;
use crate::policy::account::{Account, Accounts};
use crate::supervisor::effect::SupervisionInput;
use crate::supervisor::supervision::Supervision;
use crate::supervisor::tests::kit::{CANCEL, World, prompt, terms};
use crate::supervisor::work::WorkState;

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
    let given_up = world.input(SupervisionInput::Examined { check: JOB, born: Some(0), cpu: None });
    let answer = r#"client {"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    assert_eq!(given_up, [answer, "end"]);
    let listed = |world: &World| {
        world
            .supervision
            .works()
            .filter_map(|work| Some((work.job?.get(), work.state == WorkState::Cancelling)))
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

const RESUMES: &str = r#"{"sessionCapabilities":{"resume":{}}}"#;

/// The other process gets the handshake and the session of the client before its next request.
#[test]
fn restarted_agent_gets_the_session_again() {
    let mut world = World::with_session(terms(), RESUMES);
    assert_eq!(world.input(SupervisionInput::Restart(terms())), ["end"]);
    assert_eq!(world.ended(), [""; 0], "nothing waits for it");
    assert_eq!(world.prompt(2, "s"), ["start"]);
    assert!(world.input(SupervisionInput::Started)[0].contains("\"initialize\""));
    let result = format!(r#"{{"protocolVersion":1,"agentCapabilities":{RESUMES}}}"#);
    let answer =
        |id: &str, result: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{result}}}"#);
    assert!(world.agent(&answer("ceased-1", &result))[0].contains("session/resume"));
    assert_eq!(world.agent(&answer("ceased-2", "{}")), [format!("agent {}", prompt(2, "s"))]);
}

/// A turn under way is finished first, and a prompt that comes meanwhile waits.
#[test]
fn restarted_agent_finishes_its_turns() {
    let mut world = World::with_session(terms(), RESUMES);
    world.prompt(2, "s");
    assert_eq!(world.input(SupervisionInput::Restart(terms())), [""; 0]);
    assert_eq!(world.prompt(3, "s"), [""; 0]);
    let done = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(world.agent(done), [format!("client {done}"), "end".into()]);
    assert_eq!(world.ended(), ["start"]);
}

/// The requests of a client as views list them.
fn listed(world: &World) -> alloc::vec::Vec<(u64, &str, WorkState)> {
    let works = world.supervision.works();
    works.filter_map(|work| Some((work.job?.get(), work.method, work.state))).collect()
}

/// A request that waits for a restart is listed from the beginning, and keeps its number when the
/// agent gets it.
#[test]
fn request_behind_a_restart_is_listed() {
    let mut world = World::with_session(terms(), RESUMES);
    world.prompt(2, "s");
    world.input(SupervisionInput::Restart(terms()));
    world.prompt(3, "s");
    world.client(r#"{"jsonrpc":"2.0","id":4,"method":"session/list"}"#);
    let waits = |world: &World, state: &'static str| {
        let all = listed(world);
        let waiting = WorkState::Waiting(state);
        assert!(all.contains(&(4, "session/prompt", waiting)), "{all:?}");
        assert!(all.contains(&(5, "session/list", waiting)), "{all:?}");
    };
    waits(&world, "the restart of the agent");
    assert_eq!(world.supervision.open_requests(), 3);
    world.agent(r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#);
    waits(&world, "the restart of the agent");
    world.ended();
    waits(&world, "the start of the agent");
    world.input(SupervisionInput::Started);
    waits(&world, "the start of the agent");
    let result = format!(r#"{{"protocolVersion":1,"agentCapabilities":{RESUMES}}}"#);
    world.agent(&format!(r#"{{"jsonrpc":"2.0","id":"ceased-1","result":{result}}}"#));
    waits(&world, "its session to be opened again");
    world.agent(r#"{"jsonrpc":"2.0","id":"ceased-2","result":{}}"#);
    let running = WorkState::Running;
    assert_eq!(listed(&world), [(4, "session/prompt", running), (5, "session/list", running)]);
}

/// A request that waits is cancelled by its number: the client is answered, the agent never gets
/// it, and the receipt names the operator.
#[test]
fn request_behind_a_restart_is_cancelled_by_its_number() {
    let mut world = World::with_session(terms(), RESUMES);
    world.prompt(2, "s");
    world.input(SupervisionInput::Restart(terms()));
    world.prompt(3, "s");
    world.client(r#"{"jsonrpc":"2.0","id":4,"method":"session/list"}"#);
    let answer = r#"client {"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}"#;
    let receipt = "receipt requested unsent by uid:7";
    assert_eq!(world.operator_hears(4), [answer, receipt]);
    let said = world.operator_hears(5);
    assert!(said[0].contains(r#""id":4,"error":{"code":-32800"#), "{said:?}");
    assert_eq!(said[1..], [receipt]);
    assert_eq!(world.operator_hears(4), [""; 0], "it is over");
    assert_eq!(listed(&world).len(), 1);
    let done = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(world.agent(done), [format!("client {done}"), "end".into()]);
    assert_eq!(world.ended(), [""; 0], "nothing waits for another process");
}

/// A prompt behind the cancelled turn of its session is listed with its cause.
#[test]
fn prompt_behind_a_cancelled_turn_is_listed() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.operator_cancels(JOB);
    world.prompt(3, "s");
    let waits = WorkState::Waiting("the end of a cancelled request");
    let cancelling = (JOB, "session/prompt", WorkState::Cancelling);
    assert_eq!(listed(&world), [cancelling, (4, "session/prompt", waits)]);
}

/// A turn that outlasts `drain` is answered once, with the reason.
#[test]
fn restarted_agent_ends_at_its_drain_deadline() {
    let mut world = World::with_session(terms(), RESUMES);
    world.prompt(2, "s");
    world.input(SupervisionInput::Restart(terms()));
    assert_eq!(world.wait(), ["end"]);
    let said = world.ended();
    assert!(
        said.len() == 1 && said[0].contains("an operator restarted it, and its drain"),
        "{said:?}"
    );
}

/// The client is told of a session that cannot be reopened.
#[test]
fn restarted_agent_without_resume_loses_its_session() {
    let mut world = World::with_session(terms(), "{}");
    world.input(SupervisionInput::Restart(terms()));
    world.ended();
    world.prompt(2, "s");
    world.input(SupervisionInput::Started);
    let greeted = r#"{"jsonrpc":"2.0","id":"ceased-1","result":{"protocolVersion":1,"agentCapabilities":{}}}"#;
    let said = world.agent(greeted);
    assert!(said.len() == 1 && said[0].contains("session \\\"s\\\" is lost"), "{said:?}");
}

/// Requests that wait for a process that starts go to the other one.
#[test]
fn restart_at_the_start_keeps_what_waits() {
    let mut world = World::new(terms());
    world.supervision = Supervision::new(terms(), &Account::default());
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;
    assert_eq!(world.client(hello), ["start"]);
    assert_eq!(world.input(SupervisionInput::Restart(terms())), ["end"]);
    assert_eq!(world.ended(), ["start"]);
    assert_eq!(world.input(SupervisionInput::Started), [format!("agent {hello}")]);
}

/// TSK-36: frames that wait for an agent are held for the identity of its client.
#[test]
fn waiting_frames_have_a_share() {
    let account = Accounts::default().of(&Identity::User(7));
    let mut world = World::new(terms());
    world.supervision = Supervision::new(terms(), &account);
    let hello = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":1}}}}"#
        )
    };
    assert_eq!(world.client(&hello(0)), ["start"]);
    assert_eq!(account.own(), hello(0).len());
    let others = account.charge(4096 - hello(0).len());
    let said = world.client(&hello(1));
    assert!(said.len() == 1 && said[0].contains("held_bytes_per_identity = 4096"), "{said:?}");
    drop(others);
    assert_eq!(world.client(&hello(1)), [""; 0]);
    assert_eq!(account.own(), 2 * hello(0).len());
    world.input(SupervisionInput::Started);
    assert!(account.own() < 2 * hello(0).len());
    drop(world);
    assert_eq!(account.own(), 0);
}
