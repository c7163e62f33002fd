//! Properties: whatever comes, against slow and obvious readings of the same bytes.

use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::RequestId;
use ceased_core::limits::{FrameLimits, Limits, OnTtl, TaskPolicy};
use ceased_core::rpc::frame::{Frame, Inbox};
use ceased_core::rpc::message::{Members, Message};
use ceased_simulator::slow::{self, Id, Said};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

// ------------------------------------------------------------------------------- frames

fn cut(pieces: &[&[u8]], max: usize) -> Vec<String> {
    let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: max });
    let mut frames = Vec::new();
    let mut sink = |frame: Frame<'_>| {
        frames.push(match frame {
            Frame::Line(line) => format!("line {line:?}"),
            Frame::TooLong(_) => "overlong".to_owned(),
            Frame::NotJsonRpc(_) => "alien".to_owned(),
        });
    };
    pieces.iter().for_each(|piece| inbox.feed(piece, &mut sink));
    inbox.finish(&mut sink);
    frames
}

/// Splits at every line end and looks at each line as a whole.
fn cut_slowly(stream: &[u8], max: usize) -> Vec<String> {
    let Some(start) = stream.iter().position(|byte| !b" \t\r\n".contains(byte)) else {
        return Vec::new();
    };
    if !matches!(stream[start], b'{' | b'[') {
        return vec!["alien".to_owned()];
    }
    let mut frames = Vec::new();
    for line in stream[start..].split(|byte| *byte == b'\n') {
        let trimmed = line.trim_ascii();
        if line.len() > max {
            frames.push("overlong".to_owned());
        } else if !trimmed.is_empty() {
            frames.push(format!("line {trimmed:?}"));
        }
    }
    frames
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => Just(b'\n'), 1 => Just(b'\r'), 2 => Just(b' '), 4 => Just(b'{'), 1 => Just(b'['),
        8 => b'a'..=b'f', 1 => any::<u8>(),
    ];
    vec(byte, 0..200)
}

// ------------------------------------------------------------------------------- JSON

fn tokens() -> impl Strategy<Value = String> {
    const FIXED: [&str; 24] = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "1.0",
        "1.5",
        "1e0",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "\"\"",
        "\"1\"",
        "\"2.0\"",
        "\"m\"",
        "\"a\\\"b\"",
        "{}",
        "[]",
        "[1]",
        "{\"a\":1}",
        "{\"id\":1}",
        "\"é🦀\"",
    ];
    proptest::sample::select(FIXED.as_slice()).prop_map(ToOwned::to_owned)
}

/// A member that is right five times in ten, absent three times, anything twice.
fn member(name: &'static str, good: &'static str) -> BoxedStrategy<Option<String>> {
    prop_oneof![
        5 => Just(Some(format!("\"{name}\":{good}"))),
        3 => Just(None),
        2 => tokens().prop_map(move |token| Some(format!("\"{name}\" : {token}"))),
    ]
    .boxed()
}

/// Envelopes, mostly right: members in any order, each at most once.
fn envelopes() -> impl Strategy<Value = String> {
    let seldom = |name, good| prop_oneof![4 => Just(None), 1 => member(name, good)].boxed();
    let members = vec![
        member("jsonrpc", "\"2.0\""),
        member("id", "7"),
        member("method", "\"m\""),
        member("params", "{}"),
        seldom("result", "{}"),
        seldom("error", "{}"),
        member("other", "1"),
    ];
    members
        .prop_map(|members| members.into_iter().flatten().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|members| format!("{{{}}}", members.join(",")))
}

/// Envelopes, and envelopes with one byte changed, removed or added.
fn frames() -> impl Strategy<Value = String> {
    let byte = proptest::sample::select(b"{}[]\",:01 ax\\".as_slice());
    (envelopes(), any::<proptest::sample::Index>(), 0..8_u8, byte).prop_map(
        |(text, at, how, byte)| {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                _ => {}
            }
            String::from_utf8_lossy(&bytes).into_owned()
        },
    )
}

/// The meaning of a frame, by the slow reader.
fn classified_slowly(text: &str) -> String {
    let shown = |id: Id| match id {
        Id::Number(number) => number.to_string(),
        Id::Text(text) => format!("{text:?}"),
        Id::Canonical(token) => token,
        Id::Null => "null".to_owned(),
    };
    match slow::classify(text.as_bytes(), 64) {
        Said::Request { id, method, .. } => format!("request {} {method}", shown(id)),
        Said::Notification { method, .. } => format!("notification {method}"),
        Said::Response { id, result } => {
            let id = id.map_or("-".to_owned(), shown);
            format!("response {id} {}", if result { "good" } else { "bad" })
        }
        Said::Batch(messages) => format!("batch {}", messages.len()),
        Said::Invalid { token, code } => {
            format!("invalid {} {code}", token.unwrap_or("-".to_owned()))
        }
    }
}

