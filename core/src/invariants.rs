//! Invariants across the tables, which hold after every event.

use alloc::collections::BTreeMap;

use crate::connection::{Connection, ConnectionEnd};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{CallId, ConnId, JobId};
use crate::jobs::job::{Job, JobState, Purpose};
use crate::limits::Places;
use crate::outbox::requests::{RequestWork, TaskView};
use crate::outgoing::call::{CallFor, CallWanted, Caller, OutgoingCall, PendingOutgoing};
use crate::policy::account::ChargedText;
use crate::protocol::request_meta::RequestContext;
use crate::server::{disconnect, idempotency, input_required};
use crate::tasks::status::Status;
use crate::tasks::store;
use crate::tool::Tool;
use crate::upstream::list::LISTS;
use crate::upstream::question::{AskedOf, ServerQuestion};
use crate::upstream::tasked::TASK;

impl Engine {
    /// Checks every agreement between the tables, for tests and the simulator. Linear in their
    /// size.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        check(self);
    }
}

/// Checks them all.
///
/// # Panics
/// When one is broken.
pub(crate) fn check(engine: &Engine) {
    engine.tasks.check();
    accounts(engine);
    let admitted = engine.outbox.connections().sum(|peer| usize::from(peer.is_admitted));
    assert_eq!(engine.outbox.admitted(), admitted, "connections are counted");
    requests(engine);
    jobs(engine);
    calls(engine);
    input_required::check(engine);
    disconnect::check(engine);
    idempotency::check(engine);
    store::check(engine);
    timers(engine);
    for (id, entry) in engine.tasks.iter() {
        for (conn, request) in entry.aside.waiters.iter() {
            let work = engine.outbox.connection(*conn).and_then(|c| c.requests.work(request));
            let Some(RequestWork::Task(task, form)) = work else {
                panic!("a waiter waits (TSK-15)");
            };
            assert_eq!(task, id, "a waiter waits for this (TSK-15)");
            let creating = entry.is_being_created();
            // A repeat of the call with its key waits for the handle, too.
            let of_call = matches!(form, TaskView::Handle);
            assert!(!creating || of_call, "{id} exists for nobody yet (DUR-01)");
        }
        for (conn, request) in entry.aside.listeners.iter() {
            let work = engine.outbox.connection(*conn).and_then(|c| c.requests.work(request));
            let Some(RequestWork::Listen(listening)) = work else {
                panic!("{id} is listened to by nobody (MOD-08)");
            };
            assert!(listening.tasks.contains(id), "a listener listens (MOD-08)");
            let viewer = engine.outbox.connection(*conn).map(|c| &c.identity);
            assert_eq!(viewer, Some(engine.tasks.owner(entry)), "who listens may see (TSK-39)");
        }
        if let Some(job) = entry.job {
            assert!(engine.jobs.contains(job), "{id} names a job that is gone");
        }
        let elsewhere = entry.is_visiting() || entry.status().is_terminal();
        assert!(elsewhere || entry.job.is_some(), "{id} works without a job");
    }
}

/// The account of each identity is the sum of its holders.
fn accounts(engine: &Engine) {
    engine.accounts.check();
    let mut of: BTreeMap<&Identity, usize> = BTreeMap::new();
    for (conn, connection) in engine.outbox.connections() {
        if connection.account().is_unowned() {
            continue;
        }
        assert_eq!(connection.requests.charged(), connection.requests.bytes(), "{conn:?}");
        let queue = &connection.send_queue;
        assert_eq!(queue.charged(), queue.len(), "unsent bytes of {conn:?} are charged");
        let kept = [&connection.aside.declared, &connection.aside.client_info];
        let kept: usize = kept.into_iter().flatten().map(ChargedText::charged).sum();
        let bytes = connection.requests.charged() + queue.len() + kept;
        let watched = engine.upstreams.watched.values().flatten();
        let watched = watched.filter(|(watcher, _)| watcher.conn == *conn);
        let watched: usize = watched.map(|(_, shown)| shown.charged()).sum();
        *of.entry(&connection.identity).or_default() +=
            bytes + watched + connection.aside.collected.bytes();
    }
    for (id, job) in engine.jobs.iter() {
        assert!(job.charged() >= job.arguments().map_or(0, |it| it.get().len()), "{id}");
        *of.entry(&job.owner).or_default() += job.charged();
    }
    for agent in engine.agents.clients.values() {
        *of.entry(&agent.identity).or_default() += agent.supervision.charged();
    }
    for (identity, bytes) in of {
        assert_eq!(engine.accounts.own(identity), bytes, "bytes of {identity} are counted");
    }
}

