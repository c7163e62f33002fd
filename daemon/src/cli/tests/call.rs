//! `ceased call`: arguments, results, and early ends.

use super::*;

/// A server with tools whose calls are handled by `script`.
fn with_tools(mut script: impl FnMut(&mut Talk, &Value) + Send + 'static) -> Stage {
    stage(move |talk, message| match method(message) {
        "tools/list" => talk.answer(message, tools()),
        _ => script(talk, message),
    })
}

/// A server whose tools all return `result`.
fn returning(result: Value) -> Stage {
    with_tools(move |talk, message| talk.answer(message, result.clone()))
}

#[test]
fn arguments_are_typed_and_the_result_is_printed() {
    let mut stage = with_tools(|talk, message| {
        let token = &message["params"]["_meta"]["progressToken"];
        let progress =
            json!({"progressToken": token, "progress": 3, "total": 10, "message": "a\u{1b}b"});
        talk.notify("notifications/progress", progress);
        talk.notify("notifications/progress", json!({"progressToken": 999, "progress": 4}));
        talk.notify("notifications/message", json!({"level": "info", "logger": "l", "data": "d"}));
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let text = |text: &str| json!({"type": "text", "text": text});
        talk.answer(message, json!({"content": [text("one\ntwo"), image, text("three\n")]}));
    });
    let ran = stage.run(&[
        "call",
        "build",
        "package=a=b",
        "jobs=3",
        "ratio=2",
        "release=true",
        "features:=[\"x\"]",
        "seed=null",
        "--json",
        r#"{"jobs":1}"#,
    ]);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let image = r#"{"data":"AA==","mimeType":"image/png","type":"image"}"#;
    assert_eq!(ran.out, format!("one\ntwo\n{image}\nthree\n"));
    assert_eq!(ran.err, "progress 3/10 a\\u{1b}b\n[info] l: d\n");
    let sent = &stage.received.params("tools/call")[0];
    assert_eq!(sent["name"], "build");
    assert_eq!(
        sent["arguments"],
        json!({
            "package": "a=b", "jobs": 3, "ratio": 2, "release": true, "features": ["x"],
            "seed": null,
        })
    );
    assert_eq!(sent["task"], Value::Null);
}

