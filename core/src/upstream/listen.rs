//! `subscriptions/listen` to servers without sessions: changes of their lists, and updates of the
//! resources that clients of every revision watch (UPS-10).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::collections::timer_queue::Timer;
use crate::event::Outcome;
use crate::ids::{CallId, ConnId, InstanceId, JobId};
use crate::json::raw::Json;
use crate::outbox::requests::Topic;
use crate::outbox::typed_result::SUBSCRIPTION_ID;
use crate::outgoing::call::{CallFor, OutgoingCall, OutgoingRequest};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::Params;
use crate::upstream::gateway::Gateway;
use crate::upstream::rewrite::{elements, member, quoted, text_of};
use crate::upstream::subscription::{LISTEN, ListenStep, Topics};
use crate::upstream::watch::{SUBSCRIBE, UNSUBSCRIBE};

pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Capability of each list, and the member of a subscription to its changes.
const LISTS: [(Topic, &str, &str); 3] = [
    (Topic::Tools, "tools", "toolsListChanged"),
    (Topic::Prompts, "prompts", "promptsListChanged"),
    (Topic::Resources, "resources", "resourcesListChanged"),
];

/// Lists that a server with these capabilities tells of.
pub(crate) fn declared_lists(capabilities: &str) -> BTreeSet<Topic> {
    let tells = |name: &'static str| {
        let said = member(capabilities, name).and_then(|said| member(said, "listChanged"));
        said == Some("true")
    };
    let told = LISTS.into_iter().filter(|(_, name, _)| tells(name));
    told.map(|(topic, ..)| topic).collect()
}

