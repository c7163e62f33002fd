//! Version 2: background work, and cancels of single tool calls and terminals.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::supervisor::effect::SupervisionInput;
use crate::supervisor::terms::Terms;
use crate::supervisor::tests::kit::{CANCEL, GRACE, World, terms};
use crate::upstream::server::OnIgnoredCancel;

fn update(update: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":{update}}}}}}}"#
    )
}

fn state(state: &str, background: &str) -> String {
    update(&format!(r#""state_update","state":"{state}"{background}"#))
}

fn terminal(id: &str, more: &str) -> String {
    update(&format!(r#""terminal_update","terminalId":"{id}"{more}"#))
}

fn tool(id: &str, more: &str) -> String {
    update(&format!(r#""tool_call_update","toolCallId":"{id}"{more}"#))
}

fn cancel(id: u32, of: &str) -> String {
    let (method, name) = if of.starts_with('t') {
        ("terminal/cancel", "terminalId")
    } else {
        ("tool_call/cancel", "toolCallId")
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"s","{name}":"{of}"}}}}"#
    )
}

fn answer(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

const CAN: &str = r#","capabilities":{"cancel":{}}"#;
const T1: &str = r#","background":[{"type":"terminal","terminalId":"t1"}]"#;

/// A session whose first prompt was at second 1, and in which a second passes with every update.
fn world(terms: Terms) -> World {
    let mut world = World::new(terms);
    world
        .client(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2}}"#);
    world.agent(
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"capabilities":{"session":{}}}}"#,
    );
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w"}}"#);
    world.agent(r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
    pass(&mut world);
    world.prompt(2, "s");
    says(&mut world, &state("running", ""));
    world.agent(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    world
}

fn pass(world: &mut World) {
    world.now = world.now + Duration::from_secs(1);
}

fn says(world: &mut World, frame: &str) {
    pass(world);
    assert_eq!(world.agent(frame), [format!("client {frame}")]);
}

fn strays(world: &World, id: &str, ended: u32) -> SupervisionInput<'static> {
    let piece = world.supervision.pieces.iter().find(|piece| &*piece.id == id);
    let check = piece.expect("the piece is known").number;
    SupervisionInput::StraysEnded { check, ended, left: 0 }
}

/// SUP-05: a stop of the next turn spares the background work, and the states that the supervisor
/// makes carry it on. The agent has the time of other turns to end it.
#[test]
fn ignored_cancel_spares_background_work() {
    let mut world = world(terms());
    says(&mut world, &terminal("t1", ""));
    world.agent(&state("idle", T1));
    pass(&mut world);
    world.prompt(3, "s");
    says(&mut world, &state("running", T1));
    world.agent(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    says(&mut world, &terminal("t2", ""));
    world.client(CANCEL);
    world.turn();
    world.wait();
    assert_eq!(world.wait(), ["examine [3] 6"]);
    let check = world.supervision.works().count() as u64;
    assert!(check > 0);
    let number = world.supervision.works.first().expect("a turn").number;
    assert_eq!(
        world.input(SupervisionInput::Examined { check: number, born: Some(1), cpu: None }),
        ["end strays [3] 6"]
    );
    world.input(SupervisionInput::StraysEnded { check: number, ended: 1, left: 0 });
    let told = world.wait();
    let idle = state("idle", &format!(r#","stopReason":"cancelled"{T1}"#));
    assert_eq!(told, [format!("client {idle}")], "the agent is not ended yet");
    // The end of the background work is told, and ends the agent.
    let end = terminal("t1", r#","exitStatus":{"exitCode":0}"#);
    assert_eq!(world.agent(&end), [format!("client {end}"), "end".into()]);
}

/// SUP-05: a restart waits for background work, at the longest until `drain` is over, and the loss of
/// work with the agent is told.
#[test]
fn restart_waits_for_background_work_and_tells_its_loss() {
    let mut world = world(terms());
    says(&mut world, &terminal("t1", ""));
    let kinds = r#","background":[{"type":"terminal","terminalId":"t1"},{"type":"tool_call","toolCallId":"c9"},{"type":"_x"}]"#;
    world.agent(&state("idle", kinds));
    assert_eq!(world.input(SupervisionInput::Restart(terms())), [""; 0]);
    assert_eq!(world.wait(), ["end"]);
    let told = world.ended();
    let expected = [
        terminal("t1", r#","exitStatus":{}"#),
        tool("c9", r#","status":"failed""#),
        state("idle", r#","background":[]"#),
    ];
    assert_eq!(told, expected.map(|frame| format!("client {frame}")));
}

/// SUP-05: a list that is not reported says nothing; an empty one ends the work of an unknown kind.
#[test]
fn only_a_list_changes_background_work() {
    let mut world = world(terms());
    world.agent(&state("idle", r#","background":[{"type":"_x"}]"#));
    for same in ["", r#","background":null"#, r#","background":7"#] {
        world.agent(&state("idle", same));
        assert!(world.supervision.pieces.has_background(Some("s")), "{same}");
    }
    world.agent(&state("idle", r#","background":[]"#));
    assert!(!world.supervision.pieces.has_background(None));
    assert_eq!(world.input(SupervisionInput::Restart(terms())), ["end"]);
}

/// SUP-05: the close of a session ends everything that is left of it.
#[test]
fn close_of_a_session_ends_its_background_work() {
    let mut world = world(terms());
    says(&mut world, &terminal("t1", ""));
    world.agent(&state("idle", T1));
    let close = r#"{"jsonrpc":"2.0","id":4,"method":"session/close","params":{"sessionId":"s"}}"#;
    world.client(close);
    assert_eq!(world.agent(&answer(4)), [format!("client {}", answer(4)), "end strays 3".into()]);
    assert_eq!(world.input(SupervisionInput::Restart(terms())), ["end"]);
}

/// SUP-06: the request passes, and the end that the agent reports is the proof.
#[test]
fn cancel_of_a_terminal_is_proved_by_its_end() {
    for (of, end) in [
        ("t1", terminal("t1", r#","exitStatus":{"signal":"TERM"}"#)),
        ("c1", tool("c1", r#","status":"cancelled""#)),
    ] {
        let mut world = world(terms());
        says(&mut world, &if of == "t1" { terminal(of, CAN) } else { tool(of, CAN) });
        let frame = cancel(7, of);
        let said = if of == "t1" { "terminal/cancel" } else { "tool_call/cancel" };
        assert_eq!(
            world.client(&frame),
            [format!("cancelled by {said}"), format!("agent {frame}")]
        );
        assert_eq!(world.agent(&answer(7)), [format!("client {}", answer(7))]);
        let kind = if of == "t1" { "terminal" } else { "tool_call" };
        let told = world.agent(&end);
        let receipt = format!("receipt requested answered of {kind} {of}");
        assert!(told.contains(&receipt) && told.contains(&format!("client {end}")), "{told:?}");
        assert_eq!(world.supervision.works().filter(|it| it.object.is_some()).count(), 0);
    }
}

/// SUP-06: of two terminals the one whose cancel is ignored is ended, and its request is answered.
#[test]
fn ignored_cancel_of_a_terminal_ends_its_processes_alone() {
    for is_answered in [true, false] {
        let mut world = world(terms());
        says(&mut world, &terminal("t1", CAN));
        says(&mut world, &terminal("t2", CAN));
        world.client(&cancel(7, "t2"));
        if is_answered {
            world.agent(&answer(7));
        }
        assert_eq!(world.wait(), ["end strays [3] 4"]);
        // The end that the agent reports meanwhile is part of the proof.
        says(&mut world, &terminal("t2", r#","exitStatus":{}"#));
        let mut told = world.input(strays(&world, "t2", 2));
        let receipt = "receipt requested children_ended of terminal t2";
        assert_eq!(told.remove(0), receipt);
        let own = (!is_answered).then(|| format!("client {}", answer(7)));
        assert_eq!(told, own.into_iter().collect::<alloc::vec::Vec<_>>());
        assert_eq!(world.supervision.works().filter(|it| it.object.is_some()).count(), 1);
        assert_eq!(world.supervision.open_works(), 1, "the turn goes on");
    }
}

/// SUP-06: a tool call has the processes of the terminals that it shows.
#[test]
fn tool_call_has_the_processes_of_its_terminals() {
    let mut world = world(terms());
    says(&mut world, &tool("c1", CAN));
    let shows = r#","content":[{"type":"terminal","terminalId":"t1"}]"#;
    says(&mut world, &terminal("t1", ""));
    says(&mut world, &tool("c1", shows));
    says(&mut world, &terminal("t2", ""));
    world.client(&cancel(7, "c1"));
    assert_eq!(world.wait(), ["end strays 4 [6]"]);
}

/// SUP-06: a cancel that the agent does not offer is its own to refuse, and so is a refused one.
#[test]
fn refused_cancel_is_not_enforced() {
    let mut world = world(terms());
    says(&mut world, &terminal("t1", CAN));
    says(&mut world, &terminal("t2", ""));
    for (id, of) in [(7, "t1"), (9, "t3")] {
        world.client(&cancel(id, of));
        let refusal =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"no"}}}}"#);
        assert_eq!(world.agent(&refusal), [format!("client {refusal}")]);
    }
    world.client(&cancel(8, "t2"));
    world.agent(&answer(8));
    assert_eq!(world.supervision.deadline(), None);
    // Nor is any by the policy to leave an agent that ignores it.
    let mut world = self::world(Terms { on_ignored: OnIgnoredCancel::Leave, ..terms() });
    says(&mut world, &terminal("t1", CAN));
    world.client(&cancel(7, "t1"));
    world.agent(&answer(7));
    assert_eq!(world.wait(), ["receipt requested told of terminal t1"]);
}

/// SUP-06: an operator cancels a piece by its number, also one that the agent cannot cancel.
#[test]
fn operator_cancels_a_piece() {
    for can in [CAN, ""] {
        let mut world = world(terms());
        says(&mut world, &terminal("t1", can));
        let job = { world.supervision.works() }
            .find(|it| it.object.is_some())
            .and_then(|it| it.job)
            .expect("a number");
        let told = world.operator_hears(job.get());
        assert_eq!(told.len(), usize::from(!can.is_empty()), "{told:?}");
        let at = world.now;
        assert_eq!(world.wait(), ["end strays 3"]);
        assert_eq!(world.now, at + GRACE);
        let told = world.input(strays(&world, "t1", 1));
        assert_eq!(told, ["receipt requested children_ended by uid:7 of terminal t1"]);
    }
}

/// Version 1 has neither.
#[test]
fn version_one_has_no_pieces() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    says(&mut world, &terminal("t1", CAN));
    says(&mut world, &state("idle", T1));
    assert_eq!(world.supervision.works().count(), 1);
    assert!(!world.supervision.pieces.has_background(None));
}
