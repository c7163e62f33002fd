//! `[[agent]]` with `ceased connect --agent`: agents of the daemon, a process a client (SUP-01 to
//! SUP-04).

use std::fs;
use std::process::{Command, Stdio};

use ceased_tests::daemon::{
    Daemon, Home, Peer, Signal, assert_none_left, carriers, marker, wait_until,
};
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};

use crate::wrap_acp::kit::{AGENT, Editor};

/// A directory with the scripted agent, whose processes carry the mark.
struct Place {
    home: Home,
    mark: String,
}

impl Place {
    fn new() -> Self {
        let place = Self { home: Home::new(), mark: marker() };
        fs::write(place.home.path().join("agent.py"), AGENT).unwrap();
        place
    }

    /// An `[[agent]]` table with further lines.
    fn agent(&self, name: &str, more: &str) -> String {
        let (script, dir) = (self.home.path().join("agent.py"), self.home.path());
        let mark = &self.mark;
        format!(
            "[[agent]]\nname = {name:?}\ncommand = [\"python3\", \"-S\", {script:?}, {dir:?}, \"resume\", \
             {mark:?}]\ncancel_grace = \"500ms\"\nkill_grace = \"300ms\"\n{more}\n"
        )
    }

    fn configure(&self, agents: &str) {
        let (socket, audit) = (self.home.socket(), self.home.path().join("audit.jsonl"));
        self.home.configure_as(&format!(
            "[log]\naudit = {audit:?}\n[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n{agents}"
        ));
    }

    fn start(&self, agents: &str) -> Daemon {
        self.configure(agents);
        Daemon::start_in(self.home.clone())
    }

    /// A client of an agent, before its handshake.
    fn connect(&self, agent: &str) -> Editor {
        let command = self.home.command(&["connect", "--agent", agent]);
        Editor::over(command, self.home.path(), &self.mark, false)
    }

    fn editor(&self, agent: &str) -> Editor {
        let mut editor = self.connect(agent);
        editor.greet();
        editor
    }

    /// Exit code and standard error of a bridge that gets no agent.
    fn refused(&self, agent: &str) -> (Option<i32>, String) {
        let ran = self.home.run(&["connect", "--agent", agent]);
        assert_eq!(ran.out, "");
        (ran.code, ran.err)
    }

    /// The records of the audit log.
    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.home.path().join("audit.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Processes of agents.
    fn processes(&self) -> usize {
        carriers(&self.mark).len()
    }
}

/// The agents of a detailed status.
fn agents(peer: &mut Peer) -> Value {
    peer.result("ceased/status", r#"{"detail":true}"#)["agents"].clone()
}

/// SUP-02: a turn that ignores every cancel ends with its processes, and its receipt names the
/// agent; `ps` and `top` show the turn meanwhile.
#[test]
fn cancelled_turn_has_a_receipt_and_shows_in_ps_and_top() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", ""));
    let mut editor = place.editor("helper");
    let session = editor.session();
    editor.prompt(1, &session, "words");
    assert_eq!(editor.answer(&json!(1))["result"]["stopReason"], "end_turn");

    let stray = marker();
    editor.prompt(2, &session, &format!("stray {stray}"));
    wait_until("the stray runs", || !carriers(&stray).is_empty());
    let shown = place.home.run(&["ps"]).out;
    for part in ["AGENT", "helper", "session/prompt", "python3", "sleep"] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    let status: Value = serde_json::from_str(&place.home.run(&["ps", "--json"]).out).unwrap();
    let client = &status["agents"][0]["clients"][0];
    assert_eq!(client["requests"][0]["requestId"], 2, "{status}");
    let peers = status["peers"].as_array().unwrap();
    let of_agent: Vec<&Value> = peers.iter().filter(|it| it["protocol"] == "ACP").collect();
    assert!(peers.len() == 2 && of_agent.len() == 1, "{status}");
    assert_eq!(of_agent[0]["inFlight"], 1, "{status}");
    let instance = client["instance"].to_string();
    let processes = status["host"]["instances"][&instance]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{status}");

    editor.cancel(&session);
    assert_eq!(editor.answer(&json!(2))["result"]["stopReason"], "end_turn");
    assert_none_left(&stray);
    wait_until("the receipt is written", || editor.proofs() == ["children_ended"]);
    let audit = fs::read_to_string(place.home.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"server\":\"helper\""), "{audit}");
    assert_eq!(agents(&mut daemon.peer())[0]["stops"], 1);
    assert!(place.home.run(&["logs", "helper"]).code == Some(0), "its output is kept");
}