fn requests(engine: &Engine) {
    for (conn, connection) in engine.outbox.connections() {
        let max = engine.loosest.inflight;
        // A cancel is never refused, and leaves one task less.
        let cancels =
            |work: &RequestWork| matches!(work, RequestWork::Task(_, TaskView::Cancelled));
        let cancelling = connection.requests.iter().filter(|(.., work)| cancels(work)).count();
        let bounded = engine.outbox.open_requests(*conn) - cancelling;
        assert!(bounded <= max, "{conn:?} has too many requests");
        for (id, reply, work) in connection.requests.iter() {
            assert_eq!(reply.id, *id);
            assert_eq!(reply.conn, *conn);
            match work {
                RequestWork::Job(job) => {
                    let job = engine.jobs.get(*job).expect("a waiting request has a job (RPC-03)");
                    assert_eq!(*job.purpose(), Purpose::Answer(id.clone()));
                    assert_eq!(job.conn, *conn);
                    assert_eq!(job.terms.dialect(), reply.dialect, "a job speaks as its request");
                }
                RequestWork::Task(task, _) => {
                    let task = engine.tasks.get(*task).expect("a waiting request has a task");
                    assert!(task.aside.waiters.contains(&(*conn, id.clone())));
                }
                RequestWork::Lookup(asked) => engine.lookups.check(asked, *conn, id),
                RequestWork::Survey(survey) => {
                    let of = engine.surveys.get(survey);
                    let asks = of.map(|of| (of.conn, &of.request));
                    assert_eq!(asks, Some((*conn, id)), "a survey knows its request");
                }
                RequestWork::Upstream(_) => {
                    let waits = engine.upstreams.waiters.contains(&(*conn, id.clone()));
                    assert!(waits, "{id} waits for upstreams that know nothing of it");
                }
                RequestWork::Question(AskedOf::Job(job, ask)) => {
                    let relayed = engine.upstreams.jobs.get(job);
                    let question = relayed.and_then(|relayed| relayed.questions.get(ask));
                    assert_eq!(question, Some(&ServerQuestion::Request(id.clone())), "UPS-12");
                }
                RequestWork::Question(AskedOf::Client(client, call)) => {
                    let asked = engine.upstreams.asked.get(&(*client, *call));
                    assert_eq!(asked, Some(&(*conn, id.clone())), "UPS-12");
                }
                RequestWork::Listen(listening) => {
                    for task in &listening.tasks {
                        let task = engine.tasks.get(*task).expect("what is listened to exists");
                        assert!(task.aside.listeners.contains(&(*conn, id.clone())));
                    }
                }
            }
        }
        for (id, topics) in &connection.aside.behind {
            let Some(RequestWork::Listen(listening)) = connection.requests.work(id) else {
                panic!("{id} is behind and no subscription (MOD-08)");
            };
            assert!(!topics.is_empty() && topics.iter().all(|topic| listening.wants(*topic)));
        }
        batches(connection);
        for job in connection.held_progress.iter() {
            assert!(engine.jobs.contains(*job), "progress is held for a job that is gone");
        }
        assert!(
            !matches!(connection.ending, ConnectionEnd::Finished(_))
                || !connection.requests.is_empty(),
            "{conn:?} has nothing left to wait for and is still open"
        );
    }
}

/// A batch waits for its answers, and their bytes are counted.
fn batches(connection: &Connection) {
    let collected: usize = connection.aside.batches.values().map(|batch| batch.bytes.len()).sum();
    assert_eq!(collected, connection.aside.collected.bytes(), "collected answers are counted");
    for answers in connection.aside.batches.values() {
        assert!(answers.open > 0, "a settled batch is sent and forgotten");
    }
}

