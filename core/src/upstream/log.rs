//! Log levels that clients ask for, and log messages of servers.

use crate::ids::{ConnId, InstanceId, JobId};
use crate::log_level::LogLevel;
use crate::protocol::request_meta::RequestContext;
use crate::protocol::revision::MCP_2026_07_28;
use crate::rpc::params::Params;
use crate::upstream::gateway::Gateway;
use crate::upstream::rewrite::{member, text_member};
use crate::upstream::table::InstanceKey;
use crate::upstream::watch::{notify_client, serves};

const SET_LEVEL: &str = "logging/setLevel";

impl Gateway<'_> {
    /// A session has asked for a level: its instances are asked for the lowest level that one of
    /// their clients wants.
    pub(crate) fn relay_log_level(&mut self, client: ConnId, level: LogLevel) {
        if self.upstreams.is_empty() {
            return;
        }
        self.upstreams.levels.insert(client, level);
        let serving: alloc::vec::Vec<InstanceId> = {
            let all = self.upstreams.instances.iter();
            all.filter(|(_, instance)| serves(self.outbox, instance, client))
                .map(|(id, _)| *id)
                .collect()
        };
        serving.into_iter().for_each(|id| self.set_instance_level(id));
    }

    /// Asks an instance for the lowest level that its clients have asked for, if they have.
    pub(crate) fn set_instance_level(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let levels = self.upstreams.levels.iter();
        let asked = levels.filter(|(client, _)| serves(self.outbox, instance, **client));
        if let Some(lowest) = asked.map(|(_, level)| *level).min() {
            self.ask_for_level(id, lowest);
        }
    }

    /// Asks an instance for a level, if it has sessions and levels, and another one is set.
    pub(crate) fn ask_for_level(&mut self, id: InstanceId, level: LogLevel) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let is_session =
            instance.conn.is_some_and(|conn| self.outbox.dialect(conn) != &MCP_2026_07_28);
        let wants = instance.has_logging && instance.log_level != Some(level);
        if !wants || !is_session || !instance.is_in_session() {
            return;
        }
        if let Some(instance) = self.upstreams.instances.get_mut(&id) {
            instance.log_level = Some(level);
        }
        let params = alloc::format!("{{\"level\":\"{}\"}}", level.as_str());
        self.ask_instance(id, SET_LEVEL, &params, false);
    }

    /// Whether a call wants more messages than its instance was asked for.
    pub(crate) fn is_more(&self, id: InstanceId, level: LogLevel) -> bool {
        let instance = self.upstreams.instances.get(&id);
        instance.is_some_and(|of| of.log_level.is_none_or(|asked| level < asked))
    }

    /// The level for one call, which its client names with it or with its session.
    pub(crate) fn level_of_call(&self, job: JobId) -> Option<LogLevel> {
        let job = self.jobs.get(job)?;
        match &job.terms {
            RequestContext::Session(_) => self.upstreams.levels.get(&job.conn).copied(),
            RequestContext::Request(claim) => claim.log_level,
        }
    }

    /// A log message of a server: each client gets it at its own level. On a shared instance it
    /// goes to the client of the call that it names, or to every session of the identity.
    pub(crate) fn on_message_of_upstream(&mut self, id: InstanceId, params: Option<&Params<'_>>) {
        let params = params.map_or("{}", Params::get);
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let word = text_member(params, "level");
        let level = LogLevel::ALL.into_iter().find(|level| Some(level.as_str()) == word.as_deref());
        let Some(level) = level.filter(|_| member(params, "data").is_some()) else { return };
        let mut calls = instance.calls.iter();
        let only = match (calls.next(), calls.next()) {
            (Some(only), None) => Some(*only),
            (Some(_), Some(_)) | (None, _) => None,
        };
        let related = instance.conn.and_then(|conn| self.related_job(conn, params));
        let without_session = |job: &JobId| {
            let terms = self.jobs.get(*job).map(|job| &job.terms);
            matches!(terms, Some(RequestContext::Request(_)))
        };
        // A client without a session gets messages of its own requests alone.
        if let Some(job) = related.or(only.filter(without_session)) {
            return self.jobs.relay_message(self.outbox, self.tasks, job, (level, params));
        }
        let is_shared = !matches!(instance.key, InstanceKey::Client(_));
        for client in self.sessions_of(id) {
            let least = match self.upstreams.levels.get(&client) {
                Some(level) => Some(*level),
                // A server chooses for a client that has not asked, which others change.
                None => is_shared.then_some(LogLevel::Info),
            };
            if least.is_none_or(|least| level >= least) {
                notify_client(self.outbox, client, "notifications/message", params);
            }
        }
    }
}