/// The number of the only request that agents work on.
fn only_request(place: &Place) -> u64 {
    let mut found = None;
    wait_until("the turn is listed", || {
        let status = place.home.run(&["ps", "--json"]).out;
        let status: Value = serde_json::from_str(&status).unwrap();
        found = status["agents"][0]["clients"][0]["requests"][0]["job"].as_u64();
        found.is_some()
    });
    found.unwrap()
}

/// SUP-02, ACP-12: `ceased cancel` of a turn passes the cancel of the dialect on, and an agent that
/// obeys answers its client itself, once.
#[test]
fn turn_is_cancelled_by_its_number() {
    let place = Place::new();
    let _daemon = place.start(&place.agent("helper", ""));
    let mut editor = place.editor("helper");
    let session = editor.session();
    editor.prompt(1, &session, "only_session");
    let job = only_request(&place);
    let shown = place.home.run(&["ps"]).out;
    assert!(shown.lines().any(|line| line.trim().starts_with(&job.to_string())), "{shown}");
    let ran = place.home.run(&["cancel", "--job", &job.to_string(), "--reason", "too slow"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains(&format!("job {job} session/prompt")), "{}", ran.out);
    assert_eq!(editor.answer(&json!(1))["result"]["stopReason"], "cancelled");
    wait_until("the receipt is written", || editor.proofs() == ["answered"]);
    let audit = place.audit();
    let asked = audit.iter().find(|it| it["event"] == "cancel_requested").unwrap();
    assert_eq!((&asked["method"], &asked["job"]), (&json!("ceased/cancel"), &json!(job)));
    let receipt = audit.iter().find(|it| it["event"] == "cancel").unwrap();
    assert_eq!((&receipt["job"], &receipt["reason"]), (&json!(job), &json!("too slow")));

    // The session goes on, and a cancel of the job that has ended says so.
    editor.prompt(2, &session, "words");
    assert_eq!(editor.answer(&json!(2))["result"]["stopReason"], "end_turn");
    let ran = place.home.run(&["cancel", "--job", &job.to_string()]);
    assert!(ran.code == Some(1) && ran.err.contains(&format!("no job {job}")), "{}", ran.err);
}

/// SUP-02, SUP-03: an agent that ignores the cancel of an operator is replaced; the client gets one
/// answer, and the receipt names the operator.
#[test]
fn turn_that_ignores_an_operator_is_ended() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", ""));
    let mut editor = place.editor("helper");
    let session = editor.session();
    let before = carriers(&place.mark)[0].0;
    editor.prompt(1, &session, "late");
    only_request(&place);
    let ran = place.home.run(&["cancel", "--tool", "session/prompt", "--json"]);
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &said["ended"]), (Some(0), &json!(true)), "{said}{}", ran.err);
    assert!(carriers(&place.mark).iter().all(|(pid, _)| *pid != before), "it has ended");
    assert_eq!(editor.answer(&json!(1))["result"]["stopReason"], "cancelled");
    wait_until("the receipt is written", || editor.proofs() == ["ended"]);
    editor.prompt(2, &session, "words");
    assert_eq!(editor.answer(&json!(2))["result"]["stopReason"], "end_turn");
    assert_eq!(agents(&mut daemon.peer())[0]["replaced"], 1);
}

