//! Requests of Streamable HTTP: statuses, headers and sessions.

use serde_json::{Value, json};

use crate::context::Context;
use crate::era::Era;
use crate::finding::{Finding, SessionError};
use crate::http::{Headers, Reply};
use crate::session::Session;

use super::load::{descriptors, judge_growth, settled};

/// Rounds of sessions that are opened and ended, and the sessions of each.
const ROUNDS: usize = 4;
const SESSIONS: usize = 20;
/// The revision whose requests have no version header.
const WITHOUT_VERSION: &str = "2025-03-26";
const NO_SESSIONS: &str = "the server keeps no sessions";

/// A ping as a message.
fn ping(session: &mut Session<'_>) -> Value {
    let id = session.next_id();
    serde_json::from_str(&session.ping(&id)).unwrap_or_default()
}

/// Posts a message with changed headers.
fn post(
    session: &mut Session<'_>,
    message: &Value,
    change: impl FnOnce(&mut Headers),
) -> Result<Reply, SessionError> {
    let until = session.until();
    let http = session.http()?;
    let mut headers = http.headers(message);
    change(&mut headers);
    let bytes = http.draft("POST", &headers, &message.to_string());
    bytes.and_then(|bytes| http.fetch(bytes, until)).map_err(SessionError)
}

fn without(headers: &mut Headers, name: &str) {
    headers.retain(|(known, _)| known != name);
}

fn replace(headers: &mut Headers, name: &str, value: &str) {
    without(headers, name);
    headers.push((name.to_owned(), value.to_owned()));
}

/// A finding about the status of a response.
fn expect(case: &str, reply: &Reply, statuses: &[u16]) -> Result<(), String> {
    let wanted: Vec<String> = statuses.iter().map(u16::to_string).collect();
    match statuses.contains(&reply.status()) {
        true => Ok(()),
        false => Err(format!("{case}: {}, not {}", reply.told(), wanted.join(" or "))),
    }
}

fn judged(result: Result<(), String>, holds: &str) -> Finding {
    match result {
        Ok(()) => Finding::holds(holds),
        Err(why) => Finding::deviates(why),
    }
}

/// HTTP-03: an accepted notification has no answer.
pub(crate) fn notification(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let message = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": "no-such-token", "progress": 1}});
    let reply = post(&mut session, &message, |_| {})?;
    let result = expect("a notification", &reply, &[202]).and_then(|()| match reply.body.trim() {
        "" => Ok(()),
        _ => Err(format!("a notification: {}", reply.told())),
    });
    Ok(judged(result, "a notification is answered with 202 and no body"))
}

/// HTTP-02: a page of another origin cannot call.
pub(crate) fn origin(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let message = ping(&mut session);
    let reply = post(&mut session, &message, |headers| {
        replace(headers, "origin", "http://elsewhere.example");
    })?;
    Ok(judged(expect("a foreign Origin", &reply, &[403]), "a foreign Origin is refused with 403"))
}

/// HTTP-10: a request that two servers could read in two ways.
pub(crate) fn two_lengths(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let message = ping(&mut session);
    let until = session.until();
    let http = session.http()?;
    let body = message.to_string();
    let mut bytes = http.draft("POST", &http.headers(&message), &body).map_err(SessionError)?;
    // Behind the right one, so that a server that takes the first has a whole message.
    let other = format!("content-length: {}\r\n", body.len() - 1);
    let end = bytes.len() - body.len() - "\r\n".len();
    bytes.splice(end..end, other.into_bytes());
    Ok(match http.fetch(bytes, until) {
        Ok(reply) => judged(
            expect("two lengths of one body", &reply, &[400]),
            "two lengths of one body are refused with 400",
        ),
        Err(why) => Finding::unknown(why),
    })
}

/// HTTP-05, HTTP-09: a revision that does not exist.
pub(crate) fn version(context: &Context) -> Result<Finding, SessionError> {
    const WRONG: &str = "1999-01-01";
    if context.facts().revision == WITHOUT_VERSION {
        return Ok(Finding::unknown("requests of this revision name no version"));
    }
    let mut session = Session::start(context)?;
    let mut message = ping(&mut session);
    if *session.era() == Era::Stateless {
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(WRONG);
    }
    let reply = post(&mut session, &message, |headers| {
        replace(headers, "mcp-protocol-version", WRONG);
    })?;
    let case = format!("MCP-Protocol-Version: {WRONG}");
    Ok(judged(expect(&case, &reply, &[400]), "an unknown version is refused with 400"))
}

