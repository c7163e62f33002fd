//! Cancels: passed on, tried in the other form, enforced, too late.

use alloc::format;
use alloc::string::String;

use crate::supervisor::effect::SupervisionInput;
use crate::supervisor::terms::Terms;
use crate::supervisor::tests::kit::{CANCEL, World, prompt, terms};
use crate::upstream::server::OnIgnoredCancel;

const RESUMES: &str = r#"{"sessionCapabilities":{"resume":{}}}"#;

fn answer(id: u32, reason: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"{reason}"}}}}"#)
}

/// SUP-02, ACP-12: an agent that obeys answers itself, and the receipt says so.
#[test]
fn obeyed_cancel_passes_through() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    assert_eq!(world.client(CANCEL), [""; 0]);
    assert_eq!(world.turn(), [format!("agent {CANCEL}"), "cancelled by session/cancel".into()]);
    let done = answer(2, "cancelled");
    assert_eq!(world.agent(&done), [format!("client {done}"), "receipt requested answered".into()]);
    assert_eq!(world.supervision.deadline(), None);
    assert_eq!(world.agent(&done), [""; 0], "a second answer goes nowhere");
}

/// SUP-02: each form is tried, whichever comes first, in the spelling that the agent knows
/// (ACP-01).
#[test]
fn other_form_is_tried_after_the_grace() {
    let request = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#;
    let old = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"requestId":2}}"#;
    let proposed = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}"#;
    let declares = r#"{"cancellation":{"request":true}}"#;
    for (declares, first, passed, second) in [
        ("{}", CANCEL, CANCEL, request),
        ("{}", request, request, CANCEL),
        ("{}", old, request, CANCEL),
        (declares, CANCEL, CANCEL, proposed),
        (declares, request, proposed, CANCEL),
        (declares, proposed, proposed, CANCEL),
    ] {
        let mut world = World::with_session(terms(), declares);
        world.prompt(2, "s");
        world.client(first);
        assert_eq!(world.turn()[0], format!("agent {passed}"), "{declares} {first}");
        assert_eq!(world.wait(), [format!("agent {second}")], "{declares} {first}");
        let done = answer(2, "cancelled");
        assert_eq!(world.agent(&done)[1], "receipt requested answered");
    }
}

/// SUP-02: the request is answered once in the form of its cancel, the agent ends, and nothing of
/// the old agent reaches the next prompt, which a fresh agent gets in the same session.
#[test]
fn ignored_cancel_replaces_the_agent() {
    let by_session = r#"client {"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    let by_request =
        r#"client {"jsonrpc":"2.0","id":2,"error":{"code":-32800,"message":"Request cancelled"}}"#;
    let request = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#;
    for (cancel, expected) in [(CANCEL, by_session), (request, by_request)] {
        let mut world = World::with_session(terms(), RESUMES);
        world.prompt(2, "s");
        world.client(cancel);
        world.turn();
        world.wait();
        assert_eq!(world.wait(), ["examine"]);
        let found = SupervisionInput::Examined { check: 3, born: Some(1), cpu: None };
        assert_eq!(world.input(found), ["end strays"]);
        let ended = SupervisionInput::StraysEnded { check: 3, ended: 1, left: 0 };
        assert_eq!(world.input(ended), [""; 0]);
        assert_eq!(world.wait(), [expected, "end"]);
        // The next prompt waits for a fresh agent.
        assert_eq!(world.prompt(3, "s"), [""; 0]);
        assert_eq!(world.agent(&answer(2, "end_turn")), [""; 0]);
        assert_eq!(world.agent(&answer(3, "end_turn")), [""; 0]);
        let update =
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}"#;
        assert_eq!(world.agent(update), [""; 0]);
        assert_eq!(world.ended(), ["receipt requested ended", "start"]);
        let greeting = r#"agent {"jsonrpc":"2.0","id":"ceased-1","method":"initialize","params":{"protocolVersion":1,"x":[1]}}"#;
        assert_eq!(world.input(SupervisionInput::Started), [greeting]);
        let declared = r#"{"jsonrpc":"2.0","id":"ceased-1","result":{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}}"#;
        let resume = r#"agent {"jsonrpc":"2.0","id":"ceased-2","method":"session/resume","params":{"sessionId":"s","cwd":"/w","mcpServers":[],"z":1}}"#;
        assert_eq!(world.agent(declared), [resume]);
        let resumed = r#"{"jsonrpc":"2.0","id":"ceased-2","result":{}}"#;
        assert_eq!(world.agent(resumed), [format!("agent {}", prompt(3, "s"))]);
        let done = answer(3, "end_turn");
        assert_eq!(world.agent(&done), [format!("client {done}")]);
    }
}

