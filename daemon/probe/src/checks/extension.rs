//! The tasks extension of 2026-07-28.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::context::Context;
use crate::era::Era;
use crate::finding::{Finding, SessionError};
use crate::options::ToolCall;
use crate::session::Session;
use crate::text;

use super::tasks::{ensure, judged};

const POLL: Duration = Duration::from_millis(100);

fn in_session(
    context: &Context,
    procedure: impl FnOnce(&mut Session<'_>) -> Result<Option<String>, SessionError>,
) -> Result<Finding, SessionError> {
    let mut session = Session::start_in(context, Era::Stateless)?;
    session.declare_tasks(true);
    Ok(match procedure(&mut session) {
        Ok(None) => Finding::unknown("the server answers the call without a task"),
        Ok(Some(evidence)) => judged(Ok(evidence)),
        Err(trouble) => judged(Err(trouble)),
    })
}

/// Calls a tool; the id of the task, if the server makes one of the call.
fn create(session: &mut Session<'_>, call: &ToolCall) -> Result<Option<String>, SessionError> {
    let params = json!({"name": call.name, "arguments": call.arguments});
    let id = session.next_id();
    let request = session.request(&id, "tools/call", params);
    session.say(&request)?;
    let timeout = session.timeout();
    if !session.watch_for(timeout, |session| !session.answers(&id).is_empty())? {
        // A server may run any call without a task, and answers when the call ends.
        session.check_alive()?;
        return Ok(None);
    }
    let answer = session.answer(&id)?;
    let result = &answer["result"];
    let said = || format!("tools/call is answered with {}", text::message(&answer));
    ensure(result.is_object(), said)?;
    if result["resultType"] != "task" {
        return Ok(None);
    }
    let id = result["taskId"].as_str().map(str::to_owned);
    ensure(id.is_some(), || format!("a task without id: {}", text::message(result)))?;
    Ok(id)
}

fn get(session: &mut Session<'_>, id: &str) -> Result<Value, SessionError> {
    let answer = session.ask("tasks/get", json!({"taskId": id}))?;
    let said = || format!("tasks/get is answered with {}", text::message(&answer));
    ensure(answer.get("result").is_some(), said)?;
    Ok(answer["result"].clone())
}

/// Waits until a task has this status.
fn wait_for(session: &mut Session<'_>, id: &str, status: &str) -> Result<Value, SessionError> {
    let until = Instant::now() + session.timeout();
    loop {
        let task = get(session, id)?;
        if task["status"] == status {
            return Ok(task);
        }
        ensure(Instant::now() < until, || format!("the task is {}, not {status}", task["status"]))?;
        session.watch(Instant::now() + POLL)?;
    }
}

/// EXT-02, EXT-06.
pub(crate) fn lifecycle(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Some(id) = create(session, context.brief())? else { return Ok(None) };
        let task = wait_for(session, &id, "completed")?;
        let kind = &task["resultType"];
        ensure(kind == "complete", || format!("tasks/get has the resultType {kind}"))?;
        ensure(task["result"].is_object(), || "a completed task has no result".to_owned())?;
        Ok(Some("created, completed, with its result in tasks/get".to_owned()))
    })
}

/// EXT-04.
pub(crate) fn cancelled(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        let Some(id) = create(session, context.long())? else { return Ok(None) };
        for _ in 0..2 {
            let answer = session.ask("tasks/cancel", json!({"taskId": id}))?;
            let said = || format!("tasks/cancel is answered with {}", text::message(&answer));
            ensure(answer["result"].is_object(), said)?;
            wait_for(session, &id, "cancelled")?;
        }
        Ok(Some("cancelled; a second cancel is acknowledged".to_owned()))
    })
}

/// EXT-04.
pub(crate) fn foreign(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        for method in ["tasks/get", "tasks/cancel"] {
            let answer = session.ask(method, json!({"taskId": "no-such-task"}))?;
            let said = || format!("{method}: {}, not -32602", text::message(&answer));
            ensure(answer["error"]["code"] == -32602, said)?;
        }
        Ok(Some("unknown ids are refused with -32602".to_owned()))
    })
}

/// EXT-01.
pub(crate) fn undeclared(context: &Context) -> Result<Finding, SessionError> {
    in_session(context, |session| {
        session.declare_tasks(false);
        let answer = session.ask("tasks/get", json!({"taskId": "no-such-task"}))?;
        let said = || format!("tasks/get: {}, not -32021", text::message(&answer));
        ensure(answer["error"]["code"] == -32021, said)?;
        Ok(Some("a request that does not declare the extension is refused".to_owned()))
    })
}
