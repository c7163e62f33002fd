//! Faults between nodes and a real PostgreSQL: lost answers, races, crashes, missing rights.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "what is not expected ends the test")]

mod server;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::ids::TaskId;
use ceased_core::tasks::status::Status;
use ceased_fleet::contract::{
    End, Ended, Failure, FleetWrite, Found, NewTask, NodeInfo, Outcome, Quota, Resolved,
    SharedTable as _, TaskRow, Verdict, Version, Wanted,
};
use ceased_fleet::postgres::{Address, Host, Session};
use ceased_fleet::{FORMAT, PostgresHints, PostgresTable};
use server::{Server, soon};
use uuid::Uuid;

fn info(key: u8) -> NodeInfo {
    let lease = Duration::from_secs(60);
    NodeInfo { key: [key; 16], name: format!("n{key}"), lease, version: String::new() }
}

fn member(address: Address, key: u8) -> PostgresTable {
    let mut table = PostgresTable::new(address);
    table.join(&info(key), soon()).unwrap();
    table
}

fn new(identity: &str) -> (TaskId, FleetWrite) {
    let id = TaskId::new(Uuid::new_v4());
    let task = NewTask {
        id,
        identity: identity.to_owned(),
        tool: "build".to_owned(),
        message: None,
        ttl: Duration::from_secs(3600),
        end: None,
    };
    (id, FleetWrite::New { task, quota: Quota { live: 1000, stored: 1000, bytes: 1 << 20 } })
}

fn end(status: Ended) -> End {
    End { status, message: None, outcome: Outcome::Result("{}".to_owned()), receipt: None }
}

fn look(table: &mut PostgresTable, task: TaskId) -> Option<TaskRow> {
    let wanted = Wanted::Task { task, viewer: "ann".to_owned() };
    match table.fetch(&[wanted], soon()).unwrap().remove(0) {
        Found::Task(row) => row.map(|row| *row),
        other => panic!("{other:?}"),
    }
}

const PASS: u8 = 0;
const CUT_REQUEST: u8 = 1;
const CUT_ANSWER: u8 = 2;
/// The next request waits on its way until it is released; those of other connections do not.
const HOLD: u8 = 3;
const RELEASE: u8 = 4;

/// A way to the server that is cut before or behind it.
struct Proxy {
    port: u16,
    mode: Arc<AtomicU8>,
}

impl Proxy {
    fn before(server: &Server) -> Self {
        let Some(Host::Tcp(_, to)) = server.tcp().hosts.pop() else { panic!("no port") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(AtomicU8::new(PASS));
        let shared = Arc::clone(&mode);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) =
                    (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
                pipe(&client, &server, CUT_REQUEST, &shared);
                pipe(&server, &client, CUT_ANSWER, &shared);
            }
        });
        Self { port, mode }
    }

    fn address(&self, server: &Server) -> Address {
        Address { hosts: vec![Host::Tcp("127.0.0.1".to_owned(), self.port)], ..server.tcp() }
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }
}

