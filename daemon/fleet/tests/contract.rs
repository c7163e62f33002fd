//! The contract of a shared table, on the model, PostgreSQL, and one that forgets, which must fail.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "what is not expected ends the test")]

mod server;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ceased_core::ids::TaskId;
use ceased_core::tasks::status::Status;
use ceased_fleet::contract::{
    self, CallKey, End, Ended, Epoch, Failure, FleetWrite, Found, KeyChange, KeyFound, KeyQuota,
    Limit, NewTask, NodeInfo, Outcome, Quota, Reaped, Resolved, SharedTable, TaskRow, Verdict,
    Version, Wanted,
};
use ceased_fleet::{Model, ModelTable, PostgresTable};
use server::{Server, soon};
use uuid::Uuid;

/// A kind of table, and how time passes at it.
trait Fleet {
    type Table: SharedTable;
    /// Access for one more node.
    fn table(&self) -> Self::Table;
    /// Time passes.
    fn pass(&self, time: Duration);
}

impl Fleet for Model {
    type Table = ModelTable;
    fn table(&self) -> ModelTable {
        Self::table(self)
    }
    fn pass(&self, time: Duration) {
        self.advance(time);
    }
}

impl Fleet for Server {
    type Table = PostgresTable;
    fn table(&self) -> PostgresTable {
        PostgresTable::new(self.tcp())
    }
    fn pass(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Carries out nothing, and says that it did.
struct Forgetful(ModelTable);

impl SharedTable for Forgetful {
    fn join(&mut self, node: &NodeInfo, deadline: Instant) -> Result<Epoch, Failure> {
        self.0.join(node, deadline)
    }
    fn commit(
        &mut self,
        writes: &[FleetWrite],
        deadline: Instant,
    ) -> Result<Vec<Verdict>, Failure> {
        self.0.commit(&[], deadline)?;
        let stored = Verdict::Stored {
            version: Version(1),
            stamp: ceased_core::time::Wall::from_millis(0),
            position: 1,
        };
        Ok(vec![stored; writes.len()])
    }
    fn concerned(
        &mut self,
        node: Epoch,
        tasks: &[TaskId],
        deadline: Instant,
    ) -> Result<Vec<Epoch>, Failure> {
        self.0.concerned(node, tasks, deadline)
    }
    fn resolve(&mut self, writes: &[FleetWrite], deadline: Instant) -> Result<Resolved, Failure> {
        self.0.resolve(writes, deadline)
    }
    fn fetch(&mut self, wanted: &[Wanted], deadline: Instant) -> Result<Vec<Found>, Failure> {
        self.0.fetch(wanted, deadline)
    }
    fn reap(&mut self, end: &End, buries: bool, deadline: Instant) -> Result<Reaped, Failure> {
        self.0.reap(end, buries, deadline)
    }
    fn expire(&mut self, deadline: Instant) -> Result<bool, Failure> {
        self.0.expire(deadline)
    }
    fn leave(&mut self, deadline: Instant) -> Result<(), Failure> {
        self.0.leave(deadline)
    }
}

struct ForgetfulFleet(Model);

impl Fleet for ForgetfulFleet {
    type Table = Forgetful;
    fn table(&self) -> Forgetful {
        Forgetful(self.0.table())
    }
    fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

const ROOM: Quota = Quota { live: 100, stored: 1000, bytes: 1 << 20 };
const LEASE: Duration = Duration::from_millis(500);

fn node(key: u8, lease: Duration) -> NodeInfo {
    NodeInfo { key: [key; 16], name: format!("n{key}"), lease, version: String::new() }
}

fn member<F: Fleet>(fleet: &F, key: u8) -> F::Table {
    let mut table = fleet.table();
    table.join(&node(key, Duration::from_secs(60)), soon()).unwrap();
    table
}

fn new(identity: &str, ttl: Duration) -> (TaskId, FleetWrite) {
    let id = TaskId::new(Uuid::new_v4());
    let identity = identity.to_owned();
    let task = NewTask { id, identity, tool: "build".to_owned(), message: None, ttl, end: None };
    (id, FleetWrite::New { task, quota: ROOM })
}

fn end(status: Ended, json: &str) -> End {
    let (message, outcome) = (Some("over".to_owned()), Outcome::Result(json.to_owned()));
    End { status, message, outcome, receipt: None }
}

fn cancel(task: TaskId, viewer: &str) -> FleetWrite {
    let end = End { outcome: Outcome::Error("{}".to_owned()), ..end(Ended::Cancelled, "") };
    FleetWrite::Cancel { task, viewer: viewer.to_owned(), end }
}

fn lost() -> End {
    End { outcome: Outcome::Error(r#"{"code":-31007}"#.to_owned()), ..end(Ended::Failed, "") }
}

fn one(table: &mut impl SharedTable, write: FleetWrite) -> Verdict {
    let mut verdicts = table.commit(&[write], soon()).unwrap();
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

fn version(verdict: &Verdict) -> Version {
    match verdict {
        Verdict::Stored { version, .. } => *version,
        other => panic!("{other:?}"),
    }
}

fn create(table: &mut impl SharedTable, identity: &str) -> TaskId {
    let (id, write) = new(identity, Duration::from_secs(3600));
    assert_eq!(version(&one(table, write)), Version(1));
    id
}

fn look(table: &mut impl SharedTable, task: TaskId, viewer: &str) -> Option<TaskRow> {
    let wanted = Wanted::Task { task, viewer: viewer.to_owned() };
    match table.fetch(&[wanted], soon()).unwrap().remove(0) {
        Found::Task(row) => row.map(|row| *row),
        other => panic!("{other:?}"),
    }
}

/// A task is found by every node until its ttl ends, and by its owner alone.
fn a_task_is_found_by_every_node<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let (id, write) = new("ann", Duration::from_millis(300));
    one(&mut a, write);
    let row = look(&mut b, id, "ann").expect("every node finds it");
    assert_eq!((row.status, row.tool.as_str(), row.position), (Status::Working, "build", 1));
    assert_eq!(look(&mut b, id, "bob"), None);
    fleet.pass(Duration::from_millis(600));
    // One without an end stays.
    b.expire(soon()).unwrap();
    assert!(look(&mut b, id, "ann").is_some());
    one(&mut a, FleetWrite::End { task: id, end: end(Ended::Completed, "{\"x\":1}") });
    b.expire(soon()).unwrap();
    assert_eq!(look(&mut b, id, "ann"), None);
    assert_eq!(
        one(&mut a, FleetWrite::Receipt { task: id, receipt: "{}".to_owned() }),
        Verdict::Gone
    );
}

/// A task has one end, whichever node tells it.
fn a_task_has_one_end<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let id = create(&mut a, "ann");
    let asks = FleetWrite::Change {
        task: id,
        input_required: true,
        message: None,
        asks: Some("[]".to_owned()),
    };
    assert_eq!(version(&one(&mut a, asks.clone())), Version(2));
    // Its own node alone changes it.
    assert!(matches!(one(&mut b, asks), Verdict::Overtaken(row) if row.version == Version(2)));
    assert_eq!(one(&mut b, cancel(id, "bob")), Verdict::Gone);
    let committed = b.commit(&[cancel(id, "ann")], soon()).unwrap();
    version(&committed[0]);
    let node = look(&mut b, id, "ann").unwrap().node;
    let concerned = |table: &mut F::Table, but| table.concerned(but, &[id], soon()).unwrap();
    assert_eq!(concerned(&mut b, Epoch(0)), [node], "the node that runs it is hinted");
    assert_eq!(concerned(&mut b, node), [], "by another one");
    let late = FleetWrite::End { task: id, end: end(Ended::Completed, "{}") };
    match one(&mut a, late) {
        Verdict::Overtaken(row) => {
            assert_eq!((row.status, row.asks.as_deref()), (Status::Cancelled, None));
            assert_eq!(row.message.as_deref(), Some("over"));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(one(&mut b, cancel(id, "ann")), Verdict::Overtaken(_)));
    let wanted = Wanted::Outcome { task: id, viewer: "ann".to_owned() };
    let found = a.fetch(&[wanted], soon()).unwrap();
    assert_eq!(found, [Found::Outcome(Some(Outcome::Error("{}".to_owned())))]);
    // The end of the processes is told later.
    assert_eq!(look(&mut b, id, "ann").unwrap().receipt, None);
    let receipt = FleetWrite::Receipt { task: id, receipt: "{\"left\":0}".to_owned() };
    version(&one(&mut a, receipt));
    assert_eq!(look(&mut b, id, "ann").unwrap().receipt.as_deref(), Some("{\"left\":0}"));
}

/// Another node does not end a task of this one but by a cancel.
fn only_its_node_ends_a_task<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let id = create(&mut a, "ann");
    let foreign = FleetWrite::End { task: id, end: end(Ended::Completed, "{}") };
    assert!(
        matches!(one(&mut b, foreign), Verdict::Overtaken(row) if row.status == Status::Working)
    );
    assert_eq!(b.reap(&lost(), true, soon()).unwrap().tasks, []);
    assert_eq!(look(&mut a, id, "ann").unwrap().status, Status::Working);
}

/// The tasks of a lost node are ended by others once its lease is over, and it writes nothing more.
fn a_lost_node_is_fenced<F: Fleet>(fleet: &F) {
    let mut a = fleet.table();
    let epoch = a.join(&node(1, LEASE), soon()).unwrap();
    let mut b = member(fleet, 2);
    let id = create(&mut a, "ann");
    one(&mut b, FleetWrite::Watch(id));
    assert_eq!(b.reap(&lost(), true, soon()).unwrap(), Reaped::default());
    fleet.pass(LEASE / 2);
    a.commit(&[], soon()).unwrap();
    fleet.pass(LEASE * 7 / 10 + Duration::from_secs(1));
    // It renewed since its last lease began.
    let early = b.reap(&lost(), true, soon()).unwrap();
    assert!(early.nodes.is_empty() || fleet_is_slow(&early), "{early:?}");
    fleet.pass(LEASE * 2);
    assert_eq!(b.reap(&lost(), false, soon()).unwrap(), Reaped::default(), "it buries none");
    let reaped = b.reap(&lost(), true, soon()).unwrap();
    let (nodes, tasks) =
        ([early.nodes, reaped.nodes].concat(), [early.tasks, reaped.tasks].concat());
    assert_eq!((nodes, tasks), (vec![epoch], vec![id]));
    let row = look(&mut b, id, "ann").unwrap();
    assert_eq!((row.status, row.node), (Status::Failed, epoch));
    let late = FleetWrite::End { task: id, end: end(Ended::Completed, "{}") };
    let (other, fresh) = new("ann", LEASE);
    assert!(matches!(a.commit(&[late, fresh], soon()), Err(Failure::Fenced)));
    assert_eq!(look(&mut b, other, "ann"), None);
    // It is a member again under a new number.
    assert!(a.join(&node(1, LEASE), soon()).unwrap() > epoch);
    a.commit(&[], soon()).unwrap();
}

/// On a busy machine real time passes faster than a test means.
fn fleet_is_slow(reaped: &Reaped) -> bool {
    reaped.nodes.len() == 1
}

/// A daemon that starts again with its key need not wait for its lease.
fn a_restarted_node_succeeds_itself<F: Fleet>(fleet: &F) {
    let mut a = fleet.table();
    let first = a.join(&node(1, Duration::from_secs(60)), soon()).unwrap();
    let id = create(&mut a, "ann");
    let mut again = fleet.table();
    assert!(again.join(&node(1, Duration::from_secs(60)), soon()).unwrap() > first);
    assert!(matches!(a.commit(&[], soon()), Err(Failure::Fenced)));
    assert_eq!(again.reap(&lost(), false, soon()).unwrap().tasks, [id]);
    // And one that leaves says so.
    let id = create(&mut again, "ann");
    let mut b = member(fleet, 2);
    again.leave(soon()).unwrap();
    assert_eq!(b.reap(&lost(), false, soon()).unwrap().tasks, [id]);
}

/// Limits hold over all nodes, and give room back.
fn quotas_hold_over_all_nodes<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let quota = Quota { live: 2, stored: 2, bytes: 10 };
    let fresh = |table: &mut F::Table| {
        let (id, write) = new("ann", Duration::from_millis(1));
        let FleetWrite::New { task, .. } = write else { unreachable!() };
        (id, one(table, FleetWrite::New { task, quota }))
    };
    let (first, verdict) = fresh(&mut a);
    version(&verdict);
    let (second, verdict) = fresh(&mut b);
    version(&verdict);
    assert_eq!(fresh(&mut a).1, Verdict::Full(Limit::Live));
    one(&mut a, FleetWrite::End { task: first, end: end(Ended::Completed, "12345") });
    let (third, verdict) = fresh(&mut b);
    version(&verdict);
    one(&mut b, FleetWrite::End { task: second, end: end(Ended::Completed, "12") });
    assert_eq!(fresh(&mut a).1, Verdict::Full(Limit::Stored));
    fleet.pass(Duration::from_millis(50));
    a.expire(soon()).unwrap();
    let (_, verdict) = fresh(&mut a);
    version(&verdict);
    let big = end(Ended::Completed, "1234567890");
    one(&mut b, FleetWrite::End { task: third, end: big });
    assert_eq!(fresh(&mut b).1, Verdict::Full(Limit::Bytes));
    // Others have their own.
    create(&mut b, "bob");
}

/// A task is removed by its own node alone, and gives its room back.
fn a_removed_task_gives_its_room_back<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let quota = Quota { live: 1, stored: 1, bytes: 1 << 20 };
    let fresh = |table: &mut F::Table| {
        let (id, write) = new("ann", Duration::from_secs(3600));
        let FleetWrite::New { task, .. } = write else { unreachable!() };
        (id, one(table, FleetWrite::New { task, quota }))
    };
    let (live, verdict) = fresh(&mut a);
    version(&verdict);
    assert_eq!(one(&mut b, FleetWrite::Delete(live)), Verdict::Gone, "it is another node's");
    assert!(look(&mut b, live, "ann").is_some());
    assert_eq!(one(&mut a, FleetWrite::Delete(live)), Verdict::Done);
    assert_eq!(look(&mut b, live, "ann"), None);
    let (ended, verdict) = fresh(&mut a);
    version(&verdict);
    let end = end(Ended::Completed, "12345");
    one(&mut a, FleetWrite::End { task: ended, end });
    assert_eq!(fresh(&mut b).1, Verdict::Full(Limit::Stored));
    assert_eq!(one(&mut a, FleetWrite::Delete(ended)), Verdict::Done);
    version(&fresh(&mut b).1);
}

/// A list has every task once and in order, on every node.
fn lists_are_whole_and_in_order<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let mut made = Vec::new();
    for number in 0..7 {
        made.push(if number % 2 == 0 { create(&mut a, "ann") } else { create(&mut b, "ann") });
        create(&mut a, "bob");
    }
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let wanted = Wanted::Page { viewer: "ann".to_owned(), after, size: 3 };
        let Found::Tasks(page) = b.fetch(&[wanted], soon()).unwrap().remove(0) else { panic!() };
        let Some(last) = page.last() else { break };
        after = last.position;
        seen.extend(page.iter().map(|row| row.id));
    }
    assert_eq!(seen, made);
}

