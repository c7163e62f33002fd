//! Servers by URL: the fate of their cancels, of calls that are lost with a connection, and of their
//! sessions.

use alloc::format;

use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::event::Outcome;
use crate::ids::{CallId, ConnId, InstanceId, JobId};
use crate::json::raw::Raw;
use crate::outgoing::call::{CallFor, OutgoingCall};
use crate::rpc::error::{ErrorObject, code};
use crate::upstream::check::CheckInput;
use crate::upstream::gateway::Gateway;
use crate::upstream::interface::{RemoteNews, UpstreamAction};
use crate::upstream::rewrite::{member, quoted, text_member};
use crate::upstream::server::OnIgnoredCancel;
use crate::upstream::table::InstanceKey;

impl Gateway<'_> {
    /// Whether an instance is one of a server by URL.
    pub(crate) fn is_remote(&self, id: InstanceId) -> bool {
        self.upstreams.instances.get(&id).is_some_and(|instance| instance.server.is_remote)
    }

    /// The job whose request has this number at an instance.
    fn job_of_call(&self, id: InstanceId, call: CallId) -> Option<JobId> {
        let instance = self.upstreams.instances.get(&id)?;
        let is_of = |job: &&JobId| {
            let sent = self.upstreams.jobs.get(*job).and_then(|relayed| relayed.sent);
            sent.is_some_and(|sent| sent.call == call)
        };
        instance.calls.iter().find(is_of).copied()
    }

    /// Nothing more of a cancelled call at a server by URL is of use: its response is closed
    /// (REM-02).
    pub(crate) fn forget_remote_call(&mut self, instance: InstanceId, call: CallId) {
        if self.is_remote(instance) {
            self.outbox.push(Action::Upstream(UpstreamAction::Forget { instance, call }));
        }
    }

    /// Treatment of a server by URL that goes on with a cancelled call. A session that others of
    /// the identity use is not ended for one call.
    pub(crate) fn on_ignored_by_remote(&self, id: InstanceId) -> OnIgnoredCancel {
        match self.upstreams.instances.get(&id).map(|instance| (&instance.key, &instance.server)) {
            Some((InstanceKey::Client(_) | InstanceKey::Call, server)) => server.on_ignored_cancel,
            Some((InstanceKey::Owner(_), _)) | None => OnIgnoredCancel::Leave,
        }
    }

    /// Whether a request may be carried out twice: one that reads, or a call of a tool that says so.
    fn is_repeatable(&self, id: InstanceId, job: JobId) -> bool {
        let Some(route) = self.jobs.get(job).and_then(|job| job.tool.route.clone()) else {
            return false;
        };
        if &*route.method != "tools/call" {
            return true;
        }
        let Some(instance) = self.upstreams.instances.get(&id) else { return false };
        let state = self.upstreams.state(&instance.server.name, instance.audience.as_ref());
        let Some(manifest) = state.and_then(|state| state.manifest.as_ref()) else { return false };
        let is_called = |tool: &&str| text_member(tool, "name").as_deref() == Some(&*route.name);
        let hints = manifest.tools.iter().map(|tool| &**tool).find(is_called);
        let hints = hints.and_then(|tool| member(tool, "annotations")).unwrap_or("{}");
        ["readOnlyHint", "idempotentHint"].iter().any(|hint| member(hints, hint) == Some("true"))
    }

    pub(crate) fn on_remote_news(&mut self, id: InstanceId, news: &RemoteNews<'_>) {
        match news {
            RemoteNews::Cancel { call, fate } => {
                if let Some(job) = self.job_of_call(id, *call) {
                    self.advance_check(job, CheckInput::Fate(*fate));
                }
            }
            RemoteNews::CallLost { call, is_unbegun, why } => {
                self.lose_call(id, *call, *is_unbegun, why);
            }
            RemoteNews::SessionLost => {
                self.drain_instance(id, "the server has forgotten its session");
            }
            RemoteNews::SessionEnded => {
                if let Some(instance) = self.upstreams.instances.get_mut(&id) {
                    instance.is_session_ended = true;
                }
            }
        }
    }

    /// No answer to a call comes any more.
    fn lose_call(&mut self, id: InstanceId, call: CallId, is_unbegun: bool, why: &str) {
        let conn = self.upstreams.instances.get(&id).and_then(|instance| instance.conn);
        let Some(conn) = conn else { return };
        let why = self.outbox.clean(why);
        match self.outgoing.call(conn, call).map(OutgoingCall::receiver) {
            Some(CallFor::Relayed(job)) => self.lose_relayed(id, job, is_unbegun, &why),
            // The cancel of a task is not answered by its loss.
            Some(CallFor::RelayedCancel(_)) => _ = self.outgoing.take(conn, call),
            Some(_) => self.answer_lost(conn, call, &why),
            None => {}
        }
    }

    /// Answers a request of the gateway itself with an error.
    fn answer_lost(&mut self, conn: ConnId, call: CallId, why: &str) {
        let Some(mut taken) = self.outgoing.take(conn, call) else { return };
        self.timers.disarm(&mut taken.timer, Timer::Call(conn, call));
        let (code, why) = (code::INTERNAL_ERROR, quoted(why));
        let error = format!("{{\"code\":{code},\"message\":{why}}}");
        self.on_answer(conn, call, &taken, Err(Raw::checked(&error)));
    }

    /// REM-04: a call that the server has not begun is sent again once, and so is one that may be
    /// carried out twice. The outcome of any other is unknown.
    fn lose_relayed(&mut self, id: InstanceId, job: JobId, is_unbegun: bool, why: &str) {
        let Some(relayed) = self.upstreams.jobs.get(&job) else { return };
        if relayed.check.is_some() {
            // The end of the check establishes the fate of the cancel.
            return;
        }
        let may_repeat = !relayed.is_repeated && (is_unbegun || self.is_repeatable(id, job));
        if may_repeat && !self.drains {
            return self.repeat_relayed(id, job);
        }
        let name = self.upstreams.instances.get(&id).map(|instance| instance.server.name.clone());
        let name = name.unwrap_or_default();
        let message = match is_unbegun {
            true => format!("server {name:?}: {why}; the call was not begun"),
            false => format!(
                "server {name:?}: {why}; the outcome of the call is unknown: look before it is made \
                 again"
            ),
        };
        let error = ErrorObject::new(code::INTERNAL_ERROR, message);
        self.end_relayed(job, Outcome::Error(error));
    }

    fn repeat_relayed(&mut self, id: InstanceId, job: JobId) {
        let conn = self.upstreams.instances.get(&id).and_then(|instance| instance.conn);
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        relayed.is_repeated = true;
        relayed.instance = None;
        if let Some((conn, sent)) = conn.zip(relayed.sent.take()) {
            self.outgoing.take(conn, sent.call);
        }
        if let Some(instance) = self.upstreams.instances.get_mut(&id) {
            instance.calls.remove(&job);
        }
        self.assign(job);
        self.send_waiting(id);
        self.end_if_drained(id);
        self.rest_if_idle(id);
    }
}
