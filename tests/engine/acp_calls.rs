//! ACP, requests of ours: cancelled and waited for; permitted cancels; the cascade.

use std::time::Duration;

use ceased_core::acp::protocol::{AcpForm, AcpRole};
use ceased_core::identity::Identity;
use ceased_core::ids::AskId;
use ceased_core::limits::Limits;
use ceased_core::outgoing::call::{AnswerTimeout, Caller, OutgoingRequest, Refusal};
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::acp::{
    FORMS, answer, asking, cancel, cancelled, nothing_is_left, open_to_agent, open_to_client,
    permission, prompt, refuse, supports, told,
};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{World, result_of};
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// ACP-04: `initialize` is never cancelled.
#[test]
fn initialize_is_not_cancelled() {
    for form in FORMS {
        let mut w = World::new();
        let c = w.open_acp(form, AcpRole::Agent);
        let params = json!({"protocolVersion": 1, "clientCapabilities": supports(true)});
        let job = w.request(c, json!(0), "initialize", params);
        cancel(&mut w, c, &json!(0));
        assert_eq!((w.steps(job), w.counters().cancels_ignored), (vec![], 1));
        w.end(job, result_of(&json!({"protocolVersion": 1, "agentCapabilities": supports(true)})));
        assert_eq!(w.next(c)["result"]["protocolVersion"], 1);

        let c = w.open_acp(form, AcpRole::Client);
        let caller = Caller::Host(AskId::new(1));
        let answer_timeout =
            AnswerTimeout { timeout: SECOND, extend_on_progress: true, cap: SECOND };
        let params = json!({"protocolVersion": 1});
        let ask = OutgoingRequest {
            answer_timeout: Some(answer_timeout),
            ..asking("initialize", &params)
        };
        w.feed(Input::Call(c, AskId::new(1), ask));
        let request = w.next(c);
        assert_eq!(request["params"], params, "nothing of MCP is added");
        w.feed(Input::CancelCall(caller, None));
        assert_eq!(w.refused_cancels, [(caller, Refusal::Protected)]);
        w.advance(SECOND);
        assert_eq!(told(&w), ["timed out"]);
        w.silent(c);
        nothing_is_left(&w);
    }
}

