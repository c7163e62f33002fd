//! `ceased wrap --acp` in front of a scripted agent: transparency, cancels, death, end (SUP-01 to
//! SUP-04).

pub(crate) mod kit;
mod pieces;

use std::process::Command;
use std::time::{Duration, Instant};

use ceased_tests::daemon::{marker, wait_until};
use serde_json::{Value, json};

use kit::{Editor, Options};

/// SUP-01: the messages between client and agent are the same with and without the supervisor,
/// byte for byte.
#[test]
fn transcript_is_that_without_the_supervisor() {
    let script = [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"_meta":{"a": [1.50]}}}"#,
        r#"{ "jsonrpc":"2.0", "id":"new", "method":"session/new", "params":{"cwd":"/","mcpServers":[]} }"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"words ä\u00f6"}]}}"#,
        r#"{"jsonrpc":"2.0","method":"_x/note","params":{"é":null}}"#,
        r#"{"jsonrpc":"2.0","id":-9007199254740993,"method":"_x/echo","params":{"n": 1.0e3, "deep":[[[]]]}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"ask"}]}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"yes"},"_meta":null}}"#,
        r#"[{"jsonrpc":"2.0","id":5,"method":"_x/echo"}]"#,
        r#"{"jsonrpc":"2.0","id":6,"method":"session/unknown","params":{"sessionId":"none"}}"#,
    ];
    let transcript = |options: Options| {
        let mut editor = Editor::start_without_hello(options);
        let mut heard = Vec::new();
        for line in script {
            editor.say_line(line);
            let is_question = line.contains("\"ask\"");
            let ends = |line: &str| {
                let message: Value = serde_json::from_str(line).unwrap();
                message.get("method").is_none()
                    || (is_question && message["method"] == "session/request_permission")
            };
            if !line.contains("\"id\"") {
                continue;
            }
            loop {
                let line = editor.hear_line();
                let is_end = ends(&line);
                heard.push(line);
                if is_end {
                    break;
                }
            }
        }
        heard
    };
    let bare = transcript(Options { bare: true, ..Options::default() });
    assert!(bare.len() >= script.len(), "{bare:?}");
    assert_eq!(transcript(Options::default()), bare);
}

/// SUP-02: an agent that obeys one of the two forms, whichever the client uses, ends its turn
/// itself and goes on.
#[test]
fn agent_that_obeys_one_form_ends_its_turn_itself() {
    for (text, by_session) in
        [("obey", true), ("obey", false), ("only_request", true), ("only_session", false)]
    {
        let mut editor = Editor::start(Options::default());
        let session = editor.session();
        editor.prompt(2, &session, text);
        editor.wait_for_update();
        if by_session {
            editor.cancel(&session);
        } else {
            editor.cancel_request(&json!(2));
        }
        let answer = editor.answer(&json!(2));
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{text}: {answer}");
        wait_until("the receipt is written", || editor.proofs() == ["answered"]);
        editor.prompt(3, &session, "words");
        assert_eq!(editor.answer(&json!(3))["result"]["stopReason"], "end_turn");
        assert_eq!(editor.pids().len(), 1, "one agent served both turns");
    }
}

/// SUP-02: an agent that blocks on a grandchild in a session of its own is freed of it, and goes on.
#[test]
fn processes_of_a_cancelled_turn_are_ended() {
    let mut editor = Editor::start(Options::default());
    let session = editor.session();
    let stray = marker();
    editor.prompt(2, &session, &format!("stray {stray}"));
    let running =
        || Command::new("pgrep").args(["-f", &format!("sleep {stray}")]).output().unwrap().stdout;
    wait_until("the stray runs", || !running().is_empty());
    editor.cancel(&session);
    let answer = editor.answer(&json!(2));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(running().is_empty(), "the stray has ended before the answer");
    wait_until("the receipt is written", || editor.proofs() == ["children_ended"]);
    editor.prompt(3, &session, "words");
    assert_eq!(editor.answer(&json!(3))["result"]["stopReason"], "end_turn");
    assert_eq!(editor.pids().len(), 1);
}

/// SUP-02: an agent that ignores both forms is replaced; its late answer, which it writes when its
/// input ends, is dropped; the session goes on in a fresh agent.
#[test]
fn agent_that_ignores_every_cancel_is_replaced() {
    for declares in ["resume", "load"] {
        let mut editor = Editor::start(Options { declares, ..Options::default() });
        let session = editor.session();
        editor.prompt(2, &session, "late");
        editor.wait_for_update();
        let began = Instant::now();
        editor.cancel(&session);
        let answer = editor.answer(&json!(2));
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        editor.prompt(3, &session, "words");
        let (updates, answer) = editor.updates_and_answer(&json!(3));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert_eq!(updates, ["words"], "nothing of the old agent, and no history again");
        wait_until("the receipt is written", || editor.proofs() == ["ended"]);
        assert_eq!(editor.pids().len(), 2);
    }
}

