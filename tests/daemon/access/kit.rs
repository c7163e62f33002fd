//! Peers of other users and of tokens, and every attack of one identity on another.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{Daemon, Home, Peer};
use rustix::process::{Gid, Uid};
use serde_json::{Value, json};

/// Whether this test may change its user; prints a line if not.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: two users require root");
    }
    is_root
}

/// A connection of another user without supplementary groups.
pub(crate) fn connect_as(home: &Home, uid: u32, gid: u32) -> Peer {
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(home.path(), open).expect("the home is ours");
    let path = home.socket();
    // Credentials belong to a thread, so a temporary thread changes them.
    let connected = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[]).expect("root can give up groups");
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root can change its group");
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root can change its user");
        UnixStream::connect(path).expect("the socket is open to every user")
    });
    Peer::of_socket(connected.join().expect("it connects").into())
}

/// As [`connect_as`], after the handshake.
pub(crate) fn peer_as(home: &Home, uid: u32) -> Peer {
    let mut peer = connect_as(home, uid, uid);
    peer.initialize();
    peer
}

/// A configuration with a Unix socket open to every user, these lines for it, and further tables.
pub(crate) fn configure(home: &Home, listen: &str, more: &str) {
    home.configure_as(&format!(
        "[[listen]]\ntransport = \"unix\"\npath = {:?}\nmode = \"0666\"\n{listen}\n{more}\n\
         [[tool]]\nname = \"sleep\"\nbuiltin = \"sleep\"\ntask_support = \"optional\"\n\
         [[tool]]\nname = \"echo\"\nbuiltin = \"echo\"\n\
         [[tool]]\nname = \"asks\"\ncommand = [\"echo\", \"ran\"]\n\
         run_as = \"daemon\"\nconfirm = \"Really?\"\n",
        home.socket()
    ));
}

/// A token file in the daemon's home.
pub(crate) fn write_tokens(home: &Home, text: &str) -> PathBuf {
    use std::io::Write as _;
    let path = home.path().join("tokens");
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&path).expect("a token file can be created");
    file.write_all(text.as_bytes()).expect("the file can be written");
    path
}

/// First answer to a connection that presents a token.
pub(crate) fn authenticate(peer: &mut Peer, token: &str) -> Value {
    let id = peer.request("ceased/authenticate", &json!({"token": token}).to_string());
    peer.answer(id)
}

/// A TCP peer with a token, after the handshake.
pub(crate) fn peer_with(daemon: &Daemon, token: &str) -> Peer {
    let mut peer = daemon.connect_tcp();
    assert_eq!(authenticate(&mut peer, token)["result"], json!({}));
    peer.initialize();
    peer
}

const CLAIM: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

