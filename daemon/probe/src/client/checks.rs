//! The checks of a client.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::context::Context;
use super::observed::Observed;
use super::script::{ABORT, ECHO, PING, TIMEOUT, is_like, text_of};
use crate::finding::{Finding, SessionError};
use crate::text;

/// Messages to the server that got the calls, in their order.
fn messages(observed: &Observed) -> Vec<&Value> {
    let is_call = |message: &Value| message["method"] == "tools/call";
    let called = observed.heard.iter().find(|(_, message)| is_call(message));
    let number = called.or(observed.heard.last()).map(|(number, _)| *number);
    let own = observed.heard.iter().filter(|(it, _)| Some(*it) == number);
    own.map(|(_, message)| message).collect()
}

/// Place of the call of a tool.
fn call(messages: &[&Value], tool: &str) -> Option<usize> {
    let is_call = |it: &&Value| it["method"] == "tools/call" && it["params"]["name"] == tool;
    messages.iter().position(is_call)
}

fn is_cancel(message: &Value) -> bool {
    message["method"] == "notifications/cancelled"
}

/// The cancel of a call: one that names it, or names nothing and comes before the next call.
fn cancel<'m>(messages: &[&'m Value], at: usize) -> Option<&'m Value> {
    let id = messages.get(at).map(|it| &it["id"])?;
    let after = messages.get(at + 1..).unwrap_or_default();
    let cancels = || after.iter().filter(|it| is_cancel(it));
    let names = |it: &&&Value| is_like(&it["params"]["requestId"], id);
    if let Some(cancel) = cancels().find(names) {
        return Some(cancel);
    }
    let ids: BTreeSet<Cow<'_, str>> =
        messages.iter().filter_map(|it| it.get("id")).map(text_of).collect();
    let names_nothing = |it: &&&Value| !ids.contains(&text_of(&it["params"]["requestId"]));
    let until = after.iter().position(|it| it["method"] == "tools/call").unwrap_or(after.len());
    after.iter().take(until).filter(|it| is_cancel(it)).find(names_nothing).copied()
}

fn sends_cancel(context: &Context, tool: &str) -> Result<Finding, SessionError> {
    let messages = messages(context.whole()?);
    let Some(at) = call(&messages, tool) else {
        return Ok(Finding::unknown(format!("the client does not call the tool {tool:?}")));
    };
    Ok(match (cancel(&messages, at), call(&messages, ECHO)) {
        (Some(cancel), _) => Finding::holds(text::message(cancel)),
        (None, Some(_)) => Finding::deviates(format!(
            "the client goes on with {ECHO:?}, and sends no cancel of {tool:?}"
        )),
        (None, None) => {
            Finding::unknown(format!("the client neither gives {tool:?} up nor calls {ECHO:?}"))
        }
    })
}

fn names_id(context: &Context, tool: &str) -> Result<Finding, SessionError> {
    let messages = messages(context.whole()?);
    let at = call(&messages, tool);
    let Some((at, cancel)) = at.and_then(|at| Some((at, cancel(&messages, at)?))) else {
        return Ok(Finding::unknown("no cancel is sent"));
    };
    let (id, named) = (&messages[at]["id"], &cancel["params"]["requestId"]);
    Ok(Finding::of(id == named, format!("the request has the id {id}, its cancel {named}")))
}

/// RPC-04.
pub(super) fn handshake(context: &Context) -> Result<Finding, SessionError> {
    let observed = context.whole()?;
    if let Some(why) = observed.not_started() {
        return Ok(Finding::unknown(why));
    }
    let messages = messages(observed);
    let is_first = |it: &&&Value| it["method"] == "initialize" || it["method"] == "server/discover";
    Ok(match messages.iter().find(is_first) {
        Some(first) => Finding::holds(text::message(first)),
        None => Finding::deviates(match observed.heard.is_empty() {
            true => format!("no message reaches the server: {}", observed.told),
            false => "another request comes first".to_owned(),
        }),
    })
}

/// UPS-14, for the other direction.
pub(super) fn stdin(context: &Context) -> Result<Finding, SessionError> {
    let observed = context.whole()?;
    Ok(match observed.garbage.first() {
        Some(line) => Finding::deviates(format!("a line that is no message: {line:?}")),
        None => Finding::holds(format!("{} messages", observed.heard.len())),
    })
}

/// CAN-04.
pub(super) fn initialize_cancel(context: &Context) -> Result<Finding, SessionError> {
    let hanging = context.hanging()?;
    for observed in [hanging, context.whole()?] {
        let id_of = |number: usize| {
            let own = observed.heard.iter().filter(move |(it, _)| *it == number);
            own.map(|(_, it)| it).find(|it| it["method"] == "initialize").map(|it| &it["id"])
        };
        let names_it = |(number, it): &&(usize, Value)| {
            is_cancel(it)
                && id_of(*number).is_some_and(|id| is_like(id, &it["params"]["requestId"]))
        };
        if let Some((_, cancel)) = observed.heard.iter().find(names_it) {
            return Ok(Finding::deviates(text::message(cancel)));
        }
    }
    if !hanging.heard.iter().any(|(_, it)| it["method"] == "initialize") {
        return Ok(Finding::unknown("the client sends no initialize"));
    }
    Ok(match hanging.has_let_go {
        true => Finding::holds("the client gives up without a cancel"),
        false => Finding::unknown(waits(context)),
    })
}

