//! Cancelled turns.

use serde_json::json;

use crate::agent::context::Context;
use crate::agent::context::V2;
use crate::agent::session::{End, Session, Turn, cancel_request, cancel_turn, ping};
use crate::finding::{Finding, SessionError};
use crate::session::notification;
use crate::text;

/// Repeats of checks in which a turn may end by itself just before the cancel.
const REPEATS: u32 = 3;
/// Updates of a turn; others concern the session and may come at any time.
const OF_A_TURN: [&str; 5] =
    ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];

/// A turn that was cancelled, and its end.
fn cancelled<'a>(context: &'a Context) -> Result<(Session<'a>, Turn, Option<End>), SessionError> {
    let mut session = Session::start(context)?;
    let turn = session.begin_long()?;
    session.cancel(&turn)?;
    let end = session.ends(&turn)?;
    Ok((session, turn, end))
}

fn no_end(context: &Context) -> Finding {
    Finding::deviates(format!("the turn runs on {:?} after the cancel", context.options.timeout))
}

fn judge(context: &Context, end: Option<End>) -> Finding {
    match end {
        None => no_end(context),
        Some(end) => Finding::of(end.is_cancelled(), format!("ends with {}", end.told())),
    }
}

fn cancel_ends_turn(context: &Context, version: u64) -> Result<Finding, SessionError> {
    for repeat in 1..=REPEATS {
        let mut session = Session::start_in(context, version)?;
        let turn = session.begin_long()?;
        session.cancel(&turn)?;
        let end = session.ends(&turn)?;
        let is_natural = end == Some(End::Reason("end_turn".to_owned()));
        if !is_natural || repeat == REPEATS {
            return Ok(judge(context, end).repeated(repeat));
        }
    }
    Err(SessionError("no turn was cancelled".to_owned()))
}

/// ACP-12: `session/cancel`.
pub(crate) fn cancel(context: &Context) -> Result<Finding, SessionError> {
    cancel_ends_turn(context, context.version())
}

/// ACP-12, in version 2.
pub(crate) fn cancel_v2(context: &Context) -> Result<Finding, SessionError> {
    match context.speaks(V2) {
        true => cancel_ends_turn(context, V2),
        false => Ok(Finding::unknown("the agent does not speak version 2")),
    }
}

/// ACP-06: exactly one answer.
pub(crate) fn one_answer(context: &Context) -> Result<Finding, SessionError> {
    let (mut session, turn, end) = cancelled(context)?;
    if end.is_none() {
        return Ok(Finding::unknown("the cancelled turn does not end"));
    }
    session.watch(session.window())?;
    let count = session.answers(&turn.id).len();
    Ok(Finding::of(count == 1, format!("{count} answers to the prompt")))
}

/// ACP-05: no update after the end.
pub(crate) fn late_updates(context: &Context) -> Result<Finding, SessionError> {
    let (mut session, turn, end) = cancelled(context)?;
    if end.is_none() {
        return Ok(Finding::unknown("the cancelled turn does not end"));
    }
    let mark = session.log.len();
    session.watch(session.window())?;
    let is_late = |name: &str| OF_A_TURN.contains(&name);
    let late = session.log.iter().skip(mark).map(|(_, message)| message).find(|it| {
        let params = &it["params"];
        params["sessionId"] == turn.session.as_str()
            && params["update"]["sessionUpdate"].as_str().is_some_and(is_late)
    });
    Ok(match late {
        Some(update) => Finding::deviates(format!("after the end: {}", text::message(update))),
        None => Finding::holds("no update after the end of the turn"),
    })
}

/// ACP-06: `$/cancel_request` of the prompt.
pub(crate) fn by_request(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if session.version == V2 {
        return Ok(Finding::unknown("this version answers a prompt before its turn ends"));
    }
    let turn = session.begin_long()?;
    session.say(&cancel_request(&turn.id))?;
    session.answer_questions()?;
    let Some(end) = session.ends(&turn)? else {
        return Ok(Finding::unknown("$/cancel_request is ignored, as it may be"));
    };
    session.watch(session.window())?;
    let count = session.answers(&turn.id).len();
    let is_natural = end == End::Reason("end_turn".to_owned());
    if is_natural && count == 1 {
        return Ok(Finding::unknown("the turn ends by itself"));
    }
    let is_right = (end.is_cancelled() || end.is_request_cancelled()) && count == 1;
    Ok(Finding::of(is_right, format!("ends with {}; {count} answers", end.told())))
}

/// ACP-12: both cancels at once.
pub(crate) fn both(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let turn = session.begin_long()?;
    session.say(&format!("{}\n{}", cancel_turn(&turn.session), cancel_request(&turn.id)))?;
    session.answer_questions()?;
    let Some(end) = session.ends(&turn)? else { return Ok(no_end(context)) };
    session.watch(session.window())?;
    let count = session.answers(&turn.id).len();
    let is_right = (end.is_cancelled() || end.is_request_cancelled()) && count == 1;
    Ok(Finding::of(is_right, format!("ends with {}; {count} answers", end.told())))
}

