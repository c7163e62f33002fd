//! Streams of Streamable HTTP: their ends, and the effect of a disconnect.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::context::Context;
use crate::finding::{Finding, SessionError};
use crate::observed::Worked;
use crate::session::{Session, cancel};
use crate::text::{self, listed};
use crate::weight::Weight;
use crate::work::{observe, observe_for};

use super::request_ids::is_tool_result;
use super::work::judge_all;

/// Time after which a call has begun.
const BEGUN: Duration = Duration::from_millis(300);
/// Pause between two looks at a stream.
const POLL: Duration = Duration::from_millis(50);

/// Waits for the end of the response to a request.
fn stream_ends(session: &mut Session<'_>, id: &Value) -> Result<bool, SessionError> {
    let until = session.until();
    while session.http()?.is_open(id) {
        if Instant::now() >= until {
            return Ok(false);
        }
        session.watch(Instant::now() + POLL)?;
    }
    Ok(true)
}

/// Starts a call that takes long; its id.
fn begin(session: &mut Session<'_>, context: &Context) -> Result<Value, SessionError> {
    let id = session.next_id();
    let call = session.call(&id, context.long());
    session.say(&call)?;
    Ok(id)
}

/// HTTP-03: the response ends with the answer.
pub(crate) fn answer_end(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    let request = session.request(&id, "tools/list", serde_json::json!({}));
    session.say(&request)?;
    session.answer(&id)?;
    let within = session.timeout();
    Ok(match stream_ends(&mut session, &id)? {
        true => Finding::holds("the response ends after the answer"),
        false => Finding::deviates(format!("the response is open {within:?} after the answer")),
    })
}

/// HTTP-07: the stream of a cancelled request ends.
pub(crate) fn cancel_end(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = begin(&mut session, context)?;
    session.watch(Instant::now() + BEGUN)?;
    if let Some(answer) = session.answers(&id).first() {
        let said = text::message(answer);
        return Ok(Finding::unknown(format!("answered before it can be cancelled: {said}")));
    }
    session.say(&cancel(&id))?;
    let within = session.timeout();
    Ok(match stream_ends(&mut session, &id)? {
        true => Finding::holds("the response ends after the cancel"),
        false => Finding::deviates(format!("the response is open {within:?} after the cancel")),
    })
}

/// HTTP-07: a disconnect is no cancel.
pub(crate) fn disconnect(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let within = (context.options.window * 3).max(Duration::from_secs(2));
    let start = |session: &mut Session<'_>| begin(session, context);
    let worked = observe_for(&mut session, within, start, |session, id| {
        session.http()?.hang_up(id);
        Ok(())
    })?;
    // Its stream is closed, and nothing else would end it.
    let id = session.last_id();
    session.say(&cancel(&id))?;
    Ok(judge_disconnect(&worked, within))
}

fn judge_disconnect(worked: &Worked, within: Duration) -> Finding {
    let uses_cpu = worked.load() == Weight::Heavy;
    if worked.started.is_empty() && !uses_cpu && !worked.wrote() {
        return Finding::unknown("the call starts no process, uses no CPU and writes nothing");
    }
    let goes_on = !worked.alive.is_empty() || worked.rest() == Weight::Heavy || worked.writes();
    if !goes_on && worked.rest() == Weight::Unclear {
        return Finding::unknown("the call uses less CPU once its connection is closed");
    }
    match goes_on {
        true => Finding::holds(format!(
            "the call goes on for {within:?} after its connection is closed; processes alive: {}",
            listed(&worked.alive)
        )),
        false => Finding::deviates("the call ends when its connection is closed"),
    }
}

/// MOD-06: a posted cancel has no effect where the end of the stream is the cancel.
pub(crate) fn posted_cancel(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    let call = session.call(&id, context.brief());
    session.say(&call)?;
    session.watch(Instant::now() + BEGUN)?;
    let message = serde_json::from_str(&cancel(&id)).unwrap_or_default();
    let until = session.until();
    session.http()?.post(&message, until).map_err(SessionError)?;
    Ok(match session.answer(&id) {
        Ok(answer) if is_tool_result(&answer) => {
            Finding::holds("the call has its result after a posted cancel")
        }
        Ok(answer) => Finding::deviates(format!("the call ends: {}", text::message(&answer))),
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

/// HTTP-04: the end of a session ends its calls.
pub(crate) fn session_work(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if session.http()?.session.is_none() {
        return Ok(Finding::unknown("the server keeps no sessions"));
    }
    let mut status = 0;
    let start = |session: &mut Session<'_>| begin(session, context);
    let worked = observe(&mut session, start, |session, _| {
        let until = session.until();
        status = session.http()?.delete(until).map_err(SessionError)?.status();
        Ok(())
    })?;
    Ok(match status {
        200..300 => judge_all(&worked),
        _ => Finding::unknown(format!("DELETE is answered with {status}")),
    })
}