/// ACP-01, ACP-03, ACP-06: a cancelled call waits for its one answer, and the caller is told it.
#[test]
fn cancelled_call_waits_for_its_answer() {
    for form in FORMS {
        let mut w = World::new();
        let c = open_to_agent(&mut w, form, false, true);
        let spelled = |id: &Value| match form {
            AcpForm::Published => {
                json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}})
            }
            AcpForm::Proposed => {
                json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}})
            }
        };
        let begin = |w: &mut World, number| {
            w.feed(Input::Call(c, AskId::new(number), asking("session/prompt", &json!({}))));
            let id = w.next(c)["id"].clone();
            let caller = Caller::Host(AskId::new(number));
            w.feed(Input::CancelCall(caller, Some("enough".into())));
            w.expect(c, spelled(&id));
            assert!(told(w).is_empty(), "it waits");
            w.feed(Input::CancelCall(caller, None));
            assert_eq!(w.refused_cancels.pop(), Some((caller, Refusal::NotInProgress)));
            w.silent(c);
            id
        };
        let id = begin(&mut w, 1);
        answer(&mut w, c, &id, &json!({"stopReason": "cancelled"}));
        assert_eq!(told(&w), [r#"result {"stopReason":"cancelled"}"#]);
        w.told.clear();
        let id = begin(&mut w, 2);
        refuse(&mut w, c, &id);
        assert_eq!(told(&w), [r#"error {"code":-32800,"message":"Request cancelled"}"#]);
        w.told.clear();
        // The wait has a bound; an answer after it is dropped.
        let id = begin(&mut w, 3);
        w.advance(Limits::default().cancelled_wait);
        assert_eq!(told(&w), ["cancelled"]);
        refuse(&mut w, c, &id);
        assert_eq!((w.told.len(), w.counters().late_responses), (1, 1));
        w.told.clear();
        begin(&mut w, 4);
        w.lose(c);
        assert_eq!(told(&w), ["lost"]);
        nothing_is_left(&w);
    }
}

/// ACP-03: a call that takes too long is cancelled, and its answer waited for with a bound. Where
/// it cannot be cancelled, nothing is sent and no job waits.
#[test]
fn call_that_takes_too_long_is_cancelled() {
    let answer_timeout = AnswerTimeout { timeout: SECOND, extend_on_progress: false, cap: SECOND };
    let ask = || OutgoingRequest {
        answer_timeout: Some(answer_timeout),
        ..asking("session/prompt", &json!({}))
    };
    let mut w = World::new();
    let c = open_to_agent(&mut w, AcpForm::Published, false, false);
    for (number, answers) in [(1, true), (2, false)] {
        w.feed(Input::Call(c, AskId::new(number), ask()));
        let id = w.next(c)["id"].clone();
        w.advance(SECOND);
        assert_eq!(w.next(c)["params"], json!({"requestId": id}));
        assert_eq!(w.told.len(), usize::from(number == 2), "it waits");
        if answers {
            answer(&mut w, c, &id, &json!({"stopReason": "cancelled"}));
        } else {
            w.advance(Limits::default().cancelled_wait);
        }
    }
    assert_eq!(told(&w), [r#"result {"stopReason":"cancelled"}"#, "timed out"]);
    w.told.clear();
    let c = open_to_agent(&mut w, AcpForm::Proposed, true, false);
    w.feed(Input::Call(c, AskId::new(3), ask()));
    w.next(c);
    w.advance(SECOND);
    assert_eq!(told(&w), ["timed out"]);
    w.silent(c);
    nothing_is_left(&w);
}

/// ACP-02, ACP-03, ACP-10, ACP-11: the four pairings, each from both sides, in both directions.
#[test]
fn four_pairings() {
    for form in FORMS {
        for (we, it) in [(false, false), (true, false), (false, true), (true, true)] {
            for side in [AcpRole::Agent, AcpRole::Client] {
                let mut w = World::new();
                let c = match side {
                    AcpRole::Agent => open_to_client(&mut w, form, we, it),
                    AcpRole::Client => open_to_agent(&mut w, form, we, it),
                };
                let (offered, asked) = match side {
                    AcpRole::Agent => ("session/new", "fs/read_text_file"),
                    AcpRole::Client => ("fs/read_text_file", "session/new"),
                };
                let what = format!("{form:?} {side:?} we {we} it {it}");
                // It cancels its request.
                let job = w.request(c, json!("x"), offered, json!({}));
                cancel(&mut w, c, &json!("x"));
                let heeded = form == AcpForm::Published || we;
                assert_eq!(w.steps(job).len(), usize::from(heeded), "{what}");
                w.end(job, result_of(&json!({})));
                w.expect(c, json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
                // We cancel ours.
                let caller = Caller::Host(AskId::new(1));
                w.feed(Input::Call(c, AskId::new(1), asking(asked, &json!({}))));
                let id = w.next(c)["id"].clone();
                w.feed(Input::CancelCall(caller, None));
                if form == AcpForm::Published || it {
                    assert!(w.refused_cancels.is_empty(), "{what}");
                    assert!(
                        w.next(c)["method"].as_str().is_some_and(|m| m.starts_with("$/cancel"))
                    );
                } else {
                    assert_eq!(w.refused_cancels, [(caller, Refusal::CancelNotDeclared)], "{what}");
                }
                w.silent(c);
                answer(&mut w, c, &id, &json!({"done": 1}));
                assert_eq!(told(&w), [r#"result {"done":1}"#], "{what}");
                nothing_is_left(&w);
            }
        }
    }
}

/// ACP-03: before capabilities are exchanged nothing is cancelled, in either direction; a refused
/// `initialize` exchanges none.
#[test]
fn nothing_is_cancelled_before_initialize() {
    let mut w = World::new();
    let c = w.open_acp(AcpForm::Proposed, AcpRole::Agent);
    let early = w.request(c, json!(1), "session/new", json!({}));
    let params = json!({"protocolVersion": 1, "clientCapabilities": supports(true)});
    let init = w.request(c, json!(2), "initialize", params.clone());
    let caller = Caller::Host(AskId::new(1));
    w.feed(Input::Call(c, AskId::new(1), permission()));
    w.next(c);
    for refused in [true, false] {
        cancel(&mut w, c, &json!(1));
        w.feed(Input::CancelCall(caller, None));
        assert_eq!(w.refused_cancels.pop(), Some((caller, Refusal::CancelNotDeclared)));
        if refused {
            w.fail(init, -32000, "no");
            w.expect_error(c, json!(2), -32000);
        }
    }
    assert!(w.steps(early).is_empty());
    w.silent(c);
    let init = w.request(c, json!(2), "initialize", params);
    w.end(init, result_of(&json!({"protocolVersion": 1, "agentCapabilities": supports(true)})));
    w.next(c);
    cancel(&mut w, c, &json!(1));
    assert_eq!(w.steps(early).len(), 1);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.next(c)["method"], "$/cancelRequest");
}

/// ACP-05, ACP-10: an `initialize` that is refused takes back no earlier declaration,
/// and none of a pending one, on either side.
#[test]
fn refused_initialize_changes_nothing() {
    let silent = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let mut w = World::new();
    let c = w.open_acp(AcpForm::Proposed, AcpRole::Agent);
    let params = json!({"protocolVersion": 1, "clientCapabilities": supports(true)});
    let first = w.request(c, json!(1), "initialize", params);
    let second = w.request(c, json!(2), "initialize", silent.clone());
    w.fail(second, -32600, "initialized already");
    w.expect_error(c, json!(2), -32600);
    w.end(first, result_of(&json!({"protocolVersion": 1, "agentCapabilities": supports(true)})));
    w.next(c);
    let third = w.request(c, json!(3), "initialize", silent.clone());
    assert_eq!(w.refusal(c, "initialize", json!([1])).0, -32602);
    for refused in [false, true] {
        if refused {
            w.fail(third, -32600, "initialized already");
            w.expect_error(c, json!(3), -32600);
        }
        let job = prompt(&mut w, c, json!(7));
        cancel(&mut w, c, &json!(7));
        assert_eq!(w.steps(job).len(), 1, "we said that we heed it");
        w.stopped(job);
        w.next(c);
        let caller = Caller::Host(AskId::new(u64::from(refused)));
        w.feed(Input::Call(c, AskId::new(u64::from(refused)), permission()));
        w.next(c);
        w.feed(Input::CancelCall(caller, None));
        assert_eq!(w.next(c)["method"], "$/cancelRequest", "it said that it answers that");
    }
    let c = open_to_agent(&mut w, AcpForm::Proposed, true, true);
    w.feed(Input::Call(c, AskId::new(10), asking("initialize", &silent)));
    let id = w.next(c)["id"].clone();
    for refused in [false, true] {
        if refused {
            refuse(&mut w, c, &id);
        }
        let job = w.request(c, json!(7), "session/request_permission", json!({}));
        cancel(&mut w, c, &json!(7));
        assert_eq!(w.steps(job).len(), 1, "we said that we heed it");
        w.stopped(job);
        w.next(c);
    }
}

/// ACP-05, ACP-09: a tree of three levels over two connections, in two dialects. Cancelling the
/// root cancels its requests, hop by hop; every request is answered and nothing is left.
#[test]
fn cancelling_the_root_cancels_the_tree() {
    let mut w = World::new();
    let client = open_to_client(&mut w, AcpForm::Published, false, false);
    let agent = open_to_agent(&mut w, AcpForm::Proposed, true, true);
    // 1: the client prompts us. 2: we prompt the agent. 3: the agent asks us for permission, for
    // which we ask the client; and the root reads a file of the client as well.
    let root = prompt(&mut w, client, json!("root"));
    let (down, up, file) = (AskId::new(1), AskId::new(1), AskId::new(2));
    w.feed(Input::Asked(root, down, Some(agent), asking("session/prompt", &json!({}))));
    let nested = w.next(agent)["id"].clone();
    let leaf = w.request(agent, json!("leaf"), "session/request_permission", json!({}));
    w.feed(Input::Asked(leaf, up, Some(client), permission()));
    let question = w.next(client)["id"].clone();
    w.feed(Input::Asked(root, file, None, asking("fs/read_text_file", &json!({}))));
    let read = w.next(client)["id"].clone();
    assert_eq!((w.sizes().requests, w.sizes().jobs), (2, 2));

    cancel(&mut w, client, &json!("root"));
    assert_eq!(w.steps(root), [(StopStep::Flag, StopReason::Requested)]);
    w.expect(
        client,
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": read}}),
    );
    w.expect(
        agent,
        json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": nested}}),
    );
    refuse(&mut w, client, &read);
    // The agent does the same one level below.
    w.tell(agent, "$/cancelRequest", json!({"id": "leaf"}));
    assert_eq!(w.steps(leaf), [(StopStep::Flag, StopReason::Requested)]);
    assert_eq!(w.next(client)["params"], json!({"requestId": question}));
    answer(&mut w, client, &question, &json!({"outcome": {"outcome": "cancelled"}}));
    w.stopped(leaf);
    w.expect(agent, cancelled(AcpForm::Proposed, &json!("leaf"), None));
    refuse(&mut w, agent, &nested);
    w.stopped(root);
    w.expect(client, cancelled(AcpForm::Published, &json!("root"), None));
    let error = r#"error {"code":-32800,"message":"Request cancelled"}"#;
    let outcome = r#"result {"outcome":{"outcome":"cancelled"}}"#;
    assert_eq!(told(&w), [error, outcome, error]);
    w.silent(client);
    w.silent(agent);
    nothing_is_left(&w);
    // The tables of calls are empty as well: whatever else comes is late.
    for id in [question, read] {
        refuse(&mut w, client, &id);
    }
    refuse(&mut w, agent, &nested);
    assert_eq!(w.counters().late_responses, 3);
}

/// ACP-05: a job that is over, or whose peer is gone, leaves no question behind; in each hop's own
/// dialect, MCP among them.
#[test]
fn cascade_crosses_protocols() {
    let mut w = World::new();
    let mcp = w.open_with(Identity::User(1), "2025-11-25", json!({"elicitation": {}}));
    let agent = open_to_agent(&mut w, AcpForm::Published, false, false);
    // MCP above, ACP below.
    let job = w.call(mcp, json!(1), "build");
    w.feed(Input::Asked(job, AskId::new(1), Some(agent), asking("session/prompt", &json!({}))));
    let id = w.next(agent)["id"].clone();
    w.send(mcp, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(w.next(agent)["params"], json!({"requestId": id}));
    answer(&mut w, agent, &id, &json!({"stopReason": "cancelled"}));
    assert_eq!(told(&w), [r#"result {"stopReason":"cancelled"}"#]);
    w.stopped(job);
    w.silent(mcp);
    // ACP above, MCP below.
    let client = open_to_client(&mut w, AcpForm::Published, false, false);
    let job = prompt(&mut w, client, json!(1));
    let elicitation =
        json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let ask = asking("elicitation/create", &elicitation);
    w.feed(Input::Asked(job, AskId::new(1), Some(mcp), ask));
    let id = w.next(mcp)["id"].clone();
    w.lose(client);
    assert_eq!(w.next(mcp)["params"]["requestId"], id);
    assert_eq!(told(&w)[1..], ["cancelled"]);
    // A job that ends does not wait for its cancelled requests.
    let task = w.task(mcp, "build").1;
    w.feed(Input::Asked(task, AskId::new(1), Some(agent), asking("session/prompt", &json!({}))));
    let id = w.next(agent)["id"].clone();
    w.silent(mcp);
    w.done(task, "without waiting");
    assert_eq!(w.next(agent)["params"], json!({"requestId": id}));
    assert_eq!(told(&w)[2..], ["cancelled"]);
    w.stopped(job);
    assert_eq!((w.sizes().requests, w.sizes().jobs), (0, 0));
}
