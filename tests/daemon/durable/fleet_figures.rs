//! Figures of a fleet on one machine, for the page "Several machines" of the book.
//!
//! `cargo test -p ceased-tests --test daemon fleet_figures -- --ignored --nocapture --test-threads 1`

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ceased_fleet::postgres::Session;
use ceased_tests::daemon::{
    Daemon, Peer, Program, Signal, carriers, marker, wait_for_family, wait_until,
};
use rustix::process::{Pid, kill_process};

use crate::durable::fleet::server::soon;
use crate::durable::fleet::{SHORT, WIDE, alone, created, home_of, node, server::Server, status};
use crate::durable::of_task;

/// Prints a figure: the median and the 99th percentile.
pub(crate) fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: p50 {:?}, p99 {:?}, most {:?}, of {}", at(50), at(99), at(100), times.len());
}

fn print_load() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("load: {}", load.trim());
}

/// Waits without a pause until none of these processes is there. Those of a stopped parent stay as zombies,
/// which have no command line.
fn wait_for_end(processes: &[(i32, String)]) {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    while processes.iter().any(|(pid, _)| !line(*pid).is_empty()) {
        thread::yield_now();
    }
}

/// A task at this node whose processes run.
fn running(peer: &mut Peer, tool: &str) -> (String, Vec<(i32, String)>) {
    let t = marker();
    let task = created(peer, tool, &format!(r#"{{"t":"{t}"}}"#));
    match tool {
        "family" => wait_for_family(&t),
        _ => wait_until("it runs", || !carriers(&t).is_empty()),
    }
    (task, carriers(&t))
}

/// Times from the cancel of a task that runs at one node by another one, to its answer and to the last process.
fn tell_cancels(what: &str, tool: &str, count: usize, at_a: &mut Peer, at_b: &mut Peer) {
    let (mut answers, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (task, processes) = running(at_a, tool);
        let begun = Instant::now();
        at_b.result("tasks/cancel", &of_task(&task));
        answers.push(begun.elapsed());
        wait_for_end(&processes);
        ends.push(begun.elapsed());
    }
    tell(&format!("a cancel at another node{what}, to its answer"), answers);
    tell(&format!("a cancel at another node{what}, to the last process of `{tool}`"), ends);
}

/// Times from the death of the process of a task to its result at a node.
fn results(count: usize, at_a: &mut Peer, at_b: Option<&mut Peer>) -> Vec<Duration> {
    let mut at_b = at_b;
    let one = |_| {
        let (task, processes) = running(at_a, "hang");
        let peer = at_b.as_deref_mut().unwrap_or(at_a);
        let waits = peer.request("tasks/result", &of_task(&task));
        wait_until("it waits", || status(peer, &task) == "working");
        let begun = Instant::now();
        for (pid, _) in &processes {
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
        }
        peer.answer(waits);
        begun.elapsed()
    };
    (0..count).map(one).collect()
}

#[test]
#[ignore = "prints figures, for a quiet machine"]
fn requests() {
    let _alone = alone();
    print_load();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", WIDE), node(&server, "b", "", WIDE));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let task = created(&mut at_a, "sleep", r#"{"ms":600000}"#);
    for (what, peer) in [("a get at its node", &mut at_a), ("a get at another node", &mut at_b)] {
        let ask = |peer: &mut Peer| {
            let begun = Instant::now();
            assert_eq!(status(peer, &task), "working");
            begun.elapsed()
        };
        (0..100).for_each(|_| _ = ask(peer));
        tell(what, (0..2000).map(|_| ask(peer)).collect());
    }
    tell_cancels("", "hang", 100, &mut at_a, &mut at_b);
    tell_cancels("", "family", 30, &mut at_a, &mut at_b);
    tell("a result at its node, after the death of the process", results(100, &mut at_a, None));
    let there = results(100, &mut at_a, Some(&mut at_b));
    tell("a result at another node, after the death of the process", there);
    print_load();
}

/// A way to the server on which every notification is lost; its port.
fn deaf(server: &Server) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, to) = (listener.local_addr().unwrap().port(), server.port());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) =
                (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut server);
                server.shutdown(Shutdown::Both)
            });
            thread::spawn(move || {
                let mut head = [0; 5];
                while back.read_exact(&mut head).is_ok() {
                    let size = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize - 4;
                    let mut message = head.to_vec();
                    message.resize(5 + size, 0);
                    let is_read = back.read_exact(&mut message[5..]).is_ok();
                    if head[0] != b'A' && !(is_read && client.write_all(&message).is_ok()) {
                        break;
                    }
                }
                client.shutdown(Shutdown::Both)
            });
        }
    });
    port
}

