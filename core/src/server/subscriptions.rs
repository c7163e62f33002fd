//! `subscriptions/listen`: a request that is answered by notifications of its topics (MOD-08).
//!
//! A subscription is a request that waits, and ends as those do: by its cancel, with its
//! connection, or with an answer when the daemon shuts down. Its topics are kept with the
//! request; each task knows its listeners, as it knows its waiters.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::de::{Deserializer as _, SeqAccess, Visitor};

use crate::collections::small_set::SmallSet;
use crate::collections::timer_queue::Timer;
use crate::connection::{Connection, ConnectionEnd, SessionPhase};
use crate::engine::Engine;
use crate::ids::{ConnId, RequestId, TaskId};
use crate::json::raw::{FoundMembers, Raw};
use crate::json::writer::Writer;
use crate::outbox::requests::{Listening, Reply, RequestWork, Settled, Topic};
use crate::outbox::typed_result::ResultType;
use crate::outbox::{Outbox, typed_result};
use crate::policy::abuse::AbusePattern;
use crate::protocol::request_meta::{self, RequestMeta};
use crate::protocol::revision::Methods;
use crate::protocol::role::Side;
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Members, Params};
use crate::rpc::send_queue::Tag;
use crate::server::rate::rated;
use crate::server::stateless::missing_tasks;
use crate::tasks::news::TaskNews;
use crate::tasks::task::Task;
use crate::upstream::awaited::AwaitedAnswer;

/// When to look again whether a full send queue was sent.
const SOON: Duration = Duration::from_millis(10);

