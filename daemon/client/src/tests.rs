//! The client against a scripted server: what it sends, what it makes of what it is sent.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::client::CALLS_MAX;
use crate::fake::{Received, Script, Talk};
use crate::io::poll;

/// Long enough for a loaded machine; waited out only by a test that fails.
const GENEROUS: Duration = Duration::from_secs(20);

struct Stage {
    stream: UnixStream,
    received: Received,
    options: Options,
    server: thread::JoinHandle<()>,
}

fn stage(script: impl FnMut(&mut Talk, &Value) + Send + 'static) -> Stage {
    stage_with(json!({"tools": {}}), script)
}

fn stage_with(
    capabilities: Value,
    script: impl FnMut(&mut Talk, &Value) + Send + 'static,
) -> Stage {
    let (stream, theirs) = UnixStream::pair().unwrap();
    let (interrupts, trigger) = Interrupts::manual().unwrap();
    let received = Received::default();
    let log = received.clone();
    let mut script: Script = Box::new(script);
    let server = thread::spawn(move || {
        let mut talk = Talk::new(theirs, Arc::new(trigger));
        talk.capabilities = capabilities;
        talk.serve(&log, &mut script);
    });
    let options = Options { timeout: GENEROUS, interrupts: Some(interrupts), ..Options::default() };
    Stage { stream, received, options, server }
}

impl Stage {
    fn client(self) -> (Client, Received, thread::JoinHandle<()>) {
        (Client::on(self.stream, self.options).unwrap(), self.received, self.server)
    }
}

#[test]
fn the_handshake_is_what_the_revision_asks_for() {
    let mut stage = stage(|talk, message| talk.answer(message, json!({})));
    stage.options.token = Some("s3cret".to_owned());
    let (mut client, received, server) = stage.client();
    client.call("ping", json!({})).unwrap();
    assert_eq!(client.server().info["name"], "fake");
    drop(client);
    server.join().unwrap();
    let all = received.all();
    assert_eq!(all[0]["method"], "ceased/authenticate");
    assert_eq!(all[0]["params"]["token"], "s3cret");
    let all = &all[1..];
    assert_eq!(all[0]["id"], 2);
    assert_eq!(all[0]["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(all[0]["params"]["clientInfo"]["name"], "ceased");
    assert_eq!(all[1], json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(all[2]["id"], 3);
}

#[test]
fn a_revision_nobody_knows_ends_the_handshake() {
    let (stream, theirs) = UnixStream::pair().unwrap();
    let answer =
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01","capabilities":{}}}"#;
    rustix::io::write(&theirs, format!("{answer}\n").as_bytes()).unwrap();
    let error = Client::on(stream, Options::default()).unwrap_err().to_string();
    assert!(error.contains("1999-01-01") && error.contains("2025-11-25"), "{error}");
}

#[test]
fn what_speaks_something_else_is_named() {
    let (stream, theirs) = UnixStream::pair().unwrap();
    rustix::io::write(&theirs, b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    let error = Client::on(stream, Options::default()).unwrap_err().to_string();
    assert!(error.contains("HTTP/1.1 400"), "{error}");
}

/// A server that turns a peer away answers no request: it need not have read any.
#[test]
fn who_is_turned_away_at_the_door_is_told_why() {
    let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-31011,"message":"not you"}}"#;
    for token in [None, Some("s3cret".to_owned())] {
        let (stream, theirs) = UnixStream::pair().unwrap();
        rustix::io::write(&theirs, format!("{refusal}\n").as_bytes()).unwrap();
        drop(theirs);
        let options = Options { token, ..Options::default() };
        let error = Client::on(stream, options).unwrap_err();
        let Error::Rpc(rpc) = error else { panic!("{error:?}") };
        assert_eq!((rpc.code, rpc.message.as_str()), (-31011, "not you"));
    }
}

/// Later such an error is about something this client said: nobody else will ever be told.
#[test]
fn an_error_about_no_request_ends_the_wait_for_one() {
    let (mut client, _received, _server) = stage(|talk, _| {
        talk.line(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#);
    })
    .client();
    let error = client.call("x", json!({})).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("could not read what it was sent: what?"), "{error}");
}

#[test]
fn a_server_that_says_nothing_times_out_and_one_that_leaves_is_closed() {
    let (stream, theirs) = UnixStream::pair().unwrap();
    let options = || Options { timeout: Duration::from_millis(20), ..Options::default() };
    let silent = Client::on(stream.try_clone().unwrap(), options()).unwrap_err();
    assert!(matches!(silent, Error::TimedOut(_)), "{silent}");
    drop(theirs);
    let gone = Client::on(stream, Options::default()).unwrap_err();
    assert!(matches!(gone, Error::Closed), "{gone}");
}

#[test]
fn requests_of_the_server_are_answered_while_waiting() {
    let mut question = Value::Null;
    let (mut client, received, _server) = stage(move |talk, message| {
        if message["method"] == "x" {
            question = message.clone();
            talk.line(r#"{"jsonrpc":"2.0","id":"p\u00311","method":"ping"}"#);
            talk.line(r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage"}"#);
        } else if message["id"] == 9 {
            talk.answer(&question, json!("done"));
        }
    })
    .client();
    assert_eq!(client.call("x", json!({})).unwrap(), "done");
    let answers: Vec<Value> =
        received.all().into_iter().filter(|message| message["method"].is_null()).collect();
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "p11", "result": {}}));
    assert_eq!(answers[1]["error"]["code"], -32601);
}

/// CAN-01, CAN-10: the cancel names the call; what comes for it later is dropped.
#[test]
fn a_late_answer_is_dropped() {
    let mut cancelled = Value::Null;
    let (mut client, received, _server) = stage(move |talk, message| {
        match message["method"].as_str() {
            Some("slow") => cancelled = message.clone(),
            Some("notifications/cancelled") => talk.answer(&cancelled, json!("too late")),
            Some(_) | None => talk.answer(message, json!("in time")),
        };
    })
    .client();
    let slow = client.send("slow", json!({})).unwrap();
    client.cancel(slow, Some("why not")).unwrap();
    assert_eq!(client.call("quick", json!({})).unwrap(), "in time");
    assert_eq!(client.late_answers(), 1);
    let expected = json!({"requestId": slow.get(), "reason": "why not"});
    assert_eq!(received.params("notifications/cancelled"), [expected]);
}

/// CAN-02, CAN-03: cancelling what is not in progress sends nothing.
#[test]
fn only_a_call_in_progress_can_be_cancelled() {
    let (mut client, received, _server) =
        stage(|talk, message| talk.answer(message, json!(1))).client();
    let answered = client.send("a", json!({})).unwrap();
    client.call("b", json!({})).unwrap();
    let never_sent = CallId(77);
    for id in [answered, never_sent] {
        let refused = client.cancel(id, None).unwrap_err();
        assert!(
            matches!(refused, Error::Refused(Refusal::NotInProgress(refused)) if refused == id),
            "{refused}"
        );
    }
    client.wait(answered, Some(GENEROUS), &mut |_| {}).unwrap();
    assert!(client.cancel(answered, None).is_err());
    client.call("c", json!({})).unwrap();
    assert_eq!(received.params("notifications/cancelled"), [Value::Null; 0]);
}

/// CAN-04: `initialize` is the connection's own; its id never leaves it.
#[test]
fn initialize_is_not_sent_twice() {
    let (mut client, _, _server) = stage(|_, _| {}).client();
    let refused = client.send("initialize", json!({})).unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::Initialize)), "{refused}");
    assert!(matches!(client.cancel(CallId(1), None), Err(Error::Refused(_))));
}