fn waits(context: &Context) -> String {
    let timeout = context.options.timeout;
    format!("the client waits for the handshake for longer than {timeout:?}; raise --timeout")
}

/// CAN-01: a cancel at an abort.
pub(super) fn abort(context: &Context) -> Result<Finding, SessionError> {
    sends_cancel(context, ABORT)
}

/// CAN-01: its id.
pub(super) fn abort_id(context: &Context) -> Result<Finding, SessionError> {
    names_id(context, ABORT)
}

/// CAN-01: a cancel at a time limit.
pub(super) fn timeout(context: &Context) -> Result<Finding, SessionError> {
    sends_cancel(context, TIMEOUT)
}

/// CAN-01: its id.
pub(super) fn timeout_id(context: &Context) -> Result<Finding, SessionError> {
    names_id(context, TIMEOUT)
}

/// CAN-03: no cancel of an answered request.
pub(super) fn answered(context: &Context) -> Result<Finding, SessionError> {
    let messages = messages(context.whole()?);
    let is_slow = |it: &Value| [ABORT, TIMEOUT].iter().any(|name| it["params"]["name"] == *name);
    let is_answered =
        |it: &Value| it.get("method").is_some() && it["method"] != "initialize" && !is_slow(it);
    let mut count = 0;
    for (at, cancel) in messages.iter().enumerate().filter(|(_, it)| is_cancel(it)) {
        count += 1;
        let named = &cancel["params"]["requestId"];
        let before = messages.iter().take(at).filter(|it| is_answered(it));
        if let Some(request) = before.clone().find(|it| it.get("id") == Some(named)) {
            let method = text::message(&request["method"]);
            return Ok(Finding::deviates(format!("the request {named}, {method}, was answered")));
        }
    }
    Ok(match count {
        0 => Finding::unknown("no cancel is sent"),
        _ => Finding::holds(format!("{count} cancels, none of an answered request")),
    })
}

/// RPC-03: a ping is answered while a call runs.
pub(super) fn ping(context: &Context) -> Result<Finding, SessionError> {
    let messages = messages(context.whole()?);
    if call(&messages, ABORT).is_none() {
        return Ok(Finding::unknown(format!("the client does not call the tool {ABORT:?}")));
    }
    let is_session = messages.iter().any(|it| it["method"] == "initialize");
    let answer = messages.iter().find(|it| it.get("method").is_none() && it["id"] == PING);
    Ok(match answer {
        _ if !is_session => Finding::unknown("this revision has no ping"),
        Some(answer) => Finding::of(answer.get("result").is_some(), text::message(answer)),
        None if call(&messages, ECHO).is_some() => Finding::deviates("no answer"),
        None => Finding::unknown("the client does not go on"),
    })
}

/// CAN-10: an answer after the cancel is ignored.
pub(super) fn late_answer(context: &Context) -> Result<Finding, SessionError> {
    let observed = context.whole()?;
    let messages = messages(observed);
    let given_up = [ABORT, TIMEOUT].iter().filter_map(|tool| call(&messages, tool));
    let first = given_up.filter_map(|at| cancel(&messages, at)).next();
    if first.is_none() {
        return Ok(Finding::unknown("no cancel is sent"));
    }
    Ok(match call(&messages, ECHO) {
        Some(_) if observed.has_failed => Finding::deviates(observed.told.clone()),
        Some(_) => Finding::holds(format!("the client goes on with {ECHO:?}")),
        None if observed.has_failed => {
            Finding::deviates(format!("no call of {ECHO:?} follows: {}", observed.told))
        }
        None => Finding::unknown(format!("the client does not call {ECHO:?}")),
    })
}

/// Judges the end of servers (0) or of their children (1).
fn gone(observed: &Observed, place: usize, unknown: &str, context: &Context) -> Finding {
    let (name, timeout) = (["server", "child of the server"][place], context.options.timeout);
    match (observed.has_let_go, observed.alive[place]) {
        (false, _) => Finding::unknown(unknown),
        (true, 0) => Finding::holds(format!("no {name} is left")),
        (true, count) => {
            Finding::deviates(format!("{count} {name} alive {timeout:?} after the client's end"))
        }
    }
}

/// Judges both.
fn all_gone(observed: &Observed, unknown: &str, context: &Context) -> Finding {
    let server = gone(observed, 0, unknown, context);
    let child = gone(observed, 1, unknown, context);
    match observed.alive[0] {
        0 => child,
        _ => server,
    }
}

const NOT_CLOSED: &str = "the client neither closes the server's input nor exits";

/// UPS-07.
pub(super) fn close_server(context: &Context) -> Result<Finding, SessionError> {
    Ok(gone(context.whole()?, 0, NOT_CLOSED, context))
}

/// STOP-01.
pub(super) fn close_tree(context: &Context) -> Result<Finding, SessionError> {
    Ok(gone(context.whole()?, 1, NOT_CLOSED, context))
}

/// UPS-07, STOP-01.
pub(super) fn killed_tree(context: &Context) -> Result<Finding, SessionError> {
    let unknown = "the client outlives the command: name its program, without a shell or a package \
                   runner in front";
    Ok(all_gone(context.killed()?, unknown, context))
}

/// UPS-07, STOP-01.
pub(super) fn hanging_tree(context: &Context) -> Result<Finding, SessionError> {
    Ok(all_gone(context.hanging()?, &waits(context), context))
}
