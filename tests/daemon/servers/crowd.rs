//! Many clients and several servers at once: no process is left, no client is disturbed, and nothing
//! grows (UPS-07).

use ceased_tests::daemon::{Peer, wait_until};
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
fn a_crowd_that_cancels_at_once_leaves_nothing() {
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
fn a_killed_daemon_leaves_no_process() {
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
