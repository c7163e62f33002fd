//! Tasks of 2025-11-25.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::context::Context;
use crate::finding::{Finding, SessionError};
use crate::observed::Worked;
use crate::options::ToolCall;
use crate::session::{Session, cancel};
use crate::text;
use crate::work::observe;

use super::request_ids::is_tool_result;
use super::work::judge_all;

/// Code of invalid params.
const INVALID_PARAMS: i64 = -32602;
/// Time to live that is asked for, in milliseconds.
const TTL: u64 = 60_000;
/// Pages of a list that are read at most.
const PAGES_MAX: usize = 1000;
/// Pause between two looks at a task.
const POLL: Duration = Duration::from_millis(100);

/// A failed expectation.
pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), SessionError> {
    if holds { Ok(()) } else { Err(SessionError(otherwise())) }
}

/// The finding of a procedure whose every trouble is a deviation.
pub(super) fn judged(result: Result<String, SessionError>) -> Finding {
    match result {
        Ok(evidence) => Finding::holds(evidence),
        Err(SessionError(why)) => Finding::deviates(why),
    }
}

/// Runs a procedure in a session of its own.
fn in_session(
    context: &Context,
    procedure: impl FnOnce(&mut Session<'_>) -> Result<String, SessionError>,
) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    Ok(judged(procedure(&mut session)))
}

/// A created task: the id of its request, its own, and the task as it was answered.
struct Created {
    request: Value,
    id: String,
    task: Value,
}

fn create(session: &mut Session<'_>, call: &ToolCall) -> Result<Created, SessionError> {
    let request = session.next_id();
    let params = json!({"name": call.name, "arguments": call.arguments, "task": {"ttl": TTL}});
    let line = session.request(&request, "tools/call", params);
    session.say(&line)?;
    let answer = session.answer(&request)?;
    let task = answer["result"]["task"].clone();
    let id = task["taskId"].as_str().unwrap_or_default().to_owned();
    ensure(!id.is_empty(), || format!("no task is created: {}", text::message(&answer)))?;
    Ok(Created { request, id, task })
}

fn result_of(session: &mut Session<'_>, method: &str, id: &str) -> Result<Value, SessionError> {
    let answer = session.ask(method, json!({"taskId": id}))?;
    let said = || format!("{method} is answered with {}", text::message(&answer));
    ensure(answer.get("result").is_some(), said)?;
    Ok(answer["result"].clone())
}

fn status(session: &mut Session<'_>, id: &str) -> Result<String, SessionError> {
    let task = result_of(session, "tasks/get", id)?;
    Ok(task["status"].as_str().unwrap_or_default().to_owned())
}

fn expect_status(session: &mut Session<'_>, id: &str, expected: &str) -> Result<(), SessionError> {
    let found = status(session, id)?;
    ensure(found == expected, || format!("the task is {found}, not {expected}"))
}

/// Waits until a task is terminal.
fn wait_terminal(session: &mut Session<'_>, id: &str) -> Result<String, SessionError> {
    let until = Instant::now() + session.timeout();
    loop {
        let found = status(session, id)?;
        if ["completed", "failed", "cancelled"].contains(&found.as_str()) {
            return Ok(found);
        }
        ensure(Instant::now() < until, || format!("the task is still {found}"))?;
        session.watch(Instant::now() + POLL)?;
    }
}

fn expect_code(answer: &Value, what: &str) -> Result<(), SessionError> {
    let is_right = answer["error"]["code"] == INVALID_PARAMS;
    ensure(is_right, || format!("{what}: {}, not {INVALID_PARAMS}", text::message(answer)))
}

/// TSK-07, TSK-09, TSK-14, TSK-16.
pub(crate) fn lifecycle(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, task, .. } = create(session, context.brief())?;
        ensure(task["status"] == "working", || format!("it begins as {}", task["status"]))?;
        for member in ["createdAt", "lastUpdatedAt"] {
            ensure(task[member].is_string(), || format!("it has no {member}"))?;
        }
        let end = wait_terminal(session, &id)?;
        ensure(end == "completed", || format!("it ends as {end}"))?;
        let answer = session.ask("tasks/result", json!({"taskId": id}))?;
        let said = || format!("tasks/result is answered with {}", text::message(&answer));
        ensure(is_tool_result(&answer), said)?;
        let related = &answer["result"]["_meta"]["io.modelcontextprotocol/related-task"];
        ensure(related["taskId"] == json!(id), || "the result does not name its task".to_owned())?;
        Ok("created as working, completed, with its result".to_owned())
    })
}

/// TSK-24, TSK-26.
pub(crate) fn cancelled(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, .. } = create(session, context.long())?;
        let task = result_of(session, "tasks/cancel", &id)?;
        ensure(task["status"] == "cancelled", || {
            format!("tasks/cancel is answered with {}", text::message(&task))
        })?;
        expect_status(session, &id, "cancelled")?;
        session.watch(Instant::now() + context.options.window)?;
        expect_status(session, &id, "cancelled")?;
        Ok("cancelled at once, and for good".to_owned())
    })
}

/// TSK-17.
pub(crate) fn cancelled_result(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, .. } = create(session, context.long())?;
        result_of(session, "tasks/cancel", &id)?;
        let answer = session.ask("tasks/result", json!({"taskId": id}))?;
        Ok(format!("tasks/result is answered: {}", text::message(&answer)))
    })
}

fn cancelled_task(context: &Context) -> Result<Worked, SessionError> {
    let mut session = Session::start(context)?;
    let start = |session: &mut Session<'_>| {
        create(session, context.long()).map(|created| json!(created.id))
    };
    observe(&mut session, start, |session, id| {
        session.ask("tasks/cancel", json!({"taskId": id})).map(drop)
    })
}