impl Engine {
    pub(crate) fn listen(
        &mut self,
        reply: Reply,
        params: Option<&Params<'_>>,
        claim: &RequestMeta,
    ) {
        let (mut wanted, named, uris) = match read_wanted(params, claim) {
            Ok(wanted) => wanted,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let reply = match self.tasks.is_shared() {
            true => self.lookups.before_listening(&mut self.outbox, reply, named.as_ref(), params),
            false => Some(reply),
        };
        let Some(reply) = reply else { return };
        // Before servers are waited for: they keep none of so many.
        if let Some((max, what)) = self.too_many_watches(reply.conn, uris.as_ref()) {
            return self.outbox.refuse(reply, "subscriptions_per_connection", max, what);
        }
        let names_resources = uris.as_ref().is_some_and(|uris| !uris.is_empty());
        let text = params.map_or("{}", Params::get);
        let Some(reply) = self.after_declarations(reply, names_resources, text) else { return };
        // TSK-37: which of many tasks exist is no less a question about tasks than `tasks/get`.
        let reply = if named.is_some() {
            rated(&mut self.task_ops, &mut self.outbox, reply, params)
        } else {
            Some(reply)
        };
        let Some(reply) = reply else { return };
        if let Some((name, max, what)) = self.too_many_topics(reply.conn, named.as_ref()) {
            return self.outbox.refuse(reply, name, max, what);
        }
        if let Some((max, what)) = self.too_many_watches(reply.conn, uris.as_ref()) {
            return self.outbox.refuse(reply, "subscriptions_per_connection", max, what);
        }
        let Some(connection) = self.outbox.connection(reply.conn) else {
            return self.outbox.forget(reply);
        };
        // MOD-08, TSK-39: it gets nothing of an invisible task, not even that there is none.
        let viewer = &connection.identity;
        let asked = named.as_ref().map_or(0, BTreeSet::len);
        let agreed: Option<BTreeSet<TaskId>> = named.map(|named| {
            named.into_iter().filter(|id| self.tasks.visible(*id, viewer).is_some()).collect()
        });
        let unknown = asked - agreed.as_ref().map_or(0, BTreeSet::len);
        (0..unknown).for_each(|_| self.outbox.suspect(reply.conn, AbusePattern::UnknownTasks));
        // Without servers behind this one there are no prompts, and resources do not change.
        let others = !self.upstreams.is_empty() || !self.settings.provider.is_empty();
        (wanted.prompts, wanted.resources) = (wanted.prompts && others, wanted.resources && others);
        let granted = uris
            .filter(|_| others)
            .map(|uris| self.upstreams.watchable(&self.outbox, reply.conn, &uris));
        wanted.uris = granted.iter().flatten().cloned().collect();
        self.acknowledge_subscription(&reply, &wanted, agreed.as_ref(), granted.is_some());
        let tasks = agreed.unwrap_or_default();
        self.subscribe(reply, Listening { tasks, peer: claim.peer, ..wanted });
    }

    /// The bound that one more subscription, with these tasks, exceeds, its value, and the remedy
    /// (TSK-36).
    fn too_many_topics(
        &self,
        conn: ConnId,
        named: Option<&BTreeSet<TaskId>>,
    ) -> Option<(&'static str, usize, &'static str)> {
        let limits = self.settings.limits;
        let connection = self.outbox.connection(conn)?;
        let subscriptions = connection.requests.subscriptions().count();
        if subscriptions >= limits.subscriptions_max || self.outbox.is_full(conn) {
            let max = limits.subscriptions_max.min(limits.inflight_max);
            let what = "subscriptions are open on this connection: cancel some";
            return Some(("subscriptions_per_connection", max, what));
        }
        let is_long = named.is_some_and(|named| named.len() > limits.subscribed_tasks_max);
        let what = "a subscription may name that many tasks: use several";
        is_long.then_some(("tasks_per_subscription", limits.subscribed_tasks_max, what))
    }

    /// The bound that these resources exceed, and the remedy (TSK-36).
    fn too_many_watches(
        &self,
        conn: ConnId,
        uris: Option<&BTreeSet<Box<str>>>,
    ) -> Option<(usize, &'static str)> {
        let max = self.settings.limits.subscriptions_max;
        let is_full = self.upstreams.watches_of(conn) + uris?.len() > max;
        let what = "resources are subscribed to on this connection: listen to fewer";
        is_full.then_some((max, what))
    }

    /// Lets a subscription that names resources wait for servers that start and have not declared
    /// yet whether they tell of updates; hands every other one back.
    fn after_declarations(
        &mut self,
        reply: Reply,
        names_resources: bool,
        params: &str,
    ) -> Option<Reply> {
        if !names_resources || self.upstreams.is_empty() {
            return Some(reply);
        }
        let awaited = AwaitedAnswer::Listen(params.into());
        self.gateway().wake_upstreams(reply.conn);
        if !self.upstreams.is_waiting(&self.outbox, reply.conn, &awaited) {
            return Some(reply);
        }
        self.gateway().await_upstreams(reply, awaited);
        None
    }

    /// Begins a subscription that has waited for servers.
    pub(crate) fn listen_after(&mut self, reply: Reply, params: &str) {
        let mut members = Members::default();
        members.read(params, 0, self.settings.limits.depth_max);
        let params = Params::seen(Raw::checked(params), &members);
        match request_meta::of(Some(&params)) {
            Some(Ok(claim)) => self.listen(reply, Some(&params), &claim),
            // The metadata was read before the wait.
            Some(Err(_)) | None => self.outbox.forget(reply),
        }
    }

    /// The first message of a subscription: the granted part of its topics.
    fn acknowledge_subscription(
        &mut self,
        reply: &Reply,
        wanted: &Listening,
        tasks: Option<&BTreeSet<TaskId>>,
        names_resources: bool,
    ) {
        let tag = Tag { request: Some(&reply.id), recall: true, handle: None };
        self.outbox.send_for(reply.conn, tag, |json| {
            begin(json, "notifications/subscriptions/acknowledged", reply);
            json.raw(",\"notifications\":{");
            let mut comma = "";
            for (name, is_wanted) in [
                ("toolsListChanged", wanted.tools),
                ("promptsListChanged", wanted.prompts),
                ("resourcesListChanged", wanted.resources),
            ] {
                if is_wanted {
                    json.raw(comma).string(name).raw(":true");
                    comma = ",";
                }
            }
            if names_resources {
                json.raw(comma).raw("\"resourceSubscriptions\":[");
                for (position, uri) in wanted.uris.iter().enumerate() {
                    json.raw(if position == 0 { "" } else { "," }).string(uri);
                }
                json.raw("]");
                comma = ",";
            }
            if let Some(tasks) = tasks {
                json.raw(comma).raw("\"taskIds\":[");
                for (position, id) in tasks.iter().enumerate() {
                    json.raw(if position == 0 { "\"" } else { ",\"" }).display(id).raw("\"");
                }
                json.raw("]");
            }
            json.raw("}}}");
        });
    }

    fn subscribe(&mut self, reply: Reply, listening: Listening) {
        let (conn, id) = (reply.conn, reply.id.clone());
        for task in &listening.tasks {
            if let Some(task) = self.tasks.get_mut(*task) {
                task.aside.listeners.insert((conn, id.clone()));
            }
        }
        let uris = listening.uris.clone();
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        connection.requests.open(reply, RequestWork::Listen(listening.into()));
        if !uris.is_empty() {
            self.gateway().watch_listened(conn, &id, &uris);
        }
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        if matches!(connection.ending, ConnectionEnd::Finished(_)) {
            self.end_subscriptions(conn);
            self.outbox.close_if_finished(conn);
        }
    }

    /// Tells every client that one of its lists may be another now.
    pub(crate) fn announce_list(&mut self, topic: Topic) {
        let audience: Vec<ConnId> =
            self.outbox.connections().iter().map(|(conn, _)| *conn).collect();
        self.announce_list_to(topic, &audience);
    }

    /// Tells these clients that one of their lists may be another now: sessions, and subscriptions.
    pub(crate) fn announce_list_to(&mut self, topic: Topic, audience: &[ConnId]) {
        let Some(method) = topic.method() else { return };
        let is_session = |conn: &&ConnId| {
            self.outbox.connection(**conn).is_some_and(|peer| {
                peer.phase == SessionPhase::Ready
                    && peer.dialect.methods == Methods::Tools
                    && matches!(peer.side, Side::Server)
            })
        };
        let ready: Vec<ConnId> = audience.iter().filter(is_session).copied().collect();
        for conn in ready {
            if self.upstreams.hold_topic(conn, topic) {
                continue;
            }
            self.outbox.send(conn, |json| {
                json.raw("{\"jsonrpc\":\"2.0\",").member("method", method).raw("}");
            });
        }
        self.news().tell_of_list(topic, audience);
    }

    /// A subscription is over: the tasks forget it, and pending topics are dropped.
    pub(crate) fn unlisten(&mut self, conn: ConnId, request: &RequestId, listening: &Listening) {
        for task in &listening.tasks {
            if let Some(task) = self.tasks.get_mut(*task) {
                task.aside.forget_listener(&(conn, request.clone()));
            }
        }
        if let Some(connection) = self.outbox.connection_mut(conn)
            && let Some(aside) = connection.aside.some()
        {
            aside.behind.remove(request);
        }
        for task in &listening.tasks {
            self.tasks.drop_copy(&self.outbox, *task);
        }
        if !listening.uris.is_empty() {
            self.gateway().forget_listened(conn, request);
        }
    }

    /// Ends the subscriptions of a connection in good order, each with its result (MOD-08).
    pub(crate) fn end_subscriptions(&mut self, conn: ConnId) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        let open = connection.requests.subscriptions();
        let over: Vec<_> = open.map(|(id, listening)| (id.clone(), listening.clone())).collect();
        for (id, listening) in over {
            let Some(connection) = self.outbox.connection_mut(conn) else { return };
            let Some(reply) = connection.requests.settle(&id, Settled::Listen) else { continue };
            self.unlisten(conn, &id, &listening);
            self.upstreams.answer_as(&mut self.outbox, ResultType::Ended, reply, |json| {
                json.raw("{}");
            });
        }
    }
}