fn jobs(engine: &Engine) {
    let (mut running, mut asking) = (0, 0);
    for (id, job) in engine.jobs.iter() {
        match job.state() {
            JobState::Held(_) => {
                assert_eq!(*job.purpose(), Purpose::Task, "{id} is held for nothing");
                assert!(!engine.jobs.pools().contains(job), "{id} may not start");
            }
            JobState::Queued(_) => {
                assert!(engine.jobs.pools().contains(job), "{id} waits in no queue");
                assert_ne!(*job.purpose(), Purpose::NoReceiver, "{id} waits for nobody");
            }
            JobState::Running | JobState::Lingering => {
                assert_eq!(job.is_asking(), job.needs_input(), "{id} waits for an answer");
                *(if job.is_asking() { &mut asking } else { &mut running }) += 1;
                assert_ne!(*job.purpose(), Purpose::NoReceiver, "{id} runs for nobody (J3)");
            }
            JobState::Stopping { .. } => {
                assert!(!job.is_asking(), "{id} stops and waits for an answer");
                running += 1;
            }
        }
        purpose(engine, *id, job);
    }
    let pools = engine.jobs.pools();
    assert_eq!(running, pools.running(), "running jobs are counted");
    assert_eq!(asking, pools.asking(), "jobs that wait for an answer are counted");
    let mut outlasting = 0;
    for job in engine.jobs.iter().map(|(_, job)| job).filter(|job| job.outlasts()) {
        assert_eq!(*job.purpose(), Purpose::NoReceiver, "nobody waits for what outlasts SIGKILL");
        outlasting += 1;
    }
    assert_eq!(outlasting, engine.jobs.outlasting(), "jobs that outlast SIGKILL are counted");
    shares(engine);
    let queued = engine
        .jobs
        .iter()
        .map(|(_, job)| job)
        .filter(|job| matches!(job.state(), JobState::Queued(_)));
    assert_eq!(queued.count(), pools.waiting(), "a queued job is gone");
    pools.check();
}

/// The receiver of the outcome of a job knows of the job.
fn purpose(engine: &Engine, id: JobId, job: &Job) {
    match job.purpose() {
        Purpose::NoReceiver | Purpose::Orphan | Purpose::Retry(_) => {}
        Purpose::Answer(request) => {
            let work = engine.outbox.connection(job.conn).and_then(|c| c.requests.work(request));
            let waits = work == Some(&RequestWork::Job(id));
            assert!(waits, "{id} answers a request");
        }
        Purpose::Task => {
            let task = job.task.and_then(|task| engine.tasks.get(task));
            let task = task.expect("a job's task exists");
            assert_eq!(task.job, Some(id));
            assert!(!task.status().is_terminal(), "{id} works for a task that has ended");
        }
    }
}

/// Running jobs of each pool and identity are counted and within their bounds.
fn shares(engine: &Engine) {
    let loosest = &engine.loosest;
    let own = Places { max: loosest.running, per_identity: loosest.running_per_identity };
    // Those beyond the bounds: they have waited for an answer.
    let mut of_pool: BTreeMap<Option<&str>, (usize, Places)> = BTreeMap::new();
    let mut of_owner: BTreeMap<_, (usize, usize, &Tool)> = BTreeMap::new();
    for (_, job) in engine.jobs.iter() {
        if !matches!(job.state(), JobState::Held(_) | JobState::Queued(_)) && !job.is_asking() {
            let within = usize::from(!job.has_asked());
            let route = job.tool.route.as_ref();
            let server = route.map(|route| &*route.server);
            let places = route.map_or(own, |route| route.places.or(own));
            let (all, bound) = of_pool.entry(server).or_insert((0, places));
            *all += within;
            for places in [places, engine.jobs.pools().places_now(&job.tool)] {
                bound.max = bound.max.max(places.max);
                bound.per_identity = bound.per_identity.max(places.per_identity);
            }
            let owned = of_owner.entry((server, &job.owner)).or_insert((0, 0, &job.tool));
            (owned.0, owned.1) = (owned.0 + 1, owned.1 + within);
        }
    }
    for ((server, owner), (count, within, tool)) in of_owner {
        let counted = engine.jobs.pools().running_of(tool, owner);
        assert_eq!(count, counted, "running jobs of {owner} are counted ({server:?})");
        let (all, bound) = of_pool[&server];
        assert!(all <= bound.max, "too many jobs run ({server:?})");
        assert!(within <= bound.per_identity, "{owner} runs more than its share ({server:?})");
    }
}

