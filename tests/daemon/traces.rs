//! Trace context of calls, from a client to a grandchild's environment (OBS-01).

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{
    Config, Daemon, Home, TIME_LIMIT, assert_none_left, marker, wait_for_family, wait_until,
};
use serde_json::{Value, json};

use crate::http::kit::{OPEN, Session, connect, headers, modern};
use crate::servers::kit::Place;
use crate::wrap_acp::kit::AGENT;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

const TOOLS: &str = r#"
[[tool]]
name = "environment"
run_as = "daemon"
max_output = "64KiB"
task_support = "optional"
command = ["sh", "-c", "sh -c 'echo $TRACEPARENT/$TRACESTATE/$BAGGAGE'"]

[[tool]]
name = "long"
run_as = "daemon"
max_output = "64KiB"
command = ["sh", "-c", "echo 1 >&3; exec sleep $0", "{mark}"]
[tool.input.mark]
type = "string"
required = true
"#;

fn parent() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

/// A `tools/call` with a progress token and these members in `_meta`, and further params.
fn call(id: u64, tool: &str, arguments: &Value, context: &Value, more: &Value) -> String {
    let mut params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
    merge(&mut params["_meta"], context);
    merge(&mut params, more);
    request(id, "tools/call", &params.to_string())
}

fn merge(object: &mut Value, members: &Value) {
    for (name, value) in members.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
}

/// A daemon with an audit log, these tables beside the tools, and a listener for HTTP.
fn traced(more: &str) -> Daemon {
    let home = Home::new();
    let log = format!("[log]\naudit = {:?}\n", home.path().join("audit.jsonl"));
    home.configure(&Config { tools: &(log + OPEN + TOOLS + more), ..Config::default() });
    Daemon::start_in(home)
}

/// The answer to a POST on a connection of its own.
fn post(daemon: &Daemon, headers: &[(&str, &str)], body: &str) -> Value {
    let mut http = connect(daemon);
    http.post(headers, body);
    http.answer()
}