/// CAN-05: what creates a task is not cancelled like a plain call.
#[test]
fn a_call_that_creates_a_task_is_not_cancelled_by_notification() {
    let tasks = json!({"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}});
    let (mut client, received, _server) = stage_with(tasks, |talk, message| {
        if message["method"] == "ping" {
            talk.answer(message, json!({}));
        }
    })
    .client();
    let ttl = Some(Duration::from_secs(60));
    let call = client.start_task("build", &json!({}), ttl).unwrap();
    let refused = client.cancel(call, None).unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::CreatesTask(_))), "{refused}");
    client.call("ping", json!({})).unwrap();
    let methods = received.methods();
    assert!(!methods.contains(&"notifications/cancelled".to_owned()), "{methods:?}");
    assert_eq!(received.params("tools/call")[0]["task"], json!({"ttl": 60_000}));
}

/// TSK-02: nothing about tasks goes to a server that declared none.
#[test]
fn a_server_without_tasks_is_not_asked_for_them() {
    let (mut client, received, _server) = stage(|talk, message| {
        let execution = json!({"taskSupport": "required"});
        let tool = json!({"name": "t", "inputSchema": {}, "execution": execution});
        talk.answer(message, json!({"tools": [tool]}));
    })
    .client();
    for refused in [
        client.start_task("t", &json!({}), None).unwrap_err(),
        client.tasks().unwrap_err(),
        client.cancel_task("id", None).unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Refused(Refusal::NotOffered(_))), "{refused}");
    }
    // TSK-04: and what its tools say about tasks counts for nothing.
    assert_eq!(client.tools().unwrap()[0].task_support, TaskSupport::Forbidden);
    assert_eq!(received.methods(), ["initialize", "notifications/initialized", "tools/list"]);
}

