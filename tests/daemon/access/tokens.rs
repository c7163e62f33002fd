//! Peers on TCP: tokens.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{Daemon, Home, Program, Signal, wait_until};
use serde_json::{Value, json};

use super::kit::{authenticate, configure, fight, is_root, peer_as, peer_with, write_tokens};

const ANN: &str = "ann-ann-ann-ann-ann-ann-ann-ann-ann";
const BOB: &str = "bob-bob-bob-bob-bob-bob-bob-bob-bob";

const ECHO: &str = "[[tool]]\nname = \"for_ann\"\nbuiltin = \"echo\"\nallow = [\"token:ann\"]\n";

fn tcp(more: &str) -> String {
    format!(
        "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\ntoken_file = \"tokens\"\n\
         {more}\n{ECHO}"
    )
}

fn home(more: &str) -> Home {
    let home = Home::new();
    write_tokens(&home, &format!("# of this test\nann {ANN}\n\nbob {BOB}\n"));
    configure(&home, "", &tcp(more));
    home
}

/// TSK-39: two tokens are two identities; one token is one identity on every connection.
#[test]
fn two_tokens_are_isolated() {
    let daemon = Daemon::start_in(home(""));
    let mut ann = peer_with(&daemon, ANN);
    let task = ann.create_task("sleep", r#"{"ms":600000}"#);
    let mut again = peer_with(&daemon, ANN);
    let params = json!({"taskId": task}).to_string();
    assert_eq!(again.result("ceased/status", "{}")["identity"], "token:ann");
    assert_eq!(again.result("tasks/cancel", &params)["status"], "cancelled");
    let mut bob = peer_with(&daemon, BOB);
    assert!(!bob.result("tools/list", "{}").to_string().contains("for_ann"));
    assert!(ann.result("tools/list", "{}").to_string().contains("for_ann"));
    let call = ann.call("for_ann", r#"{"text":"hi"}"#);
    assert_eq!(ann.answer(call)["result"]["content"][0]["text"], "hi");
    drop((ann, again));
    // A user of this machine is no token either; the daemon's own user may see every job.
    if is_root() {
        fight(bob, peer_as(&daemon.home, 1));
    }
}

/// TSK-40: without a token no request is served, and every refusal is the same.
#[test]
fn nothing_is_served_without_a_token() {
    let daemon = Daemon::start_in(home(""));
    for wrong in ["", "ann", &ANN[1..], &format!("{ANN}x")] {
        let mut peer = daemon.connect_tcp();
        let answer = authenticate(&mut peer, wrong);
        assert_eq!(answer["error"]["code"], -31010, "{answer}");
        assert_eq!(peer.message(), None);
    }
    let odd = "x".repeat(10_000);
    for first in [
        request(7, "initialize", "{}"),
        request(7, "ping", "{}"),
        request(7, "ceased/authenticate", "{}"),
        request(7, "ceased/authenticate", r#"{"token":7}"#),
        "[]".to_owned(),
        format!("{{\"long\":\"{odd}\"}}"),
        "no JSON".to_owned(),
    ] {
        let mut peer = daemon.connect_tcp();
        // Requests in the same write are not processed.
        peer.send(&format!("{first}\n{}", request(8, "ceased/status", "{}")));
        let said = peer.rest();
        assert_eq!(said.len(), 1, "{first:.80}: {said:?}");
        assert_eq!(said[0]["error"]["code"], -31010, "{first:.80}: {said:?}");
    }
    daemon.wait_idle();
    wait_until("the refusal is logged", || daemon.home.log().contains("not authenticated"));
}

/// A refused peer that has half-closed its connection still gets the reason.
#[test]
fn refusal_reaches_a_half_closed_peer() {
    let home = home("");
    home.configure_as(&(home.config_text() + "[limits]\nconnections = 1\n"));
    let daemon = Daemon::start_in(home);
    for _ in 0..20 {
        let mut peer = daemon.connect_tcp();
        peer.send(&request(7, "ceased/authenticate", r#"{"token":"wrong"}"#));
        peer.finish();
        let said = peer.rest();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said[0]["error"]["code"], -31010, "{said:?}");
    }
    let _only = peer_with(&daemon, ANN);
    for _ in 0..20 {
        let mut peer = daemon.connect_tcp();
        peer.send(&request(7, "ceased/authenticate", &json!({"token": BOB}).to_string()));
        peer.finish();
        let said = peer.rest();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said[0]["error"]["code"], -31003, "{said:?}");
    }
}

/// The token may arrive in pieces, and together with later messages.
#[test]
fn token_may_arrive_in_pieces() {
    let daemon = Daemon::start_in(home(""));
    let mut peer = daemon.connect_tcp();
    let first = request(900, "ceased/authenticate", &json!({"token": BOB}).to_string());
    let big =
        format!("{{\"name\":\"sleep\",\"arguments\":{{\"ms\":0}},\"x\":{:?}}}", "y".repeat(99_999));
    let then = request(901, "ping", "{}");
    let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"k","version":"0"}}"#;
    let (head, tail) = first.split_at(30);
    peer.try_send(head.as_bytes()).unwrap();
    let more = [then, request(902, "initialize", hello), request(903, "tools/call", &big)];
    peer.send(&format!("{tail}\n{}", more.join("\n")));
    assert_eq!(peer.answer(900)["result"], json!({}));
    assert_eq!(peer.answer(901)["result"], json!({}));
    assert_eq!(peer.answer(902)["result"]["protocolVersion"], "2025-11-25");
    assert!(!peer.answer(903)["result"].is_null());
}

/// A silent peer is closed after the authentication time.
#[test]
fn silent_peer_is_closed() {
    let home = home("");
    let text = home.config_text() + "[limits]\nauthenticate_within = \"100ms\"\nconnections = 3\n";
    home.configure_as(&text);
    let daemon = Daemon::start_in(home);
    let mut silent = [daemon.connect_tcp(), daemon.connect_tcp(), daemon.connect_tcp()];
    for peer in &mut silent {
        let said = peer.message().expect("a reason");
        assert!(matches!(said["error"]["code"].as_i64(), Some(-31010 | -31003)), "{said}");
        assert_eq!(peer.message(), None);
    }
    // An authenticated peer has no such time limit. On a busy machine it may take some tries.
    let mut through = None;
    wait_until("one peer authenticates in time", || {
        let mut peer = daemon.connect_tcp();
        let said = request(1, "ceased/authenticate", &json!({"token": ANN}).to_string());
        let answer =
            peer.try_send(format!("{said}\n").as_bytes()).ok().and_then(|()| peer.message());
        let is_through = answer.is_some_and(|answer| answer["result"].is_object());
        through = is_through.then_some(peer);
        is_through
    });
    let mut ann = through.expect("a peer has authenticated");
    ann.initialize();
    let sleep = ann.call("sleep", r#"{"ms":300}"#);
    assert!(!ann.answer(sleep)["result"].is_null());
}

/// TSK-36: unauthenticated connections are bounded and lock no peer out: the oldest one of the
/// origin with most of them is replaced.
#[test]
fn unauthenticated_peers_are_bounded_and_replaced() {
    let home = home("");
    let limits = "[limits]\nconnections = 8\nauthenticate_within = \"1h\"\n";
    home.configure_as(&(home.config_text() + limits));
    let daemon = Daemon::start_in(home);
    // The limit is 16.
    let mut silent: Vec<_> = (0..60).map(|_| daemon.connect_tcp()).collect();
    let mut ann = peer_with(&daemon, ANN);
    ann.result("ping", "{}");
    let said = silent[0].message().expect("a reason");
    assert_eq!(said["error"]["code"], -31003, "{said}");
    assert_eq!(silent[0].message(), None);
    // The remaining ones can still authenticate.
    let last = silent.last_mut().expect("some are connected");
    assert_eq!(authenticate(last, BOB)["result"], json!({}));
}

/// TSK-40: peers without a token are anonymous where the configuration allows it.
#[test]
fn anonymous_peers_are_served_beside_tokens() {
    let daemon = Daemon::start_in(home("anonymous = \"allow\""));
    let mut anonymous = daemon.tcp_peer();
    assert_eq!(anonymous.result("ceased/status", "{}")["identity"], "anonymous");
    let mut ann = peer_with(&daemon, ANN);
    assert_eq!(ann.result("ceased/status", "{}")["identity"], "token:ann");
    let mut liar = daemon.connect_tcp();
    assert_eq!(authenticate(&mut liar, "not a token")["error"]["code"], -31010);
    assert_eq!(liar.message(), None);
}

/// A reload revokes tokens and closes their connections; an invalid file changes nothing.
#[test]
fn reload_revokes_tokens() {
    let daemon = Daemon::start_in(home(""));
    let (mut ann, mut bob) = (peer_with(&daemon, ANN), peer_with(&daemon, BOB));
    let path = write_tokens(&daemon.home, "ann too short");
    daemon.signal(Signal::HUP);
    wait_until("the refusal", || daemon.home.log().contains("not reloaded"));
    assert!(daemon.home.log().contains("tokens:1: "));
    ann.result("ping", "{}");
    let new = BOB.replace('b', "c");
    write_tokens(&daemon.home, &format!("ann {ANN}\nbob {new}\n"));
    daemon.signal(Signal::HUP);
    assert!(bob.rest().iter().all(|message| message["method"].is_string()));
    ann.result("ping", "{}");
    peer_with(&daemon, &new);
    let mut late = daemon.connect_tcp();
    assert_eq!(authenticate(&mut late, BOB)["error"]["code"], -31010);
    // A token file that others can read keeps the daemon from starting.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let home = daemon.kill();
    let ended = home.command(&["serve"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("mode 0644"), "{said}");
}

/// No log, record or status contains a token.
#[test]
fn token_is_never_written() {
    let home = home("");
    let tape = home.path().join("tape");
    home.configure_as(&(home.config_text() + "[log]\nlevel = \"trace\"\n"));
    let command = home.command(&["serve", "--record", tape.to_str().unwrap()]);
    let mut daemon = Daemon::start_with(home, command);
    let wrong = BOB.replace('b', "d");
    let mut ann = peer_with(&daemon, ANN);
    authenticate(&mut daemon.connect_tcp(), &wrong);
    let status = ann.result("ceased/status", "{}").to_string();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let tape = fs::read_to_string(tape).unwrap();
    assert!(tape.contains("ann"), "the name of a token is no secret");
    let log = daemon.home.log();
    for written in [&tape, &status, &log] {
        assert!(!written.contains(ANN) && !written.contains(&wrong), "{written}");
    }
    let played = ceased::record::replay(tape.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
    assert!(played.events > 0);
}

/// The commands present the token; `connect` does so for its client.
#[test]
fn commands_present_the_token() {
    let daemon = Daemon::start_in(home(""));
    let home = &daemon.home;
    let address = daemon.tcp_address().to_string();
    for text in [ANN.to_owned(), format!("# mine\nann {ANN}\n")] {
        fs::write(home.path().join("mine"), text).unwrap();
        let args = ["call", "--tcp", &address, "--token-file", "mine", "for_ann", "text=hi"];
        let ran = Program::start(home, home.command(&args)).wait();
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "hi\n"), "{}", ran.err);
    }
    let mut command = home.command(&["status", "--tcp", &address]);
    command.env("CEASED_TOKEN", BOB);
    let ran = Program::start(home, command).wait();
    assert!(ran.out.contains("token:bob"), "{}{}", ran.out, ran.err);
    for (token, why) in [("", "wants a token"), ("wrong", "access denied")] {
        let mut command = home.command(&["tools", "--tcp", &address]);
        command.env("CEASED_TOKEN", token);
        let ran = Program::start(home, command).wait();
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    let mut bridge = home.command(&["connect", "--tcp", &address, "--token-file", "mine"]);
    fs::write(home.path().join("in"), request(1, "ping", "{}")).unwrap();
    bridge.stdin(fs::File::open(home.path().join("in")).unwrap());
    let ran = Program::start(home, bridge).wait();
    assert_eq!(ran.out.trim(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "{}", ran.err);
}

/// TSK-41: the audit log names a peer after its authentication; a rejected peer is recorded as
/// refused, without a name.
#[test]
fn audit_log_names_only_authenticated_peers() {
    let home = home("\n[log]\naudit = \"audit.jsonl\"\n");
    let audit = home.path().join("audit.jsonl");
    let daemon = Daemon::start_in(home);
    drop(peer_with(&daemon, ANN));
    let mut stranger = daemon.connect_tcp();
    assert_eq!(authenticate(&mut stranger, "wrong")["error"]["code"], -31010);
    drop(stranger);
    let histories = || {
        let text = fs::read_to_string(&audit).unwrap_or_default();
        let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for record in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let said = format!("{} {}", record["event"], record["identity"]).replace('"', "");
            of.entry(record["connection"].to_string()).or_default().push(said);
        }
        of
    };
    for wanted in [vec!["connect token:ann", "disconnect token:ann"], vec!["refuse anonymous"]] {
        wait_until(&format!("{wanted:?} in {:?}", histories()), || {
            histories().values().any(|history| *history == wanted)
        });
    }
}

/// A token file replaced while peers connect: each peer is checked against the old or the new
/// tokens, never a mixture. A token in both always succeeds; a revoked one fails after the daemon
/// has reported the reload.
#[test]
fn replaced_tokens_apply_atomically() {
    const ROUNDS: usize = 10;
    let daemon = Daemon::start_in(home(""));
    let (is_over, path) = (AtomicBool::new(false), daemon.home.path().join("tokens"));
    let mut let_in = [0, 0];
    std::thread::scope(|scope| {
        let enter = |token: &'static str| {
            let (daemon, is_over) = (&daemon, &is_over);
            move || {
                let mut counts = [0_usize; 2];
                while !is_over.load(Ordering::Relaxed) {
                    let answer = authenticate(&mut daemon.connect_tcp(), token);
                    let is_in = answer["result"] == json!({});
                    assert!(is_in || answer["error"]["code"] == -31010, "{answer}");
                    counts[usize::from(is_in)] += 1;
                }
                counts
            }
        };
        let ann = scope.spawn(enter(ANN));
        let bob = scope.spawn(enter(BOB));
        for round in 0..ROUNDS {
            let said = daemon.home.log().len();
            let bobs = if round % 2 == 0 { BOB.replace('b', "c") } else { BOB.to_owned() };
            // Written in place, as some editors do; the daemon reads the file only on a signal.
            let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
            for part in [format!("bob {bobs}\nan"), format!("n {ANN}\n")] {
                file.write_all(part.as_bytes()).unwrap();
                // A reload at this moment keeps the old tokens.
                daemon.signal(Signal::HUP);
                wait_until("the reload is processed", || {
                    let log = daemon.home.log();
                    let new = log.get(said..).unwrap_or_default();
                    let word = if part.contains(ANN) { "\"reloaded\"" } else { "not reloaded" };
                    new.contains(word)
                });
            }
            let answer = authenticate(&mut daemon.connect_tcp(), &bobs);
            assert_eq!(answer["result"], json!({}), "{answer}");
            let old = if bobs == BOB { BOB.replace('b', "c") } else { BOB.to_owned() };
            let answer = authenticate(&mut daemon.connect_tcp(), &old);
            assert_eq!(answer["error"]["code"], -31010, "{answer}");
        }
        is_over.store(true, Ordering::Relaxed);
        let [refused, admitted] = ann.join().unwrap();
        assert!(refused == 0 && admitted > 0, "ann was refused {refused} times");
        let_in = bob.join().unwrap();
    });
    assert!(let_in.iter().all(|count| *count > 0), "bob was always or never admitted: {let_in:?}");
}
