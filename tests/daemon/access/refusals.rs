//! Refused peers in the audit log (TSK-41).

use std::fs;

use ceased_tests::daemon::{Daemon, Home, wait_until};
use serde_json::Value;

use super::kit::{authenticate, configure, connect_as, is_root, write_tokens};

const ANN: &str = "ann-ann-ann-ann-ann-ann-ann-ann-ann";

fn start(listen: &str, more: &str) -> Daemon {
    let home = Home::new();
    write_tokens(&home, &format!("ann {ANN}\n"));
    let audit = format!("[log]\naudit = \"{}/audit.jsonl\"\n{more}", home.path().display());
    configure(&home, listen, &audit);
    Daemon::start_in(home)
}

fn records(daemon: &Daemon, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(daemon.home.path().join("audit.jsonl")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let records = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    records.filter(|record| record["event"] == event).collect()
}

/// TSK-40, TSK-41: a peer with a wrong or missing token is recorded as refused, with reason and
/// address, and never as connected; no record contains the token.
#[test]
fn wrong_token_is_recorded_as_refused() {
    let tcp = "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\n\
               token_file = \"tokens\"\n";
    let daemon = start("", tcp);
    let wrong = "wrong-wrong-wrong-wrong-wrong-wrong";
    assert!(authenticate(&mut daemon.connect_tcp(), wrong)["error"].is_object());
    let mut without = daemon.connect_tcp();
    let asked = without.request("tools/list", "{}");
    assert!(without.answer(asked)["error"].is_object());
    drop(daemon.connect_tcp());
    for reason in ["wrong token", "no token", "disconnected before it was identified"] {
        wait_until(reason, || {
            records(&daemon, "refuse").iter().any(|record| record["reason"] == reason)
        });
    }
    let refused = records(&daemon, "refuse");
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused.iter().all(|record| record["identity"] == "anonymous"));
    let is_tcp = |record: &Value| {
        record["peer"].as_str().is_some_and(|peer| peer.starts_with("tcp peer 127.0.0.1:"))
    };
    assert!(refused.iter().all(is_tcp), "{refused:?}");
    assert_eq!(records(&daemon, "connect"), Vec::<Value>::new());
    assert_eq!(records(&daemon, "disconnect"), Vec::<Value>::new());
    let mut ann = daemon.connect_tcp();
    assert!(authenticate(&mut ann, ANN)["result"].is_object());
    drop(ann);
    wait_until("her disconnect is recorded", || !records(&daemon, "disconnect").is_empty());
    let connected = records(&daemon, "connect");
    assert_eq!(connected.len(), 1, "{connected:?}");
    assert_eq!(connected[0]["identity"], "token:ann");
    let all = fs::read_to_string(daemon.home.path().join("audit.jsonl")).expect("a file");
    assert!(!all.contains(wrong) && !all.contains(ANN));
}

/// TSK-39, TSK-41: a refused user is recorded by number.
#[test]
fn refused_user_is_recorded() {
    if !is_root() {
        return;
    }
    let daemon = start("allow_users = [\"root\"]", "");
    let told = connect_as(&daemon.home, 4711, 4711).message().expect("the refusal has a reason");
    assert!(told["error"].is_object(), "{told}");
    wait_until("the refusal is recorded", || !records(&daemon, "refuse").is_empty());
    let refused = records(&daemon, "refuse");
    assert_eq!(refused[0]["identity"], "uid:4711", "{refused:?}");
    assert!(refused[0]["reason"].as_str().is_some_and(|why| why.contains("allow_users")));
    assert!(refused[0]["peer"].as_str().is_some_and(|peer| peer.contains("uid 4711")));
    assert_eq!(records(&daemon, "connect"), Vec::<Value>::new());
    assert_eq!(records(&daemon, "disconnect"), Vec::<Value>::new());
}
