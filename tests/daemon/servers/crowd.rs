//! Many clients and several servers at once: no process is left, no client is disturbed, and nothing
//! grows (UPS-07).

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use ceased_tests::daemon::{Config, Daemon, Peer, wait_until};
use serde_json::json;

use super::kit::{Place, say};

const SERVERS: [&str; 4] = ["a", "b", "c", "d"];
const CLIENTS: usize = 8;

/// Clients that each wait for a stray of each server.
fn crowd(place: &Place, clients: Vec<Peer>) -> Vec<(Peer, Vec<u64>)> {
    let call = |peer: &mut Peer| {
        let arguments = json!({"mark": place.strays}).to_string();
        SERVERS.map(|name| peer.call(&format!("{name}_stray"), &arguments)).to_vec()
    };
    clients
        .into_iter()
        .map(|mut peer| (call(&mut peer), peer))
        .map(|(ids, peer)| (peer, ids))
        .collect()
}

fn place_and_servers() -> (Place, String) {
    let place = Place::new();
    let more = "max_instances = 64\nstart_timeout = \"5m\"";
    let servers = SERVERS.map(|name| place.server(name, more)).concat();
    (place, servers)
}

/// All calls start at once and are cancelled at once: every stray ends, an undisturbed client keeps
/// its instances.
#[test]
fn crowd_that_cancels_at_once_leaves_nothing() {
    let (place, servers) = place_and_servers();
    let daemon = place.start(&servers);
    let mut calm = daemon.peer();
    let pids = SERVERS.map(|name| say(&mut calm, &format!("{name}_pid"), "{}"));
    let mut crowd = crowd(&place, (0..CLIENTS).map(|_| daemon.peer()).collect());
    wait_until("every stray runs", || place.strays() == CLIENTS * SERVERS.len());
    for (peer, ids) in &mut crowd {
        ids.iter().for_each(|id| peer.cancel(*id));
    }
    wait_until("every stray has ended", || place.strays() == 0);
    assert_eq!(SERVERS.map(|name| say(&mut calm, &format!("{name}_pid"), "{}")), pids);
    drop(crowd);
    wait_until("the instances of the crowd have ended", || place.processes() == SERVERS.len());
    drop(calm);
    wait_until("no instance is left", || place.processes() == 0);
}

/// The daemon is killed with SIGKILL while all calls run: no process is left.
#[test]
fn killed_daemon_leaves_no_process() {
    let (place, servers) = place_and_servers();
    let daemon = place.start(&servers);
    let crowd = crowd(&place, (0..CLIENTS).map(|_| daemon.peer()).collect());
    wait_until("every stray runs", || place.strays() == CLIENTS * SERVERS.len());
    let _home = daemon.kill();
    wait_until("no process is left", || place.strays() == 0 && place.processes() == 0);
    drop(crowd);
}

/// Clients that come, call and go: descriptors and processes of the daemon stay as they were.
#[test]
fn reconnects_leave_nothing_behind() {
    let place = Place::new();
    let servers = place.server("a", "") + &place.server("b", "share = \"identity\"");
    let daemon = place.start(&servers);
    let visit = || {
        let mut peer = daemon.peer();
        say(&mut peer, "a_pid", "{}");
        say(&mut peer, "b_pid", "{}");
    };
    let settle = || {
        wait_until("the instances of connections have ended", || place.processes() == 1);
        daemon.wait_idle();
    };
    (0..3).for_each(|_| visit());
    settle();
    let before = daemon.vitals();
    (0..20).for_each(|_| visit());
    settle();
    wait_until("descriptors are as before", || daemon.vitals().descriptors <= before.descriptors);
    assert_eq!(place.starts("b"), 1, "an instance of an identity outlives its connections");
    assert_eq!(place.starts("a"), 23);
}

/// Clients and servers of the stress. Half of the servers have an instance for each client, half one
/// for all of them.
const MANY_CLIENTS: usize = 64;
const MANY_SERVERS: usize = 8;
/// Longest time of the stress, which takes 4 s on an idle machine with two cores.
const STRESS_WITHIN: Duration = Duration::from_secs(60);

/// A server in shell: `echo` answers with its text, `stray` leaves a child in a session of its own
/// and never answers. It ignores every cancel.
const SMALL: &str = r#"
while read -r line; do
  case $line in *'"id":'*) ;; *) continue ;; esac
  id=${line#*'"id":'}; id=${id%%,*}
  text=${line#*'"text":"'}; text=${text%%'"'*}
  case $line in
  *'"server/discover"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n' "$id" ;;
  *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"stray","inputSchema":{"type":"object"}}]}}\n' "$id" ;;
  *'"name":"stray"'*) setsid sleep "$2" >/dev/null 2>&1 & ;;
  *'"name":"echo"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$id" "$text" ;;
  *) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
  esac