/// HTTP-04: a session that does not exist, and none.
pub(crate) fn session_unknown(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if session.http()?.session.is_none() {
        return Ok(Finding::unknown(NO_SESSIONS));
    }
    let message = ping(&mut session);
    let unknown = post(&mut session, &message, |headers| {
        replace(headers, "mcp-session-id", "00000000-0000-4000-8000-000000000000");
    })?;
    let none = post(&mut session, &message, |headers| without(headers, "mcp-session-id"))?;
    let result = expect("an unknown session", &unknown, &[404])
        .and_then(|()| expect("a request without a session", &none, &[400]));
    Ok(judged(result, "an unknown session is refused with 404, a missing one with 400"))
}

/// HTTP-04: a session that was ended.
pub(crate) fn session_delete(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if session.http()?.session.is_none() {
        return Ok(Finding::unknown(NO_SESSIONS));
    }
    let until = session.until();
    let deleted = session.http()?.delete(until).map_err(SessionError)?;
    if deleted.status() == 405 {
        return Ok(Finding::unknown("the server lets no client end a session"));
    }
    let message = ping(&mut session);
    let after = post(&mut session, &message, |_| {})?;
    let result = expect("DELETE", &deleted, &[200, 202, 204])
        .and_then(|()| expect("a request after DELETE", &after, &[404]));
    Ok(judged(result, "DELETE ends the session; later requests are refused with 404"))
}

/// HTTP-04: ended sessions hold nothing.
pub(crate) fn session_freed(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    if session.http()?.session.is_none() {
        return Ok(Finding::unknown(NO_SESSIONS));
    }
    let processes = session.processes();
    let mut counts = vec![descriptors(&processes)];
    for _ in 0..ROUNDS {
        for _ in 0..SESSIONS {
            if let Err(why) = pass_session(&mut session)? {
                return Ok(Finding::unknown(why));
            }
        }
        let former = counts.last().copied().unwrap_or_default();
        counts.push(settled(&mut session, &processes, former, SESSIONS)?);
    }
    let seen = format!("{} ended sessions", ROUNDS * SESSIONS);
    Ok(judge_growth(&counts, SESSIONS, &seen))
}

/// Opens another session and ends it; an error if the server does not let it.
fn pass_session(session: &mut Session<'_>) -> Result<Result<(), String>, SessionError> {
    let hello: Value = serde_json::from_str(&session.hello(&json!("greeting"))).unwrap_or_default();
    let initialized = post(session, &hello, |headers| {
        without(headers, "mcp-session-id");
        without(headers, "mcp-protocol-version");
    })?;
    let Some(id) = initialized.head.header("mcp-session-id").map(str::to_owned) else {
        return Ok(Err(format!("no further session: {}", initialized.told())));
    };
    let until = session.until();
    let http = session.http()?;
    let mut headers = http.headers(&Value::Null);
    replace(&mut headers, "mcp-session-id", &id);
    let bytes = http.draft("DELETE", &headers, "");
    let deleted = bytes.and_then(|bytes| http.fetch(bytes, until)).map_err(SessionError)?;
    Ok(match deleted.status() {
        405 => Err("the server lets no client end a session".to_owned()),
        _ => Ok(()),
    })
}

/// HTTP-09: headers that do not equal the body.
pub(crate) fn headers(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let message = ping(&mut session);
    let missing = post(&mut session, &message, |headers| without(headers, "mcp-method"))?;
    let other = post(&mut session, &message, |it| replace(it, "mcp-method", "tools/list"))?;
    let result = expect("no Mcp-Method", &missing, &[400])
        .and_then(|()| expect("another Mcp-Method", &other, &[400]))
        .and_then(|()| match other.json()["error"]["code"] == json!(-32020) {
            true => Ok(()),
            false => Err(format!("another Mcp-Method: {}, not -32020", other.told())),
        });
    Ok(judged(result, "a missing or another Mcp-Method is refused with 400 and -32020"))
}

/// HTTP-09: a method that does not exist.
pub(crate) fn unknown_method(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    let request = session.request(&id, "no/such/method", json!({}));
    let message = serde_json::from_str(&request).unwrap_or_default();
    let reply = post(&mut session, &message, |_| {})?;
    let result = expect("an unknown method", &reply, &[404]).and_then(|()| {
        match reply.json()["error"]["code"] == json!(-32601) {
            true => Ok(()),
            false => Err(format!("an unknown method: {}, not -32601", reply.told())),
        }
    });
    Ok(judged(result, "an unknown method is answered with 404 and -32601"))
}

/// HTTP-01: there is no stream beside those of requests.
pub(crate) fn get(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let until = session.until();
    let http = session.http()?;
    let mut headers = http.headers(&Value::Null);
    replace(&mut headers, "accept", "text/event-stream");
    let bytes = http.draft("GET", &headers, "");
    let reply = bytes.and_then(|bytes| http.fetch(bytes, until)).map_err(SessionError)?;
    Ok(judged(expect("GET", &reply, &[405]), "GET is refused with 405"))
}