/// SUP-02: a fresh agent has the session in the mode that the client chose.
#[test]
fn mode_holds_in_a_fresh_agent() {
    for declares in ["resume", "load"] {
        let mut editor = Editor::start(Options { declares, ..Options::default() });
        let session = editor.session();
        let params = json!({"sessionId": session, "modeId": "plan"});
        editor.say(&json!({"jsonrpc": "2.0", "id": 2, "method": "session/set_mode",
            "params": params}));
        assert_eq!(editor.answer(&json!(2))["result"], json!({}));
        editor.prompt(3, &session, "late");
        editor.wait_for_update();
        editor.cancel(&session);
        assert_eq!(editor.answer(&json!(3))["result"]["stopReason"], "cancelled");
        editor.prompt(4, &session, "mode");
        let (updates, answer) = editor.updates_and_answer(&json!(4));
        assert_eq!(
            (updates, &answer["result"]["stopReason"]),
            (vec!["plan".into()], &json!("end_turn"))
        );
        assert_eq!(editor.pids().len(), 2, "the agent was replaced");
    }
}

/// SUP-02: without `session/load` and `session/resume` the client is told of the loss, and a new
/// session works.
#[test]
fn lost_session_is_told() {
    let mut editor = Editor::start(Options { declares: "", ..Options::default() });
    let session = editor.session();
    editor.prompt(2, &session, "late");
    editor.wait_for_update();
    editor.cancel_request(&json!(2));
    assert_eq!(editor.answer(&json!(2))["error"]["code"], -32800);
    editor.prompt(3, &session, "words");
    let lost = editor.answer(&json!(3));
    assert_eq!(lost["error"]["code"], -32002, "{lost}");
    assert!(lost["error"]["message"].as_str().unwrap().contains("is lost"), "{lost}");
    let session = editor.session();
    editor.prompt(4, &session, "words");
    assert_eq!(editor.answer(&json!(4))["result"]["stopReason"], "end_turn");
}

/// SUP-04: an agent that applies a cancel to its next turn never sees one that came too late.
#[test]
fn late_cancel_does_not_hit_the_next_prompt() {
    let mut editor = Editor::start(Options::default());
    let session = editor.session();
    for id in 0..20 {
        let id = 10 + id * 2;
        editor.prompt(id, &session, "words");
        assert_eq!(editor.answer(&json!(id))["result"]["stopReason"], "end_turn");
        editor.cancel(&session);
        editor.cancel_request(&json!(id));
        editor.prompt(id + 1, &session, "latched");
        let next = editor.answer(&json!(id + 1));
        assert_eq!(next["result"]["stopReason"], "end_turn", "{next}");
    }
}

/// SUP-03: the agent is killed in a prompt turn with a question and a child under way: every request
/// is answered once, nothing is left of it, and the next request starts a fresh agent.
#[test]
fn death_of_the_agent_is_told() {
    let mut editor = Editor::start(Options::default());
    let session = editor.session();
    let stray = marker();
    editor.prompt(2, &session, &format!("ask_stray {stray}"));
    let question = loop {
        let message = editor.hear();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    editor.say(&json!({"jsonrpc": "2.0", "id": "other", "method": "_x/never"}));
    let running =
        || Command::new("pgrep").args(["-f", &format!("sleep {stray}")]).output().unwrap().stdout;
    wait_until("the stray runs", || !running().is_empty());
    let pid = editor.pids().pop().unwrap();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let mut heard: Vec<Value> = (0..3).map(|_| editor.hear()).collect();
    let at = heard.iter().position(|it| it["method"] == "$/cancel_request").expect("withdrawn");
    assert_eq!(heard.remove(at)["params"]["requestId"], question["id"]);
    for answer in &heard {
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("signal 9"), "{answer}");
    }
    let ids: Vec<&Value> = heard.iter().map(|it| &it["id"]).collect();
    assert!(ids.contains(&&json!(2)) && ids.contains(&&json!("other")), "{ids:?}");
    assert!(running().is_empty(), "nothing of the dead agent is left");
    // The answer that the client owes to the dead agent reaches no other.
    editor.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}}));
    editor.prompt(3, &session, "ask");
    let question = loop {
        let message = editor.hear();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    editor.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}));
    assert_eq!(editor.answer(&json!(3))["result"]["stopReason"], "end_turn");
}

