//! Transparency, death, end, watchdogs.

use alloc::format;
use core::time::Duration;

use crate::supervisor::effect::{SupervisionInput, WATCH};
use crate::supervisor::terms::Terms;
use crate::supervisor::tests::kit::{World, prompt, terms};

/// SUP-01: every frame passes byte for byte, and nothing is added.
#[test]
fn frames_pass_unchanged() {
    let mut world = World::with_session(terms(), "{}");
    for frame in [
        r#"{ "jsonrpc" : "2.0", "id": 1.0e0, "method": "_x/y", "params": {"_meta": {"a": [ 1 ]}} }"#,
        r#"{"jsonrpc":"2.0","method":"_x/note","params":[1,2]}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"odd"}"#,
        r#"[{"jsonrpc":"2.0","id":8,"method":"a"}]"#,
        "not json",
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"\u00e4"}]}}"#,
    ] {
        assert_eq!(world.client(frame), [format!("agent {frame}")]);
        assert_eq!(world.turn(), [""; 0]);
    }
    for frame in [
        r#"{"jsonrpc":"2.0","id":5,"method":"terminal/create","params":{"sessionId":"s","command":"ls"}}"#,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"x":1.50}}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no","data":{"a":1}}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn","_meta":{"b":[]}}}"#,
    ] {
        assert_eq!(world.agent(frame), [format!("client {frame}")]);
    }
    let answer = r#"{"jsonrpc":"2.0","id":5,"result":{"terminalId":"t"}}"#;
    assert_eq!(world.client(answer), [format!("agent {answer}")]);
}

