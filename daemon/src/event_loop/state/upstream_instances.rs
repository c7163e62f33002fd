//! The instances of upstreams that have processes: their stop sequence, and questions about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::server_logs::ServerLogs;
use ceased_core::identity::Identity;
use ceased_core::ids::{CheckId, ConnId, InstanceId};
use ceased_core::time::Instant;
use ceased_process::{SharedOutput, Stream};
use ceased_transports::SkippedLines;

/// Longest time from the end of file on standard input to SIGTERM.
const EOF_GRACE: Duration = Duration::from_millis(500);
/// Pause between two SIGKILLs to an instance that does not end.
const KILL_AGAIN: Duration = Duration::from_secs(1);

/// The instances of upstreams that have processes.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    instances: BTreeMap<InstanceId, Instance>,
    by_conn: BTreeMap<ConnId, InstanceId>,
    /// Connections that are not read until the receiver of their frames has caught up.
    paused: BTreeSet<ConnId>,
    /// Questions to the supervisor, by ticket.
    questions: BTreeMap<u64, (InstanceId, CheckId)>,
    asked: u64,
    /// Lines that ended instances printed beside messages, by server.
    skipped: BTreeMap<Box<str>, u64>,
    /// Standard error of instances, ended ones included.
    logs: ServerLogs,
}

/// An instance that has processes.
#[derive(Debug)]
pub(crate) struct Instance {
    conn: ConnId,
    started: Instant,
    name: Box<str>,
    owner: Option<Identity>,
    stderr: SharedOutput,
    skipped: SkippedLines,
    kill_grace: Duration,
    /// The next step of its end and its time, once it has to end.
    step: Option<(Step, Instant)>,
}

/// A step of the end of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Terminate,
    Kill,
}

impl Upstreams {
    /// Adds an instance whose processes are about to be started.
    pub(crate) fn insert(&mut self, id: InstanceId, instance: Instance) {
        let Instance { conn, ref name, ref owner, ref stderr, .. } = instance;
        self.logs.begin(id, name, owner.clone(), stderr.clone());
        self.by_conn.insert(conn, id);
        self.instances.insert(id, instance);
    }

    /// Removes an instance of which no process is left.
    pub(crate) fn remove(&mut self, id: InstanceId) -> Option<Instance> {
        let instance = self.instances.remove(&id)?;
        self.by_conn.remove(&instance.conn);
        self.logs.end(id);
        let lines = instance.skipped.count();
        if lines > 0 {
            *self.skipped.entry(instance.name.clone()).or_default() += lines;
        }
        Some(instance)
    }

    pub(crate) fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(&id)
    }

    /// The instance that a connection leads to.
    pub(crate) fn behind(&self, conn: ConnId) -> Option<InstanceId> {
        self.by_conn.get(&conn).copied()
    }

    /// Number of connections to instances.
    pub(crate) fn connections(&self) -> usize {
        self.by_conn.len()
    }

    /// Begins the stop sequence of an instance (UPS-07), with its own grace period for `None`. Returns
    /// the connection whose standard input is to be closed; `None` if the sequence goes on already.
    pub(crate) fn begin_end(
        &mut self,
        id: InstanceId,
        kill_grace: Option<Duration>,
        now: Instant,
    ) -> Option<ConnId> {
        let instance = self.instances.get_mut(&id).filter(|instance| instance.step.is_none())?;
        instance.kill_grace = kill_grace.unwrap_or(instance.kill_grace);
        instance.step = Some((Step::Terminate, now + instance.kill_grace.min(EOF_GRACE)));
        Some(instance.conn)
    }

    /// The steps of stop sequences that are due.
    pub(crate) fn take_steps(&mut self, now: Instant) -> Vec<(InstanceId, Step)> {
        let mut due = Vec::new();
        for (id, instance) in &mut self.instances {
            let Some((step, _)) = instance.step.filter(|(_, at)| *at <= now) else { continue };
            let pause = match step {
                Step::Terminate => instance.kill_grace,
                Step::Kill => KILL_AGAIN,
            };
            instance.step = Some((Step::Kill, now + pause));
            due.push((*id, step));
        }
        due
    }

    /// Time of the next step of an end.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.instances.values().filter_map(|instance| Some(instance.step?.1)).min()
    }

    /// Lines that a server printed beside messages (UPS-14).
    pub(crate) fn skipped_by(&self, server: &str) -> u64 {
        let live = self.instances.values().filter(|instance| &*instance.name == server);
        let live: u64 = live.map(|instance| instance.skipped.count()).sum();
        live + self.skipped.get(server).copied().unwrap_or_default()
    }

    /// Number of a new question to the supervisor.
    pub(crate) fn ask(&mut self, instance: InstanceId, check: CheckId) -> u64 {
        self.asked += 1;
        self.questions.insert(self.asked, (instance, check));
        self.asked
    }

    /// The question that an answer of the supervisor belongs to.
    pub(crate) fn take_question(&mut self, ticket: u64) -> Option<(InstanceId, CheckId)> {
        self.questions.remove(&ticket)
    }

    /// Notes a connection that is not read until the receiver of its frames has caught up.
    pub(crate) fn pause(&mut self, conn: ConnId) {
        self.paused.insert(conn);
    }

    /// The connections that were not read.
    pub(crate) fn take_paused(&mut self) -> BTreeSet<ConnId> {
        std::mem::take(&mut self.paused)
    }

    /// Standard error of instances, ended ones included.
    pub(crate) const fn logs(&self) -> &ServerLogs {
        &self.logs
    }
}