/// Waits for an audit record with this event and job or tool.
fn record(daemon: &Daemon, event: &str, tool: &str) -> Value {
    let mut found = None;
    wait_until(&format!("a record {event} of {tool}"), || {
        let text = fs::read_to_string(daemon.home.path().join("audit.jsonl")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut records = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        found = records.find(|record| record["event"] == event && record["tool"] == tool);
        found.is_some()
    });
    found.unwrap_or_default()
}

/// OBS-01: `_meta` reaches the grandchild's environment, plain and as a task, and the ids stand in the
/// record of the call; a context that is not valid by W3C counts as none.
#[test]
fn trace_reaches_the_grandchild() {
    let daemon = traced("");
    let mut peer = daemon.peer();
    let context = json!({"traceparent": parent(), "tracestate": "a=1,b=2", "baggage": "user=ann"});
    let whole = format!("{}/a=1,b=2/user=ann\n", parent());
    let mut run = |context: &Value| {
        let id = peer.next_id();
        peer.send(&call(id, "environment", &json!({}), context, &json!({})));
        peer.text(id)
    };
    assert_eq!(run(&context), whole);
    assert_eq!(run(&json!({})), "//\n");
    for bad in
        [parent().to_uppercase(), parent() + "-00", format!("00-{}-{SPAN}-01", "0".repeat(32))]
    {
        let context = json!({"traceparent": bad, "tracestate": "a=1", "baggage": "user=ann"});
        assert_eq!(run(&context), "//user=ann\n");
    }
    assert_eq!(run(&json!({"traceparent": 7, "tracestate": "a=1"})), "//\n");
    let record = record(&daemon, "call", "environment");
    assert_eq!((&record["trace_id"], &record["span_id"]), (&json!(TRACE), &json!(SPAN)));

    let id = peer.next_id();
    peer.send(&call(id, "environment", &json!({}), &context, &json!({"task": {}})));
    let task = peer.answer(id)["result"]["task"]["taskId"].clone();
    let result = peer.result("tasks/result", &json!({"taskId": task}).to_string());
    assert_eq!(result["content"][0]["text"], whole);
}

/// OBS-01: the ids of the trace stand in the status of a job, in the record of its cancel and in its
/// receipt.
#[test]
fn trace_is_in_status_and_receipt() {
    let daemon = traced("");
    let mark = marker();
    let mut peer = daemon.peer();
    let id = peer.next_id();
    let (arguments, context) = (json!({"mark": mark}), json!({"traceparent": parent()}));
    peer.send(&call(id, "long", &arguments, &context, &json!({})));
    peer.wait_started(&[id]);
    let status = peer.result("ceased/status", "{}");
    let job = &status["jobs"][0];
    assert_eq!((&job["traceId"], &job["spanId"]), (&json!(TRACE), &json!(SPAN)), "{status}");
    peer.cancel(id);
    for event in ["cancel_requested", "call", "cancel"] {
        let record = record(&daemon, event, "long");
        assert_eq!((&record["trace_id"], &record["span_id"]), (&json!(TRACE), &json!(SPAN)));
    }
}

/// OBS-01: headers of HTTP count where `_meta` has none, in sessions and without.
#[test]
fn headers_are_the_second_source() {
    let daemon = traced("");
    let other = parent().replace(SPAN, "00000000000000ff");
    let more = [("traceparent", other.as_str()), ("tracestate", "h=1"), ("baggage", "h=2")];
    let session = Session::begin(&daemon, "2025-06-18");
    let run = |context: &Value| {
        let headers = [&session.headers()[..], &more].concat();
        let body = call(1, "environment", &json!({}), context, &json!({}));
        post(&daemon, &headers, &body)["result"]["content"][0]["text"].clone()
    };
    assert_eq!(run(&json!({})), format!("{other}/h=1/h=2\n"));
    assert_eq!(run(&json!({"traceparent": parent()})), format!("{}//h=2\n", parent()));

    let body = modern(3, "tools/call", r#""name":"environment","arguments":{}"#);
    let headers = [&headers("tools/call", "environment")[..], &more].concat();
    let answer = post(&daemon, &headers, &body);
    assert_eq!(answer["result"]["content"][0]["text"], format!("{other}/h=1/h=2\n"));
}

/// OBS-01: a server gets the context as the client wrote it, and one of headers in `_meta`; its call
/// has a record with the ids.
#[test]
fn server_gets_the_context_unchanged() {
    let place = Place::new();
    let daemon = traced(&place.server("a", "run_as = \"daemon\""));
    let session = Session::begin(&daemon, "2025-06-18");
    let parent = parent();
    let headers = [&session.headers()[..], &[("traceparent", parent.as_str())]].concat();
    let get = |more: &Value| {
        let mut params = json!({"name": "a_greet"});
        merge(&mut params, more);
        let body = request(1, "prompts/get", &params.to_string());
        post(&daemon, &headers, &body)["result"]["params"]["_meta"].clone()
    };
    assert_eq!(get(&json!({}))["traceparent"], parent);
    let odd = json!({"traceparent": "odd", "tracestate": "x", "other": 1});
    assert_eq!(get(&json!({"_meta": odd})), odd);
    let body = call(2, "a_pid", &json!({}), &json!({}), &json!({}));
    assert!(post(&daemon, &headers, &body)["result"].is_object());
    let record = record(&daemon, "call", "a_pid");
    assert_eq!((&record["server"], &record["outcome"]), (&json!("a"), &json!("ok")));
    assert_eq!((&record["trace_id"], &record["span_id"]), (&json!(TRACE), &json!(SPAN)));
}

/// A collector of spans that answers each request, or none.
struct Collector {
    address: SocketAddr,
    bodies: Receiver<Value>,
    spans: Vec<Value>,
}

impl Collector {
    fn start(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, bodies) = channel();
        thread::spawn(move || {
            // A connection that is not answered stays open.
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if answers {
                    let body = read_post(&mut stream);
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
                    let _ = sender.send(body);
                }
                open.push(stream);
            }
        });
        Self { address, bodies, spans: Vec::new() }
    }

    fn config(&self, more: &str) -> String {
        format!("[otlp]\nendpoint = \"http://{}\"\n{more}\n", self.address)
    }

    /// Waits for the next span with this name.
    fn span(&mut self, name: &str) -> Value {
        loop {
            if let Some(at) = self.spans.iter().position(|span| span["name"] == name) {
                return self.spans.remove(at);
            }
            let body = self.bodies.recv_timeout(TIME_LIMIT).expect("spans");
            let resource = &body["resourceSpans"][0];
            assert_eq!(attribute(&resource["resource"], "service.name"), "ceased");
            let spans = resource["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
            self.spans.extend(spans);
        }
    }
}

/// The body of a POST to `/v1/traces`.
fn read_post(stream: &mut TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).expect("JSON")
}