/// An answer whose id is a text of the digits of a number answers that request, and reaches its
/// side with the number; an id that is the same goes first.
#[test]
fn answers_with_ids_as_texts_pass_with_the_numbers() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.client(r#"{"jsonrpc":"2.0","id":"2","method":"_other"}"#);
    let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":1}}}}"#);
    assert_eq!(world.agent(&answer("\"2\"")), [format!("client {}", answer("\"2\""))]);
    assert_eq!(world.agent(&answer("\"02\"")), [""; 0]);
    assert_eq!(world.agent(&answer("\"2\"")), [format!("client {}", answer("2"))]);
    assert_eq!(world.agent(&answer("\"2\"")), [""; 0]);
    world.agent(r#"{"jsonrpc":"2.0","id":5,"method":"fs/read_text_file"}"#);
    assert_eq!(world.client(&answer("\"5\"")), [format!("agent {}", answer("5"))]);
}

/// An agent that asks without end is refused beyond the limit, and goes on after an answer.
#[test]
fn questions_of_an_agent_are_bounded() {
    let mut world = World::with_session(Terms { works_max: 2, ..terms() }, "{}");
    let ask = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/read_text_file"}}"#);
    for id in [5, 6] {
        assert_eq!(world.agent(&ask(id)), [format!("client {}", ask(id))]);
    }
    let refused = world.agent(&ask(7));
    let [refused] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(refused.starts_with("agent ") && refused.contains(r#""id":7"#), "{refused}");
    assert!(refused.contains("inflight_per_connection = 2"), "{refused}");
    world.client(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert_eq!(world.agent(&ask(8)), [format!("client {}", ask(8))]);
}

/// SUP-03: every open request is answered once, with the exit status; questions of the dead agent
/// are withdrawn, and their answers reach no successor.
#[test]
fn death_answers_everything_once() {
    let mut world = World::with_session(terms(), r#"{"loadSession":true}"#);
    world.prompt(2, "s");
    world.client(r#"{"jsonrpc":"2.0","id":"b","method":"_other"}"#);
    let asks = r#"{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s"}}"#;
    world.agent(asks);
    let told = world.ended();
    assert_eq!(told.len(), 3, "{told:?}");
    for (answer, id) in told.iter().zip(["\"id\":2,", "\"id\":\"b\","]) {
        assert!(answer.starts_with("client ") && answer.contains(id), "{answer}");
        assert!(answer.contains("exit code 3") && answer.contains("one | last words"), "{answer}");
    }
    let withdrawn =
        r#"client {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}"#;
    assert_eq!(told[2], withdrawn);
    // The successor asks with the same id before the client has answered the first question.
    assert_eq!(world.prompt(3, "u"), ["start"]);
    world.input(SupervisionInput::Started);
    let hello = r#"{"jsonrpc":"2.0","id":"ceased-1","result":{"protocolVersion":1}}"#;
    assert_eq!(world.agent(hello), [format!("agent {}", prompt(3, "u"))]);
    let asks =
        r#"{"jsonrpc":"2.0","id" : 0 ,"method":"fs/read_text_file","params":{"sessionId":"u"}}"#;
    let renamed = r#"client {"jsonrpc":"2.0","id" : "ceased-2" ,"method":"fs/read_text_file","params":{"sessionId":"u"}}"#;
    assert_eq!(world.agent(asks), [renamed]);
    assert_eq!(world.client(r#"{"jsonrpc":"2.0","id":0,"result":{"old":1}}"#), [""; 0]);
    let answer = r#"{"jsonrpc":"2.0","id":"ceased-2","result":{"id":1}}"#;
    assert_eq!(world.client(answer), [r#"agent {"jsonrpc":"2.0","id":0,"result":{"id":1}}"#]);
}

/// SUP-03: an agent that cannot start is reported, and asked for again by the next request only.
#[test]
fn agent_that_does_not_start_is_reported() {
    let mut world = World::new(terms());
    world.client(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    let told = world.ended();
    assert!(told.len() == 1 && told[0].contains("exit code 3"), "{told:?}");
    let again = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    assert_eq!(world.client(again), ["start"]);
    let told = world.input(SupervisionInput::Ended { status: "no such file", stderr: "" });
    assert!(told.len() == 1 && told[0].contains("no such file"), "{told:?}");
}

#[test]
fn handshake_has_a_time_limit() {
    let mut world = World::new(terms());
    world.client(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    assert_eq!(
        world.supervision.deadline().map(|at| at - world.now),
        Some(Duration::from_secs(60))
    );
    assert_eq!(world.wait(), ["end"]);
    assert!(world.ended()[0].contains("start_timeout"));
}

/// SUP-03: the agent ends with its client, however that goes.
#[test]
fn agent_ends_with_its_client() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    assert_eq!(world.input(SupervisionInput::Closed), ["end"]);
    world.ended();
    assert!(world.supervision.is_gone());

    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    let span = Duration::from_millis(500);
    assert_eq!(world.input(SupervisionInput::Finished(Some(span))), [""; 0]);
    assert_eq!(world.wait(), ["end"]);
    assert_eq!(world.ended().last().map(|last| &**last), Some("close"));

    let mut world = World::with_session(terms(), "{}");
    assert_eq!(world.input(SupervisionInput::Finished(Some(span))), ["end"]);
    assert_eq!(world.ended(), ["close"]);

    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    let told = world.input(SupervisionInput::ShutDown);
    assert!(told[0].contains("-32800") && told[1] == "end", "{told:?}");
}

/// A turn that takes too long is cancelled by the supervisor, and answered with -32800 if the agent
/// does not answer (ACP-07).
#[test]
fn turn_timeout_ends_a_turn() {
    let terms = Terms { turn_timeout: Some(Duration::from_secs(600)), ..terms() };
    let mut world = World::with_session(terms, "{}");
    world.prompt(2, "s");
    assert_eq!(
        world.supervision.deadline().map(|at| at - world.now),
        Some(Duration::from_secs(600))
    );
    let cancel = r#"agent {"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
    assert_eq!(world.wait(), [cancel]);
    world.wait();
    world.wait();
    let told = world.input(SupervisionInput::Examined { check: 3, born: Some(0), cpu: None });
    assert!(told[0].contains("-32800") && told[0].contains("turn_timeout = 600000 ms"), "{told:?}");
    assert_eq!(told[1], "end");
    assert_eq!(world.ended(), ["receipt timed out ended"]);
}

/// Neither an update, CPU time nor an open question: a stall. Each alone is a sign of work.
#[test]
fn stall_timeout_needs_every_sign_to_be_missing() {
    let update =
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}"#;
    let asks = r#"{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s"}}"#;
    for (sign, stalls) in
        [("none", true), ("update", false), ("cpu", false), ("unknown", false), ("question", false)]
    {
        let terms = Terms { stall_timeout: Some(Duration::from_secs(8)), ..terms() };
        let mut world = World::with_session(terms, "{}");
        world.prompt(2, "s");
        if sign == "question" {
            world.agent(asks);
        }
        let mut cancelled = false;
        for look in 0..8_u32 {
            assert_eq!(world.wait(), ["look"], "{sign}");
            if sign == "update" {
                world.agent(update);
            }
            let busy = Duration::from_secs(if sign == "cpu" { 1 } else { 0 });
            let cpu = (sign != "unknown").then_some(busy * look);
            let effects =
                world.input(SupervisionInput::Examined { check: WATCH, born: Some(0), cpu });
            if !effects.is_empty() {
                assert!(effects[0].contains("session/cancel"), "{effects:?}");
                cancelled = true;
                break;
            }
        }
        assert_eq!(cancelled, stalls, "{sign}");
    }
}

/// The bound on frames that wait is told.
#[test]
fn too_much_that_waits_is_refused() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.input(SupervisionInput::Unusable("it does not read"));
    let big = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"_x","params":{{"t":"{:900}"}}}}"#, "");
    assert_eq!(world.client(&big), [""; 0]);
    let refused = world.client(&big.replace("\"id\":7", "\"id\":8"));
    assert!(refused.len() == 1 && refused[0].contains("-31003"), "{refused:?}");
}
