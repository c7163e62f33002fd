//! The live view in a headless Chromium.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Daemon, carriers, marker, wait_for_family, wait_until};
use ceased_tests::workspace;
use serde_json::{Value, json};

use crate::durable::fleet;
use crate::wrap_acp::kit::AGENT;

use super::chromium::{FOREIGN_HOST, Page};
use super::kit::{OPEN, TOKEN, connect, daemon_with, headers, modern, wait_gone};

const WITH_TOKENS: &str = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
                           token_file = \"{home}/http-tokens\"\n";

/// A tool whose progress and processes have names that a page could take for markup.
const HOSTILE: &str = r#"
[[tool]]
name = "hostile"
run_as = "daemon"
command = ["sh", "-c", 'echo "1/2 <img src=x onerror=document.title=1><b>bold</b>" >&3; exec sleep "$1"', "<script>document.title=2</script>", "{t}"]
[tool.input.t]
type = "string"
required = true
"#;

fn address(daemon: &Daemon) -> String {
    format!("http://127.0.0.1:{}/", daemon.http_address().port())
}

/// Begins a call with the token; its answer can be read from the connection.
fn begin(daemon: &Daemon, tool: &str, mark: &str) -> Http {
    let mut http = connect(daemon);
    let body = modern(1, "tools/call", &format!(r#""name":"{tool}","arguments":{{"t":"{mark}"}}"#));
    let bearer = format!("Bearer {TOKEN}");
    let mut headers = headers("tools/call", tool);
    headers.push(("authorization", &bearer));
    http.post(&headers, &body);
    http
}

/// Opens the page and enters the token.
fn open(page: &mut Page, daemon: &Daemon) {
    page.open(&address(daemon));
    page.wait("the token is asked for", SHOWS_FORM);
    page.type_text(TOKEN);
    page.press("Enter");
    page.wait("the page is live", LIVE);
}

const LIVE: &str = "document.getElementById('link').textContent === 'live'";
const SHOWS_FORM: &str = "!document.getElementById('token-form').hidden \
                          && document.activeElement.id === 'token'";

/// Whether a section has exactly one row, and that contains these texts.
fn row(section: &str, texts: &[&str]) -> String {
    format!(
        "(rows => rows.length === 1 && {}.every(text => rows[0].textContent.includes(text)))\
         (document.querySelectorAll('#{section} li.row'))",
        json!(texts)
    )
}

/// The name of the user of the tests, which a view shows instead of the number.
fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().expect("id runs");
    String::from_utf8(output.stdout).expect("a name").trim().to_owned()
}

fn text(page: &mut Page, selector: &str) -> String {
    let value = page.value(&format!("document.querySelector({}).textContent", json!(selector)));
    value.as_str().unwrap_or_default().to_owned()
}

/// CAN-13: a job is listed with its owner and processes, found by the filter, and cancelled by
/// keys; its receipt tells that no process is left.
#[test]
fn job_is_shown_and_cancelled_by_keyboard() {
    let Some(mut page) = Page::start() else { return };
    let daemon = daemon_with(WITH_TOKENS);
    let mark = marker();
    let mut call = begin(&daemon, "family", &mark);
    wait_for_family(&mark);
    page.open(&address(&daemon));
    page.wait("the token is asked for", SHOWS_FORM);
    page.type_text(&"9".repeat(32));
    page.press("Enter");
    page.wait(
        "a wrong token is refused",
        &format!("{SHOWS_FORM} && document.getElementById('token-problem').textContent !== ''"),
    );
    assert_eq!(page.value("localStorage.getItem('ceased.token')"), Value::Null);
    page.type_text(TOKEN);
    page.press("Enter");
    page.wait("the page is live", LIVE);
    let parts =
        ["family", "token:ann", "running", "ago", "├ ", "└ ", "sleep", "% CPU", "6 processes"];
    page.wait("the job is listed", &row("jobs", &parts));
    // Its processes report 1, 2 and 3 of 3 in any order.
    page.wait("its progress is shown", "document.querySelector('#jobs progress').value > 0");
    // Filter.
    page.press("/");
    page.type_text("nothing has this name");
    page.wait("the filter hides it", "!document.querySelector('#jobs li.row')");
    assert!(text(&mut page, "#jobs .empty").contains("filter"));
    page.press("Escape");
    page.press("/");
    page.type_text("FAMILY");
    page.wait("the filter shows it", &row("jobs", &["family"]));
    page.press("Escape");
    // Its argument is shown, and found.
    page.press("/");
    page.type_text(&format!("t={mark}"));
    page.wait("the filter finds an argument", &row("jobs", &["family", &format!("t={mark}")]));
    page.press("Escape");
    // No client has an agent, so that there is no word of one.
    assert_eq!(page.value("document.getElementById('agents').hidden"), json!(true));
    // Cancel, first without its confirmation.
    page.press("j");
    page.press("c");
    page.wait("it is asked", "document.activeElement.matches('button.stop')");
    page.press("Escape");
    page.wait("it is kept", "document.activeElement.matches('button.cancel')");
    assert_eq!(carriers(&mark).len(), 6);
    page.press("c");
    page.wait("it is asked", "document.activeElement.matches('button.stop')");
    page.press("Enter");
    page.wait(
        "the page says so",
        "document.getElementById('said').textContent.includes('stopping')",
    );
    wait_gone(&mark);
    let parts = ["family", "token:ann", "ceased", "0 left", "live view", "by token:ann"];
    page.wait("the receipt is listed", &row("receipts", &parts));
    page.wait("no job is listed", "!document.querySelector('#jobs li.row')");
    let headline = "6 processes ended, 0 left, in ";
    page.wait(
        "the receipt says so first",
        &format!(
            "document.querySelector('#view li.row .headline').textContent.startsWith('{headline}')"
        ),
    );
    page.wait("the call is listed as ended", &row("ended", &["family", "stopped", headline]));
    assert_eq!(call.answer()["result"]["isError"], json!(true));
    // The browser keeps the token, until it is told to forget it.
    page.value("window.isOld = true");
    page.order("Page.reload", &json!({}));
    page.wait("the page is live again", &format!("!window.isOld && {LIVE}"));
    page.wait("the receipt is listed again", &row("receipts", &parts));
    page.value("document.getElementById('forget').click()");
    page.wait("the token is asked for again", SHOWS_FORM);
    assert_eq!(page.value("localStorage.getItem('ceased.token')"), Value::Null);
    assert_eq!(page.value("document.querySelectorAll('#view li.row').length"), json!(0));
    assert_eq!(page.take_errors(), Vec::<String>::new());
}

/// SUP-02: a turn of an agent is listed with its processes, and its button cancels it.
#[test]
fn turn_of_an_agent_is_shown_and_cancelled() {
    let Some(mut page) = Page::start() else { return };
    let (dir, mark) = (tempfile::tempdir().unwrap(), marker());
    let script = dir.path().join("agent.py");
    fs::write(&script, AGENT).unwrap();
    let daemon = daemon_with(&format!(
        "{OPEN}[[agent]]\nname = \"helper\"\ncommand = [\"python3\", \"-S\", {script:?}, {:?}, \"resume\", \
         {mark:?}]\n",
        dir.path()
    ));
    let mut client = daemon.connect();
    let mut ask = |method: &str, params: Value| {
        let id = client.request(method, &params.to_string());
        client.answer(id)["result"].clone()
    };
    ask("ceased/agent", json!({"agent": "helper"}));
    ask("initialize", json!({"protocolVersion": 1}));
    let session = ask("session/new", json!({"cwd": "/", "mcpServers": []}))["sessionId"].clone();
    let params = json!({"sessionId": session, "prompt": [{"text": "only_session"}]});
    let turn = client.request("session/prompt", &params.to_string());

    let link = daemon.peer().result("ceased/view", "{}")["url"].as_str().map(str::to_owned);
    page.open(&link.expect("a link"));
    page.wait("the page is live", LIVE);
    let shows = |texts: &[&str]| {
        format!(
            "[...document.querySelectorAll('#agents li.row')].some(row => \
             {}.every(text => row.textContent.includes(text)))",
            json!(texts)
        )
    };
    page.wait("the client is listed", &shows(&["helper", "ready", "└ ", "python3"]));
    page.wait(
        "the turn is listed",
        &shows(&["helper session/prompt", &user(), "running", "Cancel"]),
    );
    page.value("document.querySelector('#agents button.cancel').click()");
    page.wait("it is asked", "document.activeElement.matches('#agents button.stop')");
    page.press("Enter");
    let by = format!("live view, by {}", user());
    let parts = ["session/prompt", "ended by an answer of the server in ", &by];
    page.wait("the receipt is listed", &row("receipts", &parts));
    assert_eq!(text(&mut page, "#receipts .state"), "answered");
    assert_eq!(page.value("!!document.querySelector('#receipts .state.good')"), json!(true));
    page.wait("no turn is listed", "!document.querySelector('#agents button.cancel')");
    assert_eq!(client.answer(turn)["result"]["stopReason"], "cancelled");
    assert_eq!(page.take_errors(), Vec::<String>::new());
}

/// UPS-16: the receipt of a relayed request shows the daemon's sentence about its end, and asks to
/// check exactly those without an established end.
#[test]
fn every_proof_of_an_end_has_its_state() {
    let Some(mut page) = Page::start() else { return };
    let daemon = daemon_with(OPEN);
    page.open(&address(&daemon));
    page.wait("the page is live", LIVE);
    for (proof, ended, survivors, state) in [
        ("unsent", json!(0), json!(0), "ceased"),
        ("told", json!(0), Value::Null, "check"),
        ("answered", json!(0), Value::Null, "answered"),
        ("quiet", json!(0), json!(0), "ceased"),
        ("children_ended", json!(2), json!(0), "ceased"),
        ("replaced", Value::Null, json!(0), "ceased"),
        ("ended", Value::Null, json!(0), "ceased"),
    ] {
        let receipt = json!({"job": 1, "why": "requested", "by": "uid:1", "server": "s",
            "processes_ended": ended, "survivors": survivors, "died_after_ms": null,
            "ended_ago_ms": 1, "proof": proof, "end": "a sentence"});
        let rows = format!("receiptRows({})", json!({"host": {"receipts": [receipt]}}));
        let row = page.value(&format!("JSON.stringify({rows}[0])"));
        let row: Value = serde_json::from_str(row.as_str().expect("a row")).expect("JSON");
        assert_eq!(row["state"]["text"], state, "{proof}");
        let text = format!("requested, by uid:1; server s: {proof}");
        assert_eq!((&row["headline"], &row["details"]), (&json!("a sentence"), &json!([text])));
    }
}

/// TSK-39: a link of `ceased view` shows the jobs of its user without a token, and cancels them.
#[test]
fn link_shows_and_cancels_the_jobs_of_its_user() {
    let Some(mut page) = Page::start() else { return };
    let daemon = daemon_with(OPEN);
    let mark = marker();
    let mut peer = daemon.peer();
    peer.call("family", &format!(r#"{{"t":"{mark}"}}"#));
    wait_for_family(&mark);
    let link = || daemon.peer().result("ceased/view", "{}")["url"].as_str().map(str::to_owned);
    let first = link().expect("a link");
    page.open(&first);
    page.wait("the page is live", LIVE);
    page.wait("the job is listed", &row("jobs", &["family", &user(), "running", "sleep"]));
    assert_eq!(page.value("location.hash"), json!(""));
    assert_eq!(page.value("localStorage.getItem('ceased.token')"), Value::Null);
    // The tab keeps its token.
    page.value("window.isOld = true");
    page.order("Page.reload", &json!({}));
    page.wait("the page is live again", &format!("!window.isOld && {LIVE}"));
    page.wait("the job is listed again", &row("jobs", &["family"]));
    page.press("j");
    page.press("c");
    page.press("Enter");
    wait_gone(&mark);
    page.wait(
        "the receipt is listed",
        &row("receipts", &["family", "0 left", &format!("by {}", user())]),
    );
    // The link is used up: opened in the same tab and after the token is forgotten.
    page.value("document.getElementById('forget').click()");
    page.wait(
        "nothing is shown",
        "document.getElementById('summary').textContent.includes('anonymous')",
    );
    page.value(&format!("location.hash = {}", json!(first.split_once('#').expect("a code").1)));
    page.wait(
        "the used link is refused",
        "document.getElementById('token-problem').textContent.includes('ceased view')",
    );
    let second = link().expect("a link");
    page.value(&format!("location.hash = {}", json!(second.split_once('#').expect("a code").1)));
    page.wait("a new link works in the same tab", &row("receipts", &["family", "0 left"]));
    assert_eq!(page.take_errors(), Vec::<String>::new());
}

/// Texts of peers and tools stay texts.
/// FLT-03: the view of one node shows all nodes, and a task of another one with that node; it is cancelled there
/// by keys, and its work ceases.
#[test]
fn task_of_another_node_is_shown_and_cancelled() {
    let _alone = fleet::alone();
    let Some(server) = fleet::server::Server::start() else { return };
    let Some(mut page) = Page::start() else { return };
    let (a, b) = (fleet::node(&server, "a", "", ""), fleet::node(&server, "b", OPEN, ""));
    let mark = marker();
    let task = fleet::created(&mut a.peer(), "family", &json!({"t": mark}).to_string());
    wait_for_family(&mark);
    let link = b.peer().result("ceased/view", "{}")["url"].as_str().map(str::to_owned);
    page.open(&link.expect("a link"));
    page.wait("the page is live", LIVE);
    page.wait("the task is listed", &row("tasks", &[&task[..8], "working", "at the node a"]));
    let summary = text(&mut page, "#summary");
    assert!(summary.contains("node b of b (0 live), a (1 live)"), "{summary}");
    assert_eq!(page.value("document.querySelectorAll('#jobs li.row').length"), json!(0));
    page.value("document.querySelector('#tasks li.row').focus()");
    page.press("c");
    page.wait("it is asked", "document.activeElement.matches('button.stop')");
    page.press("Enter");
    let said = "document.getElementById('said').textContent.includes('the node a stops its work')";
    page.wait("the page says so", said);
    wait_gone(&mark);
    page.wait("its end is shown", &row("tasks", &[&task[..8], "cancelled", "its work: ceased"]));
    page.wait("it is not cancelled again", "!document.querySelector('#tasks button')");
    assert_eq!(page.take_errors(), Vec::<String>::new());
}

#[test]
fn hostile_texts_are_shown_as_text() {
    let Some(mut page) = Page::start() else { return };
    let daemon = daemon_with(&format!("{WITH_TOKENS}{HOSTILE}"));
    let mark = marker();
    let mut call = begin(&daemon, "hostile", &mark);
    open(&mut page, &daemon);
    page.wait("the job is listed", &row("jobs", &["<img src=x onerror=", "<b>bold</b>"]));
    let job = page.value("Number(document.querySelector('#jobs .id').textContent.slice(1))");
    let bearer = format!("Bearer {TOKEN}");
    let mut headers = headers("ceased/cancel", "");
    headers.push(("authorization", &bearer));
    let reason = r#""reason":"<i>italic</i> \u202egnp.exe <script>document.title=3</script>""#;
    let body = modern(1, "ceased/cancel", &format!(r#""job":{job},{reason}"#));
    assert_eq!(connect(&daemon).exchange(&headers, &body).status, 200);
    page.wait("the receipt is listed", &row("receipts", &["<i>italic</i>", "<script>"]));
    let marks = "/[\\u0000-\\u0008\\u202a-\\u202e]/.test(document.body.textContent)";
    assert_eq!(page.value(marks), json!(false));
    let made = "document.querySelectorAll('#view :is(img, b, i, script, a)').length";
    assert_eq!(page.value(made), json!(0));
    assert!(text(&mut page, "title").contains("ceased"));
    assert_eq!(page.take_errors(), Vec::<String>::new());
    assert_eq!(call.answer()["result"]["isError"], json!(true));
}

/// Without tokens the page needs none. It is readable on a phone, in light and dark.
#[test]
fn page_works_without_tokens_and_on_a_phone() {
    let Some(mut page) = Page::start() else { return };
    let daemon = daemon_with(OPEN);
    page.resize(360, 740);
    page.prefer("light");
    page.open(&address(&daemon));
    page.wait("the page is live", LIVE);
    assert_eq!(page.value("document.getElementById('token-form').hidden"), json!(true));
    assert!(text(&mut page, "#summary").contains("anonymous"));
    assert!(text(&mut page, "#notice").contains("token_file"));
    let width = "document.documentElement.scrollWidth <= innerWidth && innerWidth === 360";
    assert_eq!(page.value(width), json!(true));
    let colour = "getComputedStyle(document.body).backgroundColor";
    let light = page.value(colour);
    page.prefer("dark");
    assert_ne!(page.value(colour), light);
    assert_eq!(page.take_errors(), Vec::<String>::new());
}

/// A page of another origin: it tries to read, to call and to cancel in every way of a page.
const FOREIGN_PAGE: &str = r#"<!doctype html><title>evil</title><script>
async function attempt(make) {
  try {
    const response = await make();
    return response.type === "opaque" ? "opaque" : `read ${response.status}`;
  } catch { return "refused"; }
}
async function attempts(base, token, body) {
  const json = { "content-type": "application/json", accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28", "mcp-method": JSON.parse(body).method };
  const bearer = { authorization: `Bearer ${token}` };
  const frame = document.createElement("iframe");
  const framed = new Promise((done) => { frame.onload = frame.onerror = done; setTimeout(done, 5000); });
  frame.src = base;
  document.body.append(frame);
  const found = [
    await attempt(() => fetch(base)),
    await attempt(() => fetch(base + "events")),
    await attempt(() => fetch(base + "events", { headers: bearer })),
    await attempt(() => fetch(base + "events", { credentials: "include", mode: "no-cors" })),
    await attempt(() => fetch(base + "mcp", { method: "POST", headers: json, body })),
    await attempt(() => fetch(base + "mcp", { method: "POST", headers: { ...json, ...bearer }, body })),
    await attempt(() => fetch(base + "mcp", { method: "POST", mode: "no-cors", body })),
  ];
  const sent = navigator.sendBeacon(base + "mcp", new Blob([body], { type: "text/plain" }));
  await framed;
  let inside = "closed";
  try { inside = frame.contentDocument.body.innerText; } catch { /* another origin */ }
  return { found, sent, inside };
}
</script><body>"#;

/// Serves a page at a port of its own; returns the port.
fn serve(page: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes);
            let length = page.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(format!("{head}{page}").as_bytes());
        }
    });
    port
}

/// HTTP-02: a page of another origin reads nothing, calls nothing and cancels nothing, even if it
/// knows the token; nor does it with a name that was pointed at this machine.
#[test]
fn page_of_another_origin_can_do_nothing() {
    let Some(mut page) = Page::start() else { return };
    let port = serve(FOREIGN_PAGE);
    for listener in [OPEN, WITH_TOKENS] {
        let daemon = daemon_with(listener);
        let (mark, never) = (marker(), marker());
        let mut call = begin(&daemon, "hang", &mark);
        wait_until("the job runs", || carriers(&mark).len() == 1);
        page.open(&format!("http://{FOREIGN_HOST}:{port}/"));
        let bodies = [
            modern(1, "tools/call", &format!(r#""name":"hang","arguments":{{"t":"{never}"}}"#)),
            modern(2, "ceased/cancel", r#""job":1"#),
            modern(3, "ceased/shutdown", ""),
        ];
        for body in bodies {
            let (base, token) = (json!(address(&daemon)), json!(TOKEN));
            let found = page.value(&format!("attempts({base}, {token}, {})", json!(body)));
            for answer in found["found"].as_array().expect("a list") {
                assert!(matches!(answer.as_str(), Some("refused" | "opaque")), "{found}");
            }
            let inside = found["inside"].as_str().unwrap_or_default();
            assert!(inside.is_empty() || inside == "closed", "{found}");
        }
        // The same port under a name of the other origin.
        let rebound = format!("http://{FOREIGN_HOST}:{}/", daemon.http_address().port());
        page.open(&rebound);
        let shown = page.value("document.body.innerText");
        assert!(shown.as_str().is_some_and(|text| text.contains("Host")), "{shown}");
        let events = page.value("fetch('events').then(it => it.status)");
        assert_eq!(events, json!(403));
        // The daemon has taken none of it: the job runs, and no other has begun.
        assert_eq!((carriers(&mark).len(), carriers(&never).len()), (1, 0));
        let status = daemon.status();
        assert_eq!((&status["running"], &status["queued"]), (&json!(1), &json!(0)), "{status}");
        page.open("about:blank");
        let job = status["jobs"][0]["job"].clone();
        daemon.peer().result("ceased/cancel", &json!({"job": job}).to_string());
        assert_eq!(call.answer()["result"]["isError"], json!(true));
    }
}

/// A page that may call: it sends every header of the protocol, and so has the browser ask first.
const FRIENDLY_PAGE: &str = r#"<!doctype html><title>client</title><script>
async function speak(base, token, name) {
  const meta = { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call",
    params: { name: "echo", arguments: { text: "hello" }, _meta: meta } });
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo", [name]: "x",
    authorization: `Bearer ${token}`, traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tracestate: "a=1", baggage: "b=2", "last-event-id": "0" };
  try {
    const response = await fetch(base + "mcp", { method: "POST", headers, body });
    return { status: response.status, challenge: response.headers.get("www-authenticate"), text: await response.text() };
  } catch (error) { return { refused: String(error) }; }
}
</script>"#;

/// HTTP-02, AUTH-01: a browser's preflight lets a page of `allow_origins` send the headers of the
/// protocol and read the answer and the challenge; no other header, and no page of another origin.
#[test]
fn preflight_of_a_browser_admits_a_listed_page() {
    let Some(mut page) = Page::start() else { return };
    let port = serve(FRIENDLY_PAGE);
    let origin = format!("http://{FOREIGN_HOST}:{port}");
    let listed = format!("{WITH_TOKENS}allow_origins = [{origin:?}]\n");
    for (listener, token, header, expected) in [
        (&*listed, TOKEN, "mcp-param-region", Some(200)),
        (&*listed, "wrong", "mcp-param-region", Some(401)),
        (&*listed, TOKEN, "x-other", None),
        (WITH_TOKENS, TOKEN, "mcp-param-region", None),
    ] {
        let daemon = daemon_with(listener);
        page.open(&format!("{origin}/"));
        let (base, token, header) = (json!(address(&daemon)), json!(token), json!(header));
        let found = page.value(&format!("speak({base}, {token}, {header})"));
        assert_eq!(found["status"].as_u64(), expected, "{header}: {found}");
        match expected {
            Some(200) => assert!(found["text"].to_string().contains("hello"), "{found}"),
            Some(_) => assert!(found["challenge"].to_string().contains("Bearer"), "{found}"),
            None => assert!(found["refused"].is_string(), "{found}"),
        }
    }
}

/// Tools of the picture.
const BUILD: &str = r#"
[[tool]]
name = "build"
run_as = "daemon"
command = ["sh", "-c", 'echo "41/97 Compiling tokenizer v0.3.1" >&3; sh -c "sleep $1 & sleep $1" cc "$1" & sleep "$1" & wait', "make", "{t}"]
[tool.input.t]
type = "string"
required = true
[[tool]]
name = "test"
run_as = "daemon"
command = ["sleep", "{t}"]
[tool.input.t]
type = "string"
required = true
"#;

/// The picture of the book, written with `CEASED_PICTURE` set; otherwise the page is only shown.
#[test]
fn picture_of_the_book() {
    let Some(mut page) = Page::start() else { return };
    let daemon = daemon_with(&format!("{WITH_TOKENS}{BUILD}"));
    let marks = [marker(), marker()];
    // Connections race: the second job is the second row only if the first one runs already.
    let mut calls = vec![begin(&daemon, "build", &marks[0])];
    wait_until("the first job runs", || carriers(&marks[0]).len() == 5);
    calls.push(begin(&daemon, "test", &marks[1]));
    wait_until("the second job runs", || carriers(&marks[1]).len() == 1);
    page.resize(760, 760);
    page.prefer("light");
    open(&mut page, &daemon);
    let two = "document.querySelectorAll('#jobs li.row').length === 2";
    page.wait("both jobs are listed", two);
    page.press("j");
    page.press("j");
    page.press("c");
    page.press("Enter");
    page.wait("the receipt is listed", &row("receipts", &["test", "0 left"]));
    page.press("k");
    page.wait("the tree is listed", &row("jobs", &["├ ", "Compiling"]));
    page.value("scrollTo(0, 0)");
    let take = |page: &mut Page, name: &str| {
        if std::env::var_os("CEASED_PICTURE").is_some() {
            let picture = decoded(&page.picture());
            fs::write(workspace::root().join("docs/src").join(name), picture)
                .expect("it is written");
        }
    };
    take(&mut page, "view.png");
    page.resize(390, 780);
    page.prefer("dark");
    let width = "document.documentElement.scrollWidth <= innerWidth && innerWidth === 390";
    page.wait("it fits on a phone", width);
    take(&mut page, "view-phone.png");
    assert_eq!(calls.remove(1).answer()["result"]["isError"], json!(true));
}

/// Bytes of a text in base64.
fn decoded(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|byte| digits.iter().position(|it| *it == byte)) {
        held = (held << 6 | u32::try_from(digit).expect("below 64")) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).expect("a byte"));
        }
    }
    bytes
}