done
"#;

fn small_name(server: usize) -> String {
    format!("s{server}")
}

/// A daemon with the servers of the stress, which carry the mark of the place.
fn many_servers(place: &Place) -> Daemon {
    let script = place.home.path().join("small.sh");
    fs::write(&script, SMALL).unwrap();
    let (mark, strays) = (&place.mark, &place.strays);
    let servers = (0..MANY_SERVERS).map(|server| {
        let share = if server % 2 == 0 { "connection" } else { "identity" };
        let name = small_name(server);
        format!(
            "[[server]]\nname = {name:?}\ncommand = [\"sh\", {script:?}, {mark:?}, {strays:?}]\n\
             share = {share:?}\nmax_instances = 256\nstart_timeout = \"5m\"\n\
             cancel_grace = \"300ms\"\nkill_grace = \"300ms\"\n"
        )
    });
    let tools = format!("[servers]\nstart_at_once = 16\n{}", servers.collect::<String>());
    // One user may use seven eighths of them.
    let workers = format!("workers = {}", 2 * MANY_CLIENTS * MANY_SERVERS);
    place.home.configure(&Config { daemon: &workers, tools: &tools, ..Config::default() });
    Daemon::start_in(place.home.clone())
}

/// Instances of the servers of the stress.
fn many_processes(place: &Place) -> usize {
    let pattern = format!("small.sh.*{}", place.mark);
    let found = Command::new("pgrep").args(["-fc", &pattern]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).trim().parse().unwrap_or_default()
}

/// One call of each server by each client, sent before the first answer is read.
fn call_all(clients: &mut [Peer], tool: &str) -> Vec<Vec<u64>> {
    let call = |(number, peer): (usize, &mut Peer)| {
        let servers = (0..MANY_SERVERS).map(|server| {
            let arguments = json!({"text": format!("client {number} server {server}")});
            peer.call(&format!("{}_{tool}", small_name(server)), &arguments.to_string())
        });
        servers.collect()
    };
    clients.iter_mut().enumerate().map(call).collect()
}

/// Each client reads its own answers, and no other client's.
fn check_answers(clients: &mut [Peer], calls: &[Vec<u64>]) {
    for (number, (peer, ids)) in clients.iter_mut().zip(calls).enumerate() {
        for (server, id) in ids.iter().enumerate() {
            assert_eq!(peer.text(*id), format!("client {number} server {server}"));
        }
    }
}

/// 64 clients of 8 servers: all start at once, all calls are cancelled at once, and the daemon is
/// killed with SIGKILL while all calls run. Answers are never mixed, a calm client is not disturbed,
/// and no process is left.
#[test]
fn many_clients_of_many_servers_leave_nothing() {
    let begun = Instant::now();
    let place = Place::new();
    let daemon = many_servers(&place);
    let mut calm = [daemon.peer()];
    let first = call_all(&mut calm, "echo");
    check_answers(&mut calm, &first);

    let mut clients: Vec<Peer> = (0..MANY_CLIENTS).map(|_| daemon.peer()).collect();
    let calls = call_all(&mut clients, "echo");
    check_answers(&mut clients, &calls);
    let started = begun.elapsed();

    let strays = call_all(&mut clients, "stray");
    wait_until("every stray runs", || place.strays() == MANY_CLIENTS * MANY_SERVERS);
    for (peer, ids) in clients.iter_mut().zip(&strays) {
        ids.iter().for_each(|id| peer.cancel(*id));
    }
    wait_until("every stray has ended", || place.strays() == 0);
    let cancelled = begun.elapsed();
    let calls = call_all(&mut clients, "echo");
    check_answers(&mut clients, &calls);
    let again = call_all(&mut calm, "echo");
    check_answers(&mut calm, &again);

    call_all(&mut clients, "stray");
    wait_until("every stray runs", || place.strays() == MANY_CLIENTS * MANY_SERVERS);
    let _home = daemon.kill();
    wait_until("no process is left", || place.strays() == 0 && many_processes(&place) == 0);
    let all = begun.elapsed();
    println!("started within {started:?}, cancelled within {cancelled:?}, ended within {all:?}");
    assert!(all < STRESS_WITHIN, "it took {all:?}");
}