/// Sends every request about another identity's task and about an unknown task: the answers are
/// equal.
pub(crate) fn attack(attacker: &mut Peer, task: &str) {
    const NEVER: &str = "00000000-0000-4000-8000-000000000000";
    let methods: [(&str, &str, &str); 6] = [
        ("tasks/get", "", ""),
        ("tasks/result", "", ""),
        ("tasks/cancel", "", ""),
        ("tasks/get", CLAIM, ""),
        ("tasks/cancel", CLAIM, ""),
        ("tasks/update", CLAIM, r#""inputResponses":{}"#),
    ];
    for (method, claim, more) in methods {
        let mut told = [task, NEVER].map(|id| {
            let members = [format!("\"taskId\":\"{id}\""), more.to_owned(), claim.to_owned()];
            let members: Vec<String> = members.into_iter().filter(|m| !m.is_empty()).collect();
            let asked = attacker.request(method, &format!("{{{}}}", members.join(",")));
            let mut answer = attacker.answer(asked);
            answer["id"].take();
            answer.to_string().replace(id, "ID")
        });
        assert!(told[0].contains("error"), "{method} {claim}: {}", told[0]);
        let [theirs, nobodys] = &mut told;
        assert_eq!(theirs, nobodys, "{method} {claim}");
    }
    attack_jobs(attacker, task);
    // A subscription to a foreign task is granted nothing, like one to an unknown task.
    let told = [task, NEVER].map(|id| {
        let params = format!(r#"{{"notifications":{{"taskIds":["{id}"]}},{CLAIM}}}"#);
        let asked = attacker.next_id();
        attacker.send(&request(asked, "subscriptions/listen", &params));
        let mut said = attacker.message().expect("an answer");
        said["id"].take();
        attacker.cancel(asked);
        let asked = format!("\"io.modelcontextprotocol/subscriptionId\":{asked}");
        said.to_string().replace(id, "ID").replace(&asked, "ASKED")
    });
    assert_eq!(told[0], told[1]);
    assert!(!attacker.result("ceased/status", "{}")["jobs"].to_string().contains(task));
    if let Some(tasks) = attacker.result("tasks/list", "{}")["tasks"].as_array() {
        assert!(tasks.iter().all(|seen| seen["taskId"] != task), "{tasks:?}");
    }
}

/// Requests of a peer that is no operator about jobs: foreign jobs are unknown.
fn attack_jobs(attacker: &mut Peer, task: &str) {
    let seen = attacker.result("ceased/status", r#"{"detail":true}"#);
    if seen["operator"] == true {
        return;
    }
    assert!(!seen.to_string().contains(task), "{seen}");
    let own = seen["identity"].clone();
    for list in ["jobs", "peers", "taskList"] {
        let entries = seen[list].as_array().expect("a list");
        assert!(entries.iter().all(|entry| entry["identity"] == own), "{list}: {seen}");
    }
    let mut told = Vec::new();
    for job in (1..20).chain([4_000_000_000_u64]) {
        let is_own = |entry: &Value| entry["job"] == job;
        if seen["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(is_own)) {
            continue;
        }
        let asked = attacker.request("ceased/cancel", &format!(r#"{{"job":{job}}}"#));
        let mut answer = attacker.answer(asked);
        answer["id"].take();
        told.push(answer.to_string().replace(&format!("job {job};"), "job N;"));
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

const ASKABLE: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#;

/// A call of 2026-07-28 that waits for input; returns its answer.
fn ask_for_input(peer: &mut Peer) -> Value {
    let params = format!(r#"{{"name":"asks","arguments":{{}},{ASKABLE}}}"#);
    let asked = peer.request("tools/call", &params);
    let answer = peer.answer(asked)["result"].take();
    assert_eq!(answer["resultType"], "input_required", "{answer}");
    answer
}

/// Retries such a call with a yes.
fn come_back(peer: &mut Peer, waiting: &Value, state: &str) -> Value {
    let requests = waiting["inputRequests"].as_object().expect("the answer has input requests");
    let yes = |key: &String| format!(r#""{key}":{{"action":"accept","content":{{}}}}"#);
    let responses: Vec<String> = requests.keys().map(yes).collect();
    let responses = responses.join(",");
    let params = format!(
        r#"{{"name":"asks","arguments":{{}},"requestState":"{state}","inputResponses":{{{responses}}},{ASKABLE}}}"#
    );
    let asked = peer.request("tools/call", &params);
    let mut answer = peer.answer(asked);
    answer["id"].take();
    answer
}

/// Each peer retries with the other's state, and calls with the other's idempotency key.
fn replay(key: &str, one: &mut Peer, other: &mut Peer) {
    let waiting = ask_for_input(one);
    let state = waiting["requestState"].as_str().expect("a state").to_owned();
    let never = "00000000-0000-4000-8000-000000000000";
    let told = [&*state, never]
        .map(|state| come_back(other, &waiting, state).to_string().replace(state, "STATE"));
    assert_eq!(told[0], told[1]);
    assert!(told[0].contains("-32602"), "{}", told[0]);
    // The foreign retry did not consume the state.
    let answer = come_back(one, &waiting, &state);
    assert_eq!(answer["result"]["content"][0]["text"], "ran\n", "{answer}");

    let keyed = |text: &str| {
        format!(
            r#"{{"name":"echo","arguments":{{"text":"{text}"}},"_meta":{{"ceased/idempotencyKey":"{key}"}}}}"#
        )
    };
    let call = |peer: &mut Peer, text: &str| {
        let asked = peer.request("tools/call", &keyed(text));
        peer.answer(asked)["result"]["content"][0]["text"].take()
    };
    assert_eq!(call(one, "mine"), "mine");
    // Another call under this key is an error for its owner only.
    assert_eq!(call(other, "yours"), "yours");
    assert_eq!(call(one, "mine"), "mine");
}

/// Two peers, each with a task and a call; neither can see or change the other's.
pub(crate) fn fight(mut one: Peer, mut other: Peer) {
    let first = one.create_task("sleep", r#"{"ms":600000}"#);
    let second = other.create_task("sleep", r#"{"ms":600000}"#);
    let call = one.call("sleep", r#"{"ms":600000}"#);
    attack(&mut other, &first);
    attack(&mut one, &second);
    replay("first", &mut one, &mut other);
    replay("second", &mut other, &mut one);
    // Request ids belong to their connection.
    other.cancel(call);
    for (peer, task) in [(&mut one, &first), (&mut other, &second)] {
        let params = json!({"taskId": task}).to_string();
        assert_eq!(peer.result("tasks/get", &params)["status"], "working");
        assert_eq!(peer.result("tasks/list", "{}")["tasks"].as_array().map(Vec::len), Some(1));
    }
    let jobs = one.result("ceased/status", "{}")["jobs"].take();
    assert_eq!(jobs.as_array().map(Vec::len), Some(2), "{jobs}");
    assert!(!one.has_answer(call));
}