/// TSK-39: an operator cancels the turn of another identity and is named; another user sees no job.
#[test]
fn operator_cancels_turns_of_others_and_is_named() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", "run_as = \"peer\""));
    let Some(mut client) = daemon.connect_of(1) else { return };
    let id = client.request("ceased/agent", r#"{"agent":"helper"}"#);
    assert_eq!(client.answer(id)["result"], json!({}));
    let id = client.request("initialize", r#"{"protocolVersion":1}"#);
    client.answer(id);
    let id = client.request("session/new", r#"{"cwd":"/","mcpServers":[]}"#);
    let session = client.answer(id)["result"]["sessionId"].clone();
    let params = json!({"sessionId": session, "prompt": [{"text": "only_session"}]});
    let turn = client.request("session/prompt", &params.to_string());
    let job = only_request(&place);

    let Some(mut other) = daemon.peer_of(2) else { return };
    let params = format!(r#"{{"job":{job}}}"#);
    let id = other.request("ceased/cancel", &params);
    assert_eq!(other.answer(id)["error"]["code"], -32602);
    assert_eq!(place.home.run(&["cancel", "--job", &job.to_string()]).code, Some(0));
    assert_eq!(client.answer(turn)["result"]["stopReason"], "cancelled");
    wait_until("the receipt is written", || {
        let audit = place.audit();
        let receipt = audit.iter().find(|it| it["event"] == "cancel");
        receipt.is_some_and(|it| it["identity"] == "uid:1" && it["by"] != "uid:1")
    });
}

/// Two clients have two processes, and each ends with its client, however the client ends.
#[test]
fn each_client_has_a_process_that_ends_with_it() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", ""));
    let (mut one, mut two) = (place.editor("helper"), place.editor("helper"));
    assert_eq!(place.processes(), 2);
    let (first, stray) = (one.session(), marker());
    assert_eq!(two.session(), first, "each process has sessions of its own");
    one.prompt(1, &first, &format!("stray {stray}"));
    wait_until("the stray runs", || !carriers(&stray).is_empty());
    kill_process(Pid::from_child(&one.child), Signal::KILL).unwrap();
    wait_until("nothing is left of it", || carriers(&stray).is_empty() && place.processes() == 1);
    two.prompt(1, &first, "words");
    assert_eq!(two.answer(&json!(1))["result"]["stopReason"], "end_turn");
    two.close_input();
    wait_until("the other one ends", || place.processes() == 0);
    let mut peer = daemon.peer();
    wait_until("no client is left", || agents(&mut peer)[0]["clients"] == json!([]));
}

/// A daemon that stops, or is killed, leaves no agent.
#[test]
fn nothing_is_left_of_agents_without_the_daemon() {
    for signal in [Signal::TERM, Signal::KILL] {
        let place = Place::new();
        let daemon = place.start(&place.agent("helper", ""));
        let mut editor = place.editor("helper");
        let (session, stray) = (editor.session(), marker());
        editor.prompt(1, &session, &format!("stray {stray}"));
        wait_until("the stray runs", || !carriers(&stray).is_empty());
        daemon.signal(signal);
        wait_until("nothing is left", || carriers(&stray).is_empty() && place.processes() == 0);
        if signal == Signal::TERM {
            let answer = editor.answer(&json!(1));
            assert!(answer["error"]["message"].is_string(), "{answer}");
        }
        assert_eq!(editor.child.wait().unwrap().code(), Some(3));
    }
}

/// Without an agent, the bridge says why.
#[test]
fn refusals_name_their_cause() {
    let place = Place::new();
    let more = place.agent("of_another", "allow = [\"uid:1\"]")
        + &place.agent("one", "max_instances = 1")
        + "[[agent]]\nname = \"gone\"\ncommand = [\"/nonexistent/agent\"]\n";
    let daemon = place.start(&more);
    let (code, why) = place.refused("nope");
    assert!(code == Some(2) && why.contains("no agent \"nope\"; there are one, gone"), "{why}");
    let (code, why) = place.refused("of_another");
    assert!(code == Some(2) && why.contains("no agent \"of_another\""), "{why}");

    let mut first = place.editor("one");
    let (code, why) = place.refused("one");
    assert!(code == Some(1) && why.contains("max_instances = 1"), "{why}");
    first.close_input();
    wait_until("the place is free", || place.processes() == 0);
    wait_until("another client gets it", || {
        let mut again = place.home.command(&["connect", "--agent", "one"]);
        again.stdin(Stdio::null()).status().unwrap().success()
    });

    let mut editor = place.connect("gone");
    editor.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}));
    let answer = editor.answer(&json!(1));
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("gone") && why.contains("/nonexistent/agent"), "{why}");

    let mut peer = daemon.peer();
    let id = peer.request("ceased/agent", r#"{"agent":"one"}"#);
    assert_eq!(peer.answer(id)["error"]["code"], -32601, "a session has no agent");
    let mut raw = daemon.connect();
    let id = raw.request("ceased/agent", r#"{"agent":7}"#);
    assert_eq!(raw.answer(id)["error"]["code"], -32602);
}

/// One identity does not take all places of an agent, and idle clients count. The refusal names the
/// agent, the limit and its key.
#[test]
fn identities_share_the_places_of_an_agent() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", "max_instances = 4"));
    let attach = |peer: &mut Peer| {
        let id = peer.request("ceased/agent", r#"{"agent":"helper"}"#);
        peer.answer(id)
    };
    let mut own: Vec<Peer> = (0..3).map(|_| daemon.connect()).collect();
    own.iter_mut().for_each(|peer| assert_eq!(attach(peer)["result"], json!({})));
    let (code, why) = place.refused("helper");
    for part in ["max_instances_per_identity = 3", "helper", "idle ones included"] {
        assert!(code == Some(1) && why.contains(part), "{part}: {why}");
    }
    let Some(mut other) = daemon.connect_of(1) else { return };
    assert_eq!(attach(&mut other)["result"], json!({}), "its place is left");
    let Some(mut third) = daemon.connect_of(2) else { return };
    let refusal = attach(&mut third);
    assert_eq!(refusal["error"]["data"]["limit"], "max_instances", "{refusal}");
    drop(own.pop());
    wait_until("the place is free", || {
        let Some(mut again) = daemon.connect_of(2) else { return true };
        attach(&mut again)["result"] == json!({})
    });
}

/// `ceased restart AGENT`: a turn under way finishes, then another process with the keys of the
/// latest configuration has the session of the client.
#[test]
fn restart_replaces_the_process_of_each_client() {
    let place = Place::new();
    let _daemon = place.start(&place.agent("helper", ""));
    let (mut busy, mut idle) = (place.editor("helper"), place.editor("helper"));
    let sessions = (busy.session(), idle.session());
    busy.prompt(1, &sessions.0, "ask");
    let asked = busy.hear();
    assert_eq!(asked["method"], "session/request_permission", "{asked}");
    let before: Vec<i32> = carriers(&place.mark).iter().map(|(pid, _)| *pid).collect();
    assert_eq!(before.len(), 2);
    place.configure(&place.agent("helper", "env = { RENEWED = \"1\" }"));
    assert_eq!(place.home.run(&["reload"]).code, Some(0));
    let ran = place.home.run(&["restart", "helper"]);
    assert!(ran.code == Some(0) && (ran.out + &ran.err).contains("2 instances are replaced"));
    wait_until("the idle one has ended", || place.processes() == 1);
    idle.prompt(1, &sessions.1, "words");
    assert_eq!(idle.answer(&json!(1))["result"]["stopReason"], "end_turn");
    // The other one waits for its client.
    busy.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}));
    assert_eq!(busy.answer(&json!(1))["result"]["stopReason"], "end_turn");
    busy.prompt(2, &sessions.0, "words");
    assert_eq!(busy.answer(&json!(2))["result"]["stopReason"], "end_turn");
    let after: Vec<i32> = carriers(&place.mark).iter().map(|(pid, _)| *pid).collect();
    assert!(after.len() == 2 && after.iter().all(|pid| !before.contains(pid)), "{after:?}");
    for pid in after {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(env.split(|byte| *byte == 0).any(|it| it == b"RENEWED=1"));
    }
    let ran = place.home.run(&["restart", "nothing"]);
    let said = ran.out + &ran.err;
    assert!(ran.code == Some(2) && said.contains("no server or agent \"nothing\""), "{said}");
}

