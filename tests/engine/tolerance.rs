//! Messages as other serializers write them: numbers in other spellings, members that are `null`,
//! odd reasons and metas. A cancel holds whatever is beside its request's id.

use ceased_core::acp::protocol::AcpForm;
use ceased_core::action::AuditEvent;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::outgoing::call::{Answer, OutgoingRequest};
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::acp::{FORMS, cancelled, open_to_client, prompt};
use ceased_simulator::modern;
use ceased_simulator::trace::Input;
use ceased_simulator::world::World;
use serde_json::{Value, json};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Reasons that are none, or only half of one, and their record.
const REASONS: [(&str, Option<&str>); 9] = [
    ("null", None),
    ("7", None),
    ("-1.5e3", None),
    ("true", None),
    (r#"["x"]"#, None),
    (r#"{"why":"x"}"#, None),
    (r#""""#, Some("")),
    (r#""cut \ud83e""#, Some("cut \u{fffd}")),
    (r#""\udd80 cut\u0000""#, Some("\u{fffd} cut ")),
];

/// Members that a cancel may have besides the id of its request.
const EXTRAS: [&str; 10] = [
    r#""_meta":null"#,
    r#""_meta":7"#,
    r#""_meta":"x""#,
    r#""_meta":[{"a":1}]"#,
    r#""_meta":{"progressToken":{},"progressToken":[],"ceased/reason":7}"#,
    r#""_meta":{},"_meta":[]"#,
    r#""reason":"a","reason":"b""#,
    r#""\ud800":1,"x":{"requestId":"other"}"#,
    r#""name":7,"name":8,"arguments":null,"task":0,"taskId":{}"#,
    r#""requestId":7.0,"request\u0049d":7"#,
];

/// A peer of a revision for frames that no schema allows.
fn lenient(revision: &str) -> (World, ConnId) {
    let mut w = World::new();
    w.strict = false;
    let c = w.open_as(Identity::User(1), revision);
    (w, c)
}

fn start(w: &mut World, c: ConnId, id: &str) -> JobId {
    let before = w.started.len();
    w.send(c, &request(id, "tools/call", r#"{"name":"echo","arguments":{}}"#));
    assert_eq!(w.started.len(), before + 1, "{id}: {:?}", w.rest(c));
    w.last_started()
}

fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn cancel(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{{members}}}}}"#)
}

/// RPC-01, RPC-02, CAN-01, CAN-11: a number is one id in every spelling, for the answer, which has
/// the spelling of its request, for a second request, and for the cancel.
#[test]
fn equal_numbers_are_one_id() {
    let spellings: [&[&str]; 6] = [
        &["41", "41.0", "4.1e1", "410E-1"],
        &["0", "-0", "0.0", "0e9"],
        &["-7", "-7.00", "-0.7e1"],
        &["18446744073709551616", "18446744073709551616.0", "1844674407370955161.6e1"],
        &["1e30", "1000000000000000000000000000000", "10.0e29"],
        &[r#""\ud800x""#, r#""\uD800\u0078""#],
    ];
    for revision in REVISIONS {
        for same in spellings {
            for (first, second) in same.iter().flat_map(|a| same.iter().map(move |b| (a, b))) {
                let (mut w, c) = lenient(revision);
                let job = start(&mut w, c, first);
                w.send(c, &request(second, "ping", "{}"));
                let refused = w.raw(c);
                let expected =
                    format!(r#"{{"jsonrpc":"2.0","id":{second},"error":{{"code":-32600,"#);
                assert!(refused.starts_with(&expected), "{refused}");
                w.done(job, "ok");
                let answered = w.raw(c);
                let expected = format!(r#"{{"jsonrpc":"2.0","id":{first},"result":"#);
                assert!(answered.starts_with(&expected), "{answered}");
                let job = start(&mut w, c, first);
                w.send(c, &cancel(&format!(r#""requestId":{second}"#)));
                assert_eq!(
                    w.steps(job),
                    [(StopStep::Flag, StopReason::Requested)],
                    "{first} {second}"
                );
                w.done(job, "too late");
                w.silent(c);
            }
        }
    }
}

/// CAN-01: numbers that are not equal, and texts that look like numbers, are other ids.
#[test]
fn unequal_ids_are_not_cancelled() {
    for (id, others) in [
        ("1", &["1.5", "10", "\"1\"", "\"1.0\"", "-1", "1e1", "1e99999999999999999999"][..]),
        ("9223372036854775807", &["9223372036854775808", "9.223372036854775807e17"]),
        ("18446744073709551616", &["18446744073709551617", "18446744073709551615", "0"]),
        (r#""\ud800""#, &[r#""\ud801""#, r#""\\ud800""#, "\"\u{fffd}\""]),
    ] {
        let (mut w, c) = lenient("2025-11-25");
        let job = start(&mut w, c, id);
        for other in others {
            w.send(c, &cancel(&format!(r#""requestId":{other}"#)));
        }
        assert_eq!(w.steps(job), [], "{id}");
        w.done(job, "ok");
        assert!(w.raw(c).contains(&format!("\"id\":{id},\"result\"")));
    }
}

/// CAN-14: `requestId` alone decides: no reason and no other member keeps a cancel from holding.
#[test]
fn cancel_holds_whatever_is_beside_its_id() {
    let reasons = REASONS.map(|(reason, noted)| (format!(r#""reason":{reason}"#), noted));
    let noted = |extra: &str| extra.contains(r#""reason":"b""#).then_some("b");
    let extras = EXTRAS.map(|extra| (extra.to_owned(), noted(extra)));
    for (members, noted) in reasons.into_iter().chain(extras) {
        for line in [
            cancel(&format!(r#""requestId":7,{members}"#)),
            cancel(&format!(r#"{members},"requestId":7"#)),
        ] {
            for revision in REVISIONS {
                let (mut w, c) = lenient(revision);
                let job = start(&mut w, c, "7");
                w.send(c, &line);
                holds(&mut w, c, job, noted, &line);
            }
            let (mut w, c) = lenient("2025-11-25");
            let call = modern::plain(json!({"name": "echo", "arguments": {}}));
            w.send(c, &request("7", "tools/call", &call.to_string()));
            let job = w.last_started();
            w.send(c, &line);
            holds(&mut w, c, job, noted, &line);
        }
    }
}

/// The answer to the request 7, whatever else was told.
#[track_caller]
fn answer(w: &mut World, c: ConnId) -> Value {
    let told = w.rest(c);
    let answer = told.iter().find(|told| told["id"] == 7);
    answer.unwrap_or_else(|| panic!("no answer among {told:?}")).clone()
}

/// The job was stopped for its cancel, and its request is not answered.
#[track_caller]
fn holds(w: &mut World, c: ConnId, job: JobId, noted: Option<&str>, line: &str) {
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)], "{line}");
    let Some(AuditEvent::CallCancelled { reason, .. }) = w.notes.last() else {
        panic!("{line}: {:?}", w.notes);
    };
    assert_eq!(reason.as_deref(), noted, "{line}");
    w.done(job, "too late");
    w.silent(c);
}

/// CAN-14: some writers put every member into every message, `null` where it does not belong.
#[test]
fn notification_with_a_null_id_is_one() {
    let envelopes = [
        r#"{"jsonrpc":"2.0","id":null,"method":"notifications/cancelled","params":{"requestId":7}}"#,
        r#"{"id":null,"result":null,"error":null,"params":{"requestId":7},"method":"notifications/cancelled","jsonrpc":"2.0"}"#,
        r#" { "jsonrpc" : "2.0" , "m\u0065thod" : "notifications\/cancelled" , "params" : { "requestId" : 7 } } "#,
        r#"{"jsonrpc":"2.0","\ud800":[],"method":"notifications/cancelled","params":{"requestId":7}}"#,
    ];
    for revision in REVISIONS {
        for line in envelopes {
            let (mut w, c) = lenient(revision);
            let job = start(&mut w, c, "7");
            w.send(c, line);
            holds(&mut w, c, job, None, line);
        }
        let (mut w, c) = lenient(revision);
        w.send(c, r#"{"jsonrpc":"2.0","id":null,"method":"notifications/initialized"}"#);
        w.silent(c);
        w.send(c, r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#);
        assert_eq!(w.next(c)["error"]["code"], -32600, "RPC-02");
    }
}

/// CAN-05, TSK-25: the same of `tasks/cancel`, where `taskId` alone decides.
#[test]
fn task_cancel_holds_whatever_is_beside_its_id() {
    for extra in EXTRAS.iter().filter(|extra| !extra.contains("taskId")) {
        let (mut w, c) = lenient("2025-11-25");
        let (task, job) = w.task(c, "sleep");
        w.send(c, &request("7", "tasks/cancel", &format!(r#"{{"taskId":"{task}",{extra}}}"#)));
        assert_eq!(answer(&mut w, c)["result"]["status"], "cancelled", "{extra}");
        assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)], "{extra}");
    }
    for (reason, noted) in REASONS {
        let (mut w, c) = lenient("2025-11-25");
        let (task, _) = w.task(c, "sleep");
        let meta = format!(r#"{{"ceased/reason":{reason}}}"#);
        w.send(
            c,
            &request("7", "tasks/cancel", &format!(r#"{{"taskId":"{task}","_meta":{meta}}}"#)),
        );
        assert_eq!(answer(&mut w, c)["result"]["status"], "cancelled", "{reason}");
        let cancelled = w.notes.iter().find_map(|note| {
            let AuditEvent::TaskCancelled { reason, .. } = note else { return None };
            Some(reason.as_deref())
        });
        assert_eq!(cancelled, Some(noted), "{reason}");
    }
}

/// ACP-01: the same of cancels in ACP, in every spelling.
#[test]
fn cancel_of_acp_holds_whatever_is_beside_its_id() {
    for form in FORMS {
        for (method, member) in [
            ("$/cancel_request", "requestId"),
            ("$/cancelRequest", "requestId"),
            ("$/cancelRequest", "id"),
        ] {
            for members in [
                format!(r#""{member}":7.0"#),
                format!(r#""{member}":70e-1,"_meta":[]"#),
                format!(r#""\ud800":1,"{member}":7,"{member}":7.0,"reason":"\ud83e""#),
                format!(r#""x":{{"{member}":8}},"{member}":7,"_meta":7"#),
            ] {
                for id in ["", r#""id":null,"#] {
                    let line = format!(
                        r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{{members}}}}}"#
                    );
                    stops(form, &line);
                }
            }
        }
        let both = r#""method":"$/cancelRequest","params":{"requestId":null,"id":7}"#;
        stops(form, &format!(r#"{{"jsonrpc":"2.0",{both}}}"#));
    }
}

/// A line stops the request 7 of an ACP peer.
#[track_caller]
fn stops(form: AcpForm, line: &str) {
    let mut w = World::new();
    let c = open_to_client(&mut w, form, true, true);
    let job = prompt(&mut w, c, json!(7));
    w.send(c, line);
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)], "{line}");
    w.silent(c);
    w.stopped(job);
    w.expect(c, cancelled(form, &json!(7), None));
}

/// RPC-01, TSK-11: a `null` member, or an empty array for params, counts as omitted.
#[test]
fn what_is_null_is_left_out() {
    let (mut w, c) = lenient("2025-11-25");
    for params in ["null", "[]", "[ ]", r#"{"cursor":null}"#, r#"{"_meta":null,"x":1}"#] {
        for method in ["ping", "tools/list", "tasks/list", "ceased/status"] {
            w.send(c, &request("7", method, params));
            let answer = w.next(c);
            assert!(answer.get("result").is_some(), "{method} {params}: {answer}");
        }
        // Where params are needed, they are missing.
        w.send(c, &request("7", "tasks/get", params));
        assert_eq!(w.next(c)["error"]["code"], -32602, "{params}");
    }
    w.send(c, &request("7", "tools/list", "[1]"));
    assert_eq!(w.next(c)["error"]["code"], -32602);
    for (tool, task, becomes) in [
        ("echo", "null", false),
        ("sleep", "null", false),
        ("sleep", "{}", true),
        ("sleep", r#"{"ttl":null}"#, true),
        ("sleep", r#"{"ttl":60000.0}"#, true),
        ("sleep", r#"{"ttl":6e4}"#, true),
    ] {
        let members = r#""arguments":null,"_meta":null,"requestState":null,"inputResponses":null"#;
        w.send(
            c,
            &request("7", "tools/call", &format!(r#"{{"name":"{tool}","task":{task},{members}}}"#)),
        );
        let job = w.last_started();
        if becomes {
            let created = w.next(c)["result"]["task"].clone();
            assert_eq!(created["status"], "working", "{task}");
            assert!(!task.contains('6') || created["ttl"] == 60_000, "{created}");
        }
        w.done(job, "ok");
        assert_eq!(w.rest(c).iter().any(|told| told["id"] == 7), !becomes, "{tool} {task}");
    }
    for task in ["[]", "7", "true", r#"{"ttl":0.0}"#, r#"{"ttl":1.5}"#, r#"{"ttl":"1"}"#] {
        w.send(c, &request("7", "tools/call", &format!(r#"{{"name":"sleep","task":{task}}}"#)));
        assert_eq!(w.next(c)["error"]["code"], -32602, "{task}");
    }
}

/// CAN-03: a progress token of another shape loses no request; one that is a number comes back as
/// it was written.
#[test]
fn odd_progress_tokens_lose_no_request() {
    for (token, is_one) in [
        ("7.0", true),
        ("1e30", true),
        (r#""\u0061""#, true),
        ("null", false),
        ("1.5", false),
        ("true", false),
        ("[]", false),
        ("{}", false),
    ] {
        let (mut w, c) = lenient("2025-11-25");
        let meta = format!(r#"{{"progressToken":{token}}}"#);
        w.send(c, &request("7", "tools/call", &format!(r#"{{"name":"echo","_meta":{meta}}}"#)));
        let job = w.last_started();
        w.progress(job, 1.0);
        if is_one {
            let told = w.raw(c);
            assert!(told.contains(&format!("\"progressToken\":{token},")), "{told}");
        }
        w.done(job, "ok");
        assert_eq!(w.next(c)["id"], 7, "{token}");
        w.silent(c);
    }
    let (mut w, c) = lenient("2025-11-25");
    w.send(c, &request("7", "tools/call", r#"{"name":"echo","_meta":null}"#));
    let job = w.last_started();
    w.done(job, "ok");
    assert_eq!(w.next(c)["id"], 7);
}

/// CAN-10, RPC-01: a peer may spell the id of its answer to us as it likes.
#[test]
fn answer_under_another_spelling_is_one() {
    let spellings: [fn(&Value) -> String; 4] = [
        |id| format!("{id}.0"),
        |id| format!("{id}0e-1"),
        |id| format!("{id}e0"),
        |id| format!("\"{id}\""),
    ];
    for spelled in spellings {
        for rest in [r#""result":{"roots":[]}"#, r#""result":{"roots":[]},"error":null"#] {
            let mut w = World::new();
            let c = w.open_with(Identity::User(1), "2025-11-25", json!({"roots": {}}));
            let ask = OutgoingRequest {
                key: None,
                method: "roots/list".into(),
                params: None,
                answer_timeout: None,
                task: None,
            };
            w.feed(Input::Call(c, AskId::new(1), ask));
            let id = spelled(&w.next(c)["id"]);
            w.send(c, &format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#));
            let Some((_, Answer::Result(result))) = w.told.pop() else {
                panic!("{id} {rest} was no answer");
            };
            assert_eq!(result.get(), r#"{"roots":[]}"#);
        }
    }
}

/// The number of a job for `ceased/cancel` may be spelled in any way.
#[test]
fn job_is_cancelled_by_its_number_in_any_spelling() {
    for spelled in [".0", "e0", "0e-1"] {
        let (mut w, c) = lenient("2025-11-25");
        let job = start(&mut w, c, "7");
        let params = format!(r#"{{"job":{}{spelled},"reason":["x"],"_meta":7}}"#, job.get());
        w.send(c, &request("8", "ceased/cancel", &params));
        assert_eq!(w.next(c)["result"], json!({}), "{params}");
        assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)], "{params}");
    }
}