/// The text of an attribute; empty without it.
fn attribute(of: &Value, key: &str) -> String {
    let all = of["attributes"].as_array().into_iter().flatten();
    let mut found = all.filter(|attribute| attribute["key"] == key).map(|it| &it["value"]);
    let value = found.next().cloned().unwrap_or_default();
    value["stringValue"].as_str().or(value["intValue"].as_str()).unwrap_or_default().to_owned()
}

/// OBS-01: a call is a span in the trace of its client, and the parent of spans of its command
/// or server; without a trace it begins one.
#[test]
fn each_call_is_a_span() {
    let mut collector = Collector::start(true);
    let place = Place::new();
    let daemon = traced(&(collector.config("") + &place.server("a", "run_as = \"daemon\"")));
    let mut peer = daemon.peer();
    let id = peer.next_id();
    let context = json!({"traceparent": parent(), "tracestate": "a=1"});
    peer.send(&call(id, "environment", &json!({}), &context, &json!({})));
    let printed = peer.text(id);
    let span = collector.span("tools/call environment");
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!((&span["kind"], &span["traceState"]), (&json!(2), &json!("a=1")));
    let own = span["spanId"].as_str().expect("an id").to_owned();
    assert_eq!(printed, format!("00-{TRACE}-{own}-01/a=1/\n"));
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "environment"),
        ("mcp.protocol.version", "2025-11-25"),
        ("network.transport", "unix"),
        ("jsonrpc.request.id", &*id.to_string()),
        ("ceased.outcome", "ok"),
        ("process.exit.code", "0"),
    ] {
        assert_eq!(attribute(&span, key), value, "{key} of {span}");
    }
    assert_eq!(record(&daemon, "call", "environment")["span_id"], own);

    let got = peer.result("prompts/get", r#"{"name":"a_greet"}"#);
    let span = collector.span("prompts/get");
    let [trace, own] = ["traceId", "spanId"].map(|key| span[key].as_str().expect("an id"));
    assert_eq!(got["params"]["_meta"]["traceparent"], format!("00-{trace}-{own}-01"));
    assert_eq!(span["parentSpanId"], Value::Null);
    assert_eq!(attribute(&span, "ceased.server"), "a");

    // A client that does not sample its trace.
    let id = peer.next_id();
    let context = json!({"traceparent": parent().replace("-01", "-00")});
    peer.send(&call(id, "fail", &json!({}), &context, &json!({})));
    peer.answer(id);
    let failed = peer.call("fail", "{}");
    peer.answer(failed);
    let span = collector.span("tools/call fail");
    assert_ne!(span["traceId"], TRACE);
    assert_eq!(
        (attribute(&span, "error.type"), &span["status"]["code"]),
        ("tool_error".into(), &json!(2))
    );
}