/// Every question of a job is where the connection it went to, or its task, knows of it.
fn calls(engine: &Engine) {
    let mut sent = 0;
    for (id, job) in engine.jobs.iter() {
        let stopping = !matches!(job.state(), JobState::Running | JobState::Lingering);
        for (ask, asked) in &*job.asks {
            match asked {
                PendingOutgoing::Waiting(_) => {
                    let asks_by_answer = matches!(job.terms, RequestContext::Request(_));
                    assert!(job.task.is_some() || asks_by_answer, "{id} asks {ask:?} of nobody");
                    assert!(!stopping, "{id} is told to stop and still asks");
                }
                PendingOutgoing::Sent(conn, call) | PendingOutgoing::Offered(conn, call, _) => {
                    let caller = Caller::Job { job: *id, ask: *ask };
                    assert_eq!(caller_of(engine, *conn, *call), Some(caller));
                    let entry = engine.outgoing.call(*conn, *call);
                    let wanted = entry.is_none_or(|entry| entry.wanted() == CallWanted::Yes);
                    assert!(!stopping || !wanted, "{id} is told to stop and still asks");
                    sent += 1;
                }
            }
        }
        // A generator may give the id of a task that expired while its job was stopping (TSK-08).
        if let Some(task) = job.task.and_then(|task| engine.tasks.get(task))
            && task.job == Some(*id)
            && !task.status().is_terminal()
        {
            let asks = task.status() == Status::InputRequired;
            let shows = job.needs_input() && !task.is_being_created();
            assert_eq!(asks, shows, "input_required while it asks (TSK-28)");
        }
    }
    for (ask, (conn, call)) in engine.outgoing.host_calls() {
        assert_eq!(caller_of(engine, *conn, *call), Some(Caller::Host(*ask)));
        sent += 1;
    }
    for (conn, peer) in engine.outgoing.peers() {
        let own = |call: &&OutgoingCall| matches!(call.receiver(), CallFor::Upstream(_));
        for list in LISTS {
            let asked = peer.calls().map(|(_, call)| call).filter(own);
            let asked = asked.filter(|call| *call.method == *list.method).count();
            // The one that is read, and one that was given up for it in the same event.
            assert!(asked <= 2, "{asked} requests for {} wait on {conn:?} (UPS-10)", list.method);
        }
    }
    for (_, call) in engine.outgoing.peers().flat_map(|(_, peer)| peer.calls()) {
        let bounded = call.wanted() == CallWanted::Yes || call.timer.is_some();
        assert!(bounded, "the answer to a cancelled call is waited for without end (ACP-03)");
    }
    let open: usize = engine.outgoing.peers().map(|(conn, _)| open_calls(engine, *conn)).sum();
    assert_eq!(open, sent, "a call without a caller");
}