#[test]
fn a_call_that_times_out_is_cancelled() {
    let mut stage = stage(|talk, message| {
        if message["method"] == "notifications/cancelled" {
            talk.hang_up();
        }
    });
    stage.options.timeout = GENEROUS;
    let (mut client, received, server) = stage.client();
    client.options.timeout = Duration::from_millis(20);
    let error = client.call("slow", json!({})).unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)), "{error}");
    server.join().unwrap();
    let cancelled = &received.params("notifications/cancelled")[0];
    assert_eq!(
        (&cancelled["requestId"], &cancelled["reason"]),
        (&json!(2), &json!("no answer within 20ms"))
    );
}

#[test]
fn an_interrupt_ends_a_wait_and_nothing_else() {
    let mut asked = Value::Null;
    let (mut client, _, _server) = stage(move |talk, message| match message["method"].as_str() {
        Some("slow") => {
            asked = message.clone();
            talk.ctrl_c.fire();
        }
        Some(_) | None => talk.answer(&asked, json!("after all")),
    })
    .client();
    let slow = client.send("slow", json!({})).unwrap();
    let error = client.wait(slow, Some(GENEROUS), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    client.notify("go", None).unwrap();
    let answer = client.wait(slow, Some(GENEROUS), &mut |_| {}).unwrap();
    assert_eq!(answer.get(), r#""after all""#);
}

#[test]
fn an_interrupt_that_comes_with_an_answer_is_kept_for_the_next_wait() {
    let (mut client, _, _server) = stage(|talk, message| {
        if message["method"] == "quick" {
            talk.ctrl_c.fire();
            talk.answer(message, json!(1));
        }
    })
    .client();
    let quick = client.send("quick", json!({})).unwrap();
    // Both are there before anybody waits.
    let mut ready =
        [rustix::event::PollFd::new(client.interrupts().unwrap(), rustix::event::PollFlags::IN)];
    poll(&mut ready, Some(Instant::now() + GENEROUS)).unwrap();
    let first = client.wait(quick, Some(GENEROUS), &mut |_| {});
    let second = match first {
        Ok(_) => client.idle(GENEROUS, &mut |_| {}),
        Err(error) => Err(error),
    };
    assert!(matches!(second, Err(Error::Interrupted)), "{second:?}");
}

#[test]
fn notifications_come_in_order_with_the_call_they_belong_to() {
    let (mut client, _, _server) = stage(|talk, message| {
        let token = &message["params"]["_meta"]["progressToken"];
        assert_eq!(token, &message["id"]);
        talk.notify("notifications/progress", json!({"progressToken": token, "progress": 1}));
        talk.notify("notifications/message", json!({"level": "info", "data": "hm"}));
        talk.notify(
            "notifications/progress",
            json!({"progressToken": token, "progress": 1.5, "total": 3, "message": "m"}),
        );
        talk.notify("notifications/else", json!({"x": 1}));
        talk.answer(message, json!({"content": []}));
    })
    .client();
    let call = client.start_tool("t", &json!({})).unwrap();
    let mut notes = Vec::new();
    client.wait(call, Some(GENEROUS), &mut |note| notes.push(note.clone())).unwrap();
    let [first, second, third, fourth] = &notes[..] else { panic!("{notes:?}") };
    assert!(matches!(first, Notification::Progress(p) if p.call == call && p.total.is_none()));
    assert!(matches!(second, Notification::Log(log) if log.data == "hm"));
    assert!(matches!(third, Notification::Progress(p) if p.done == 1.5 && p.total == Some(3.0)));
    assert!(matches!(fourth, Notification::Other { method, .. } if method == "notifications/else"));
}

/// What comes with an answer, after it, is heard by whoever waits next; the same read brought both.
#[test]
fn what_is_said_after_an_answer_is_not_lost() {
    let (mut client, _, _server) = stage(|talk, message| {
        let note = |data: &str| {
            let params = json!({"level": "info", "data": data});
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
        talk.line(&format!("{}\n{answer}\n{}\n{}", note("before"), note("one"), note("two")));
    })
    .client();
    client.call("ping", json!({})).unwrap();
    let mut notes = Vec::new();
    let call = client.send("ping", json!({})).unwrap();
    client.wait(call, Some(GENEROUS), &mut |note| notes.push(note.clone())).unwrap();
    let said: Vec<&Value> = notes
        .iter()
        .filter_map(|note| match note {
            Notification::Log(log) => Some(&log.data),
            Notification::Progress(_) | Notification::Task(_) | Notification::Other { .. } => None,
        })
        .collect();
    assert_eq!(said, ["one", "two", "before"]);
}

#[test]
fn a_line_too_long_is_an_error_and_the_connection_goes_on() {
    let (mut client, _, _server) = stage(|talk, message| {
        if message["method"] == "much" {
            let result = "x".repeat(LINE_BYTES_MAX);
            talk.answer(message, json!(result));
        } else {
            talk.answer(message, json!("fine"));
        }
    })
    .client();
    let error = client.call("much", json!({})).unwrap_err().to_string();
    assert!(error.contains("16777216"), "{error}");
    assert_eq!(client.call("little", json!({})).unwrap(), "fine");
    let error = client.call("send", json!("x".repeat(LINE_BYTES_MAX))).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::TooLong { .. })), "{error}");
    assert_eq!(client.call("little", json!({})).unwrap(), "fine");
}