/// OBS-01: a request that no job works on is a span, answered or refused; one of ceased itself is none.
/// So is a turn of an agent, with its cancel.
#[test]
fn requests_and_turns_are_spans() {
    let mut collector = Collector::start(true);
    let dir = tempfile::tempdir().unwrap();
    let (script, mark) = (dir.path().join("agent.py"), marker());
    fs::write(&script, AGENT).unwrap();
    let agent = format!(
        "[[agent]]\nname = \"helper\"\nrun_as = \"daemon\"\ncommand = [\"python3\", \"-S\", {script:?}, {:?}, \"resume\", {mark:?}]\n",
        dir.path()
    );
    let daemon = traced(&(collector.config("") + &agent));
    let mut peer = daemon.peer();
    peer.result("ceased/status", "{}");
    let context = json!({"_meta": {"traceparent": parent(), "tracestate": "a=1"}});
    peer.result("tools/list", &context.to_string());
    let span = collector.span("tools/list");
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!((&span["traceState"], &span["status"]), (&json!("a=1"), &Value::Null));
    assert_eq!(attribute(&span, "mcp.method.name"), "tools/list");
    assert_eq!(attribute(&span, "mcp.protocol.version"), "2025-11-25");
    let id = peer.request("tasks/get", r#"{"taskId":"none"}"#);
    peer.answer(id);
    let span = collector.span("tasks/get");
    assert_eq!(attribute(&span, "error.type"), "-32602");
    assert_eq!(attribute(&span, "jsonrpc.request.id"), id.to_string());
    assert_eq!(span["status"]["code"], 2);
    assert!(collector.spans.iter().all(|span| span["name"] != "ceased/status"));

    let mut client = daemon.connect();
    let mut ask = |method: &str, params: Value| {
        let id = client.request(method, &params.to_string());
        client.answer(id)["result"].clone()
    };
    ask("ceased/agent", json!({"agent": "helper"}));
    ask("initialize", json!({"protocolVersion": 1}));
    let session = ask("session/new", json!({"cwd": "/", "mcpServers": []}))["sessionId"].clone();
    let params = json!({"sessionId": session, "prompt": [{"text": "only_session"}],
        "_meta": {"traceparent": parent()}});
    let turn = client.request("session/prompt", &params.to_string());
    wait_until("the turn runs", || {
        let status = daemon.peer().result("ceased/status", r#"{"detail":true}"#);
        status["agents"][0]["clients"][0]["requests"][0]["method"] == "session/prompt"
    });
    client.send(
        &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
            .to_string(),
    );
    assert_eq!(client.answer(turn)["result"]["stopReason"], "cancelled");
    let span = collector.span("session/prompt helper");
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!(attribute(&span, "gen_ai.agent.name"), "helper");
    assert_eq!(attribute(&span, "ceased.outcome"), "stopped");
    assert_eq!(span["events"][0]["name"], "cancel requested", "{span}");
    assert_eq!(attribute(&collector.span("initialize helper"), "ceased.outcome"), "ok");
}

/// OBS-01: the cancel, each signal and the empty containment are events of the span, in order.
#[test]
fn cancel_is_visible_in_the_trace() {
    let mut collector = Collector::start(true);
    let daemon = traced(&collector.config(""));
    let mark = marker();
    let mut peer = daemon.peer();
    let id = peer.call("family", &json!({"t": mark}).to_string());
    wait_for_family(&mark);
    peer.cancel(id);
    let span = collector.span("tools/call family");
    let events = span["events"].as_array().expect("events");
    let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["started", "cancel requested", "SIGTERM", "SIGKILL"], "{span}");
    let last = events.last().unwrap();
    assert_eq!(
        (last["name"].as_str(), attribute(last, "ceased.survivors")),
        (Some("containment empty"), "0".into())
    );
    assert_eq!(attribute(&events[1], "ceased.reason"), "test");
    let time = |event: &Value| event["timeUnixNano"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(events.is_sorted_by_key(time), "{span}");
    assert_eq!(attribute(&span, "error.type"), "requested");
    assert_none_left(&mark);
}

/// OBS-01: a collector that never answers costs no call anything but a count.
#[test]
fn silent_collector_costs_a_counter() {
    let collector = Collector::start(false);
    let more = "timeout = \"100ms\"\nqueue = 1\n[metrics]\nlisten = \"unix:metrics.sock\"";
    let daemon = traced(&collector.config(more));
    let mut peer = daemon.peer();
    for _ in 0..50 {
        let id = peer.call("echo", r#"{"text":"x"}"#);
        assert_eq!(peer.text(id), "x");
    }
    let socket = daemon.home.path().join("metrics.sock");
    // Those of the calls, and of `initialize`.
    wait_until("spans are dropped", || {
        let mut http = Http::unix(&socket);
        http.request("GET /metrics", &[], "");
        let page = http.reply().body;
        let line = page.lines().find_map(|line| line.strip_prefix("ceased_otlp_dropped_total "));
        line.and_then(|count| count.parse::<u64>().ok()) == Some(51)
    });
}
