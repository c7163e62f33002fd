//! Ids of requests in every form, reused, and twice in flight.

use std::time::Duration;

use serde_json::{Value, json};

use crate::context::Context;
use crate::finding::{Finding, SessionError};
use crate::session::{Session, cancel};

/// Time after which a call that says nothing has begun.
const BEGUN: Duration = Duration::from_millis(500);

/// Starts the call that takes a second, and waits for its first sign of life: messages over HTTP
/// arrive in no order. False if the call has ended by then.
fn begin(session: &mut Session<'_>, context: &Context, id: &Value) -> Result<bool, SessionError> {
    let call = session.call(id, context.brief());
    session.say(&call)?;
    session.watch_for(BEGUN, |it| !it.progress(id).is_empty() || !it.answers(id).is_empty())?;
    Ok(session.answers(id).is_empty())
}

const OVER: &str = "the call ends before its id can be used again; give --brief-args with which \
                    it takes a second";

/// CAN-01, RPC-01: each id comes back as it was, once.
pub(crate) fn forms(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let ids = [
        json!(0),
        json!(""),
        json!(1),
        json!("1"),
        json!(-7),
        json!(9_007_199_254_740_991_i64),
        json!("a \"quoted\" \\ id, ü"),
    ];
    let lines: Vec<String> = ids.iter().map(|id| session.ping(id)).collect();
    session.say(&lines.join("\n"))?;
    let timeout = session.timeout();
    let all = |session: &Session<'_>| ids.iter().all(|id| !session.answers(id).is_empty());
    if let Err(SessionError(why)) = session.watch_for(timeout, all) {
        return Ok(Finding::deviates(why));
    }
    if let Err(SessionError(why)) = session.check_alive() {
        return Ok(Finding::deviates(why));
    }
    let wrong = ids.iter().find(|id| session.answers(id).len() != 1);
    Ok(match wrong {
        Some(id) => {
            let count = session.answers(id).len();
            Finding::deviates(format!("{count} answers to a ping with the id {id}"))
        }
        None => Finding::holds(format!("{} forms of id are answered once each", ids.len())),
    })
}

/// Whether an answer is the result of a tool.
pub(crate) fn is_tool_result(answer: &Value) -> bool {
    answer["result"].get("content").is_some()
}

/// Waits for the result of a tool.
pub(crate) fn tool_result(session: &mut Session<'_>, id: &Value) -> Result<bool, SessionError> {
    let within = session.timeout();
    session.watch_for(within, |it| it.answers(id).iter().any(|answer| is_tool_result(answer)))
}

/// CAN-01: a cancel of "900" is no cancel of 900.
pub(crate) fn types(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let (number, string) = (json!(900), json!("900"));
    if !begin(&mut session, context, &number)? {
        return Ok(Finding::unknown(OVER));
    }
    session.say(&cancel(&string))?;
    Ok(match tool_result(&mut session, &number) {
        Ok(true) => Finding::holds("a cancel of \"900\" leaves 900 alone"),
        Ok(false) => Finding::deviates("a cancel of \"900\" cancels 900, too"),
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

/// MOD-05: the id of a cancelled request names a new one.
pub(crate) fn reused(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    let call = session.call(&id, context.long());
    session.say(&call)?;
    session.check_alive()?;
    session.say(&cancel(&id))?;
    session.check_alive()?;
    let before = session.answers(&id).len();
    let ping = session.ping(&id);
    session.say(&ping)?;
    let timeout = session.timeout();
    let is_answered = |session: &Session<'_>| session.answers(&id).len() > before;
    Ok(match session.watch_for(timeout, is_answered) {
        Ok(true) => Finding::holds("a new request with the id of a cancelled one is answered"),
        Ok(false) => Finding::deviates(format!(
            "a new request with the id of a cancelled one has no answer within {timeout:?}"
        )),
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

/// RPC-02: a second request with an id in flight harms nothing.
pub(crate) fn duplicate(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    let id = session.next_id();
    if !begin(&mut session, context, &id)? {
        return Ok(Finding::unknown(OVER));
    }
    let ping = session.ping(&id);
    session.say(&ping)?;
    let done = tool_result(&mut session, &id).and_then(|done| {
        session.check_alive()?;
        Ok(done)
    });
    Ok(match done {
        Ok(true) => Finding::holds("the first request with the id has its result"),
        Ok(false) => Finding::deviates("the first request with the id never has its result"),
        Err(SessionError(why)) => Finding::deviates(why),
    })
}