/// Caller that waits for a call, or for the task that came of it.
fn caller_of(engine: &Engine, conn: ConnId, id: CallId) -> Option<Caller> {
    match (engine.outgoing.call(conn, id), engine.outgoing.remote(conn, id)) {
        (Some(call), None) => call.receiver().caller(),
        (None, Some(remote)) => Some(remote.caller),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// Number of callers that wait on one connection; own requests of the engine have a remote task.
fn open_calls(engine: &Engine, conn: ConnId) -> usize {
    let connection = engine.outbox.connection(conn).expect("calls wait on a connection");
    let peer = engine.outgoing.on(conn).expect("it was listed");
    let is_of_caller = |call: &OutgoingCall| matches!(call.receiver(), CallFor::Caller(_));
    let mut open = peer.remote_tasks().filter(|(_, remote)| is_of_caller(&remote.call)).count();
    for (id, call) in peer.calls() {
        let about = |created: &CallId| engine.outgoing.remote(conn, *created);
        match &call.receiver() {
            CallFor::Caller(_) => open += 1,
            CallFor::NoReceiver => {
                assert!(call.with_task, "{id:?} is kept for the task it may create (CAN-05)");
                assert_eq!(call.timer, None, "nobody waits for {id:?}");
            }
            CallFor::Poll(of) => assert_eq!(about(of).and_then(|r| r.poll), Some(*id)),
            CallFor::Fetch(of) => assert_eq!(about(of).and_then(|r| r.fetch), Some(*id)),
            CallFor::Cancel | CallFor::RelayedCancel(_) => {}
            CallFor::Elsewhere(task) => {
                assert!(engine.tasks.has_offered(*task, (conn, *id)), "{id:?} is for no task");
            }
            CallFor::RelayedPoll(job) => {
                let relayed = engine.upstreams.jobs.get(job);
                let poll = relayed.and_then(|relayed| relayed.task.as_ref()?.poll);
                assert_eq!(poll, Some(*id), "{id:?} is about the task of its job (UPS-15)");
            }
            CallFor::Upstream(instance) => {
                let of = engine.outbox.instance(conn);
                assert_eq!(of, Some(*instance), "{id:?} is asked of its instance");
            }
            CallFor::Question => {
                let asked = engine.upstreams.asked.contains_key(&(conn, *id));
                assert!(asked, "{id:?} is asked of a client for no server (UPS-12)");
            }
            CallFor::Relayed(job) => {
                let sent = engine.upstreams.jobs.get(job).and_then(|job| job.sent);
                assert_eq!(sent.map(|sent| sent.call), Some(*id), "{id:?} is of its job (UPS-02)");
            }
        }
    }
    for (id, remote) in peer.remote_tasks() {
        if let CallFor::Relayed(job) = remote.call.receiver() {
            assert_eq!(remote.caller, Caller::Job { job, ask: TASK });
            let sent = engine.upstreams.jobs.get(&job).and_then(|job| job.sent);
            assert_eq!(sent.map(|sent| sent.call), Some(*id), "{id:?} is of its job");
        } else {
            assert_eq!(remote.call.receiver(), CallFor::Caller(remote.caller));
        }
        for asked in [remote.poll, remote.fetch].into_iter().flatten() {
            assert!(engine.outgoing.call(conn, asked).is_some(), "{id:?} waits for nothing");
        }
        let followed = remote.poll_timer.is_some() || remote.poll.is_some();
        let once = !(remote.poll_timer.is_some() && remote.poll.is_some());
        assert!(once, "{id:?} is asked about once at a time (TSK-13)");
        assert!(
            followed || remote.fetch.is_some() || connection.ending != ConnectionEnd::Open,
            "{id:?} is followed by nothing (TSK-13)"
        );
    }
    open
}

fn timers(engine: &Engine) {
    let armed = engine.jobs.iter().map(|(_, job)| job).filter(|job| job.timer.is_some()).count()
        + engine.jobs.iter().filter(|(_, job)| job.progress.heartbeat.is_some()).count()
        + engine.tasks.iter().filter(|(_, task)| task.timer.is_some()).count()
        + engine.outbox.connections().values().filter(|c| c.aside.catch_up_timer.is_some()).count()
        + engine.outbox.connections().values().filter(|c| c.aside.stall_timer.is_some()).count()
        + engine.outbox.connections().values().filter(|c| c.aside.linger_timer.is_some()).count()
        + engine
            .outgoing
            .peers()
            .flat_map(|(_, peer)| peer.calls())
            .filter(|(_, call)| call.timer.is_some())
            .count()
        + engine.upstreams.armed()
        + engine.agents.armed()
        + input_required::armed(engine)
        + disconnect::armed(engine)
        + idempotency::armed(engine)
        + usize::from(store::is_armed(engine))
        + usize::from(engine.lookups.is_armed())
        + engine
            .outgoing
            .peers()
            .flat_map(|(_, peer)| peer.remote_tasks())
            .map(|(_, r)| usize::from(r.call.timer.is_some()) + usize::from(r.poll_timer.is_some()))
            .sum::<usize>()
        + engine.drain.as_ref().map_or(0, |drain| {
            usize::from(drain.kill_timer.is_some()) + usize::from(drain.end_timer.is_some())
        });
    assert_eq!(armed, engine.timers.len(), "a timer without an owner");
    engine.timers.check();
}