/// SUP-02: history that `session/load` replays is not shown a second time.
#[test]
fn replayed_history_does_not_reach_the_client() {
    let declares = r#"{"loadSession":true}"#;
    let mut world = World::with_session(terms(), declares);
    world.ended();
    assert_eq!(world.prompt(2, "s"), ["start"]);
    world.input(SupervisionInput::Started);
    let load = world.agent(r#"{"jsonrpc":"2.0","id":"ceased-1","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}"#);
    assert!(load[0].contains("\"session/load\"") && load.len() == 1, "{load:?}");
    let update = |of: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{of}","update":{{}}}}}}"#
        )
    };
    assert_eq!(world.agent(&update("s")), [""; 0]);
    assert_eq!(world.agent(&update("other")).len(), 1);
    assert_eq!(world.agent(r#"{"jsonrpc":"2.0","id":"ceased-2","result":null}"#).len(), 1);
    assert_eq!(world.agent(&update("s")).len(), 1);

    // An agent that is ended while it replays goes on for a moment.
    world.ended();
    world.prompt(3, "s");
    world.input(SupervisionInput::Started);
    world.agent(r#"{"jsonrpc":"2.0","id":"ceased-3","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}"#);
    assert_eq!(world.wait(), ["end"]);
    assert_eq!(world.agent(&update("s")), [""; 0]);
}

/// SUP-02: the client is told of the loss, and other sessions can be opened.
#[test]
fn session_that_cannot_be_reopened_is_reported_as_lost() {
    let mut world = World::with_session(terms(), "{}");
    world.ended();
    world.prompt(2, "s");
    world.input(SupervisionInput::Started);
    let hello = r#"{"jsonrpc":"2.0","id":"ceased-1","result":{"protocolVersion":1}}"#;
    let refused = world.agent(hello);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].contains("-32002") && refused[0].contains("is lost"), "{refused:?}");
    let again = world.prompt(3, "s");
    assert!(again.len() == 1 && again[0].contains("is lost"), "{again:?}");
    let new = r#"{"jsonrpc":"2.0","id":4,"method":"session/new","params":{}}"#;
    assert_eq!(world.client(new), [format!("agent {new}")]);
    world.agent(r#"{"jsonrpc":"2.0","id":4,"result":{"sessionId":"t"}}"#);
    assert_eq!(world.prompt(5, "t"), [format!("agent {}", prompt(5, "t"))]);
}

/// SUP-04: a cancel that comes after the answer, or crosses it, is for no later turn.
#[test]
fn late_cancel_does_not_hit_the_next_prompt() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.client(CANCEL);
    // The answer is read in the same turn of the loop.
    world.agent(&answer(2, "end_turn"));
    assert_eq!(world.turn(), [""; 0]);
    assert_eq!(world.client(CANCEL), [""; 0]);
    let request = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#;
    assert_eq!(world.client(request), [""; 0]);
    assert_eq!(world.prompt(3, "s"), [format!("agent {}", prompt(3, "s"))]);
    assert_eq!(world.turn(), [""; 0]);
}

/// SUP-04: a prompt behind a cancelled turn waits for the end of the turn, can itself be cancelled
/// meanwhile, and delays no other session.
#[test]
fn prompt_behind_a_cancelled_turn_waits() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.client(CANCEL);
    assert_eq!(world.prompt(3, "s")[0], format!("agent {CANCEL}"));
    assert_eq!(world.prompt(4, "t"), [format!("agent {}", prompt(4, "t"))]);
    let cancelled = world.client(CANCEL);
    assert!(
        cancelled[1].contains(r#""id":3,"result":{"stopReason":"cancelled"}"#),
        "{cancelled:?}"
    );
    world.turn();
    world.prompt(5, "s");
    let request = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}"#;
    assert!(world.client(request)[1].contains("-32800"));
    assert_eq!(world.prompt(6, "s"), [""; 0]);
    let done = world.agent(&answer(2, "cancelled"));
    assert_eq!(done[2], format!("agent {}", prompt(6, "s")), "{done:?}");
}

