//! Messages apart from turns: cancels that name nothing, ids, unknown methods.

use serde_json::{Value, json};

use crate::agent::context::Context;
use crate::agent::context::V2;
use crate::agent::session::{Session, cancel_request, cancel_turn, ping, request};
use crate::finding::{Finding, SessionError};
use crate::session::notification;
use crate::text;

/// Version that no agent speaks.
const FUTURE: u64 = 65_535;

/// The handshake is answered; a session is opened, unless the agent wants authentication.
pub(crate) fn handshake(context: &Context) -> Result<Finding, SessionError> {
    Session::start(context)?;
    Ok(Finding::holds("initialize is answered"))
}

/// RPC-04.
pub(crate) fn version(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::silent(context, context.version())?;
    let id = json!("greeting");
    let hello = session.hello(&id, FUTURE);
    session.say(&hello)?;
    let answer = match session.answer(&id) {
        Ok(answer) => answer,
        Err(SessionError(why)) => return Ok(Finding::deviates(why)),
    };
    let version = answer["result"]["protocolVersion"].as_u64();
    let is_right = version.is_some_and(|version| version < FUTURE);
    Ok(Finding::of(is_right, format!("version {FUTURE}: {}", text::message(&answer))))
}

/// UPS-14.
pub(crate) fn stdout(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if let Ok(turn) = session.begin_long() {
        session.watch(session.window())?;
        session.cancel(&turn)?;
    }
    session.watch(session.window())?;
    Ok(match session.pipe.garbage.first() {
        Some(line) => Finding::deviates(format!("a line that is no message: {line:?}")),
        None => Finding::holds("only messages"),
    })
}

/// ACP-04.
pub(crate) fn initialize_cancel(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::silent(context, context.version())?;
    let id = json!("greeting");
    let hello = session.hello(&id, session.version);
    session.say(&format!("{hello}\n{}", cancel_request(&id)))?;
    let answer = match session.answer(&id) {
        Ok(answer) => answer,
        Err(SessionError(why)) => return Ok(Finding::deviates(why)),
    };
    Ok(Finding::of(answer.get("result").is_some(), text::message(&answer)))
}

/// Sends lines that must be ignored, each followed by a ping.
fn all_ignored(
    session: &mut Session<'_>,
    lines: &[(&str, String)],
) -> Result<Finding, SessionError> {
    let mark = session.log.len();
    let is_ping = |id: &Value| id.as_str().is_some_and(|id| id.starts_with("ping-"));
    let is_answer = |it: &Value| it.get("method").is_none() && !is_ping(&it["id"]);
    let answer = |session: &Session<'_>| {
        let messages = session.log.iter().skip(mark).map(|(_, message)| message);
        messages.clone().find(|it| is_answer(it)).map(text::message)
    };
    for (name, line) in lines {
        session.say(line)?;
        if let Err(SessionError(why)) = session.ping() {
            return Ok(Finding::deviates(format!("{name}: {why}")));
        }
        if let Some(said) = answer(session) {
            return Ok(Finding::deviates(format!("{name} is answered: {said}")));
        }
    }
    session.watch(session.window())?;
    Ok(match answer(session) {
        Some(said) => Finding::deviates(format!("answered late: {said}")),
        None => Finding::holds(format!("{} ignored, and requests answered", lines.len())),
    })
}

/// ACP-08: cancels of requests that were never sent.
pub(crate) fn cancel_unknown(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let ids = [json!(999_999), json!("never"), json!(-5)];
    let lines = ids.map(|id| ("a cancel of an unknown request", cancel_request(&id)));
    all_ignored(&mut session, &lines)
}

/// ACP-08: a cancel of an answered request.
pub(crate) fn cancel_answered(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = json!("ping-answered");
    session.say(&ping(&id))?;
    session.answer(&id)?;
    let line = ("a cancel of an answered request", cancel_request(&id));
    let found = all_ignored(&mut session, &[line])?;
    match session.answers(&id).len() {
        1 => Ok(found),
        count => Ok(Finding::deviates(format!("{count} answers to the cancelled request"))),
    }
}

/// ACP-10: malformed cancels.
pub(crate) fn cancel_malformed(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let name = "a malformed cancel";
    let of = |params: &Value| (name, notification("$/cancel_request", params));
    let mut lines: Vec<_> = [
        json!({}),
        json!({"requestId": null}),
        json!({"requestId": {"id": 1}}),
        json!({"requestId": [1]}),
        json!({"requestId": true}),
    ]
    .iter()
    .map(of)
    .collect();
    lines.push((name, json!({"jsonrpc": "2.0", "method": "$/cancel_request"}).to_string()));
    all_ignored(&mut session, &lines)
}

/// ACP-08: `session/cancel` of a session that does not exist.
pub(crate) fn cancel_no_session(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let line = ("a cancel of an unknown session", cancel_turn("no-such-session"));
    all_ignored(&mut session, &[line])
}

/// RPC-01: unknown requests are refused, unknown notifications are ignored.
pub(crate) fn unknown_method(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let answer = session.ping()?;
    if answer["error"]["code"] != -32601 {
        let said = text::message(&answer);
        return Ok(Finding::deviates(format!("an unknown request is answered: {said}")));
    }
    let lines = ["_ceased.dev/note", "$/ceased_note"]
        .map(|method| ("an unknown notification", notification(method, &json!({}))));
    all_ignored(&mut session, &lines)
}

/// RPC-01: ids of every form.
pub(crate) fn id_forms(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let ids = [
        json!(0),
        json!(""),
        json!(1),
        json!("1"),
        json!(-7),
        json!(9_007_199_254_740_991_i64),
        json!("a \"quoted\" id"),
    ];
    let lines: Vec<String> = ids.iter().map(ping).collect();
    session.say(&lines.join("\n"))?;
    let has_all = |it: &Session<'_>| ids.iter().all(|id| !it.answers(id).is_empty());
    session.watch_for(session.timeout(), has_all)?;
    let wrong: Vec<String> = ids
        .iter()
        .filter(|id| session.answers(id).len() != 1)
        .map(|id| format!("{} answers to {id}", session.answers(id).len()))
        .collect();
    Ok(match wrong.is_empty() {
        true => Finding::holds(format!("{} forms returned", ids.len())),
        false => Finding::deviates(wrong.join(", ")),
    })
}

/// RPC-01: a line that is no JSON does not end the connection.
pub(crate) fn parse_error(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let passed = session.say("{\"jsonrpc\": \"2.0\", ").and_then(|()| session.ping());
    Ok(match passed {
        Ok(_) => Finding::holds("requests behind the line are answered"),
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

/// RPC-02: version 2 has no id null.
pub(crate) fn id_null(context: &Context) -> Result<Finding, SessionError> {
    if !context.speaks(V2) {
        return Ok(Finding::unknown("the agent does not speak version 2"));
    }
    let mut session = Session::start_in(context, V2)?;
    let params = json!({"cwd": "/", "mcpServers": []});
    session.say(&request(&Value::Null, "session/new", &params))?;
    let answer = match session.answer(&Value::Null) {
        Ok(answer) => answer,
        Err(SessionError(why)) => return Ok(Finding::deviates(why)),
    };
    Ok(Finding::of(answer["error"]["code"] == -32600, text::message(&answer)))
}
