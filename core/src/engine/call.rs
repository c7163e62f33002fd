//! `tools/call`: from a request to a job, plain or as a task.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Engine;
use crate::connection::{Pending, Reply, Work};
use crate::dialect::TaskRules;
use crate::event::Identity;
use crate::id::{JobId, TaskId};
use crate::job::{Job, JobState, Progress, Purpose};
use crate::message::{ErrorObject, code};
use crate::params::{self, Given};
use crate::timer::Timer;
use crate::tool::{TaskSupport, Tool};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    task: Given<'a>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<CallMeta<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "_meta as an object")]
struct CallMeta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

/// A call that may go ahead.
struct Admitted<'a> {
    tool: Arc<Tool>,
    arguments: Box<RawValue>,
    /// The ttl asked for, if it is to be a task.
    task: Option<RequestedTtl>,
    progress_token: Option<&'a RawValue>,
}

/// What a requestor said about the ttl of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedTtl {
    Default,
    Millis(u64),
}

impl Engine {
    pub(super) fn call_tool(&mut self, reply: Reply, params: Option<&RawValue>) {
        let admitted = match self.admit(&reply, params) {
            Ok(admitted) => admitted,
            Err(error) => return self.fail(reply, &error),
        };
        self.accept(reply, admitted);
    }

    /// A request for a service: its params are the arguments.
    pub(super) fn call_service(
        &mut self,
        reply: Reply,
        service: Arc<Tool>,
        params: Option<&RawValue>,
    ) {
        let arguments = params.map_or("{}", RawValue::get);
        let checked = match &service.check {
            _ if !arguments.starts_with('{') => Err("params must be an object".into()),
            Some(check) => check.check(arguments),
            None => Ok(()),
        };
        if let Err(message) = checked {
            return self.fail(reply, &ErrorObject::invalid_params(message));
        }
        let arguments = params.map_or_else(empty_object, ToOwned::to_owned);
        let admitted = Admitted { tool: service, arguments, task: None, progress_token: None };
        self.accept(reply, admitted);
    }

    /// Makes a job of a call, if there is room for one.
    fn accept(&mut self, reply: Reply, admitted: Admitted<'_>) {
        let limits = self.settings.limits;
        if self.running + self.queue.len() >= limits.running_max.saturating_add(limits.queued_max) {
            return self.refuse(
                reply,
                "queue",
                limits.queued_max,
                "that many calls wait already: try again later",
            );
        }
        match admitted.task {
            None => self.call_plainly(reply, admitted),
            Some(ttl) => self.create_task(reply, admitted, ttl),
        }
    }