impl TaskNews<'_> {
    /// Tells the subscriptions of a task its present state.
    pub(crate) fn tell_of_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.aside.listeners.is_empty() {
            return;
        }
        let listeners: Vec<_> = task.aside.listeners.iter().cloned().collect();
        self.tell_subscribers(listeners, Topic::Task(id));
    }

    /// Tells the subscriptions of an audience that a list may have changed.
    pub(crate) fn tell_of_list(&mut self, topic: Topic, audience: &[ConnId]) {
        let wanted = |conn: ConnId, connection: &Connection| {
            let open = connection.requests.subscriptions();
            let wants = open.filter(|(_, listening)| listening.wants(topic));
            wants.map(|(id, _)| (conn, id.clone())).collect::<Vec<_>>()
        };
        let all = audience.iter().filter_map(|conn| Some((conn, self.outbox.connection(*conn)?)));
        let listeners: Vec<_> = all.flat_map(|(conn, peer)| wanted(*conn, peer)).collect();
        self.tell_subscribers(listeners, topic);
    }

    fn tell_subscribers(&mut self, listeners: Vec<(ConnId, RequestId)>, topic: Topic) {
        let conns: BTreeSet<ConnId> = listeners.iter().map(|(conn, _)| *conn).collect();
        // Noted for all before one is told, or a topic might be dropped in between.
        for (conn, request) in listeners {
            if let Some(connection) = self.outbox.connection_mut(conn) {
                connection.aside.behind.entry(request).or_default().insert(topic);
            }
        }
        for conn in conns {
            self.catch_up(conn);
        }
    }

    /// Sends the subscriptions of a connection their pending topics: while its peer reads all
    /// of it, else when there is room again, and then of each thing only how it is by then.
    pub(crate) fn catch_up(&mut self, conn: ConnId) {
        while let Some(connection) = self.outbox.connection_mut(conn) {
            let waiting = connection.send_queue.len();
            let Some(aside) = connection.aside.some() else { return };
            let Some(mut entry) = aside.behind.first_entry() else { return };
            let Some(topic) = entry.get().first().copied() else { return };
            let room = self.settings.limits.write_buffer_bytes;
            let blocked = aside.stall_timer.is_some();
            if waiting >= room.saturating_mul(2) || blocked && waiting >= room {
                if !blocked && aside.catch_up_timer.is_none() {
                    // All of this may be sent at once, and then no event announces room.
                    let at = self.now.at + SOON;
                    self.timers.arm(&mut aside.catch_up_timer, Timer::CatchUp(conn), at);
                }
                return;
            }
            entry.get_mut().remove(&topic);
            let request = entry.key().clone();
            if entry.get().is_empty() {
                entry.remove();
            }
            self.notify(conn, &request, topic);
            if let Topic::Task(task) = topic {
                self.tasks.drop_copy(self.outbox, task);
            }
        }
    }

    pub(crate) fn on_catch_up_timer(&mut self, conn: ConnId) {
        if let Some(connection) = self.outbox.connection_mut(conn) {
            connection.aside.catch_up_timer = None;
        }
        self.catch_up(conn);
    }

    fn notify(&mut self, conn: ConnId, request: &RequestId, topic: Topic) {
        let Some(connection) = self.outbox.connection(conn) else { return };
        let Some((reply, RequestWork::Listen(listening))) = connection.requests.get(request) else {
            return;
        };
        let mut frame = Vec::new();
        let mut json = Writer::new(&mut frame);
        match topic {
            Topic::Tools | Topic::Prompts | Topic::Resources => {
                begin(&mut json, topic.method().unwrap_or_default(), reply);
            }
            // It will be told when it may be (DUR-01).
            Topic::Task(task) if !self.tasks.is_tellable(task) => return,
            Topic::Task(task) => {
                begin(&mut json, "notifications/tasks", reply).raw(",");
                self.tasks.write_detailed(self.outbox, self.jobs, &mut json, task, &listening.peer);
            }
        }
        json.raw("}}");
        let tag = Tag { request: Some(request), recall: true, handle: None };
        self.outbox.send_for(conn, tag, |json| {
            json.bytes(&frame);
        });
    }
}

