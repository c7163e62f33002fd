//! Cancels that name nothing, and the cancel of `initialize`.

use std::time::Instant;

use serde_json::{Value, json};

use crate::context::Context;
use crate::era::Era;
use crate::finding::{Finding, SessionError};
use crate::session::{Session, cancel};
use crate::text;

/// Answers among the messages from this place of the log on, other than to pings.
fn answers_since<'s>(session: &'s Session<'_>, mark: usize) -> Option<&'s Value> {
    let messages = session.log.iter().skip(mark).map(|(_, message)| message);
    let is_ping = |id: &Value| id.as_str().is_some_and(|id| id.starts_with("ping-"));
    messages.filter(|it| it.get("method").is_none()).find(|it| !is_ping(&it["id"]))
}

/// Sends a line that must be ignored, and pings.
fn is_ignored(session: &mut Session<'_>, line: &str) -> Result<(), SessionError> {
    let mark = session.log.len();
    session.say(line)?;
    session.check_alive()?;
    match answers_since(session, mark) {
        Some(answer) => Err(SessionError(format!("it is answered: {}", text::message(answer)))),
        None => Ok(()),
    }
}

/// Sends lines that must be ignored one after the other, then watches for late answers.
fn all_ignored(
    context: &Context,
    session: &mut Session<'_>,
    lines: &[(String, String)],
) -> Finding {
    let mark = session.log.len();
    for (name, line) in lines {
        if let Err(SessionError(why)) = is_ignored(session, line) {
            return Finding::deviates(format!("{name}: {why}"));
        }
    }
    if let Err(SessionError(why)) = session.watch(Instant::now() + context.options.window) {
        return Finding::deviates(why);
    }
    match answers_since(session, mark) {
        Some(answer) => Finding::deviates(format!("answered late: {}", text::message(answer))),
        None => Finding::holds(format!("{} ignored, and pings answered", lines.len())),
    }
}

/// CAN-04.
pub(crate) fn initialize(context: &Context) -> Result<Finding, SessionError> {
    let era = context.facts().era.clone();
    if era == Era::Stateless {
        return Ok(Finding::unknown("this revision has no initialize"));
    }
    let mut session = Session::silent(context, era)?;
    let id = json!("greeting");
    let lines = format!("{}\n{}", session.hello(&id), cancel(&id));
    let answered = session.say(&lines).and_then(|()| session.answer(&id));
    Ok(match answered {
        Ok(answer) if answer.get("result").is_some() => Finding::holds("initialize is answered"),
        Ok(answer) => Finding::deviates(format!("answered with {}", text::message(&answer))),
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

/// CAN-09: ids that were never used.
pub(crate) fn unknown(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let ids = [json!(424_242), json!("no-such-request"), json!(-1)];
    let lines = ids.map(|id| (format!("cancel of {id}"), cancel(&id)));
    Ok(all_ignored(context, &mut session, &lines))
}

/// CAN-09: a request that was answered before.
pub(crate) fn answered(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    let ping = session.ping(&id);
    session.say(&ping)?;
    session.answer(&id)?;
    let lines = [("cancel of an answered request".to_owned(), cancel(&id))];
    Ok(all_ignored(context, &mut session, &lines))
}

/// CAN-14.
pub(crate) fn malformed(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let method = "notifications/cancelled";
    let params = [
        json!({}),
        json!([]),
        json!({"requestId": null}),
        json!({"requestId": true}),
        json!({"requestId": 1.5}),
        json!({"requestId": {"id": 1}}),
        json!({"requestId": [1]}),
        json!({"requestId": 1, "reason": 7}),
    ];
    let line = |params: &Value| {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        (format!("params {params}"), line)
    };
    let mut lines: Vec<(String, String)> = params.iter().map(line).collect();
    let without = json!({"jsonrpc": "2.0", "method": method}).to_string();
    lines.push(("no params".to_owned(), without));
    Ok(all_ignored(context, &mut session, &lines))
}

/// Nothing but messages on standard output.
pub(crate) fn stdout(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    if let (Some(call), false) = (&context.facts().long, context.facts().must_be_task) {
        let id = session.next_id();
        let line = session.call(&id, call);
        session.say(&line)?;
    }
    session.watch(Instant::now() + context.options.window)?;
    Ok(match session.channel.garbage().first() {
        Some(line) => Finding::deviates(format!("a line is no message: {line}")),
        None => Finding::holds("every line is a message"),
    })
}