impl Gateway<'_> {
    /// Opens, replaces or ends the subscription at an instance, as far as its topics have changed.
    pub(crate) fn listen_upstream(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        if !instance.is_in_session() {
            return;
        }
        let subscription = &instance.subscription;
        let mut wanted = Topics { lists: subscription.lists.clone(), uris: BTreeSet::new() };
        wanted.uris.extend(self.upstreams.watched_by(self.outbox, instance).map(Box::from));
        wanted.uris.extend(subscription.waiting.values().cloned());
        let (conn, now) = (instance.conn, self.now.at);
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        match (instance.subscription.step(&wanted), conn) {
            (ListenStep::Open, Some(conn)) => {
                let call = self.send_listen(id, conn, &wanted);
                if let Some(instance) = self.upstreams.instances.get_mut(&id) {
                    instance.subscription.open(call, wanted, now);
                }
            }
            (ListenStep::Cancel(call), Some(conn)) => self.end_listen(conn, call),
            (
                ListenStep::None | ListenStep::Refused | ListenStep::Open | ListenStep::Cancel(_),
                _,
            ) => {}
        }
        self.settle_subscribing(id);
    }

    fn send_listen(&mut self, id: InstanceId, conn: ConnId, topics: &Topics) -> CallId {
        let method: Box<str> = LISTEN.into();
        let request =
            OutgoingRequest { key: None, method, params: None, answer_timeout: None, task: None };
        let call = OutgoingCall::new(CallFor::Upstream(id), &request, (None, false), None);
        let number = self.outgoing.insert(conn, call);
        let meta = self.claim_meta(&self.declared_for(id, LISTEN), self.client_of(id));
        self.outbox.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").display(number.get()).raw(",");
            json.member("method", LISTEN).raw(",\"params\":{\"_meta\":").raw(&meta);
            json.raw(",\"notifications\":{");
            let mut comma = "";
            for (_, _, name) in LISTS.iter().filter(|(topic, ..)| topics.lists.contains(topic)) {
                json.raw(comma).string(name).raw(":true");
                comma = ",";
            }
            if !topics.uris.is_empty() {
                json.raw(comma).raw("\"resourceSubscriptions\":[");
                for (position, uri) in topics.uris.iter().enumerate() {
                    json.raw(if position == 0 { "" } else { "," }).string(uri);
                }
                json.raw("]");
            }
            json.raw("}}}");
        });
        number
    }

    /// Cancels a subscription at a server; its answer, if there is one, comes late.
    fn end_listen(&mut self, conn: ConnId, call: CallId) {
        if let Some(mut taken) = self.outgoing.take(conn, call) {
            self.timers.disarm(&mut taken.timer, Timer::Call(conn, call));
            self.outbox.write_urgent_cancel(conn, call.get(), "its topics are others now");
        }
    }

    /// A server acknowledges a subscription: it may be used from now on.
    pub(crate) fn on_listen_acknowledged(&mut self, id: InstanceId, params: Option<&Params<'_>>) {
        let params = params.map_or("{}", Params::get);
        let call = member(params, "_meta").and_then(|meta| member(meta, SUBSCRIPTION_ID));
        let Some(call) = call.and_then(CallId::read) else { return };
        let granted = member(params, "notifications")
            .and_then(|granted| member(granted, "resourceSubscriptions"));
        let granted = granted.map(elements).unwrap_or_default();
        let granted = granted.into_iter().filter_map(text_of).collect();
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let Some(conn) = instance.conn else { return };
        let Some(before) = instance.subscription.acknowledge(call, granted) else { return };
        if let Some(before) = before {
            self.end_listen(conn, before);
        }
        self.listen_upstream(id);
    }

    /// A server has answered a subscription, which ends it, or has cancelled it.
    pub(crate) fn on_listen_ended(&mut self, id: InstanceId, call: CallId) {
        let now = self.now.at;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if instance.subscription.end(call, now) {
            self.listen_upstream(id);
        }
    }

    /// Whether a cancel of a server ends one of the subscriptions at it.
    pub(crate) fn is_end_of_listen(&mut self, conn: ConnId, call: CallId) -> bool {
        let Some(id) = self.outbox.instance(conn) else { return false };
        let instance = self.upstreams.instances.get(&id);
        if !instance.is_some_and(|instance| instance.subscription.has(call)) {
            return false;
        }
        self.outgoing.take(conn, call);
        self.on_listen_ended(id, call);
        true
    }

    /// A session subscribes to a resource of a server without sessions, or ends that: the topics of
    /// the subscription change. True if the method is one of these.
    pub(crate) fn subscribe_by_listening(&mut self, id: InstanceId, job: JobId) -> bool {
        let Some(route) = self.jobs.get(job).and_then(|job| job.tool.route.clone()) else {
            return false;
        };
        match &*route.method {
            SUBSCRIBE => {
                if let Some(instance) = self.upstreams.instances.get_mut(&id) {
                    instance.subscription.waiting.insert(job, route.own_uri().into());
                }
                self.listen_upstream(id);
            }
            UNSUBSCRIBE => {
                self.listen_upstream(id);
                self.end_relayed(job, Outcome::Result(Json::written(String::from("{}"))));
            }
            _ => return false,
        }
        true
    }

    /// Answers the `resources/subscribe` whose resource is granted or refused by now.
    fn settle_subscribing(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let subscription = &mut instance.subscription;
        let settled: Vec<(JobId, Box<str>, bool)> = { subscription.waiting.iter() }
            .filter_map(|(job, own)| {
                let granted = subscription.has_granted(own)?;
                Some((*job, own.clone(), granted))
            })
            .collect();
        for (job, ..) in &settled {
            subscription.waiting.remove(job);
        }
        for (job, own, granted) in settled {
            let outcome = match granted {
                true => Outcome::Result(Json::written(String::from("{}"))),
                false => {
                    let own = quoted(&self.outbox.clean(&own));
                    let message = format!("the server tells of no updates of the resource {own}");
                    Outcome::Error(ErrorObject::new(code::METHOD_NOT_FOUND, message))
                }
            };
            self.end_relayed(job, outcome);
        }
    }

    /// A relayed job ends: a `resources/subscribe` that was not answered is wanted no more.
    pub(crate) fn forget_subscribing(&mut self, id: InstanceId, job: JobId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if instance.subscription.waiting.remove(&job).is_some() {
            self.listen_upstream(id);
        }
    }
}