#[test]
fn answers_to_what_was_never_asked_break_the_protocol() {
    for id in [json!(99), json!("2"), json!(0)] {
        let (mut client, _, _server) = stage(move |talk, _| {
            talk.send(&json!({"jsonrpc": "2.0", "id": id, "result": 1}));
        })
        .client();
        let error = client.call("x", json!({})).unwrap_err().to_string();
        assert!(error.contains("never sent"), "{error}");
    }
}

#[test]
fn unanswered_calls_are_bounded() {
    let (mut client, _, _server) = stage(|_, _| {}).client();
    for _ in 0..CALLS_MAX {
        client.send("x", json!({})).unwrap();
    }
    let error = client.send("x", json!({})).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::TooManyCalls(_))), "{error}");
}

#[test]
fn a_list_that_does_not_end_ends() {
    let (mut client, _, _server) = stage(|talk, message| {
        talk.answer(message, json!({"tools": [], "nextCursor": "same"}));
    })
    .client();
    let error = client.tools().unwrap_err().to_string();
    assert!(error.contains("nextCursor"), "{error}");
}

/// Neither does one of which every page is empty and names another.
#[test]
fn a_list_of_empty_pages_ends() {
    let mut next = 0;
    let (mut client, ..) = stage(move |talk, message| {
        next += 1;
        match next {
            0..5000 => talk.answer(message, json!({"tools": [], "nextCursor": next.to_string()})),
            _ => talk.hang_up(),
        }
    })
    .client();
    let error = client.tools().unwrap_err().to_string();
    assert!(error.contains("1000 pages in a row are empty"), "{error}");
}

/// JSON knows no difference between `60000` and `60000.0`, and some servers write the latter.
#[test]
fn whole_milliseconds_may_be_written_with_a_fraction_of_zero() {
    let read = |ttl: &str, poll: &str| {
        Task::parse(&format!(
            r#"{{"taskId":"a","status":"working","createdAt":"c","lastUpdatedAt":"u",
                "ttl":{ttl},"pollInterval":{poll}}}"#
        ))
        .map(|task| (task.ttl, task.poll_interval))
    };
    let minute = Some(Duration::from_secs(60));
    assert_eq!(read("60000", "5").unwrap(), (minute, Some(Duration::from_millis(5))));
    assert_eq!(read("60000.0", "6e4").unwrap(), (minute, minute));
    assert_eq!(read("null", "0.0").unwrap(), (None, Some(Duration::ZERO)));
    let longest = Some(Duration::from_millis(u64::MAX));
    assert_eq!(read("1e300", "18446744073709551616").unwrap(), (longest, longest));
    for wrong in ["-1", "-1.0", "0.5", "\"5\"", "true"] {
        let why = read(wrong, "5").unwrap_err().to_string();
        assert!(why.contains("a whole number of milliseconds"), "{wrong}: {why}");
    }
}

/// A server that writes its last answer without a line end has given it all the same; half of one
/// is none.
#[test]
fn a_last_line_needs_no_end() {
    let whole = r#"{"jsonrpc":"2.0","id":2,"result":"all"}"#;
    let last = |line: &'static str| {
        let (mut client, ..) = stage(move |talk, _| {
            talk.piece(line);
            talk.hang_up();
        })
        .client();
        client.call("x", json!({}))
    };
    assert_eq!(last(whole).unwrap(), "all");
    for cut in [&whole[..whole.len() - 1], &whole[..1], r#"{"jsonrpc":"2.0","id":2,"resu"#] {
        let error = last(cut).unwrap_err();
        assert!(matches!(error, Error::Closed), "{error:?}");
    }
}
