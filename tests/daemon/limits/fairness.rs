//! Fairness between users of the real daemon: connections, workers, descriptors, incomplete
//! messages, the log, and guesses (TSK-36, TSK-37, TSK-38, TSK-41).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::time::Instant;

use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, Signal, assert_none_left, carriers, marker, wait_until,
};
use serde_json::{Value, json};

pub(crate) const ANN: &str = "ann-ann-ann-ann-ann-ann-ann-ann-ann";
pub(crate) const BOB: &str = "bob-bob-bob-bob-bob-bob-bob-bob-bob";
const LIMIT_REACHED: i64 = -31003;
/// Users without processes.
pub(crate) const ONE: u32 = 54_321;
pub(crate) const OTHER: u32 = 54_322;

/// A daemon with two tokens, these lines of `[daemon]` and `[limits]`, and further tables.
pub(crate) fn with_tokens(daemon: &str, limits: &str, more: &str) -> Daemon {
    let home = Home::new();
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(home.path().join("tokens"))
        .expect("ours");
    write!(file, "ann {ANN}\nbob {BOB}\n").expect("the token file can be written");
    let tools = format!(
        "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\ntoken_file = \"tokens\"\n{more}"
    );
    home.configure(&Config { daemon, limits, tools: &tools, ..Config::default() });
    Daemon::start_in(home)
}

fn present(peer: &mut Peer, token: &str) -> std::io::Result<()> {
    let said = request(900, "ceased/authenticate", &json!({"token": token}).to_string());
    peer.try_send(format!("{said}\n").as_bytes())
}

pub(crate) fn token_peer(daemon: &Daemon, token: &str) -> Peer {
    let mut peer = daemon.connect_tcp();
    present(&mut peer, token).expect("it listens");
    assert_eq!(peer.answer(900)["result"], json!({}));
    peer.initialize();
    peer
}

/// TSK-36: idle connections of one user leave room for others and for operators, which can cancel.
#[test]
fn idle_connections_of_one_user_lock_no_other_out() {
    let mark = marker();
    let daemon = Daemon::start(&Config { limits: "connections = 40", ..Config::default() });
    let Some(mut busy) = daemon.peer_of(ONE) else { return };
    let call = busy.call("hang", &json!({"t": mark}).to_string());
    wait_until("it runs", || carriers(&mark).len() == 1);
    let mut crowd: Vec<Peer> = (0..60).filter_map(|_| daemon.connect_of(ONE)).collect();
    let mut late = crowd.pop().expect("sixty connections");
    let said = late.message().expect("a reason");
    assert_eq!(said["error"]["code"], LIMIT_REACHED);
    assert_eq!(said["error"]["data"], json!({"limit": "connections_per_identity", "max": 35}));
    let mut other = daemon.peer_of(OTHER).expect("this test runs as root");
    assert_eq!(other.result("ceased/status", "{}")["connections"], 1);
    // Other users fill the daemon; the operator still connects, sees all jobs and cancels.
    crowd.extend((0..20).filter_map(|_| daemon.connect_of(OTHER)));
    let mut operator = daemon.peer();
    let status = operator.result("ceased/status", "{}");
    assert_eq!(status["running"], 1, "{status}");
    let job = status["jobs"][0]["job"].clone();
    operator.result("ceased/cancel", &json!({"job": job}).to_string());
    let ended = busy.answer(call);
    let is_error = ended["error"].is_object() || ended["result"]["isError"] == true;
    assert!(is_error, "{ended}");
    assert_none_left(&mark);
}

