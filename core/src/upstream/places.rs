//! Places of the instances of a server, and turns of their starts, shared between identities.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::identity::Identity;
use crate::ids::{InstanceId, JobId};
use crate::upstream::gateway::Gateway;
use crate::upstream::interface::UpstreamAction;
use crate::upstream::server::UpstreamServer;
use crate::upstream::table::{Instance, InstanceKey, InstancePhase};

/// Time from which a start is a long one: an installation, or a server that hangs.
const SLOW: Duration = Duration::from_secs(5);

impl Gateway<'_> {
    /// The identity whose requests an instance serves; `None` for one that waits for a call.
    pub(crate) fn identity_of_instance<'a>(
        &'a self,
        instance: &'a Instance,
    ) -> Option<&'a Identity> {
        match &instance.key {
            InstanceKey::Client(conn) => self.outbox.identity(*conn),
            InstanceKey::Owner(owner) => Some(owner),
            InstanceKey::Call => {
                let job = instance.calls.iter().chain(&instance.waiting).next();
                job.and_then(|job| self.jobs.get(*job)).map(|job| &job.owner)
            }
        }
    }

    /// Instances of a server by identity, ending ones included.
    fn places(&self, server: &str) -> BTreeMap<Option<&Identity>, usize> {
        let mut places = BTreeMap::new();
        let all = self.upstreams.instances.values();
        for instance in all.filter(|instance| &*instance.server.name == server) {
            *places.entry(self.identity_of_instance(instance)).or_default() += 1;
        }
        places
    }

    /// Whether an identity has as many instances of a server as it may.
    pub(crate) fn has_its_share(&self, server: &UpstreamServer, owner: &Identity) -> bool {
        let share = server.max_instances_per_identity.max(1);
        let held = |places: &BTreeMap<Option<&Identity>, usize>| places.get(&Some(owner)).copied();
        share < server.max_instances && held(&self.places(&server.name)) >= Some(share)
    }

    /// Ends an instance that works on nothing, so that another can start: one of this identity, if
    /// that has its share, else one of the identity that has the most.
    pub(crate) fn make_room(&mut self, server: &str, of: Option<&Identity>) {
        let is_of = |instance: &&Instance| &*instance.server.name == server;
        let all = self.upstreams.instances.values().filter(is_of);
        let ending = all.filter(|instance| instance.phase == InstancePhase::Ending).count();
        let waiting = self.upstreams.server(server).map_or(0, |state| state.waiting.len());
        if ending > waiting {
            return;
        }
        let places = self.places(server);
        let all = self.upstreams.instances.iter();
        let idle = all.filter(|(_, instance)| {
            instance.phase == InstancePhase::Ready
                && instance.is_idle()
                && is_of(instance)
                && of.is_none_or(|of| self.identity_of_instance(instance) == Some(of))
        });
        let most = idle.max_by_key(|(id, instance)| {
            let held = places.get(&self.identity_of_instance(instance));
            (held.copied(), core::cmp::Reverse(**id))
        });
        if let Some(id) = most.map(|(id, _)| *id) {
            self.end_instance(id, "another client needs its place");
        }
    }

    /// A place of a server may be free: jobs that wait for one try again, one of each identity after
    /// the other, those of identities with fewer instances first.
    pub(crate) fn assign_waiting(&mut self, server: &str) {
        let Some(state) = self.upstreams.server_mut(server) else { return };
        let waiting = core::mem::take(&mut state.waiting);
        if waiting.is_empty() {
            return;
        }
        let mut places = self.places(server);
        let mut ranked: Vec<(usize, JobId)> = Vec::new();
        for job in waiting {
            let rank = places.entry(self.jobs.get(job).map(|job| &job.owner)).or_default();
            ranked.push((*rank, job));
            *rank += 1;
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().for_each(|(_, job)| self.assign(job));
    }

    /// Starts instances that wait for it, as many as may start at once (UPS-09). A start that takes
    /// long counts for its own identity alone, up to twice as many starts in all.
    pub(crate) fn start_queued(&mut self) {
        let max = self.settings.start_at_once.max(1);
        while self.upstreams.starting() < max.saturating_mul(2) {
            let Some(id) = self.next_queued(max) else { break };
            let Some(instance) = self.upstreams.instances.get_mut(&id) else { break };
            instance.phase = InstancePhase::Starting;
            instance.start_by = self.now.at + instance.server.start_timeout;
            instance.slow_at = self.now.at + SLOW;
            self.timers.arm(&mut instance.timer, Timer::Upstream(id), instance.start_by);
            let client = match &instance.key {
                InstanceKey::Client(conn) => Some(*conn),
                InstanceKey::Owner(_) | InstanceKey::Call => None,
            };
            let (server, is_for_calls) =
                (Arc::clone(&instance.server), instance.key == InstanceKey::Call);
            let served = self.upstreams.instances.get(&id);
            let served = served.and_then(|instance| self.identity_of_instance(instance)).cloned();
            self.upstreams.last_started.clone_from(&served);
            if let Some(state) = self.upstreams.server_mut(&server.name) {
                state.counts.note_start();
            }
            // An instance for single calls serves any identity.
            let owner = served.filter(|_| !is_for_calls);
            let start = UpstreamAction::Start { instance: id, server, owner, client };
            self.outbox.push(Action::Upstream(start));
        }
        self.arm_slow_start();
    }

    /// The next instance to start: the first of the identity whose turn it is, among those that may
    /// start.
    fn next_queued(&self, max: usize) -> Option<InstanceId> {
        let last = self.upstreams.last_started.as_ref();
        let all = self.upstreams.instances.iter();
        let queued = all.filter(|(_, instance)| instance.phase == InstancePhase::Queued);
        let turns = queued.map(|(id, instance)| {
            let identity = self.identity_of_instance(instance);
            (identity <= last, identity, *id)
        });
        let may_start = |identity| {
            let delays = |instance: &&Instance| {
                self.now.at < instance.slow_at || self.identity_of_instance(instance) == identity
            };
            self.upstreams.all_starting().filter(delays).count() < max
        };
        turns.filter(|(_, identity, _)| may_start(*identity)).min().map(|(_, _, id)| id)
    }

    /// Arms the timer for the next start that takes long, if an instance waits for it.
    fn arm_slow_start(&mut self) {
        let waits = |instance: &Instance| instance.phase == InstancePhase::Queued;
        let is_awaited = self.upstreams.instances.values().any(waits);
        let slow = self.upstreams.all_starting().map(|instance| instance.slow_at);
        match slow.filter(|at| is_awaited && *at > self.now.at).min() {
            Some(at) => self.timers.arm(&mut self.upstreams.slow_timer, Timer::SlowStart, at),
            None => self.timers.disarm(&mut self.upstreams.slow_timer, Timer::SlowStart),
        }
    }

    pub(crate) fn on_slow_start(&mut self) {
        self.upstreams.slow_timer = None;
        self.start_queued();
    }
}