impl Outbox {
    /// A task is gone: its listeners forget it.
    pub(crate) fn forget_topic(&mut self, task: TaskId, listeners: SmallSet<(ConnId, RequestId)>) {
        for (conn, request) in listeners.into_entries() {
            let Some(connection) = self.connection_mut(conn) else { continue };
            if let Some(aside) = connection.aside.some()
                && let Some(topics) = aside.behind.get_mut(&request)
            {
                topics.remove(&Topic::Task(task));
                if topics.is_empty() {
                    aside.behind.remove(&request);
                }
            }
            connection.requests.forget_topic(&request, task);
        }
    }

    /// Whether a subscription does not know the latest of a task yet.
    pub(crate) fn has_subscription_behind(&self, id: TaskId, task: &Task) -> bool {
        task.aside.listeners.iter().any(|(conn, request)| {
            let behind = self.connection(*conn).and_then(|c| c.aside.behind.get(request));
            behind.is_some_and(|topics| topics.contains(&Topic::Task(id)))
        })
    }
}

/// Begins a notification of a subscription, up to its params' other members.
fn begin<'j, 'b>(json: &'j mut Writer<'b>, method: &str, reply: &Reply) -> &'j mut Writer<'b> {
    json.raw("{\"jsonrpc\":\"2.0\",").member("method", method).raw(",\"params\":{\"_meta\":{");
    typed_result::write_subscription(json, reply);
    json.raw("}")
}