/// SUP-02: a turn of another session that is under way is not cut off at once.
#[test]
fn other_turns_may_finish_before_the_agent_is_replaced() {
    let mut world = World::with_session(terms(), RESUMES);
    world.prompt(2, "t");
    world.prompt(3, "s");
    world.client(CANCEL);
    world.turn();
    world.wait();
    assert_eq!(world.wait(), ["examine"]);
    // Processes cannot be told apart, so that none is ended.
    let found = SupervisionInput::Examined { check: 4, born: Some(1), cpu: None };
    let given_up = world.input(found);
    assert_eq!(given_up.len(), 1);
    assert!(given_up[0].contains(r#""id":3,"#), "{given_up:?}");
    assert_eq!(world.prompt(4, "s"), [""; 0]);
    let muted =
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}"#;
    assert_eq!(world.agent(muted), [""; 0]);
    let asks = r#"{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"s"}}"#;
    assert!(world.agent(asks)[0].starts_with("agent "), "the agent is answered");
    let done = answer(2, "end_turn");
    assert_eq!(world.agent(&done), [format!("client {done}"), "end".into()]);
    assert_eq!(world.ended(), ["receipt requested ended", "start"]);
}

/// With `leave`, the agent is told both ways, and the receipt claims no more.
#[test]
fn ignored_cancel_may_be_left_alone() {
    let terms = Terms { on_ignored: OnIgnoredCancel::Leave, ..terms() };
    let mut world = World::with_session(terms, "{}");
    world.prompt(2, "s");
    world.client(CANCEL);
    world.turn();
    world.wait();
    assert_eq!(world.wait(), ["receipt requested told"]);
    assert_eq!(world.supervision.deadline(), None);
    let done = answer(2, "end_turn");
    assert_eq!(world.agent(&done), [format!("client {done}")]);
}

/// ACP-04, ACP-08, CAN-14: cancels without a meaning go nowhere.
#[test]
fn cancels_of_initialize_and_of_unknown_requests_are_ignored() {
    let mut world = World::new(terms());
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    assert_eq!(world.client(hello), [format!("agent {hello}")]);
    for id in ["0", "7", "null", "{}", "\"0\""] {
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#
        );
        assert_eq!(world.client(&cancel), [""; 0], "{id}");
    }
    assert_eq!(world.client(CANCEL), [""; 0]);
    assert_eq!(world.turn(), [""; 0]);
}

/// SUP-02: an agent that answers because its processes end gets the next request after their end,
/// and the receipt counts them.
#[test]
fn requests_wait_for_the_end_of_processes() {
    let mut world = World::with_session(terms(), "{}");
    world.prompt(2, "s");
    world.client(CANCEL);
    world.turn();
    world.wait();
    world.wait();
    let found = SupervisionInput::Examined { check: 3, born: Some(2), cpu: None };
    assert_eq!(world.input(found), ["end strays"]);
    let done = answer(2, "cancelled");
    assert_eq!(world.agent(&done), [format!("client {done}")]);
    let new = r#"{"jsonrpc":"2.0","id":7,"method":"session/new","params":{}}"#;
    assert_eq!(world.client(new), [""; 0]);
    let ended = SupervisionInput::StraysEnded { check: 3, ended: 2, left: 0 };
    let told = world.input(ended);
    assert_eq!(told, ["receipt requested children_ended".into(), format!("agent {new}")]);
}

/// SUP-02: a turn that is given up while another session is being reopened ends the agent as well,
/// so that its late answer meets no request with the same id.
#[test]
fn agent_is_replaced_though_it_reopens_a_session() {
    let mut world = World::with_session(terms(), RESUMES);
    world.ended();
    world.prompt(2, "t");
    world.input(SupervisionInput::Started);
    world.agent(&format!(
        r#"{{"jsonrpc":"2.0","id":"ceased-1","result":{{"protocolVersion":1,"agentCapabilities":{RESUMES}}}}}"#
    ));
    world.client(&CANCEL.replace("\"s\"", "\"t\""));
    world.turn();
    world.prompt(3, "u");
    world.wait();
    assert_eq!(world.wait(), ["examine"]);
    // A request in the session of the first agent.
    assert!(world.prompt(4, "s")[0].contains("session/resume"));
    let found = SupervisionInput::Examined { check: 3, born: None, cpu: None };
    assert!(world.input(found)[0].contains(r#""id":2,"#));
    world.agent(r#"{"jsonrpc":"2.0","id":"ceased-2","result":{}}"#);
    assert_eq!(world.prompt(2, "t"), [""; 0]);
    assert_eq!(world.agent(&answer(2, "end_turn")), [""; 0]);
    let done = answer(3, "end_turn");
    assert_eq!(world.agent(&done), [format!("client {done}"), "end".into()]);
}

/// OBS-01: where spans are recorded each end of a request is told once, of a cancelled turn as such.
#[test]
fn each_end_is_told_where_spans_are_recorded() {
    let mut world = World::with_session(Terms { records_spans: true, ..terms() }, "{}");
    world.prompt(2, "s");
    let done = answer(2, "end_turn");
    assert_eq!(
        world.agent(&done),
        [format!("client {done}"), "ended session/prompt Answered".into()]
    );
    world.prompt(2, "s");
    world.client(CANCEL);
    world.turn();
    let done = answer(2, "cancelled");
    let told = world.agent(&done);
    assert_eq!(told[1], "ended session/prompt Cancelled stopped");
    assert_eq!(told.iter().filter(|it| it.starts_with("ended")).count(), 1, "{told:?}");
    world.prompt(2, "s");
    let failed = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"no"}}"#;
    assert_eq!(world.agent(failed)[1], "ended session/prompt Failed(Some(-32603))");
}
