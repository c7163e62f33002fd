//! Cancelled calls, as far as the protocol shows them.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::context::Context;
use crate::finding::{Finding, SessionError};
use crate::session::{Session, cancel};
use crate::text;

use super::request_ids::is_tool_result;

/// Time after which a call has begun.
const BEGUN: Duration = Duration::from_millis(300);
/// Time after which a brief call has ended by itself.
const BRIEF: Duration = Duration::from_secs(2);
/// Longest wait for the first progress.
const FIRST_PROGRESS: Duration = Duration::from_secs(4);
/// Time for progress that crosses the cancel.
const CROSSING: Duration = Duration::from_millis(250);
/// Repeats of checks that race with the server.
const REPEATS: u32 = 3;

/// CAN-08.
pub(crate) fn no_answer(context: &Context) -> Result<Finding, SessionError> {
    let facts = context.facts();
    let brief = facts.brief.as_ref();
    let call = brief.unwrap_or_else(|| context.long());
    let natural = brief.map_or(Duration::ZERO, |_| BRIEF);
    for repeat in 1..=REPEATS {
        let mut session = Session::start(context)?;
        let id = session.next_id();
        let line = session.call(&id, call);
        session.say(&line)?;
        session.watch(Instant::now() + BEGUN)?;
        if let Some(answer) = session.answers(&id).first() {
            if answer.get("error").is_some() || answer["result"]["isError"] == true {
                let said = text::message(answer);
                return Ok(Finding::unknown(format!("the tool fails: {said}")));
            }
            continue;
        }
        session.say(&cancel(&id))?;
        let cancelled = Instant::now();
        let watched = session.watch(cancelled + natural + context.options.window);
        if let Err(SessionError(why)) = watched {
            return Ok(Finding::deviates(why));
        }
        let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == id;
        let late = session.log.iter().find(|(_, message)| is_answer(message));
        return Ok(match late {
            Some((at, answer)) => Finding::deviates(format!(
                "answered {} ms after the cancel: {}",
                at.saturating_duration_since(cancelled).as_millis(),
                text::message(answer)
            )),
            None => Finding::holds(match brief {
                Some(_) => "no answer, also when the call would have ended by itself".to_owned(),
                None => format!("no answer within {:?}", context.options.window),
            }),
        }
        .repeated(repeat));
    }
    Ok(Finding::unknown("the tool answers before it can be cancelled; name one that takes longer"))
}

/// MOD-04.
pub(crate) fn no_progress(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    let call = session.call(&id, context.long());
    session.say(&call)?;
    let within = FIRST_PROGRESS.min(session.timeout());
    if !session.watch_for(within, |it| it.progress(&id).len() >= 2)? {
        return Ok(Finding::unknown(format!("the tool sends no progress within {within:?}")));
    }
    session.say(&cancel(&id))?;
    let judged = session.check_alive().and_then(|()| session.watch(Instant::now() + CROSSING));
    let heard = session.progress(&id);
    let interval = heard.iter().rev().take(2).copied().reduce(|b, a| a.max(b));
    let interval = interval.zip(heard.iter().rev().nth(1).copied());
    let interval = interval.map_or(Duration::ZERO, |(b, a)| b.saturating_duration_since(a));
    let window = context.options.window.max(interval * 3);
    let judged = judged.and_then(|()| session.watch(Instant::now() + window));
    let late = session.progress(&id).len() - heard.len();
    Ok(match judged {
        Err(SessionError(why)) => Finding::deviates(why),
        Ok(()) if late > 0 => {
            Finding::deviates(format!("{late} progress notifications in {window:?} afterwards"))
        }
        Ok(()) => Finding::holds(format!("progress stops; none in {window:?} afterwards")),
    })
}

/// RPC-03: a call does not keep other requests from being answered.
pub(crate) fn ping(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    let id = session.next_id();
    let call = session.call(&id, context.long());
    session.say(&call)?;
    for _ in 0..3 {
        session.watch(Instant::now() + BEGUN)?;
        if let Err(SessionError(why)) = session.check_alive() {
            return Ok(Finding::deviates(format!("during a call: {why}")));
        }
    }
    session.say(&cancel(&id))?;
    Ok(match session.check_alive() {
        Ok(()) => Finding::holds("pings are answered during a call and after its cancel"),
        Err(SessionError(why)) => Finding::deviates(format!("after a cancel: {why}")),
    })
}

/// CAN-11: the cancel comes in the same write as its request.
pub(crate) fn early(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let mut ids = Vec::new();
    for _ in 0..REPEATS {
        let id = session.next_id();
        let call = session.call(&id, context.brief());
        session.say(&format!("{call}\n{}", cancel(&id)))?;
        ids.push(id);
    }
    let watched = session.watch(Instant::now() + BRIEF + context.options.window);
    if let Err(SessionError(why)) = watched.and_then(|()| session.check_alive()) {
        return Ok(Finding::deviates(why).repeated(REPEATS));
    }
    let ran = |id: &&Value| session.answers(id).iter().any(|answer| is_tool_result(answer));
    let count = ids.iter().filter(ran).count();
    Ok(match count {
        0 => Finding::holds("no call ran to its end"),
        _ => Finding::deviates(format!("{count} of {REPEATS} calls ran to their end")),
    }
    .repeated(REPEATS))
}