/// The lists that are listened to; the tasks named, as far as they can be task ids; the URIs of
/// resources.
type WantedTopics = (Listening, Option<BTreeSet<TaskId>>, Option<BTreeSet<Box<str>>>);

/// Topics of a subscription as its client names them.
fn read_wanted(
    params: Option<&Params<'_>>,
    claim: &RequestMeta,
) -> Result<WantedTopics, ErrorObject> {
    let [notifications] = params::find(params, ["notifications"])?;
    let notifications = params::required("notifications", notifications)?;
    let odd =
        |what: &str| ErrorObject::invalid_params(alloc::format!("params.notifications{what}"));
    // A kind that is not looked for here is not in the acknowledgement either.
    const NAMES: [&str; 5] = [
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
        "taskIds",
        "resourceSubscriptions",
    ];
    let FoundMembers { members: [tools, prompts, resources, task_ids, uris], twice } =
        notifications.members(NAMES).ok_or_else(|| odd(" must be an object"))?;
    if let Some(name) = twice {
        return Err(odd(&alloc::format!(".{name} is there twice")));
    }
    let flag = |name: &str, said: Option<Raw<'_>>| {
        let said = said.map_or(Some(false), Raw::flag);
        said.ok_or_else(|| odd(&alloc::format!(".{name} must be true or false")))
    };
    let wanted = Listening {
        tools: flag(NAMES[0], tools)?,
        prompts: flag(NAMES[1], prompts)?,
        resources: flag(NAMES[2], resources)?,
        ..Listening::default()
    };
    let uris = uris.map(|list| {
        let uris = serde_json::from_str::<BTreeSet<String>>(list.get())
            .map_err(|_| odd(".resourceSubscriptions must be an array of strings"))?;
        Ok(uris.into_iter().map(Box::from).collect())
    });
    let uris = uris.transpose()?;
    let Some(list) = task_ids else { return Ok((wanted, None, uris)) };
    if !claim.tasks {
        return Err(missing_tasks("listening to tasks"));
    }
    let ids = serde_json::Deserializer::from_str(list.get()).deserialize_seq(TaskIds);
    let ids = ids.map_err(|_| {
        ErrorObject::invalid_params("notifications.taskIds must be an array of strings")
    })?;
    Ok((wanted, Some(ids), uris))
}

/// Collects task ids one by one, so that a list of other strings takes no room.
struct TaskIds;

impl<'de> Visitor<'de> for TaskIds {
    type Value = BTreeSet<TaskId>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut ids = BTreeSet::new();
        while let Some(item) = seq.next_element::<Raw<'_>>()? {
            let Some(text) = item.string() else {
                return Err(serde::de::Error::custom("not a string"));
            };
            ids.extend(TaskId::parse(&text));
        }
        Ok(ids)
    }
}