/// A batch is carried out in its order, whole or not at all.
fn a_batch_is_whole<F: Fleet>(fleet: &F) {
    let mut a = member(fleet, 1);
    let (first, write) = new("ann", Duration::from_secs(60));
    let over = FleetWrite::End { task: first, end: end(Ended::Completed, "{}") };
    let verdicts = a.commit(&[write.clone(), over], soon()).unwrap();
    assert_eq!(verdicts.iter().map(version).collect::<Vec<_>>(), [Version(1), Version(2)]);
    let (second, fresh) = new("ann", Duration::from_secs(60));
    // The id of the last one is taken.
    let refused = a.commit(&[fresh, write], soon());
    assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
    assert_eq!(look(&mut a, second, "ann"), None);
    a.commit(&[], soon()).unwrap();
}

/// Watches, changes and messages cross nodes.
fn messages_and_changes_arrive<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), fleet.table());
    let to = b.join(&node(2, Duration::from_secs(60)), soon()).unwrap();
    let id = create(&mut a, "ann");
    assert_eq!(one(&mut b, FleetWrite::Watch(id)), Verdict::Done);
    let none = TaskId::new(Uuid::new_v4());
    let changed_of = |table: &mut F::Table, known, size| {
        let wanted = Wanted::Changed { known, size };
        let Found::Changed(rows, gone) = table.fetch(&[wanted], soon()).unwrap().remove(0) else {
            panic!()
        };
        (rows.into_iter().map(|row| (row.id, row.version)).collect::<Vec<_>>(), gone)
    };
    let changed = |table: &mut F::Table, seen| {
        let (rows, gone) = changed_of(table, vec![(id, Version(seen)), (none, Version(1))], 9);
        assert_eq!(gone, [none], "one that is gone is told");
        rows
    };
    assert_eq!(changed(&mut b, 1), []);
    let (rows, gone) = changed_of(&mut b, vec![(id, Version(0)), (none, Version(1))], 1);
    assert_eq!(rows.len() + gone.len(), 1, "so many at a time");
    one(&mut a, cancel(id, "ann"));
    let own = look(&mut a, id, "ann").unwrap().node;
    assert_eq!(a.concerned(own, &[id], soon()).unwrap(), [to], "the node that watches is hinted");
    assert_eq!(changed(&mut b, 1), [(id, Version(2))]);
    one(&mut b, FleetWrite::Unwatch(id));
    let (id, fresh) = new("ann", Duration::from_secs(60));
    one(&mut b, fresh);
    let send = |body: u8| FleetWrite::Send {
        task: id,
        viewer: "ann".to_owned(),
        kind: 3,
        body: vec![body, 0, 255],
    };
    a.commit(&[send(1), send(2)], soon()).unwrap();
    let inbox_of = |table: &mut F::Table, node: Epoch, size, bytes| {
        let wanted = Wanted::Inbox { node, size, bytes };
        let Found::Inbox(messages) = table.fetch(&[wanted], soon()).unwrap().remove(0) else {
            panic!()
        };
        messages
    };
    let inbox = |table: &mut F::Table, node| inbox_of(table, node, 10, 1000);
    assert_eq!(inbox(&mut b, Epoch(0)), []);
    let messages = inbox(&mut a, to);
    assert_eq!(
        messages.iter().map(|it| (it.kind, it.task, it.body[0])).collect::<Vec<_>>(),
        [(3, Some(id), 1), (3, Some(id), 2)]
    );
    for (size, bytes, count) in [(1, 1000, 1), (10, 1, 1), (10, 3, 1), (10, 4, 2)] {
        let first = inbox_of(&mut b, to, size, bytes);
        assert_eq!(first, messages[..count], "{size} messages of {bytes} bytes");
    }
    one(&mut b, FleetWrite::Taken(vec![messages[1].number]));
    assert_eq!(inbox(&mut b, to), messages[..1]);
    b.leave(soon()).unwrap();
    assert_eq!(one(&mut a, send(3)), Verdict::Gone);
}