/// TSK-36: with any number of open connections, the daemon's own user can open one more, and
/// connections in use stay.
#[test]
fn own_idle_connections_do_not_lock_the_owner_out() {
    let daemon = Daemon::start(&Config { limits: "connections = 12", ..Config::default() });
    let mut first = daemon.peer();
    first.result("ping", "{}");
    let _crowd: Vec<Peer> = (0..100).map(|_| daemon.connect()).collect();
    for args in [&["status"][..], &["call", "echo", "text=x"]] {
        let ran = daemon.home.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    first.result("ping", "{}");
}

/// The soft limit of open files is raised to the hard one and does not bound connections.
#[test]
fn soft_limit_of_open_files_is_raised() {
    let home = Home::new();
    home.configure(&Config::default());
    let command = home.command_after("ulimit -Sn 100", &["serve"]);
    let daemon = Daemon::start_with(home, command);
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("it runs");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("the limit is listed");
    let numbers: Vec<&str> =
        files.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
    assert_eq!(numbers.first(), numbers.get(1), "{files}");
    let crowd: Vec<Peer> = (0..150).map(|_| daemon.peer()).collect();
    let mut peer = daemon.peer();
    let count = peer.call("count", "{}");
    assert_eq!(peer.answer(count)["result"]["content"][0]["text"], "1\n2\n3\n");
    drop(crowd);
}

/// Descriptors are reserved for jobs: idle connections cannot exhaust them.
#[test]
fn connections_leave_descriptors_to_jobs() {
    let home = Home::new();
    home.configure(&Config { daemon: "workers = 4", tcp: true, ..Config::default() });
    let command = home.command_after("ulimit -n 256", &["serve"]);
    let daemon = Daemon::start_with(home, command);
    wait_until("the log names the bound", || {
        daemon.home.log().contains("fewer connections are served")
    });
    let served = daemon.status()["limits"]["connections"].as_u64().expect("a number");
    assert!((32..256).contains(&served), "{served}");
    let crowd: Vec<Peer> = (0..300).map(|_| daemon.connect_tcp()).collect();
    let mark = marker();
    let mut peer = daemon.peer();
    let calls: Vec<u64> =
        (0..3).map(|_| peer.call("hang", &json!({"t": mark}).to_string())).collect();
    wait_until("all run", || carriers(&mark).len() == 3);
    calls.into_iter().for_each(|call| peer.cancel(call));
    peer.result("ping", "{}");
    drop(crowd);
    daemon.wait_until_no_job();
    assert_none_left(&mark);
}

/// TSK-37: slow calls of one identity leave workers to others.
#[test]
fn slow_calls_of_one_identity_leave_workers_to_others() {
    for (limits, most) in [("", 7), ("workers_per_identity = 2", 2)] {
        let daemon = with_tokens("workers = 8", limits, "");
        let (mut ann, mut bob) = (token_peer(&daemon, ANN), token_peer(&daemon, BOB));
        let calls: Vec<u64> = (0..200).map(|_| ann.call("sleep", r#"{"ms":86400000}"#)).collect();
        wait_until("the share of workers is used", || {
            let status = ann.result("ceased/status", "{}");
            (&status["running"], &status["queued"]) == (&json!(most), &json!(200 - most))
        });
        for _ in 0..20 {
            let echo = bob.call("echo", r#"{"text":"quick"}"#);
            assert_eq!(bob.text(echo), "quick");
        }
        // TSK-39: jobs of other identities are not visible.
        let status = bob.result("ceased/status", r#"{"detail":true}"#);
        let own = ["connections", "running", "queued", "cancelling"].map(|name| &status[name]);
        assert_eq!(own, [1, 0, 0, 0]);
        let host = status["host"].as_object().expect("the host's part");
        assert!(!host.contains_key("receivedBytes") && !host.contains_key("refusedByLimit"));
        calls.into_iter().for_each(|call| ann.cancel(call));
        wait_until("all calls are cancelled", || daemon.status()["running"] == 0);
    }
}

/// TSK-36: incomplete messages of one identity do not close another's connection.
#[test]
fn incomplete_messages_count_for_their_identity() {
    let limits = "message_bytes = \"64KiB\"\npartial_bytes = \"256KiB\"\nframe_time = \"1h\"";
    let daemon = with_tokens("", limits, "");
    let mut bob = token_peer(&daemon, BOB);
    let line = request(7, "ping", &json!({"pad": "x".repeat(60_000)}).to_string());
    let (head, tail) = line.split_at(50_000);
    bob.try_send(head.as_bytes()).expect("the daemon reads");
    // The share is half of the total: ann's fifth message exceeds it.
    let mut crowd: Vec<Peer> = (0..8).map(|_| token_peer(&daemon, ANN)).collect();
    for peer in &mut crowd {
        peer.try_send(&[b' '; 30_000]).expect("the daemon reads");
        // Everything read before is counted when this is answered.
        bob_is_there(&daemon);
    }
    wait_until("a connection is closed", || {
        daemon.home.log().contains("partial_bytes_per_identity")
    });
    bob.send(tail);
    assert_eq!(bob.answer(7)["result"], json!({}));
}

fn bob_is_there(daemon: &Daemon) {
    daemon.peer().result("ping", "{}");
}

fn audit(daemon: &Daemon) -> Vec<Value> {
    let text = fs::read_to_string(daemon.home.path().join("audit.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Number of full records of this event, and of records that were only counted.
fn recorded(daemon: &Daemon, event: &str) -> (u64, u64) {
    let records = audit(daemon);
    let in_full = records.iter().filter(|record| record["event"] == *event).count();
    let counted = records.iter().filter(|it| it["event"] == "repeated" && it["of"] == *event);
    (in_full as u64, counted.filter_map(|record| record["count"].as_u64()).sum())
}

/// TSK-41: connections beyond the rate are counted instead of recorded, and the count is exact.
#[test]
fn endless_connections_do_not_fill_the_log() {
    const CONNECTIONS: u64 = 600;
    let home = Home::new();
    let audit = "[log]\naudit = \"audit.jsonl\"\n";
    home.configure(&Config { tools: audit, ..Config::default() });
    let daemon = Daemon::start_in(home);
    let start = Instant::now();
    for _ in 0..CONNECTIONS {
        drop(daemon.connect());
    }
    let intervals = start.elapsed().as_secs() / 10 + 1;
    wait_until("the remaining ones are counted", || {
        let (in_full, counted) = recorded(&daemon, "connect");
        in_full + counted == CONNECTIONS
    });
    let (in_full, _) = recorded(&daemon, "connect");
    assert!(in_full <= 64 * (intervals + 1), "{in_full} records");
    let (left, _) = recorded(&daemon, "disconnect");
    assert_eq!(left, in_full, "each recorded connection has a recorded end");
}

/// TSK-41: wrong tokens are logged once and then counted, and answered with growing delay; a
/// correct token is not delayed.
#[test]
fn wrong_tokens_are_delayed_and_do_not_fill_the_log() {
    const GUESSES: u64 = 10;
    let daemon = with_tokens("", "", "[log]\naudit = \"audit.jsonl\"\n");
    let start = Instant::now();
    for _ in 0..GUESSES {
        let mut peer = daemon.connect_tcp();
        present(&mut peer, "wrong").expect("it listens");
        assert_eq!(peer.answer(900)["error"]["code"], -31010);
        assert_eq!(peer.message(), None);
    }
    // 50, 100, 200, 400 and 800 ms.
    assert!(start.elapsed().as_millis() >= 1550, "{:?}", start.elapsed());
    // Many at once are delayed too.
    let mut crowd: Vec<Peer> = (0..100).map(|_| daemon.connect_tcp()).collect();
    crowd.iter_mut().for_each(|peer| drop(present(peer, "wrong")));
    token_peer(&daemon, ANN).result("ping", "{}");
    for peer in &mut crowd {
        let said = peer.message();
        // The connection may have been replaced.
        assert!(said.is_none_or(|said| said["error"].is_object()));
    }
    let took = start.elapsed().as_secs();
    let logged = daemon.home.log().matches("not authenticated").count() as u64;
    assert!((1..=took / 10 + 2).contains(&logged), "{logged} in {took} s");
    wait_until("the remaining ones are counted", || {
        recorded(&daemon, "refuse").1 >= GUESSES - logged
            && daemon.home.log().contains("suppressed repeated records")
    });
}

/// TSK-41: users without permission are logged once and then counted.
#[test]
fn refused_users_do_not_fill_the_log() {
    let home = Home::new();
    home.configure_as(&format!(
        "[[listen]]\ntransport = \"unix\"\npath = {:?}\nmode = \"0666\"\nallow_users = [0]\n",
        home.socket()
    ));
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let daemon = Daemon::start_in(home);
    let start = Instant::now();
    for _ in 0..200 {
        let Some(peer) = daemon.connect_of(ONE) else { return };
        drop(peer);
    }
    daemon.peer().result("ping", "{}");
    let most = start.elapsed().as_secs() / 10 + 2;
    let logged = daemon.home.log().matches("may not use this socket").count() as u64;
    assert!((1..=most).contains(&logged), "{logged}");
}

/// A reload changes the shares.
#[test]
fn shares_are_reloaded() {
    let daemon = with_tokens("workers = 8", "connections_per_identity = 1", "");
    let ann = token_peer(&daemon, ANN);
    let mut second = daemon.connect_tcp();
    present(&mut second, ANN).expect("it listens");
    let said = second.message().expect("a reason");
    assert_eq!(said["error"]["data"]["limit"], "connections_per_identity", "{said}");
    let text = daemon.home.config_text();
    daemon.home.configure_as(
        &text.replace("connections_per_identity = 1", "connections_per_identity = 2"),
    );
    daemon.signal(Signal::HUP);
    wait_until("the configuration is reloaded", || daemon.home.log().contains("\"reloaded\""));
    token_peer(&daemon, ANN).result("ping", "{}");
    drop(ann);
}