/// Text of a server stays on one line and cannot look like a hint of this program.
#[test]
fn text_of_a_server_is_one_line() {
    let said = json!({"code": -1, "message": "first\n\nrun this"});
    let ran =
        with_tools(move |talk, message| talk.refuse(message, said.clone())).run(&["call", "echo"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert_eq!(ran.err, "ceased: first\\n\\nrun this (error -1)\n");
}

#[test]
fn invalid_arguments_are_reported_without_a_call() {
    for (args, words) in [
        (&["bild"][..], &["\"bild\"", "\"build\""][..]),
        (&["build", "packge=x"], &["\"packge\"", "\"package\""]),
        (&["build"], &["package (Cargo package name)"]),
        (&["build", "package=x", "jobs=many"], &["jobs=many", "an integer"]),
        (&["build", "package=x", "ratio=inf"], &["a number"]),
        (&["build", "package=x", "release=yes"], &["true or false"]),
        (&["build", "package=x", "features=x"], &["in JSON after KEY:="]),
        (&["build", "package=x", "jobs:=[1"], &["jobs:=[1", "not valid JSON"]),
        (&["build", "package=x", "package=y"], &["twice"]),
        (&["build", "package"], &["not of the form KEY=VALUE"]),
        (&["build", "--json", "[1]"], &["--json takes an object"]),
        (&["build", "--json", "{"], &["the value of --json is not valid JSON"]),
        (&["backup", "x=1"], &["\"x\"", "takes none"]),
        (&["echo", "--task"], &["cannot run as a task"]),
        (&["echo", "--timeout", "soon"], &["90s"]),
        (&["echo", "--timeout", "0s"], &["more than zero"]),
        (&["echo", "--detach", "--timeout", "1s"], &["cannot be used with"]),
    ] {
        let mut stage = returning(json!({"content": []}));
        let ran = stage.run(&[&["call"], args].concat());
        assert_eq!(ran.exit, Exit::Usage, "{args:?}: {ran:?}");
        assert!(words.iter().all(|word| ran.err.contains(word)), "{args:?}: {}", ran.err);
        assert_eq!(stage.received.params("tools/call"), [Value::Null; 0], "{args:?}");
        assert_eq!(ran.out, "");
    }
}

#[test]
fn result_of_a_tool_sets_the_exit_code() {
    let content = json!([{"type": "text", "text": "said"}]);
    for (result, exit) in [
        (json!({"content": content}), Exit::Done),
        (json!({"content": content, "isError": true}), Exit::Failed),
        (
            json!({"content": content, "isError": true, "structuredContent": {"timedOut": true}}),
            Exit::TimedOut,
        ),
    ] {
        let ran = returning(result).run(&["call", "echo", "anything=goes"]);
        assert_eq!((ran.exit, ran.out.as_str()), (exit, "said\n"), "{}", ran.err);
    }
    // A result without the required content is printed unchanged.
    for (result, exit) in [
        (json!({"isError": true}), Exit::Failed),
        (json!({"content": null, "isError": true, "structuredContent": {}}), Exit::Failed),
        (json!({"structuredContent": {"a": 1}}), Exit::Done),
    ] {
        let ran = returning(result.clone()).run(&["call", "echo", "anything=goes"]);
        let shown: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((ran.exit, shown), (exit, result), "{}", ran.err);
    }
    for (error, exit) in [
        (json!({"code": -32603, "message": "oh\u{1b}[2J"}), Exit::Failed),
        (json!({"code": -32000, "message": "late", "data": {"timedOut": true}}), Exit::TimedOut),
    ] {
        let code = error["code"].to_string();
        let mut stage = with_tools(move |talk, message| talk.refuse(message, error.clone()));
        let ran = stage.run(&["call", "echo"]);
        assert_eq!((ran.exit, ran.out.as_str()), (exit, ""));
        assert!(ran.err.contains(&code) && !ran.err.contains('\u{1b}'), "{}", ran.err);
    }
}

#[test]
fn only_structured_content_is_printed_as_json() {
    let ran =
        returning(json!({"content": [], "structuredContent": {"n": 1}})).run(&["call", "echo"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "{\"n\":1}\n"));
}

#[test]
fn result_is_escaped_only_for_a_terminal() {
    let result = json!({"content": [{"type": "text", "text": "a\u{1b}[31m\tb\n"}]});
    assert_eq!(returning(result.clone()).run(&["call", "echo"]).out, "a\u{1b}[31m\tb\n");
    let mut stage = returning(result);
    stage.out_is_terminal = true;
    assert_eq!(stage.run(&["call", "echo"]).out, "a\\u{1b}[31m\tb\n");
}

/// A server that runs a call until it is cancelled and then needs `looks` polls to end it. Its
/// other connection, 8, always runs the same request id.
fn stubborn(mut looks: u32, then: impl Fn(&mut Talk) + Send + 'static) -> Stage {
    let mut call = Value::Null;
    with_tools(move |talk, message| match method(message) {
        "tools/call" => {
            call = message.clone();
            then(talk);
        }
        // A late answer: dropped (CAN-10).
        "notifications/cancelled" => {
            let late = json!({"content": [{"type": "text", "text": "late"}]});
            talk.answer(&call, late);
        }
        "ceased/status" => {
            let job = |job: &str, connection: u64| {
                json!({
                    "job": job, "tool": "echo", "state": "cancelling", "connection": connection,
                    "requestId": call["id"],
                })
            };
            let mut jobs = vec![job("j1", 8)];
            if looks > 0 {
                looks -= 1;
                jobs.push(job("j2", 7));
            }
            talk.answer(message, json!({"connection": 7, "jobs": jobs}));
        }
        _ => talk.unknown_method(message),
    })
}

/// CAN-01, CAN-13: Ctrl-C cancels, reports that, and waits for the end of the work.
#[test]
fn ctrl_c_cancels_and_waits_for_the_end() {
    let mut stage = stubborn(3, |talk| talk.ctrl_c.fire());
    let ran = stage.run(&["call", "echo"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Cancelled, ""), "{}", ran.err);
    assert_eq!(
        ran.err,
        "ceased: cancelling echo: cancelled by the user (Ctrl-C again to exit at once)\n\
         ceased: cancelled; the tool's processes are gone\n"
    );
    let call = stage.received.all().into_iter().find(|m| m["method"] == "tools/call").unwrap();
    let expected = json!({"requestId": call["id"], "reason": "cancelled by the user"});
    assert_eq!(stage.received.params("notifications/cancelled"), [expected]);
    assert_eq!(stage.received.params("ceased/status").len(), 4);
}

#[test]
fn second_ctrl_c_exits_at_once() {
    let mut stage = stubborn(u32::MAX, |talk| {
        talk.ctrl_c.fire();
        talk.ctrl_c.fire();
    });
    let ran = stage.run(&["call", "echo"]);
    assert_eq!(ran.exit, Exit::Cancelled);
    assert!(ran.err.contains("exiting without waiting"), "{}", ran.err);
    wait_for(|| stage.received.params("notifications/cancelled").len() == 1);
}

#[test]
fn timeout_cancels_the_call() {
    let mut stage = stubborn(1, |_| {});
    let ran = stage.run(&["call", "echo", "--timeout", "50ms"]);
    assert_eq!(ran.exit, Exit::TimedOut, "{}", ran.err);
    assert!(
        ran.err.contains("timed out after 50ms") && ran.err.contains("are gone"),
        "{}",
        ran.err
    );
    assert_eq!(
        stage.received.params("notifications/cancelled")[0]["reason"],
        "timed out after 50ms"
    );
}

#[test]
fn foreign_server_is_cancelled_without_waiting() {
    let mut stage = with_tools(|talk, message| match method(message) {
        "tools/call" => talk.ctrl_c.fire(),
        "notifications/cancelled" => {}
        _ => talk.unknown_method(message),
    });
    let ran = stage.run(&["call", "echo"]);
    assert_eq!(ran.exit, Exit::Cancelled);
    assert!(ran.err.contains("does not report"), "{}", ran.err);
    assert_eq!(stage.received.params("notifications/cancelled").len(), 1);
}

#[test]
fn lost_daemon_is_reported_as_unreachable() {
    let mut stage = with_tools(|talk, _| talk.hang_up());
    let ran = stage.run(&["call", "echo"]);
    assert_eq!(ran.exit, Exit::Unreachable);
    assert!(ran.err.contains("closed the connection"), "{}", ran.err);
}

const ID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

/// A server that makes a task of every call; `on_result` handles the request for its result.
fn with_task(mut on_result: impl FnMut(&mut Talk, &Value, &Value) + Send + 'static) -> Stage {
    let (mut call, mut waiting, mut looks) = (Value::Null, Value::Null, 2);
    with_tools(move |talk, message| match method(message) {
        "tools/call" => {
            call = message.clone();
            talk.answer(message, json!({"task": task(ID, "working")}));
        }
        "tasks/result" => {
            waiting = message.clone();
            on_result(talk, message, &call);
        }
        "tasks/cancel" => {
            assert_eq!(message["params"]["taskId"], ID);
            talk.answer(message, task(ID, "cancelled"));
            talk.refuse(&waiting, json!({"code": -32800, "message": "the task was cancelled"}));
        }
        "ceased/status" => {
            let job = json!({"job": "j1", "tool": "build", "state": "cancelling", "task": ID});
            let jobs = if looks > 0 { vec![job] } else { vec![] };
            looks -= 1;
            talk.answer(message, json!({"connection": 7, "jobs": jobs}));
        }
        _ => talk.unknown_method(message),
    })
}

#[test]
fn task_is_followed_to_its_result() {
    let mut stage = with_task(|talk, message, call| {
        let token = &call["params"]["_meta"]["progressToken"];
        talk.notify("notifications/progress", json!({"progressToken": token, "progress": 1}));
        let mut status = task(ID, "working");
        status["statusMessage"] = "compiling".into();
        talk.notify("notifications/tasks/status", status);
        talk.answer(message, json!({"content": [{"type": "text", "text": "built"}]}));
    });
    let ran = stage.run(&["call", "build", "package=x", "--task"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "built\n"));
    assert_eq!(ran.err, format!("ceased: task {ID}\nprogress 1\nworking: compiling\n"));
    assert_eq!(stage.received.params("tools/call")[0]["task"], json!({}));
    assert_eq!(stage.received.params("tasks/result")[0]["taskId"], ID);
}

#[test]
fn tool_that_requires_a_task_becomes_one() {
    let mut stage = with_task(|talk, message, _| {
        talk.answer(message, json!({"content": [], "isError": true}));
    });
    let ran = stage.run(&["call", "backup"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("runs as a task only"), "{}", ran.err);
    assert_eq!(stage.received.params("tools/call")[0]["task"], json!({}));
}

#[test]
fn detach_prints_only_the_id() {
    let mut stage = with_task(|_, _, _| {});
    let ran = stage.run(&["call", "build", "package=x", "--detach"]);
    assert_eq!((ran.exit, ran.out, ran.err.as_str()), (Exit::Done, format!("{ID}\n"), ""));
    assert!(stage.received.params("tasks/result").is_empty());
}

/// CAN-05: a task is cancelled only with `tasks/cancel`.
#[test]
fn ctrl_c_cancels_a_task_and_waits_for_its_end() {
    let mut stage = with_task(|talk, _, _| talk.ctrl_c.fire());
    let ran = stage.run(&["call", "build", "package=x", "--task"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Cancelled, ""), "{}", ran.err);
    assert!(ran.err.ends_with("ceased: cancelled; the tool's processes are gone\n"), "{}", ran.err);
    let cancel = &stage.received.params("tasks/cancel")[0];
    assert_eq!(cancel["_meta"]["ceased/reason"], "cancelled by the user");
    assert!(stage.received.params("notifications/cancelled").is_empty());
    assert_eq!(stage.received.params("ceased/status").len(), 3);
}

/// CAN-05: also while its id is unknown, whether the interrupt arrives before or after the id.
#[test]
fn task_being_created_is_cancelled_once_it_exists() {
    for (args, exit) in [(&[][..], Exit::Cancelled), (&["--timeout", "20ms"], Exit::TimedOut)] {
        let mut stage = with_tools(move |talk, message| match method(message) {
            "tools/call" => {
                if exit == Exit::Cancelled {
                    talk.ctrl_c.fire();
                }
                // After the interrupt on most machines.
                thread::sleep(Duration::from_millis(150));
                talk.answer(message, json!({"task": task(ID, "working")}));
            }
            "tasks/cancel" => talk.answer(message, task(ID, "cancelled")),
            "ceased/status" => talk.answer(message, json!({"connection": 7, "jobs": []})),
            _ => talk.unknown_method(message),
        });
        let ran = stage.run(&[&["call", "build", "package=x", "--task"], args].concat());
        assert_eq!((ran.exit, ran.out.as_str()), (exit, ""), "{}", ran.err);
        assert!(ran.err.contains("processes are gone"), "{}", ran.err);
        assert_eq!(stage.received.params("tasks/cancel").len(), 1);
        assert!(stage.received.params("notifications/cancelled").is_empty());
    }
}

#[test]
fn task_that_times_out_is_cancelled() {
    let mut stage = with_task(|_, _, _| {});
    let ran = stage.run(&["call", "build", "package=x", "--task", "--timeout", "50ms"]);
    assert_eq!(ran.exit, Exit::TimedOut, "{}", ran.err);
    let cancel = &stage.received.params("tasks/cancel")[0];
    assert_eq!(cancel["_meta"]["ceased/reason"], "timed out after 50ms");
}

#[test]
fn result_of_a_task_that_ended_before_the_cancel_is_printed() {
    let mut waiting = Value::Null;
    let mut stage = with_tools(move |talk, message| match method(message) {
        "tools/call" => talk.answer(message, json!({"task": task(ID, "working")})),
        "tasks/result" => {
            waiting = message.clone();
            talk.ctrl_c.fire();
        }
        "tasks/cancel" => {
            talk.refuse(message, json!({"code": -32602, "message": "it is completed"}));
            talk.answer(&waiting, json!({"content": [{"type": "text", "text": "built"}]}));
        }
        _ => talk.unknown_method(message),
    });
    let ran = stage.run(&["call", "build", "package=x", "--task"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "built\n"));
    assert!(ran.err.contains("too late to cancel"), "{}", ran.err);
}