/// ACP-01, ACP-10: the spellings of earlier drafts are heeded or ignored.
pub(crate) fn spellings(context: &Context) -> Result<Finding, SessionError> {
    let mut seen = Vec::new();
    for member in ["id", "requestId"] {
        let mut session = Session::start(context)?;
        let turn = session.begin_long()?;
        let mark = session.log.len();
        session.say(&notification("$/cancelRequest", &json!({member: turn.id})))?;
        session.watch_for(session.window(), |it| it.end(&turn).is_some())?;
        let name = format!("$/cancelRequest with {member}");
        let answered = session.log.iter().skip(mark).map(|(_, message)| message);
        let is_answer = |it: &&serde_json::Value| it.get("method").is_none() && it["id"].is_null();
        if let Some(answer) = answered.clone().find(is_answer) {
            let said = text::message(answer);
            return Ok(Finding::deviates(format!("{name} is answered: {said}")));
        }
        match session.end(&turn) {
            None => seen.push(format!("{name} is ignored")),
            Some(end) if end.is_cancelled() || end.is_request_cancelled() => {
                seen.push(format!("{name} is heeded"));
            }
            Some(end) => {
                return Ok(Finding::deviates(format!("{name} ends with {}", end.told())));
            }
        }
        if let Err(SessionError(why)) = session.ping() {
            return Ok(Finding::deviates(format!("after {name}: {why}")));
        }
    }
    Ok(Finding::holds(seen.join(", ")))
}

/// CAN-11: a cancel in one write with its prompt.
pub(crate) fn early(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let name = session.open()?;
    let (turn, line) = session.prompt(&name, &context.options.prompt);
    session.say(&format!("{line}\n{}", cancel_turn(&name)))?;
    session.watch_for(session.timeout(), |it| it.end(&turn).is_some() || it.has_question())?;
    session.answer_questions()?;
    let end = session.ends(&turn)?;
    Ok(judge(context, end))
}

/// SUP-04: a cancel without a turn does not reach the next one.
pub(crate) fn idle(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let name = session.open()?;
    session.say(&cancel_turn(&name))?;
    session.ping()?;
    let (turn, line) = session.prompt(&name, &context.options.prompt);
    session.say(&line)?;
    session.watch_for(session.window(), |it| it.end(&turn).is_some())?;
    Ok(match session.end(&turn) {
        None => Finding::holds("the next turn runs"),
        Some(end) if end.is_cancelled() || end.is_request_cancelled() => {
            Finding::deviates(format!("the next turn ends with {}", end.told()))
        }
        Some(end) => Finding::unknown(format!("the turn ends by itself with {}", end.told())),
    })
}

/// ACP-09: the session goes on after a cancelled turn.
pub(crate) fn next(context: &Context) -> Result<Finding, SessionError> {
    let (mut session, turn, end) = cancelled(context)?;
    if end.is_none() {
        return Ok(Finding::unknown("the cancelled turn does not end"));
    }
    let (next, line) = session.prompt(&turn.session, &context.options.prompt);
    session.say(&line)?;
    session.watch_for(session.window(), |it| it.end(&next).is_some())?;
    if let Some(end) = session.end(&next) {
        let seen = format!("the next turn ends at once with {}", end.told());
        let is_natural = end == End::Reason("end_turn".to_owned());
        return Ok(if is_natural { Finding::holds(seen) } else { Finding::deviates(seen) });
    }
    session.cancel(&next)?;
    Ok(match session.ends(&next)? {
        Some(end) => Finding::holds(format!("the next turn runs, and ends with {}", end.told())),
        None => Finding::deviates("the next turn is not ended by a cancel"),
    })
}

/// ACP-12: a cancel ends the turn of its own session alone.
pub(crate) fn other_session(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let turns = [session.begin_long()?, session.begin_long()?];
    let [first, second] = &turns;
    session.cancel(first)?;
    session.ends(first)?;
    session.watch_for(session.window(), |it| it.end(second).is_some())?;
    Ok(match session.end(second) {
        None => Finding::holds("the turn of the other session runs on"),
        Some(end) => Finding::of(
            end == End::Reason("end_turn".to_owned()),
            format!("the turn of the other session ends with {}", end.told()),
        ),
    })
}

/// ACP-09: a cancel ends a turn that waits for an answer of the client.
pub(crate) fn question(context: &Context) -> Result<Finding, SessionError> {
    let Some(prompt) = &context.options.question_prompt else {
        return Ok(Finding::unknown(
            "name a prompt that asks for permission with --question-prompt",
        ));
    };
    let mut session = Session::start(context)?;
    let name = session.open()?;
    let (turn, line) = session.prompt(&name, prompt);
    session.say(&line)?;
    let timeout = session.timeout();
    session.watch_for(timeout, |it| it.has_question() || it.end(&turn).is_some())?;
    if !session.has_question() {
        return Ok(Finding::unknown("the agent asks for no permission"));
    }
    session.cancel(&turn)?;
    let end = session.ends(&turn)?;
    Ok(judge(context, end))
}

/// RPC-02: a second request with the id of a running prompt.
pub(crate) fn duplicate(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if session.version == V2 {
        return Ok(Finding::unknown("this version answers a prompt before its turn ends"));
    }
    let turn = session.begin_long()?;
    session.say(&ping(&turn.id))?;
    session.ping()?;
    session.cancel(&turn)?;
    let answers = |it: &Session<'_>| -> Vec<String> {
        let answers = it.answers(&turn.id).into_iter();
        answers.filter_map(|it| it["result"]["stopReason"].as_str().map(str::to_owned)).collect()
    };
    session.watch_for(session.timeout(), |it| !answers(it).is_empty())?;
    Ok(match answers(&session).first() {
        Some(reason) => Finding::holds(format!("the prompt ends with stopReason {reason}")),
        None => Finding::deviates("the prompt has no answer of its own"),
    })
}