/// A node that reads nothing is sent a bounded number of messages about a task.
fn waiting_messages_have_a_bound<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let send = |task, length: usize| FleetWrite::Send {
        task,
        viewer: "ann".to_owned(),
        kind: 3,
        body: vec![0; length],
    };
    let (many, large) = (create(&mut a, "ann"), create(&mut a, "ann"));
    let most = contract::WAITING_MESSAGES_MAX as usize;
    let verdicts = b.commit(&vec![send(many, 1); most + 1], soon()).unwrap();
    assert!(verdicts[..most].iter().all(|verdict| *verdict == Verdict::Done), "{verdicts:?}");
    assert_eq!(verdicts[most], Verdict::Gone);
    let bytes = contract::WAITING_BYTES_MAX as usize;
    assert_eq!(one(&mut b, send(large, bytes)), Verdict::Done);
    assert_eq!(one(&mut b, send(large, 1)), Verdict::Gone);
}

type Part<F> = (&'static str, fn(&F));

/// A key names one call at every node: while it runs, as its answer, as its task, and when its node was lost.
fn a_key_names_one_call<F: Fleet>(fleet: &F) {
    let (mut a, mut b) = (member(fleet, 1), member(fleet, 2));
    let of = |name: &str, claim: i64| CallKey {
        identity: "ann".to_owned(),
        key: name.to_owned(),
        claim,
    };
    let quota = KeyQuota { keys: 2, bytes: 1000 };
    let claim = |name: &str, number: i64, wish: u8| FleetWrite::Claim {
        key: of(name, number),
        wish: [wish; 32],
        quota,
    };
    let change = |name: &str, change| FleetWrite::Keyed { key: of(name, 1), change };
    let named = |verdict| match verdict {
        Verdict::Key(found) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(named(one(&mut a, claim("k", 1, 7))), KeyFound::Claimed);
    assert_eq!(named(one(&mut a, claim("k", 2, 7))), KeyFound::UnderWay);
    assert_eq!(named(one(&mut b, claim("k", 1, 7))), KeyFound::UnderWay);
    assert_eq!(named(one(&mut b, claim("k", 1, 8))), KeyFound::Another);
    // Another node than the one that claimed it changes nothing.
    one(&mut b, change("k", KeyChange::Free));
    assert_eq!(named(one(&mut b, claim("k", 1, 7))), KeyFound::UnderWay);
    one(&mut a, change("k", KeyChange::Free));
    assert_eq!(named(one(&mut a, claim("k", 1, 7))), KeyFound::Claimed);
    let outcome = Outcome::Result("{}".to_owned());
    one(&mut a, change("k", KeyChange::Over(outcome.clone(), Duration::from_millis(300))));
    assert_eq!(named(one(&mut b, claim("k", 1, 7))), KeyFound::Over(outcome));
    // A task is named once it is there, and its key goes with it.
    assert_eq!(named(one(&mut a, claim("t", 1, 7))), KeyFound::Claimed);
    assert_eq!(named(one(&mut b, claim("more", 1, 7))), KeyFound::Full { bytes: false });
    let (id, write) = new("ann", Duration::from_secs(3600));
    one(&mut a, change("t", KeyChange::Task(id)));
    assert_eq!(named(one(&mut b, claim("t", 1, 7))), KeyFound::UnderWay);
    one(&mut a, write);
    assert_eq!(named(one(&mut b, claim("t", 1, 7))), KeyFound::Task(id));
    one(&mut a, FleetWrite::Delete(id));
    assert_eq!(named(one(&mut b, claim("t", 1, 7))), KeyFound::Claimed);
    fleet.pass(Duration::from_millis(600));
    assert_eq!(named(one(&mut b, claim("k", 3, 7))), KeyFound::Claimed, "its answer is forgotten");
    // The call of a node that left was stopped with it; of a lost one nothing is known.
    b.leave(soon()).unwrap();
    assert_eq!(named(one(&mut a, claim("k", 4, 7))), KeyFound::Claimed);
    let mut again = member(fleet, 1);
    assert_eq!(named(one(&mut again, claim("k", 1, 7))), KeyFound::Lost);
}

/// All of it, each part on a table of its own.
fn parts<F: Fleet>() -> [Part<F>; 12] {
    [
        ("a_task_is_found_by_every_node", a_task_is_found_by_every_node),
        ("a_task_has_one_end", a_task_has_one_end),
        ("only_its_node_ends_a_task", only_its_node_ends_a_task),
        ("a_lost_node_is_fenced", a_lost_node_is_fenced),
        ("a_restarted_node_succeeds_itself", a_restarted_node_succeeds_itself),
        ("quotas_hold_over_all_nodes", quotas_hold_over_all_nodes),
        ("a_removed_task_gives_its_room_back", a_removed_task_gives_its_room_back),
        ("lists_are_whole_and_in_order", lists_are_whole_and_in_order),
        ("a_batch_is_whole", a_batch_is_whole),
        ("messages_and_changes_arrive", messages_and_changes_arrive),
        ("a_key_names_one_call", a_key_names_one_call),
        ("waiting_messages_have_a_bound", waiting_messages_have_a_bound),
    ]
}

#[test]
fn model_keeps_the_contract() {
    for (name, part) in parts::<Model>() {
        eprintln!("{name}");
        part(&Model::new());
    }
}

#[test]
fn postgresql_keeps_the_contract() {
    let Some(server) = Server::start() else { return };
    for (name, part) in parts::<Server>() {
        eprintln!("{name}");
        part(&server);
        server.clear();
    }
}

#[test]
fn table_that_forgets_fails_the_contract() {
    for (name, part) in parts::<ForgetfulFleet>() {
        let fails = catch_unwind(AssertUnwindSafe(|| part(&ForgetfulFleet(Model::new())))).is_err();
        assert!(fails, "{name} does not see that nothing is kept");
    }
}
