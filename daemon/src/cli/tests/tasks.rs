//! `tasks`, `get`, `result`, `cancel`, `watch`.

use super::*;
use crate::cli::local_time::LocalTime;

/// A time as the user of this machine reads it.
fn local(time: &str) -> String {
    LocalTime::of_user().short(time)
}

#[test]
fn tasks_are_listed_over_all_pages() {
    let script = |talk: &mut Talk, message: &Value| {
        let page = match message["params"]["cursor"].as_str() {
            None => {
                let mut first = task("a", "working");
                first["statusMessage"] = "one\u{7}\ntwo".into();
                json!({"tasks": [first], "nextCursor": "2"})
            }
            Some(_) => json!({"tasks": [task("bb", "input_required")]}),
        };
        talk.answer(message, page);
    };
    let ran = stage(script).run(&["tasks"]);
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    assert_eq!(
        ran.out,
        format!(
            "ID  TOOL  STATE           CREATED           KEPT FOR  MESSAGE\n\
             a   -     working         {0}  1h        one\\u{{7}} …\n\
             bb  -     input_required  {0}  1h\n",
            local("2026-01-01T00:00:00Z")
        )
    );
    let ran = stage(script).run(&["tasks", "--json"]);
    let all: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((all.len(), all[1].clone()), (2, task("bb", "input_required")));
}

#[test]
fn get_prints_one_task() {
    let known = |talk: &mut Talk, message: &Value| {
        assert_eq!(message["params"], json!({"taskId": "a"}));
        talk.answer(message, task("a", "working"));
    };
    let ran = stage(known).run(&["get", "a"]);
    assert_eq!(ran.exit, Exit::Done);
    assert!(ran.out.starts_with("task     a\ntool     -\nstatus   working\n"), "{}", ran.out);
    let ran = stage(known).run(&["get", "a", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), task("a", "working"));
}

/// TSK-27: an unknown task has its own exit code.
#[test]
fn unknown_task_has_its_own_exit_code() {
    for command in ["get", "result", "cancel", "watch"] {
        let ran = stage(unknown_task).run(&[command, "nope"]);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::UnknownTask, ""), "{command}");
        assert!(ran.err.contains("no task nope"), "{command}: {}", ran.err);
    }
}

#[test]
fn result_of_a_task_is_printed() {
    let ran = stage(|talk, message| {
        talk.answer(message, json!({"content": [{"type": "text", "text": "built"}]}));
    })
    .run(&["result", "a"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "built\n"));
}