impl Instance {
    /// An instance that starts now; `owner` is the identity that it serves, if it serves one alone.
    pub(crate) fn new(
        name: Box<str>,
        owner: Option<Identity>,
        (conn, skipped): (ConnId, SkippedLines),
        stderr: SharedOutput,
        (started, kill_grace): (Instant, Duration),
    ) -> Self {
        Self { conn, started, name, owner, stderr, skipped, kill_grace, step: None }
    }

    pub(crate) const fn conn(&self) -> ConnId {
        self.conn
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// Name of its server.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The identity that it serves, if it serves one alone.
    pub(crate) const fn owner(&self) -> Option<&Identity> {
        self.owner.as_ref()
    }

    /// The kept part of its standard error.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.captured(Stream::Stderr).text()
    }

    /// Lines that it printed beside messages: their number, and the first ones.
    pub(crate) fn skipped(&self) -> (u64, Vec<String>) {
        (self.skipped.count(), self.skipped.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(upstreams: &mut Upstreams, id: InstanceId, conn: ConnId, grace: u64) {
        let (stderr, times) =
            (SharedOutput::new(64), (Instant::ZERO, Duration::from_millis(grace)));
        let pipes = (conn, SkippedLines::default());
        upstreams.insert(id, Instance::new("s".into(), None, pipes, stderr, times));
    }

    /// UPS-07: end of file, SIGTERM, SIGKILL, and SIGKILL again, each once and in its time.
    #[test]
    fn stop_sequence_takes_its_steps_in_time() {
        let mut upstreams = Upstreams::default();
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let (id, conn) = (InstanceId::new(1), ConnId::new(7));
        started(&mut upstreams, id, conn, 2000);
        assert_eq!((upstreams.deadline(), upstreams.behind(conn)), (None, Some(id)));
        assert_eq!(upstreams.begin_end(id, None, at(0)), Some(conn));
        assert_eq!(upstreams.begin_end(id, Some(Duration::ZERO), at(1)), None, "it goes on");
        for (now, due) in [
            (499, None),
            (500, Some(Step::Terminate)),
            (2499, None),
            (2500, Some(Step::Kill)),
            (3499, None),
            (3500, Some(Step::Kill)),
        ] {
            let steps: Vec<_> = due.into_iter().map(|step| (id, step)).collect();
            assert_eq!(upstreams.take_steps(at(now)), steps, "{now}");
        }
        assert_eq!(upstreams.deadline(), Some(at(4500)));
        assert!(upstreams.remove(id).is_some() && upstreams.remove(id).is_none());
        assert_eq!((upstreams.deadline(), upstreams.behind(conn)), (None, None));
    }

    #[test]
    fn grace_of_the_order_replaces_that_of_the_server() {
        let mut upstreams = Upstreams::default();
        let (id, conn) = (InstanceId::new(1), ConnId::new(7));
        started(&mut upstreams, id, conn, 2000);
        upstreams.begin_end(id, Some(Duration::ZERO), Instant::ZERO);
        assert_eq!(upstreams.take_steps(Instant::ZERO), [(id, Step::Terminate)]);
        assert_eq!(upstreams.take_steps(Instant::ZERO), [(id, Step::Kill)]);
    }
}
