//! Streams of a session: the stream of each message, and replays (HTTP-06, HTTP-07).

use ceased_tests::daemon::{marker, wait_for_family, wait_until};
use serde_json::json;

use super::kit::{OPEN, Session, call, cancel, connect, daemon, daemon_within, wait_gone};

/// HTTP-06: streams of calls at once carry their own messages alone.
#[test]
fn messages_go_to_the_stream_of_their_request() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let mut get = session.get(&daemon, None);
    assert_eq!(get.head().header("content-type"), Some("text/event-stream"));
    let mut streams: Vec<_> =
        (1..4).map(|id| session.post(&daemon, &call(id, "count", r#"{"n":5}"#))).collect();
    let mut ids = Vec::new();
    for (id, stream) in (1_u64..).zip(&mut streams) {
        assert_eq!(stream.head().header("content-type"), Some("text/event-stream"));
        let mut answers = 0;
        while let Some(event) = stream.event() {
            ids.push(event.id.clone().expect("each event has an id"));
            if event.data.is_empty() {
                continue;
            }
            let message = event.json();
            if message["method"] == "notifications/progress" {
                assert_eq!(message["params"]["progressToken"], json!(id));
            } else {
                assert_eq!(message["id"], json!(id));
                answers += 1;
            }
        }
        assert_eq!(answers, 1);
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "event ids are unique in the session");
}

/// HTTP-06, HTTP-07: a stream of 2025-11-25 begins with an event without data and a time to wait;
/// a client that lost it gets the missed events by a GET, and no others.
#[test]
fn lost_stream_is_resumed() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let mark = marker();
    let mut stream = session.post(&daemon, &call(4, "family", &format!(r#"{{"t":"{mark}"}}"#)));
    stream.head();
    let first = stream.event().expect("a priming event");
    assert_eq!(first.data, "");
    let last = first.id.expect("an id");
    wait_for_family(&mark);
    // HTTP-07: a disconnect is no cancel.
    drop(stream);
    let other = session.post(&daemon, &call(5, "echo", r#"{"text":"x"}"#)).answer();
    assert_eq!(other["id"], 5);
    let mut resumed = session.get(&daemon, Some(&last));
    assert_eq!(resumed.head().status, 200);
    let progress = resumed.message();
    assert_eq!(progress["params"]["progressToken"], 4);
    assert_eq!(session.exchange(&daemon, &cancel(4)).status, 202);
    while let Some(event) = resumed.event() {
        assert!(event.data.contains("\"progressToken\":4"), "{event:?}");
    }
    wait_gone(&mark);
}

/// HTTP-07: the answer to a call whose client lost its stream waits for it.
#[test]
fn missed_answer_is_replayed() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let mut stream = session.post(&daemon, &call(4, "sleep", r#"{"ms":1500}"#));
    stream.head();
    // The stream begins although there is nothing to say.
    let last = stream.event().and_then(|event| event.id).expect("a priming event");
    drop(stream);
    let mut found = None;
    wait_until("the answer is there", || {
        let mut resumed = session.get(&daemon, Some(&last));
        assert_eq!(resumed.head().status, 200);
        while let Some(event) = resumed.event() {
            if !event.data.is_empty() {
                found = Some(event.json());
            }
        }
        found.is_some()
    });
    assert_eq!(found.unwrap()["id"], 4);
}

/// HTTP-06: an id that is none of this session is refused, and so is a GET that takes no events.
#[test]
fn unknown_event_is_refused() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    for last in ["77-1", "x", "", "0-"] {
        assert_eq!(session.get(&daemon, Some(last)).head().status, 400, "{last:?}");
    }
    let mut http = connect(&daemon);
    let mut headers = session.headers();
    headers.push(("accept", "application/json"));
    http.request("GET /mcp", &headers, "");
    assert_eq!(http.head().status, 406);
}

/// HTTP-06: messages of no request go to the GET stream, also those from before it.
#[test]
fn unrelated_messages_go_to_the_get_stream() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let create = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":1},"task":{}}}"#;
    let created = session.post(&daemon, create).answer();
    let task = created["result"]["task"]["taskId"].as_str().expect("a task").to_owned();
    let mut get = session.get(&daemon, None);
    get.head();
    loop {
        let message = get.message();
        assert_eq!(message["method"], "notifications/tasks/status", "{message}");
        assert_eq!(message["params"]["taskId"], json!(task));
        if message["params"]["status"] == "completed" {
            break;
        }
    }
}

/// HTTP-04, HTTP-06: the end of a session ends its streams.
#[test]
fn end_of_a_session_ends_its_streams() {
    let daemon = daemon();
    let session = Session::begin(&daemon, "2025-06-18");
    let mark = marker();
    let mut get = session.get(&daemon, None);
    get.head();
    let mut post = session.post(&daemon, &call(4, "family", &format!(r#"{{"t":"{mark}"}}"#)));
    post.head();
    wait_for_family(&mark);
    let mut http = connect(&daemon);
    http.request("DELETE /mcp", &session.headers(), "");
    assert_eq!(http.reply().status, 204);
    while get.event().is_some() {}
    while post.event().is_some() {}
    wait_gone(&mark);
}

/// A client that does not read its stream neither holds up the others nor fills the memory.
#[test]
fn client_that_does_not_read_holds_up_no_other() {
    let limits = "write_buffer_bytes = \"64KiB\"\nwrite_stall = \"500ms\"";
    let tool = "[[tool]]\nname = \"much\"\ncommand = [\"sh\", \"-c\", 'i=0; while :; do i=$((i+1)); echo $i >&3; done', \"x\", \"{t}\"]\nrun_as = \"daemon\"\n[tool.input.t]\ntype = \"string\"\nrequired = true\n";
    let daemon = daemon_within(limits, &format!("{OPEN}{tool}"));
    let session = Session::begin(&daemon, "2025-11-25");
    let mark = marker();
    let slow = session.post(&daemon, &call(4, "much", &format!(r#"{{"t":"{mark}"}}"#)));
    for id in 10..40 {
        let answer = session.post(&daemon, &call(id, "echo", r#"{"text":"x"}"#)).answer();
        assert_eq!(answer["id"], id);
    }
    assert_eq!(session.exchange(&daemon, &cancel(4)).status, 202);
    wait_gone(&mark);
    drop(slow);
}

/// Shutdown answers or ends every stream, and the daemon exits.
#[test]
fn shutdown_ends_every_stream() {
    let mut daemon = daemon();
    let session = Session::begin(&daemon, "2025-11-25");
    let mark = marker();
    let mut get = session.get(&daemon, None);
    get.head();
    let mut post = session.post(&daemon, &call(4, "family", &format!(r#"{{"t":"{mark}"}}"#)));
    post.head();
    wait_for_family(&mark);
    daemon.signal(ceased_tests::daemon::Signal::TERM);
    let mut answer = None;
    while let Some(event) = post.event() {
        if event.data.contains("\"id\":4") {
            answer = Some(event.json());
        }
    }
    let answer = answer.expect("the call is answered");
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    while get.event().is_some() {}
    assert!(daemon.wait().success());
    wait_gone(&mark);
}