#[test]
#[ignore = "prints figures, for a quiet machine"]
fn cancels_without_hints() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let url =
        format!("postgres://ceased:sesame@127.0.0.1:{}/postgres?sslmode=disable", deaf(&server));
    let [a, b] = ["a", "b"].map(|name| Daemon::start_in(home_of(&url, name, "", WIDE)));
    let what = " without any hint";
    tell_cancels(what, "hang", 50, &mut a.peer(), &mut b.peer());
    tell_cancels(what, "family", 30, &mut a.peer(), &mut b.peer());
}

/// Seconds of CPU that a process and its children that have ended took.
fn cpu(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u32 = fields.skip(11).take(4).map(|ticks| ticks.parse::<u32>().unwrap()).sum();
    f64::from(ticks) / 100.0
}

/// The same of a server with all of its processes.
fn cpu_of_server(server: &Server) -> f64 {
    let pid = server.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    cpu(pid) + children.split_whitespace().map(|child| cpu(child.parse().unwrap())).sum::<f64>()
}

/// Creates so many tasks in turn at these nodes, with at most so many requests under way; their ids.
fn create(peers: &mut [Peer], count: usize, outstanding: usize, ms: u32) -> Vec<String> {
    let call = format!(r#"{{"name":"sleep","arguments":{{"ms":{ms}}},"task":{{}}}}"#);
    let (mut waiting, mut tasks) = (VecDeque::new(), Vec::new());
    for number in 0..count + outstanding {
        if number >= outstanding {
            let (at, id): (usize, u64) = waiting.pop_front().unwrap();
            let answer = peers[at].answer(id);
            let task = answer["result"]["task"]["taskId"].as_str();
            tasks.push(task.unwrap_or_else(|| panic!("{answer}")).to_owned());
        }
        if number < count {
            let at = number % peers.len();
            waiting.push_back((at, peers[at].request("tools/call", &call)));
        }
    }
    tasks
}

#[test]
#[ignore = "prints figures, for a quiet machine"]
fn tasks_and_cpu() {
    let _alone = alone();
    print_load();
    let Some(server) = Server::start() else { return };
    let nodes = ["a", "b", "c"].map(|name| node(&server, name, "", WIDE));
    // Identities of their own: the row of one of them is written by one node at a time.
    let peers = |at: [usize; 3]| {
        let peers = at.into_iter().zip(3001..).map(|(at, user)| nodes[at].peer_of(user));
        peers.collect::<Option<Vec<Peer>>>()
    };
    let (Some(mut at_a), Some(mut at_all)) = (peers([0; 3]), peers([0, 1, 2])) else { return };
    create(&mut at_all, 1000, 16, 0);
    let idle = |count: usize| {
        wait_until("they are over", || live(&server) == 0);
        f64::from(u32::try_from(count).unwrap())
    };
    let one = |peers: &mut [Peer], count: usize, outstanding: usize, what: &str| {
        let daemons = || nodes.iter().map(|node| cpu(node.pid())).sum::<f64>();
        let (begun, of_engine, of_daemons) = (Instant::now(), cpu_of_server(&server), daemons());
        create(peers, count, outstanding, 0);
        let took = begun.elapsed().as_secs_f64();
        let each = idle(count);
        let [engine, daemon] = [cpu_of_server(&server) - of_engine, daemons() - of_daemons];
        println!(
            "{what}, {outstanding} outstanding: {:.0} tasks a second, CPU of a task {:.0} us at the database \
             and {:.0} us at the daemons",
            each / took,
            engine / each * 1e6,
            daemon / each * 1e6
        );
    };
    one(&mut at_a, 5_000, 1, "one node");
    for _ in 0..3 {
        one(&mut at_a, 20_000, 16, "one node");
        one(&mut at_all, 20_000, 16, "three nodes");
        one(&mut at_all, 20_000, 48, "three nodes");
    }
    print_load();
}

fn count(server: &Server, which: &str) -> u32 {
    let mut session = Session::open(&server.unix(), "", soon()).unwrap();
    let sql = format!("SELECT count(*) FROM ceased.task WHERE {which}");
    let rows = session.script(&sql, soon()).unwrap();
    rows[0].rows[0].text(0).unwrap().unwrap().parse().unwrap()
}

/// Tasks that have not ended.
fn live(server: &Server) -> u32 {
    count(server, "status < 2")
}

/// A node of a rolling restart.
fn crowded(server: &Server, name: &str) -> Daemon {
    let home = home_of(&server.url(), name, "drain = \"5m\"", WIDE);
    let text = home.config_text().replacen("[daemon]", "[daemon]\nqueue = 16384", 1);
    let text = text.replacen("[limits]", "[limits]\nqueue_per_identity = 16384", 1);
    home.configure_as(&text);
    Daemon::start_in(home)
}

/// 10,000 tasks, of which one in ten is cancelled while its node drains, and the others end by themselves.
#[test]
#[ignore = "prints figures, for a quiet machine"]
fn rolling_restart() {
    let _alone = alone();
    print_load();
    let Some(server) = Server::start() else { return };
    let mut nodes: Vec<Daemon> = ["a", "b", "c"].map(|name| crowded(&server, name)).into();
    let told = |what: &str, node: &Daemon| {
        let (kib, rows) = (node.vitals().memory_kib, count(&server, "true"));
        println!("{what}: {kib} KiB resident; {} live of {rows} in the table", live(&server));
    };
    told("a node without tasks", &nodes[0]);
    let fill = |nodes: &[Daemon]| {
        let mut peers: Vec<Peer> = nodes.iter().map(Daemon::peer).collect();
        let mut tasks = Vec::new();
        while live(&server) < 10_000 {
            tasks.extend(create(&mut peers, 900, 48, 150));
        }
        tasks
    };
    for at in 0..3 {
        let tasks = fill(&nodes);
        nodes.iter().for_each(|node| told("a node with a third of the live tasks", node));
        let begun = Instant::now();
        let home = nodes[at].home.clone();
        let mut drain = Program::start(&home, home.command(&["drain"]));
        let mut others = [1, 2].map(|by| nodes[(at + by) % 3].peer());
        for task in tasks.iter().rev().step_by(10).take(1000) {
            let id = others[0].request("tasks/cancel", &of_task(task));
            let answer = others[0].answer(id);
            // It may have ended.
            let code = answer["error"]["code"].as_i64();
            assert!(code.is_none_or(|code| code == -32602), "{answer}");
        }
        while !drain.has_ended() {
            let missing = 10_000_u32.saturating_sub(live(&server)) as usize;
            create(&mut others, missing.clamp(1, 100), 48, 150);
        }
        assert_eq!(drain.wait().code, Some(0));
        assert!(nodes[at].wait().success());
        println!("drained after {:?}, {} live elsewhere", begun.elapsed(), live(&server));
        nodes[at] = Daemon::start_in(home);
        println!("started again after {:?}", begun.elapsed());
    }
    let fresh = crowded(&server, "d");
    told("a node without tasks of its own", &fresh);
    wait_until("they are over", || live(&server) == 0);
    let ended = |status: u8| count(&server, &format!("status = {status}"));
    println!("{} completed, {} cancelled, {} failed", ended(2), ended(4), ended(3));
    assert_eq!(ended(3), 0, "failed by a drain");
    nodes.iter().for_each(|node| told("a node whose tasks have ended", node));
    print_load();
}

#[test]
#[ignore = "prints figures, for a quiet machine"]
fn killed_node_that_starts_again() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let b = node(&server, "b", "", WIDE);
    let mut a = node(&server, "a", "", WIDE);
    let mut at_b = b.peer();
    let (mut ends, mut told) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (task, processes) = running(&mut a.peer(), "family");
        let begun = Instant::now();
        let home = a.kill();
        wait_for_end(&processes);
        ends.push(begun.elapsed());
        let begun = Instant::now();
        let starts = thread::spawn(|| Daemon::start_in(home));
        while status(&mut at_b, &task) != "failed" {
            thread::yield_now();
        }
        told.push(begun.elapsed());
        a = starts.join().unwrap();
    }
    tell("the last process of a killed node", ends);
    tell("its task told as failed after its start", told);
}

#[test]
#[ignore = "prints figures, for a quiet machine"]
fn lost_nodes() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", SHORT, WIDE), node(&server, "b", SHORT, WIDE));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let (task, processes) = running(&mut at_a, "family");
    let begun = Instant::now();
    a.signal(Signal::STOP);
    wait_for_end(&processes);
    println!("the last process of a stopped node of a lease of 10 s: {:?}", begun.elapsed());
    wait_until("the task has failed", || status(&mut at_b, &task) == "failed");
    println!("its task told as failed: {:?}", begun.elapsed());
    thread::sleep(Duration::from_secs(30).saturating_sub(begun.elapsed()));
    let begun = Instant::now();
    a.signal(Signal::CONT);
    let again = created(&mut at_a, "sleep", r#"{"ms":600000}"#);
    println!("a member again after three leases: {:?}", begun.elapsed());
    assert_eq!(status(&mut at_a, &task), "failed");
    running(&mut at_a, "family");
    let begun = Instant::now();
    let home = a.kill();
    wait_until("the task has failed", || status(&mut at_b, &again) == "failed");
    println!("the task of a killed node of a lease of 10 s told as failed: {:?}", begun.elapsed());
    drop(home);
}