fn classified(text: &str) -> String {
    match Message::parse(text.as_bytes(), 64, &mut Members::default()) {
        Message::Request { id, method, .. } => format!("request {} {method}", id.id),
        Message::Notification { method, .. } => format!("notification {method}"),
        Message::Response { id, outcome } => {
            let id = id.map_or("-".to_owned(), |id| id.to_string());
            format!("response {id} {}", if outcome.is_ok() { "good" } else { "bad" })
        }
        Message::Batch(messages) => format!("batch {}", messages.len()),
        Message::Invalid { id, error } => {
            format!("invalid {} {}", id.map_or("-", |id| id.token), error.code)
        }
    }
}

/// A JSON string token of `text` with some of its characters escaped the long way.
fn spelled(text: &str, long: &[bool]) -> String {
    let mut token = String::from("\"");
    for (at, character) in text.chars().enumerate() {
        let must = matches!(character, '"' | '\\') || character < ' ';
        if must || long.get(at).copied().unwrap_or_default() {
            for unit in character.encode_utf16(&mut [0; 2]) {
                token.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            token.push(character);
        }
    }
    token + "\""
}

proptest! {
    #![proptest_config(cases(2000))]

    /// RPC-01: any bytes, cut anywhere, give the frames one gets by looking at whole lines.
    #[test]
    fn frames_are_cut_as_one_would_by_hand(
        stream in streams(), cuts in vec(any::<proptest::sample::Index>(), 0..6), max in 1..40_usize,
    ) {
        let expected = cut_slowly(&stream, max);
        let mut cuts: Vec<usize> = cuts.iter().map(|at| at.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        prop_assert_eq!(cut(&pieces, max), expected);
    }

    /// CAN-01, RPC-01: an id is read by its value, in any spelling, and two ids are one
    /// exactly when they mean one thing.
    #[test]
    fn ids_go_round(number: i64, text: String, long in vec(any::<bool>(), 0..20)) {
        let read = RequestId::parse(&number.to_string());
        prop_assert_eq!(read.clone(), Some(RequestId::Number(number)));
        let token = spelled(&text, &long);
        let read_text = RequestId::parse(&token);
        prop_assert_eq!(read_text.clone(), Some(RequestId::Text(text.as_str().into())));
        prop_assert_eq!(read_text, RequestId::parse(&spelled(&text, &[])));
        prop_assert_ne!(read, RequestId::parse(&format!("\"{number}\"")));
    }

    /// RPC-01: an id is echoed byte for byte.
    #[test]
    fn ids_are_echoed(number: i64, text: String, long in vec(any::<bool>(), 0..20)) {
        let mut w = World::new();
        let c = w.connect(Identity::User(1));
        for id in [number.to_string(), spelled(&text, &long)] {
            w.send(c, &format!(r#"{{"id":{id},"jsonrpc":"2.0","method":"ping"}}"#));
            prop_assert_eq!(w.raw(c), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        }
    }

    /// RPC-01, RPC-02: an envelope is read as by the slow reader.
    #[test]
    fn envelopes_are_read_as_one_would_slowly(text in frames()) {
        prop_assert_eq!(classified(&text), classified_slowly(&text), "{}", text);
    }

    /// TSK-11: a ttl is a positive integer of milliseconds in any spelling, shortened to the
    /// longest, or
    /// -32602.
    #[test]
    fn ttls_are_positive_integers(
        ttl in prop_oneof![tokens(), "-?[0-9]{1,25}(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?"],
    ) {
        // Not every text of that form is JSON.
        if serde_json::from_str::<Value>(&ttl).is_err() {
            return Ok(());
        }
        let granted = match slow::read_id(&ttl) {
            _ if ttl == "null" => Some(3_600_000),
            Some(Id::Number(millis)) if millis > 0 => Some(millis.cast_unsigned().min(5000)),
            Some(Id::Canonical(far)) if !far.starts_with(['-', '"']) => Some(5000),
            Some(_) | None => None,
        };
        let policy = TaskPolicy { max_ttl: Duration::from_secs(5), ..TaskPolicy::default() };
        let mut w = World::with(Limits::default(), policy);
        let c = w.open();
        w.send(c, &format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"sleep","task":{{"ttl":{ttl}}}}}}}"#
        ));
        let answer = w.next(c);
        prop_assert_eq!(answer.pointer("/result/task/ttl").and_then(Value::as_u64), granted);
        prop_assert_eq!(answer["error"]["code"] == -32602, granted.is_none(), "{}", answer);
    }
}