/// TSK-14: the task's own error may look like that of an unknown task.
#[test]
fn task_that_failed_with_invalid_params_is_not_unknown() {
    let ran = stage(|talk, message| match method(message) {
        "tasks/get" => talk.answer(message, task("a", "failed")),
        _ => talk.refuse(message, json!({"code": -32602, "message": "jobs is no integer"})),
    })
    .run(&["result", "a"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("jobs is no integer"), "{}", ran.err);
}

/// CAN-15: only the wait is cancelled.
#[test]
fn ctrl_c_ends_only_the_wait_for_a_result() {
    for (args, exit) in [
        (&["result", "a"][..], Exit::Cancelled),
        (&["result", "a", "--timeout", "30ms"], Exit::TimedOut),
    ] {
        let mut stage = stage(move |talk, message| {
            if method(message) == "tasks/result" && exit == Exit::Cancelled {
                talk.ctrl_c.fire();
            }
        });
        let ran = stage.run(args);
        assert_eq!((ran.exit, ran.out.as_str()), (exit, ""));
        assert!(ran.err.contains("task a goes on"), "{}", ran.err);
        wait_for(|| stage.received.params("notifications/cancelled").len() == 1);
        let all = stage.received.all();
        let waiting = all.iter().find(|m| m["method"] == "tasks/result").unwrap();
        let cancelled = &stage.received.params("notifications/cancelled")[0];
        assert_eq!(cancelled["requestId"], waiting["id"]);
        assert!(stage.received.params("tasks/cancel").is_empty());
    }
}

#[test]
fn cancelling_a_task_waits_for_its_end() {
    let mut looks = 2;
    let mut stage = stage(move |talk, message| match method(message) {
        "tasks/cancel" => talk.answer(message, task("a", "cancelled")),
        "ceased/status" => {
            let other = json!({"job": "j2", "tool": "t", "state": "running", "task": "b"});
            let ours = json!({"job": "j1", "tool": "t", "state": "cancelling", "task": "a"});
            let jobs = if looks > 0 { json!([other, ours]) } else { json!([other]) };
            looks -= 1;
            talk.answer(message, json!({"jobs": jobs}));
        }
        _ => talk.unknown_method(message),
    });
    let ran = stage.run(&["cancel", "a", "--reason", "changed my mind"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "a cancelled\n"), "{}", ran.err);
    assert!(ran.err.contains("processes are gone"), "{}", ran.err);
    let sent = &stage.received.params("tasks/cancel")[0];
    assert_eq!(sent, &json!({"taskId": "a", "_meta": {"ceased/reason": "changed my mind"}}));
    assert_eq!(stage.received.params("ceased/status").len(), 3);
}

/// TSK-23: an ended task cannot be cancelled.
#[test]
fn ended_task_cannot_be_cancelled() {
    let ran = stage(|talk, message| match method(message) {
        "tasks/get" => talk.answer(message, task("a", "completed")),
        _ => talk.refuse(message, json!({"code": -32602, "message": "it has ended"})),
    })
    .run(&["cancel", "a"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("already completed"), "{}", ran.err);
}

#[test]
fn task_is_watched_until_it_ends() {
    let mut looks = 0;
    let ran = stage(move |talk, message| {
        looks += 1;
        let mut now = task("a", if looks < 4 { "working" } else { "completed" });
        now["statusMessage"] = if looks < 3 { "queued" } else { "compiling" }.into();
        talk.answer(message, now);
    })
    .run(&["watch", "a"]);
    assert_eq!(ran.exit, Exit::Done);
    assert_eq!(
        ran.out,
        format!(
            "{0}  a  -  working  queued\n\
             {0}  a  -  working  compiling\n\
             {0}  a  -  completed  compiling\n",
            local("2026-01-01T00:00:01Z")
        )
    );
}

#[test]
fn notification_replaces_a_poll() {
    // Polls always see it working.
    let mut stage = stage(|talk, message| {
        talk.answer(message, task("a", "working"));
        talk.notify("notifications/tasks/status", task("other", "failed"));
        talk.notify("notifications/tasks/status", task("a", "failed"));
    });
    let ran = stage.run(&["watch", "a"]);
    assert_eq!(ran.exit, Exit::Done);
    let time = local("2026-01-01T00:00:01Z");
    assert_eq!(ran.out, format!("{time}  a  -  working\n{time}  a  -  failed\n"));
}

/// A watch outlives an outage of the database.
#[test]
fn watch_asks_again_while_the_store_is_away() {
    let mut looks = 0;
    let ran = stage(move |talk, message| {
        looks += 1;
        match looks {
            2 => talk.refuse(message, json!({"code": -31006, "message": "away"})),
            3.. => talk.answer(message, task("a", "completed")),
            _ => talk.answer(message, task("a", "working")),
        }
    })
    .run(&["watch", "a"]);
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines.len() == 2 && lines[1].ends_with("completed"), "{lines:?}");
    assert_eq!(ran.err.matches("asking again").count(), 1, "{}", ran.err);
}

#[test]
fn all_tasks_are_watched_until_ctrl_c() {
    let mut looks = 0;
    let ran = stage(move |talk, message| {
        looks += 1;
        let tasks = match looks {
            1 => json!([task("a", "working")]),
            2 => json!([task("a", "completed"), task("b", "working")]),
            _ => json!([task("b", "working")]),
        };
        talk.answer(message, json!({"tasks": tasks}));
        if looks == 4 {
            talk.ctrl_c.fire();
        }
    })
    .run(&["watch"]);
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Cancelled, ""));
    assert_eq!(
        ran.out,
        format!(
            "{0}  a  -  working\n\
             {0}  a  -  completed\n\
             {0}  b  -  working\n\
             a no longer kept\n",
            local("2026-01-01T00:00:01Z")
        )
    );
}
