//! Version 2: a prompt is answered when it is inserted, and its turn goes on.

use alloc::format;
use alloc::string::String;

use crate::supervisor::effect::SupervisionInput;
use crate::supervisor::tests::kit::{CANCEL, World, prompt, terms};

fn state(state: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"state_update","state":"{state}"}}}}}}"#
    )
}

fn world() -> World {
    let mut world = World::new(terms());
    world
        .client(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2}}"#);
    world.agent(
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"capabilities":{"session":{}}}}"#,
    );
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w"}}"#);
    world.agent(r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
    world
}

const INSERTED: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"messageId":"m"}}"#;

/// SUP-04: a cancel reaches a turn that runs, though its prompt was answered, and no turn that
/// rests.
#[test]
fn cancel_is_for_a_turn_that_runs() {
    for order in [["answer", "running"], ["running", "answer"]] {
        let mut world = world();
        world.prompt(2, "s");
        for step in order {
            let frame = if step == "answer" { INSERTED.into() } else { state("running") };
            assert_eq!(world.agent(&frame), [format!("client {frame}")]);
        }
        world.client(CANCEL);
        assert_eq!(world.turn()[0], format!("agent {CANCEL}"));
        let idle = state("idle");
        let over = [format!("client {idle}"), "receipt requested answered".into()];
        let mut effects = world.agent(&idle);
        effects.sort();
        assert_eq!(effects, over);
        world.client(CANCEL);
        assert_eq!(world.turn(), [""; 0]);
    }
}

/// SUP-02: the client is told that the turn is over, and the session is resumed in a fresh agent.
#[test]
fn ignored_cancel_ends_in_idle() {
    let mut world = world();
    world.prompt(2, "s");
    world.agent(&state("running"));
    world.agent(INSERTED);
    world.client(CANCEL);
    world.turn();
    // There is no request that a second form could name.
    assert_eq!(world.wait(), [""; 0]);
    assert_eq!(world.wait(), ["examine"]);
    let told = world.input(SupervisionInput::Examined { check: 3, born: Some(0), cpu: None });
    let idle = r#"client {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}"#;
    assert_eq!(told, [idle, "end"]);
    world.prompt(3, "s");
    world.ended();
    world.input(SupervisionInput::Started);
    let resume = world.agent(r#"{"jsonrpc":"2.0","id":"ceased-1","result":{"protocolVersion":2,"capabilities":{"session":{}}}}"#);
    assert!(resume[0].contains("session/resume"), "{resume:?}");
    let ready = world.agent(r#"{"jsonrpc":"2.0","id":"ceased-2","result":{}}"#);
    assert_eq!(ready, [format!("agent {}", prompt(3, "s"))]);
}

/// Work that the agent begins by itself can be cancelled, and ends with the agent.
#[test]
fn work_of_the_agent_itself_is_a_turn() {
    let mut world = world();
    world.agent(&state("running"));
    world.client(CANCEL);
    assert_eq!(world.turn()[0], format!("agent {CANCEL}"));
    let told = world.ended();
    assert!(told.iter().any(|it| it.contains("\"idle\"")), "{told:?}");
    assert!(told.iter().any(|it| it == "receipt requested ended"), "{told:?}");
}