    /// Everything a call can be refused for before it takes up room.
    fn admit<'a>(
        &self,
        reply: &Reply,
        params: Option<&'a RawValue>,
    ) -> Result<Admitted<'a>, ErrorObject> {
        let params: CallParams<'a> = params::read(params)?;
        let Some(tool) = self.settings.catalog.get(&params.name) else {
            let name = self.clean(&params.name);
            return Err(ErrorObject::invalid_params(alloc::format!("there is no tool {name:?}")));
        };
        let tasks = self.dialect(reply.conn).tasks;
        let task = match (tasks, params.task.0) {
            // TSK-03: where there are no tasks, the field means nothing and every tool is plain.
            (TaskRules::None, _) | (TaskRules::Core, None) => None,
            (TaskRules::Core, Some(task)) => Some(read_ttl(task)?),
        };
        let misuse = match (tasks, tool.task_support, task) {
            (TaskRules::Core, TaskSupport::Forbidden, Some(_)) => Some("does not run as a task"),
            (TaskRules::Core, TaskSupport::Required, None) => Some("runs as a task only"),
            (TaskRules::None, ..)
            | (TaskRules::Core, TaskSupport::Forbidden, None)
            | (TaskRules::Core, TaskSupport::Optional, _)
            | (TaskRules::Core, TaskSupport::Required, Some(_)) => None,
        };
        if let Some(misuse) = misuse {
            // TSK-05, TSK-06
            let message = alloc::format!("the tool {:?} {misuse}", tool.name);
            return Err(ErrorObject::new(code::METHOD_NOT_FOUND, message));
        }
        let arguments = params.arguments.map_or("{}", RawValue::get);
        if !arguments.starts_with('{') {
            return Err(ErrorObject::invalid_params("params.arguments must be an object"));
        }
        if let Some(check) = &tool.check {
            check.check(arguments).map_err(ErrorObject::invalid_params)?;
        }
        Ok(Admitted {
            tool: Arc::clone(tool),
            arguments: match params.arguments {
                Some(arguments) => arguments.to_owned(),
                None => empty_object(),
            },
            task,
            progress_token: params
                .meta
                .and_then(|meta| meta.progress_token)
                .filter(|token| crate::id::RequestId::parse(token.get()).is_some()),
        })
    }

    fn call_plainly(&mut self, reply: Reply, admitted: Admitted<'_>) {
        let max = self.settings.limits.inflight_max;
        let job = JobId::new(self.next_job);
        let Some(connection) = self.connections.get_mut(&reply.conn) else { return };
        if connection.requests.len() >= max {
            return self.refuse_inflight(reply, max);
        }
        let (id, conn) = (reply.id.clone(), reply.conn);
        connection.requests.insert(id.clone(), Pending { reply, work: Work::Job(job) });
        self.enqueue(conn, Purpose::Answer(id), None, admitted);
    }

    fn create_task(&mut self, reply: Reply, admitted: Admitted<'_>, ttl: RequestedTtl) {
        let Some(connection) = self.connections.get(&reply.conn) else { return };
        let owner = connection.identity.clone();
        if let Some((limit, max)) = self.tasks.full(&owner, &self.settings.limits) {
            // TSK-36
            let what = "tasks of yours exist already: let some finish or expire";
            return self.refuse(reply, limit, max, what);
        }
        let Some(id) = self.fresh_task_id() else {
            let message = "no free task id could be generated";
            return self.fail(reply, &ErrorObject::new(code::INTERNAL_ERROR, message));
        };
        let conn = reply.conn;
        let ttl = self.grant_ttl(&owner, ttl);
        // TSK-09: it begins as working even where it has to wait its turn.
        let queued = self.running + self.queue.len() >= self.settings.limits.running_max;
        let job = self.enqueue(conn, Purpose::Task, Some(id), admitted);
        self.counters.tasks_created += 1;
        let (now, poll_interval) = (self.now, self.settings.tasks.poll_interval);
        let task = self.tasks.insert(id, &owner, now, ttl, job, conn);
        task.status_message = queued.then(|| "queued".into());
        self.timers.arm(&mut task.timer, Timer::Task(id), now.at + ttl);
        // TSK-07. Written before the job can start, so that nothing of the task comes earlier.
        let mut object = alloc::vec::Vec::new();
        task.write(id, poll_interval, &mut crate::write::Writer::new(&mut object));
        self.answer(reply, |json| {
            json.raw("{\"task\":").bytes(&object).raw("}");
        });
    }

    /// TSK-08: an id the generator gives twice is noticed, not used twice.
    fn fresh_task_id(&mut self) -> Option<TaskId> {
        for _ in 0..4 {
            let id = TaskId::new(self.mint.uuid());
            if !self.tasks.contains(id) {
                return Some(id);
            }
            self.counters.id_collisions += 1;
        }
        None
    }

    /// The ttl a task gets (TSK-11, TSK-34, TSK-40).
    fn grant_ttl(&self, owner: &Identity, requested: RequestedTtl) -> Duration {
        let policy = &self.settings.tasks;
        let (default, max) = match owner {
            Identity::User(_) | Identity::Token(_) => (policy.default_ttl, policy.max_ttl),
            Identity::Anonymous => (policy.anonymous_ttl, policy.anonymous_ttl),
        };
        match requested {
            RequestedTtl::Default => default,
            RequestedTtl::Millis(millis) => Duration::from_millis(millis).min(max),
        }
    }

    fn enqueue(
        &mut self,
        conn: crate::id::ConnId,
        purpose: Purpose,
        task: Option<TaskId>,
        admitted: Admitted<'_>,
    ) -> JobId {
        let owner = self.connections.get(&conn).map_or(Identity::Anonymous, |c| c.identity.clone());
        let id = JobId::new(self.next_job);
        self.next_job += 1;
        self.queue.insert(id);
        self.jobs.insert(
            id,
            Job {
                tool: admitted.tool,
                owner,
                conn,
                purpose,
                task,
                state: JobState::Queued(admitted.arguments),
                since: self.now.at,
                progress: Progress {
                    token: admitted.progress_token.map(|token| token.get().into()),
                    ..Progress::default()
                },
                asks: BTreeMap::new(),
                timer: None,
            },
        );
        id
    }
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".into()).expect("an empty object is JSON")
}

/// Reads the `task` member (TSK-11).
fn read_ttl(task: &RawValue) -> Result<RequestedTtl, ErrorObject> {
    #[derive(Deserialize)]
    struct TaskParams<'a> {
        #[serde(borrow, default)]
        ttl: Given<'a>,
    }
    let params: TaskParams<'_> = params::read(Some(task))
        .map_err(|error| ErrorObject::invalid_params(alloc::format!("task: {}", error.message)))?;
    let Some(ttl) = params.ttl.0 else { return Ok(RequestedTtl::Default) };
    let digits = ttl.get();
    let positive = digits.bytes().all(|b| b.is_ascii_digit()) && digits != "0";
    if !positive {
        let message = "task.ttl must be a positive integer of milliseconds";
        return Err(ErrorObject::invalid_params(message));
    }
    // What does not fit is larger than every maximum and is shortened to it anyway.
    Ok(RequestedTtl::Millis(digits.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-11: every form of a ttl.
    #[test]
    fn ttls() {
        let read = |text: &str| read_ttl(&RawValue::from_string(text.into()).unwrap()).ok();
        assert_eq!(read("{}"), Some(RequestedTtl::Default));
        assert_eq!(read(r#"{"ttl":1}"#), Some(RequestedTtl::Millis(1)));
        assert_eq!(
            read(r#"{"ttl":99999999999999999999999}"#),
            Some(RequestedTtl::Millis(u64::MAX))
        );
        for bad in ["0", "-1", "1.5", "1e3", "\"1\"", "null", "true", "{}", "[]"] {
            assert_eq!(read(&alloc::format!("{{\"ttl\":{bad}}}")), None, "{bad}");
        }
        for bad in ["null", "[]", "7", "\"\"", "true"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