/// Requests behind a restart are listed with their state, and cancelled by their number.
#[test]
fn request_behind_a_restart_is_listed_and_cancelled() {
    let place = Place::new();
    let _daemon = place.start(&place.agent("helper", ""));
    let mut editor = place.editor("helper");
    let session = editor.session();
    editor.prompt(1, &session, "ask");
    let asked = editor.hear();
    assert_eq!(asked["method"], "session/request_permission", "{asked}");
    assert_eq!(place.home.run(&["restart", "helper"]).code, Some(0));
    editor.prompt(2, &session, "words");
    editor.prompt(3, &session, "words");
    let mut waiting = Vec::new();
    wait_until("both are listed", || {
        let status: Value = serde_json::from_str(&place.home.run(&["ps", "--json"]).out).unwrap();
        let all = status["agents"][0]["clients"][0]["requests"].as_array().unwrap().clone();
        waiting = all.into_iter().filter(|it| it["state"] == "waiting").collect();
        waiting.len() == 2
    });
    assert_eq!((&waiting[0]["requestId"], &waiting[1]["requestId"]), (&json!(2), &json!(3)));
    assert_eq!(waiting[0]["waiting"], "the restart of the agent");
    let job = waiting[0]["job"].to_string();
    let shown = place.home.run(&["ps"]).out;
    let row = shown.lines().find(|line| line.trim().starts_with(&job)).expect(&shown);
    assert!(row.ends_with("waiting session/prompt for the restart of the agent"), "{shown}");
    let ran = place.home.run(&["cancel", "--job", &job]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert_eq!(editor.answer(&json!(2))["result"]["stopReason"], "cancelled");
    wait_until("the receipt is written", || editor.proofs() == ["unsent"]);
    // The turn before it and the prompt behind it are not disturbed.
    editor.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}));
    assert_eq!(editor.answer(&json!(1))["result"]["stopReason"], "end_turn");
    assert_eq!(editor.answer(&json!(3))["result"]["stopReason"], "end_turn");
    assert_eq!(editor.proofs(), ["unsent"]);
}