// ------------------------------------------------------------------------------- sessions

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..3_i64).prop_map(Value::from),
        any::<f32>().prop_map(|number| json!(number)),
        ".{0,6}".prop_map(Value::from),
        proptest::sample::select(&["sleep", "build", "echo", "report", "strict", "x"][..])
            .prop_map(Value::from),
        Just(json!("ced00000-0000-4000-8000-000000000002")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let keys = proptest::sample::select(
            &[
                "name",
                "arguments",
                "task",
                "ttl",
                "taskId",
                "_meta",
                "progressToken",
                "cursor",
                "requestId",
                "reason",
                "level",
                "text",
                "protocolVersion",
                "ceased/reason",
            ][..],
        );
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((keys.prop_map(ToOwned::to_owned), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Params that are right, with parts of them replaced by anything.
fn params() -> impl Strategy<Value = Value> {
    let right = proptest::sample::select(vec![
        json!({"name": "sleep", "arguments": {}, "task": {"ttl": 50}, "_meta": {"progressToken": 1}}),
        json!({"name": "build", "arguments": {}, "_meta": {"progressToken": "t"}}),
        json!({"name": "strict", "arguments": {"text": "x"}}),
        json!({"taskId": "ced00000-0000-4000-8000-000000000002"}),
        json!({"requestId": 1, "reason": "r"}),
        json!({"level": "debug"}),
        json!({"protocolVersion": "2025-03-26", "capabilities": {}}),
        json!({}),
    ]);
    (right, proptest::option::weighted(0.3, (any::<proptest::sample::Index>(), json_values())))
        .prop_map(|(mut params, change)| {
            let Some((at, value)) = change else { return params };
            let members = params.as_object_mut().expect("it is an object");
            let names: Vec<String> = members.keys().cloned().collect();
            match names.get(at.index(names.len() + 1)) {
                Some(name) => drop(members.insert(name.clone(), value)),
                None => return value,
            }
            params
        })
}

fn messages() -> impl Strategy<Value = Value> {
    let method = proptest::sample::select(
        &[
            "tools/call",
            "tools/call",
            "tools/call",
            "tools/list",
            "tasks/get",
            "tasks/result",
            "tasks/list",
            "tasks/cancel",
            "notifications/cancelled",
            "notifications/cancelled",
            "ping",
            "initialize",
            "logging/setLevel",
            "ceased/status",
            "x",
        ][..],
    );
    let id = proptest::sample::select(vec![
        json!(1),
        json!("1"),
        json!(2),
        json!(0),
        json!(null),
        json!(1.5),
        json!([]),
    ]);
    (method, proptest::option::weighted(0.8, id), params()).prop_map(|(method, id, params)| {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id.filter(|_| method != "notifications/cancelled") {
            message["id"] = id;
        }
        message
    })
}

/// An event of a host between two messages.
fn meanwhile(w: &mut World, how: u8) {
    match how {
        0..=2 => w.feed(Input::Turn),
        3 | 4 => {
            if let Some(job) = w.running.keys().next().copied() {
                w.done(job, "ok");
            }
        }
        5 => w.advance(Duration::from_millis(20)),
        6 => {
            if let Some(job) = w.running.keys().last().copied() {
                w.progress(job, f64::from(how));
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(cases(600))]

    /// RPC-01, RPC-03: messages that are nearly right, singly and in batches, on every revision:
    /// each request is answered at most once, and every answer is valid.
    #[test]
    fn nearly_right_messages(
        revision in proptest::sample::select(&["2024-11-05", "2025-03-26", "2025-06-18", NEWEST][..]),
        history in vec((messages(), 0..10_u8), 1..30),
        batch in any::<bool>(),
    ) {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        for (message, how) in &history {
            w.frame(c, &message.to_string());
            meanwhile(&mut w, *how);
        }
        if batch {
            let all: Vec<&Value> = history.iter().map(|(message, _)| message).collect();
            w.frame(c, &json!(all).to_string());
        }
        w.feed(Input::Turn);
        while let Some(job) = w.running.keys().next().copied() {
            w.done(job, "ok");
        }
        prop_assert_eq!(w.sizes().requests, 0);
    }

    /// RPC-01: any bytes on a connection: no panic, every invariant of the tables holds, every
    /// sent line is JSON, and another peer is served.
    #[test]
    fn any_bytes(
        chunks in vec((prop_oneof![
            streams(),
            frames().prop_map(|text| (text + "\n").into_bytes()),
            messages().prop_map(|message| format!("{message}\n").into_bytes()),
        ], 0..10_u8), 1..20),
        ready in any::<bool>(),
    ) {
        let mut w = World::new();
        w.strict = false;
        let other = w.open();
        let c = w.connect(Identity::Anonymous);
        if ready {
            w.ask(c, "initialize", json!({"protocolVersion": NEWEST}));
        }
        let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: 300 });
        for (chunk, how) in &chunks {
            let mut inputs = Vec::new();
            inbox.feed(chunk, &mut |frame| inputs.push(match frame {
                Frame::Line(line) => Input::Frame(c, line.to_vec()),
                Frame::TooLong(skeleton) => Input::TooLong(c, skeleton.to_owned()),
                Frame::NotJsonRpc(bytes) => Input::NotJsonRpc(c, bytes.to_vec()),
            }));
            for input in inputs {
                w.feed(input);
            }
            meanwhile(&mut w, *how);
        }
        w.result(other, "ping", json!({}));
    }

    /// TSK-22: no text but a cursor we gave is a cursor.
    #[test]
    fn cursors_are_not_guessed(cursor in prop_oneof![".{0,40}", "[0-9a-fA-F]{32}", "0{16}[0-9a-f]{16}"]) {
        let policy = TaskPolicy { page_size: 1, ..TaskPolicy::default() };
        let mut w = World::with(Limits::default(), policy);
        let c = w.open();
        w.task(c, "sleep");
        w.task(c, "sleep");
        let given = w.result(c, "tasks/list", json!({}))["nextCursor"].clone();
        prop_assume!(given != json!(cursor));
        prop_assert_eq!(w.refusal(c, "tasks/list", json!({"cursor": cursor})).0, -32602);
    }

    /// TSK-19, TSK-20, TSK-21: pages of any size hold every task once, in order.
    #[test]
    fn pages_of_any_size(size in 1..7_usize, count in 0..15_usize) {
        let policy = TaskPolicy { page_size: size, ..TaskPolicy::default() };
        let mut w = World::with(Limits::default(), policy);
        let c = w.open();
        let made: Vec<String> = (0..count).map(|_| w.task(c, "sleep").0).collect();
        let (mut seen, mut pages, mut params) = (Vec::new(), 0, json!({}));
        loop {
            let page = w.result(c, "tasks/list", params);
            pages += 1;
            for task in page["tasks"].as_array().into_iter().flatten() {
                seen.push(task["taskId"].as_str().unwrap_or_default().to_owned());
            }
            let Some(cursor) = page.get("nextCursor") else { break };
            params = json!({"cursor": cursor});
        }
        prop_assert_eq!(seen, made);
        prop_assert_eq!(pages, count.div_ceil(size).max(1));
    }

    /// TSK-19, TSK-21: while pages are turned tasks come and go: a task that stays is on
    /// one page exactly, in order, and one removed before a page was asked for is not on it.
    #[test]
    fn pages_while_tasks_come_and_go(
        size in 1..5_usize,
        ttls in vec(proptest::option::of(1..6_u64), 1..20),
        between in vec((0..3_u64, 0..3_usize), 0..12),
    ) {
        let policy = TaskPolicy { page_size: size, on_ttl: OnTtl::Stop, ..TaskPolicy::default() };
        let mut w = World::with(Limits::default(), policy);
        let c = w.open();
        let mut lasting = Vec::new();
        let mut made = std::collections::BTreeMap::new();
        for ttl in &ttls {
            let ttl = ttl.map(|seconds| seconds * 1000);
            let (id, _) = w.task_with(c, "sleep", json!({"ttl": ttl.unwrap_or(3_600_000)}));
            if ttl.is_none() {
                lasting.push(id.clone());
            }
            made.insert(id, w.now().at + Duration::from_millis(ttl.unwrap_or(3_600_000)));
        }
        let (mut seen, mut params) = (Vec::new(), json!({}));
        let mut between = between.into_iter();
        loop {
            let page = w.result(c, "tasks/list", params);
            for task in page["tasks"].as_array().into_iter().flatten() {
                let id = task["taskId"].as_str().unwrap_or_default().to_owned();
                prop_assert!(made[&id] > w.now().at, "{} is gone", id);
                seen.push(id);
            }
            let Some(cursor) = page.get("nextCursor").cloned() else { break };
            let (seconds, new) = between.next().unwrap_or_default();
            w.advance(Duration::from_secs(seconds));
            for _ in 0..new {
                let (id, _) = w.task(c, "sleep");
                made.insert(id, w.now().at + Duration::from_secs(3600));
            }
            params = json!({"cursor": cursor});
        }
        let distinct: std::collections::BTreeSet<&String> = seen.iter().collect();
        prop_assert_eq!(distinct.len(), seen.len(), "nothing is told twice");
        seen.retain(|id| lasting.contains(id));
        prop_assert_eq!(seen, lasting);
    }
}