/// Passes bytes on until `cut` is the mode; then both connections end.
fn pipe(from: &TcpStream, to: &TcpStream, cut: u8, mode: &Arc<AtomicU8>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let mode = Arc::clone(mode);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = from.read(&mut bytes) {
            let order = Ordering::SeqCst;
            if cut == CUT_REQUEST && mode.compare_exchange(HOLD, PASS, order, order).is_ok() {
                while mode.load(order) != RELEASE {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let is_cut = mode.load(Ordering::SeqCst) == cut;
            if count == 0 || is_cut || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[test]
fn lost_answer_is_found_out() {
    let Some(server) = Server::start() else { return };
    let proxy = Proxy::before(&server);
    let mut a = member(proxy.address(&server), 1);
    let mut b = member(server.unix(), 2);
    let (first, fresh) = new("ann");
    proxy.set(CUT_ANSWER);
    let batch = [fresh, FleetWrite::End { task: first, end: end(Ended::Completed) }];
    assert!(matches!(a.commit(&batch, soon()), Err(Failure::Unknown(_))));
    proxy.set(PASS);
    let verdicts = match a.resolve(&batch, soon()).unwrap() {
        Resolved::Done(verdicts) => verdicts,
        Resolved::NotDone => panic!("it was carried out"),
    };
    assert!(matches!(verdicts[0], Verdict::Stored { version: Version(1), .. }), "{verdicts:?}");
    assert!(matches!(verdicts[1], Verdict::Stored { version: Version(2), .. }), "{verdicts:?}");
    assert_eq!(look(&mut b, first).unwrap().status, Status::Completed);

    let (second, fresh) = new("ann");
    let batch = [fresh];
    proxy.set(CUT_REQUEST);
    assert!(matches!(a.commit(&batch, soon()), Err(Failure::Unknown(_))));
    proxy.set(PASS);
    assert_eq!(a.resolve(&batch, soon()).unwrap(), Resolved::NotDone);
    assert_eq!(look(&mut b, second), None);
    let committed = a.commit(&batch, soon()).unwrap();
    assert!(matches!(committed[0], Verdict::Stored { position: 2, .. }), "{committed:?}");
    // An end that was lost and is overtaken by a cancel of another node.
    let ends = [FleetWrite::End { task: second, end: end(Ended::Completed) }];
    proxy.set(CUT_REQUEST);
    assert!(matches!(a.commit(&ends, soon()), Err(Failure::Unknown(_))));
    proxy.set(PASS);
    let cancel =
        FleetWrite::Cancel { task: second, viewer: "ann".to_owned(), end: end(Ended::Cancelled) };
    b.commit(&[cancel], soon()).unwrap();
    assert_eq!(a.resolve(&ends, soon()).unwrap(), Resolved::NotDone);
    let committed = a.commit(&ends, soon()).unwrap();
    let overtaken = |verdict: &Verdict| matches!(verdict, Verdict::Overtaken(row) if row.status == Status::Cancelled);
    assert!(overtaken(&committed[0]), "{committed:?}");
}

/// The answer to a change is lost together with the server: the end of the task is taken all the same.
#[test]
fn end_is_stored_after_a_lost_answer_to_a_change() {
    let Some(server) = Server::start() else { return };
    let proxy = Proxy::before(&server);
    let mut a = member(proxy.address(&server), 1);
    let (task, fresh) = new("ann");
    a.commit(&[fresh], soon()).unwrap();
    let (message, asks) = (None, Some("{}".to_owned()));
    let change = FleetWrite::Change { task, input_required: true, message, asks };
    proxy.set(CUT_ANSWER);
    assert!(matches!(a.commit(&[change], soon()), Err(Failure::Unknown(_))));
    // It cannot be asked for the fate of the batch.
    assert!(a.resolve(&[], soon()).is_err());
    proxy.set(PASS);
    let ends = [FleetWrite::End { task, end: end(Ended::Completed) }];
    let committed = a.commit(&ends, soon()).unwrap();
    assert!(matches!(committed[0], Verdict::Stored { .. }), "{committed:?}");
}

/// FLT-02: a batch that the server reads late, after the node has gone on without it, changes nothing.
#[test]
fn late_batch_changes_nothing() {
    let Some(server) = Server::start() else { return };
    let proxy = Proxy::before(&server);
    let mut a = member(proxy.address(&server), 1);
    let (task, fresh) = new("ann");
    a.commit(&[fresh], soon()).unwrap();
    let change = |asks: &str| FleetWrite::Change {
        task,
        input_required: true,
        message: None,
        asks: Some(asks.to_owned()),
    };
    proxy.set(HOLD);
    let soon_over = Instant::now() + Duration::from_millis(50);
    assert!(matches!(a.commit(&[change("late")], soon_over), Err(Failure::Unknown(_))));
    assert_eq!(a.resolve(&[change("late")], soon()).unwrap(), Resolved::NotDone);
    a.commit(&[change("new")], soon()).unwrap();
    let mut session = Session::open(&server.tcp(), "", soon()).unwrap();
    let mut clients = || {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
        let rows = session.script(count, soon()).unwrap();
        rows[0].rows[0].text(0).unwrap().unwrap().parse::<u32>().unwrap()
    };
    let before = clients();
    proxy.set(RELEASE);
    while clients() == before {}
    assert_eq!(look(&mut a, task).unwrap().asks.as_deref(), Some("new"));
    a.commit(&[], soon()).unwrap();
}

/// Of a cancel at one node and the end at another, one wins, and both tell it.
#[test]
fn race_has_one_winner() {
    let Some(server) = Server::start() else { return };
    let (mut a, mut b) = (member(server.unix(), 1), member(server.unix(), 2));
    let barrier = Arc::new(Barrier::new(2));
    let rounds = 100;
    let tasks: Vec<TaskId> = (0..rounds)
        .map(|_| {
            let (id, write) = new("ann");
            a.commit(&[write], soon()).unwrap();
            id
        })
        .collect();
    let (ids, starts) = (tasks.clone(), Arc::clone(&barrier));
    let cancels = thread::spawn(move || {
        let told = ids.into_iter().map(|task| {
            starts.wait();
            let cancel =
                FleetWrite::Cancel { task, viewer: "ann".to_owned(), end: end(Ended::Cancelled) };
            b.commit(&[cancel], soon()).unwrap().remove(0)
        });
        told.collect::<Vec<_>>()
    });
    let ends: Vec<Verdict> = tasks
        .iter()
        .map(|task| {
            barrier.wait();
            let over = FleetWrite::End { task: *task, end: end(Ended::Completed) };
            a.commit(&[over], soon()).unwrap().remove(0)
        })
        .collect();
    let cancels = cancels.join().unwrap();
    for ((task, ended), cancelled) in tasks.into_iter().zip(ends).zip(cancels) {
        let status = look(&mut a, task).unwrap().status;
        match (&ended, &cancelled) {
            (Verdict::Stored { .. }, Verdict::Overtaken(row)) => {
                assert_eq!((row.status, status), (Status::Completed, Status::Completed));
            }
            (Verdict::Overtaken(row), Verdict::Stored { .. }) => {
                assert_eq!((row.status, status), (Status::Cancelled, Status::Cancelled));
            }
            both => panic!("{both:?}"),
        }
    }
}

/// A client that pages while four nodes create sees each task once and in order.
#[test]
fn pages_are_whole_while_others_create() {
    let Some(server) = Server::start() else { return };
    let each = 40;
    let address = server.unix();
    member(address.clone(), 9);
    let writers: Vec<_> = (1..=4)
        .map(|key| {
            let address = address.clone();
            thread::spawn(move || {
                let mut table = member(address, key);
                let made = (0..each).map(|_| {
                    let (id, write) = new("ann");
                    table.commit(&[write], soon()).unwrap();
                    id
                });
                made.collect::<Vec<_>>()
            })
        })
        .collect();
    let mut reader = PostgresTable::new(address);
    let (mut seen, mut after) = (Vec::new(), 0);
    let end = soon();
    while seen.len() < 4 * each {
        assert!(Instant::now() < end, "{} tasks were seen", seen.len());
        let wanted = Wanted::Page { viewer: "ann".to_owned(), after, size: 7 };
        let Found::Tasks(page) = reader.fetch(&[wanted], end).unwrap().remove(0) else { panic!() };
        after = page.last().map_or(after, |row| row.position);
        seen.extend(page.iter().map(|row| row.id));
    }
    let made: Vec<TaskId> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    for id in &made {
        assert_eq!(seen.iter().filter(|it| *it == id).count(), 1, "{id}");
    }
    assert_eq!(after, 160, "places have no gap");
}

/// Every acknowledged task is there after a crash of the database, and its members go on.
#[test]
fn acknowledged_tasks_outlive_a_crash() {
    let Some(mut server) = Server::start() else { return };
    let mut table = member(server.tcp(), 1);
    let mut told = Vec::new();
    for _ in 0..3 {
        for _ in 0..20 {
            let (id, write) = new("ann");
            table.commit(&[write], soon()).unwrap();
            told.push(id);
        }
        server.kill();
        let (_, write) = new("ann");
        assert!(matches!(table.commit(&[write], soon()), Err(Failure::Unknown(_))));
        server.run();
    }
    for id in told {
        assert!(look(&mut table, id).is_some(), "{id} is lost");
    }
    table.commit(&[], soon()).unwrap();
}

/// FLT-02: a node that begins to watch a task while its end is being stored is hinted, or its look finds the end.
#[test]
fn watch_beside_an_end_is_hinted() {
    let Some(server) = Server::start() else { return };
    let (mut a, mut b) = (member(server.unix(), 1), member(server.unix(), 2));
    let (task, fresh) = new("ann");
    a.commit(&[fresh], soon()).unwrap();
    // An end waits at its commit for the lock, after all of its statements.
    let mut gate = Session::open(&server.unix(), "", soon()).unwrap();
    let waits = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER waits AFTER UPDATE ON ceased.task DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION wait(); SELECT pg_advisory_lock(7)";
    gate.script(waits, soon()).unwrap();
    let own = look(&mut b, task).unwrap().node;
    let ends = thread::spawn(move || {
        a.commit(&[FleetWrite::End { task, end: end(Ended::Completed) }], soon()).unwrap();
        a.concerned(own, &[task], soon()).unwrap()
    });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let mut sees = Session::open(&server.unix(), "", soon()).unwrap();
    while sees.script(waiting, soon()).unwrap()[0].rows[0].text(0).unwrap() == Some("0") {}
    b.commit(&[FleetWrite::Watch(task)], soon()).unwrap();
    assert_eq!(look(&mut b, task).unwrap().status, Status::Working);
    gate.script("SELECT pg_advisory_unlock(7)", soon()).unwrap();
    assert_eq!(ends.join().unwrap().len(), 1, "the node that watches");
}

#[test]
fn hints_reach_a_node() {
    let Some(server) = Server::start() else { return };
    let mut tables = [1, 2].map(|_| PostgresTable::new(server.unix()));
    let [a, b] = [0, 1].map(|at: usize| {
        let lease = Duration::from_secs(60);
        let node = NodeInfo {
            key: [u8::try_from(at).unwrap(); 16],
            name: "n".to_owned(),
            lease,
            version: String::new(),
        };
        tables[at].join(&node, soon()).unwrap()
    });
    let mut of_a = PostgresHints::open(&server.unix(), a, soon()).unwrap();
    let mut of_b = PostgresHints::open(&server.unix(), b, soon()).unwrap();
    assert!(!of_b.wait(Instant::now() + Duration::from_millis(20)).unwrap());
    of_a.send(&[b, b], soon()).unwrap();
    assert!(of_b.wait(soon()).unwrap());
    assert!(!of_a.wait(Instant::now() + Duration::from_millis(20)).unwrap());
    of_a.send(&[], soon()).unwrap();
    // A server that is gone without a word.
    let proxy = Proxy::before(&server);
    let mut cut = PostgresHints::open(&proxy.address(&server), b, soon()).unwrap();
    proxy.set(HOLD);
    assert!(cut.wait(Instant::now() + Duration::from_millis(20)).is_err());
}

#[test]
fn missing_rights_and_other_formats_are_told() {
    let Some(server) = Server::start() else { return };
    let mut owner = Session::open(&server.unix(), "", soon()).unwrap();
    owner.script("CREATE ROLE guest LOGIN", soon()).unwrap();
    let guest = Address { user: "guest".to_owned(), ..server.unix() };
    let told = |address: Address| match PostgresTable::new(address).prepare(soon()) {
        Err(Failure::Unusable(why)) => why,
        other => panic!("{other:?}"),
    };
    let why = told(guest);
    assert!(why.contains("ceased fleet init"), "{why}");
    PostgresTable::new(server.unix()).prepare(soon()).unwrap();
    let mut a = member(server.unix(), 1);
    for (format, remedy) in [("99", "install the version"), ("2", "DROP SCHEMA ceased CASCADE")] {
        // As though the tables were made anew by another version while a node runs.
        let anew = format!("UPDATE ceased.meta SET format = {format}; DELETE FROM ceased.node");
        owner.script(&anew, soon()).unwrap();
        assert!(matches!(a.commit(&[new("ann").1], soon()), Err(Failure::Fenced)));
        let joined = match a.join(&info(1), soon()) {
            Err(Failure::Unusable(why)) => why,
            other => panic!("{other:?}"),
        };
        for why in [joined, told(server.unix())] {
            let is_told = [format, &FORMAT.to_string(), remedy].iter().all(|it| why.contains(it));
            assert!(is_told, "{why}");
        }
    }
    owner.script(&format!("UPDATE ceased.meta SET format = {FORMAT}"), soon()).unwrap();
    a.join(&info(1), soon()).unwrap();
    a.commit(&[new("ann").1], soon()).unwrap();
}

/// Whichever error the engine ends a batch with, nothing of it is done, it is no fault of the batch,
/// and the same batch is carried out when the error is gone.
#[test]
fn batch_of_a_failing_engine_is_sent_again() {
    let Some(server) = Server::start() else { return };
    let mut a = member(server.unix(), 1);
    let mut admin = Session::open(&server.unix(), "", soon()).unwrap();
    let raise = |code: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION ceased.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END $$;
             CREATE OR REPLACE TRIGGER fail BEFORE INSERT OR UPDATE ON ceased.task FOR EACH ROW \
             EXECUTE FUNCTION ceased.fail();"
        )
    };
    let (task, fresh) = new("ann");
    a.commit(&[fresh], soon()).unwrap();
    // A full disk, no memory, a limit of the server, a cancelled query, an error of the system, damage, a
    // conflict that does not end, tables that were changed.
    for code in ["53100", "53200", "53400", "57014", "58030", "XX001", "40001", "0A000"] {
        admin.script(&raise(code), soon()).unwrap();
        let (id, fresh) = new("ann");
        let batch = [fresh, FleetWrite::End { task, end: end(Ended::Completed) }];
        match a.commit(&batch, soon()) {
            Err(Failure::Failing(why)) => assert!(why.contains(code), "{why}"),
            other => panic!("{code}: {other:?}"),
        }
        assert_eq!(look(&mut a, id), None, "{code}");
        assert_eq!(look(&mut a, task).unwrap().status, Status::Working, "{code}");
        admin.script("DROP TRIGGER fail ON ceased.task", soon()).unwrap();
        let stored = a.commit(&batch[..1], soon()).unwrap();
        assert!(matches!(stored[0], Verdict::Stored { version: Version(1), .. }), "{code}");
        assert!(look(&mut a, id).is_some(), "{code}");
    }
    // A value that the table cannot have is refused alone: it would be refused again.
    admin.script(&raise("23514"), soon()).unwrap();
    assert!(matches!(a.commit(&[new("ann").1], soon()), Err(Failure::Refused(_))));
    admin.script("DROP TRIGGER fail ON ceased.task", soon()).unwrap();
}

/// A server that became read-only while a node is connected, and one that ends its connections.
#[test]
fn read_only_server_and_ended_connection_are_left() {
    let Some(server) = Server::start() else { return };
    let mut a = member(server.unix(), 1);
    let mut admin = Session::open(&server.unix(), "", soon()).unwrap();
    let mut read_only = |value: &str| {
        admin
            .script(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"), soon())
            .unwrap();
        admin.script("SELECT pg_reload_conf()", soon()).unwrap();
    };
    read_only("on");
    let (id, fresh) = new("ann");
    let batch = [fresh];
    let until = soon();
    let told = loop {
        match a.commit(&[], soon()) {
            Err(Failure::Failing(why)) => break why,
            // The reload has not reached this connection.
            Ok(_) => assert!(Instant::now() < until, "it stays writable"),
            other => panic!("{other:?}"),
        }
    };
    assert!(told.contains("25006"), "{told}");
    // Another host of the address would be tried: this one takes no writes.
    assert!(matches!(a.commit(&batch, soon()), Err(Failure::Unknown(_))));
    read_only("off");
    while a.commit(&[], soon()).is_err() {
        assert!(Instant::now() < until, "it stays read-only");
    }
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    admin.script(kill, soon()).unwrap();
    assert!(matches!(a.commit(&batch, soon()), Err(Failure::Unknown(_))));
    assert_eq!(a.resolve(&batch, soon()).unwrap(), Resolved::NotDone);
    a.commit(&batch, soon()).unwrap();
    assert!(look(&mut a, id).is_some());
}

/// Nodes lock the row of an owner before those of its tasks: an end at one node and a cancel at another never
/// wait for each other, which would take the database a second to find out.
#[test]
fn batches_of_two_nodes_never_wait_for_each_other() {
    let Some(server) = Server::start() else { return };
    let mut a = member(server.unix(), 1);
    let mut b = member(server.unix(), 2);
    for _ in 0..40 {
        let (mut tasks, fresh): (Vec<_>, Vec<_>) = (0..6).map(|_| new("ann")).unzip();
        tasks.sort_unstable();
        a.commit(&fresh, soon()).unwrap();
        let at_a: Vec<FleetWrite> = tasks
            .iter()
            .map(|task| match task {
                task if *task == tasks[0] => FleetWrite::Change {
                    task: *task,
                    input_required: true,
                    message: None,
                    asks: None,
                },
                task => FleetWrite::End { task: *task, end: end(Ended::Completed) },
            })
            .collect();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                a.commit(&at_a, soon()).unwrap();
            });
            scope.spawn(|| {
                both.wait();
                for task in tasks.iter().rev() {
                    let end = end(Ended::Cancelled);
                    let cancel = FleetWrite::Cancel { task: *task, viewer: "ann".to_owned(), end };
                    b.commit(&[cancel], soon()).unwrap();
                }
            });
        });
    }
    drop((a, b));
    let mut admin = Session::open(&server.unix(), "", soon()).unwrap();
    let mut number = |sql: &str| {
        let rows = admin.script(sql, soon()).unwrap();
        rows[0].rows[0].text(0).unwrap().unwrap().parse::<u64>().unwrap()
    };
    // A session hands in its count when it ends.
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    while number(sessions) > 1 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(number("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), 0);
}