/// A reload changes the agent of new clients; the agent of a client that has one goes on.
#[test]
fn reload_changes_agents_of_new_clients() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", ""));
    let mut old = place.editor("helper");
    let session = old.session();
    place.configure(&place.agent("other", ""));
    assert_eq!(place.home.run(&["reload"]).code, Some(0));
    let (code, why) = place.refused("helper");
    assert!(code == Some(2) && why.contains("there are other"), "{why}");
    let mut new = place.editor("other");
    new.session();
    old.prompt(1, &session, "words");
    assert_eq!(old.answer(&json!(1))["result"]["stopReason"], "end_turn");
    let all = agents(&mut daemon.peer());
    let names: Vec<&Value> = all.as_array().unwrap().iter().map(|it| &it["agent"]).collect();
    assert_eq!(names, ["other", "helper"]);
}

/// TSK-39: an agent runs as its client where the table says so, and another identity sees neither
/// the agent nor its turns.
#[test]
fn agent_runs_as_its_client() {
    let place = Place::new();
    let daemon = place.start(&place.agent("helper", "run_as = \"peer\"\nallow = [\"uid:1\"]"));
    let Some(mut peer) = daemon.connect_of(1) else { return };
    let id = peer.request("ceased/agent", r#"{"agent":"helper"}"#);
    assert_eq!(peer.answer(id)["result"], json!({}));
    let id = peer.request("initialize", r#"{"protocolVersion":1}"#);
    assert_eq!(peer.answer(id)["result"]["protocolVersion"], 1);
    let pid = carriers(&place.mark)[0].0;
    let found = Command::new("ps").args(["-o", "uid=", "-p", &pid.to_string()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), "1");
    let Some(mut other) = daemon.peer_of(2) else { return };
    assert_eq!(agents(&mut other), Value::Null);
    let Some(mut own) = daemon.peer_of(1) else { return };
    assert_eq!(agents(&mut own)[0]["clients"][0]["identity"], "uid:1");
}

/// `ceased check` lists agents, and reports tables that are wrong.
#[test]
fn check_lists_agents_and_reports_wrong_ones() {
    let place = Place::new();
    place
        .configure(&place.agent("helper", "turn_timeout = \"30m\"\nenv = { KEY = \"hush-4711\" }"));
    let ran = place.home.run(&["check"]);
    let said = ran.out + &ran.err;
    for part in ["agent helper", "turn_timeout 30m, stall_timeout off", "env KEY"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("hush-4711"), "{said}");
    let checked = place.home.run(&["check", "--json"]).out;
    let checked: Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(checked["agents"][0]["name"], "helper", "{checked}");
}