/// SUP-03: nothing is left when the client closes its side, is killed, or the supervisor is killed,
/// in a turn with a child in a session of its own.
#[test]
fn nothing_is_left_of_an_agent() {
    for end in ["close", "kill client", "kill supervisor"] {
        let mut editor = Editor::start(Options::default());
        let session = editor.session();
        let stray = editor.mark.clone();
        editor.prompt(2, &session, &format!("stray {stray}"));
        let running = || {
            Command::new("pgrep").args(["-f", &format!("sleep {stray}")]).output().unwrap().stdout
        };
        wait_until("the stray runs", || !running().is_empty());
        match end {
            "close" => editor.close_input(),
            // Both pipes of a killed client are closed.
            "kill client" => editor.close_both(),
            _ => editor.child.kill().unwrap(),
        }
        let _ = editor.child.wait();
        wait_until(end, || editor.is_none_left());
    }
}

/// A turn that takes too long is cancelled, and one without a sign of work as well.
#[test]
fn watchdogs_end_turns() {
    for (option, text, reason) in
        [("--turn-timeout=500ms", "obey", "timed out"), ("--stall-timeout=1s", "late", "limit")]
    {
        let mut editor = Editor::start(Options { extra: Some(option), ..Options::default() });
        let session = editor.session();
        editor.prompt(2, &session, text);
        let answer = editor.answer(&json!(2));
        match text {
            "obey" => assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}"),
            _ => {
                assert_eq!(answer["error"]["code"], -32800, "{answer}");
                let message = answer["error"]["message"].as_str().unwrap();
                assert!(message.contains("stall_timeout = 1000 ms"), "{answer}");
            }
        }
        wait_until("the receipt is written", || editor.reasons() == [reason]);
    }
}

/// Busy or talkative turns, and those that wait for the user, are no stalls.
#[test]
fn turns_with_signs_of_work_do_not_stall() {
    let mut editor =
        Editor::start(Options { extra: Some("--stall-timeout=400ms"), ..Options::default() });
    let session = editor.session();
    for (id, text) in [(2, "busy 1.5"), (3, "talk 1.5")] {
        editor.prompt(id, &session, text);
        let answer = editor.answer(&json!(id));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{text}: {answer}");
    }
    editor.prompt(4, &session, "ask");
    let question = loop {
        let message = editor.hear();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    // The user takes a while: longer than the limit.
    assert!(editor.hears_nothing_for(Duration::from_millis(1200)));
    editor.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}));
    assert_eq!(editor.answer(&json!(4))["result"]["stopReason"], "end_turn");
}

/// A client that does not read holds the agent back, and loses nothing.
#[test]
fn client_that_does_not_read_holds_the_agent_back() {
    let mut editor = Editor::start(Options { deaf: true, ..Options::default() });
    let session = editor.session();
    editor.prompt(2, &session, "flood 40000");
    // The agent waits for room: its flood is larger than every buffer between.
    wait_until("the agent has begun", || editor.has_file("flood"));
    let (updates, answer) = editor.updates_and_answer(&json!(2));
    assert_eq!(updates.len(), 40000);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
}

/// UPS-14: a prompt and an answer that are longer than any message fail their turns alone, and a
/// notification is dropped; the agent goes on.
#[test]
fn overlong_messages_fail_their_turns_alone() {
    let extra = Some("--message-bytes=1MiB");
    let mut editor = Editor::start(Options { extra, ..Options::default() });
    let session = editor.session();
    let bytes = 2 << 20;
    for (id, text) in [(2, format!("huge {bytes}")), (3, "x".repeat(bytes))] {
        editor.prompt(id, &session, &text);
        let answer = editor.answer(&json!(id));
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("message_bytes = 1048576"), "{answer:.200}");
    }
    editor.prompt(4, &session, "words");
    assert_eq!(editor.answer(&json!(4))["result"]["stopReason"], "end_turn");
    assert_eq!(editor.pids().len(), 1, "the agent is not replaced");
}

/// Options that an agent has no use for are refused.
#[test]
fn options_of_a_server_are_refused() {
    for option in ["--share=call", "--call-timeout=1s", "--task-support=optional"] {
        let ran = Command::new(ceased_tests::binary::ceased())
            .args(["wrap", "--acp", option, "--", "true"])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(2), "{option}");
    }
    let ran = Command::new(ceased_tests::binary::ceased())
        .args(["wrap", "--turn-timeout=1s", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
}