/// TSK-25.
pub(crate) fn cancelled_work(context: &Context) -> Result<Finding, SessionError> {
    context.task_work.get(&context.arena, || cancelled_task(context)).map(judge_all)
}

/// TSK-15.
pub(crate) fn waiters(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, .. } = create(session, context.brief())?;
        let waiters = [session.next_id(), session.next_id()];
        for waiter in &waiters {
            let line = session.request(waiter, "tasks/result", json!({"taskId": id}));
            session.say(&line)?;
        }
        result_of(session, "tasks/get", &id)?;
        for waiter in &waiters {
            session.answer(waiter)?;
        }
        Ok("two waiters are answered, and tasks/get meanwhile".to_owned())
    })
}

/// CAN-15.
pub(crate) fn waiter_cancelled(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, .. } = create(session, context.long())?;
        let waiter = session.next_id();
        let line = session.request(&waiter, "tasks/result", json!({"taskId": id}));
        session.say(&line)?;
        session.check_alive()?;
        session.say(&cancel(&waiter))?;
        session.watch(Instant::now() + context.options.window)?;
        expect_status(session, &id, "working")?;
        Ok("the task goes on".to_owned())
    })
}

/// CAN-05.
pub(crate) fn notification(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { request, id, .. } = create(session, context.long())?;
        session.say(&cancel(&request))?;
        session.watch(Instant::now() + context.options.window)?;
        expect_status(session, &id, "working")?;
        Ok("notifications/cancelled leaves the task alone".to_owned())
    })
}

/// TSK-34.
pub(crate) fn ttl(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, task, .. } = create(session, context.brief())?;
        let got = result_of(session, "tasks/get", &id)?;
        for (from, task) in [("CreateTaskResult", &task), ("tasks/get", &got)] {
            let is_valid = task.get("ttl").is_some_and(|it| it.is_null() || it.as_u64().is_some());
            ensure(is_valid, || format!("ttl of {from} is {}", text::message(&task["ttl"])))?;
        }
        Ok(format!("asked for {TTL} ms, got {}", got["ttl"]))
    })
}

/// TSK-19, TSK-20, TSK-21.
pub(crate) fn pages(context: &Context) -> Result<Finding, SessionError> {
    if context.facts().capabilities["tasks"].get("list").is_none() {
        return Ok(Finding::unknown("the server declares no tasks/list"));
    }
    in_session(context, |session| {
        let mut expected = Vec::new();
        for _ in 0..3 {
            expected.push(create(session, context.brief())?.id);
        }
        let (mut listed, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let answer = session.ask("tasks/list", params)?;
            let tasks = answer["result"]["tasks"].as_array().cloned();
            let said = || format!("tasks/list is answered with {}", text::message(&answer));
            ensure(tasks.is_some(), said)?;
            let ids = tasks.iter().flatten().filter_map(|task| task["taskId"].as_str());
            listed.extend(ids.map(str::to_owned));
            pages += 1;
            cursor = answer["result"]["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() || pages == PAGES_MAX {
                break;
            }
        }
        for id in &expected {
            let count = listed.iter().filter(|it| *it == id).count();
            ensure(count == 1, || format!("a task is listed {count} times in {pages} pages"))?;
        }
        Ok(format!("each task once, in {pages} pages"))
    })
}

/// TSK-27.
pub(crate) fn foreign(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let answer = session.ask(method, json!({"taskId": "no-such-task"}))?;
            expect_code(&answer, method)?;
        }
        Ok(format!("unknown ids are refused with {INVALID_PARAMS}"))
    })
}

/// TSK-22.
pub(crate) fn cursor(context: &Context) -> Result<Finding, SessionError> {
    if context.facts().capabilities["tasks"].get("list").is_none() {
        return Ok(Finding::unknown("the server declares no tasks/list"));
    }
    in_session(context, |session| {
        let answer = session.ask("tasks/list", json!({"cursor": "no-such-cursor"}))?;
        expect_code(&answer, "tasks/list with an unknown cursor")?;
        Ok(format!("an unknown cursor is refused with {INVALID_PARAMS}"))
    })
}

/// TSK-23.
pub(crate) fn terminal(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Created { id, .. } = create(session, context.brief())?;
        let end = wait_terminal(session, &id)?;
        let answer = session.ask("tasks/cancel", json!({"taskId": id}))?;
        expect_code(&answer, &format!("tasks/cancel of a {end} task"))?;
        Ok(format!("tasks/cancel of a {end} task is refused with {INVALID_PARAMS}"))
    })
}

/// DUR-01.
pub(crate) fn restart(context: &Context) -> Result<Finding, SessionError> {
    let mut first = Session::start(context)?;
    let created = create(&mut first, context.brief()).and_then(|done| {
        wait_terminal(&mut first, &done.id)?;
        let running = create(&mut first, context.long())?;
        Ok((done.id, running.id))
    });
    let (done, running) = match created {
        Ok(ids) => ids,
        Err(SessionError(why)) => return Ok(Finding::unknown(why)),
    };
    first.job()?.kill();
    drop(first);
    in_session(context, |session| {
        expect_status(session, &done, "completed")?;
        let answer = session.ask("tasks/result", json!({"taskId": done}))?;
        let said = || format!("tasks/result is answered with {}", text::message(&answer));
        ensure(is_tool_result(&answer), said)?;
        let end = status(session, &running)?;
        Ok(format!("the result is kept; the running task is {end}"))
    })
}
