//! Pieces of a session's work in version 2: the cancel of one, and work in the background.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::work::{EVERY, Names, processes, without};
use crate::agent::context::{Context, V2};
use crate::agent::session::{Session, request};
use crate::finding::{Finding, SessionError};
use crate::text::{self, listed};

/// Code of a request that names something that is not there.
const INVALID_PARAMS: i64 = -32602;
const METHOD_NOT_FOUND: i64 = -32601;

/// Kind of a piece that a client may cancel by itself.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    method: &'static str,
    update: &'static str,
    id: &'static str,
}

const TOOL_CALL: Kind = Kind {
    name: "tool call",
    method: "tool_call/cancel",
    update: "tool_call_update",
    id: "toolCallId",
};
const TERMINAL: Kind = Kind {
    name: "terminal",
    method: "terminal/cancel",
    update: "terminal_update",
    id: "terminalId",
};

impl Kind {
    /// The id of the piece that an update is about.
    fn piece(self, update: &Value) -> Option<&str> {
        let is_update = update["sessionUpdate"] == self.update;
        update[self.id].as_str().filter(|_| is_update)
    }

    /// The end that an update tells of its piece.
    fn end(self, update: &Value) -> Option<String> {
        self.piece(update)?;
        match update["exitStatus"].is_object() {
            true => Some(format!("exitStatus {}", text::message(&update["exitStatus"]))),
            false => {
                let status = update["status"].as_str()?;
                let is_final = matches!(status, "completed" | "failed" | "cancelled");
                is_final.then(|| format!("status {status}"))
            }
        }
    }
}

/// Updates of a session since a place in the log.
fn updates<'a>(
    session: &'a Session<'_>,
    name: &'a str,
    mark: usize,
) -> impl Iterator<Item = &'a Value> {
    let messages = session.log.iter().skip(mark).map(|(_, message)| &message["params"]);
    messages.filter(move |it| it["sessionId"] == name).map(|params| &params["update"])
}

/// The first piece that runs and offers its cancel.
fn offered(session: &Session<'_>, name: &str, kind: Kind) -> Option<String> {
    let mut offers: BTreeMap<&str, bool> = BTreeMap::new();
    for update in updates(session, name, 0) {
        let Some(piece) = kind.piece(update) else { continue };
        if let Some(capabilities) = update.get("capabilities") {
            offers.insert(piece, capabilities["cancel"].is_object());
        }
        if kind.end(update).is_some() {
            offers.insert(piece, false);
        }
    }
    offers.into_iter().find(|(_, offers)| *offers).map(|(piece, _)| piece.to_owned())
}

/// The end that a session tells of a piece.
fn end_of(session: &Session<'_>, name: &str, kind: Kind, piece: &str) -> Option<String> {
    let of = updates(session, name, 0).filter(|it| kind.piece(it) == Some(piece));
    of.filter_map(|update| kind.end(update)).next()
}

fn not_spoken() -> Finding {
    Finding::unknown("the agent does not speak version 2")
}

fn cancel(context: &Context, kind: Kind) -> Result<Finding, SessionError> {
    if !context.speaks(V2) {
        return Ok(not_spoken());
    }
    let mut session = Session::start_in(context, V2)?;
    let name = session.open()?;
    session.permit();
    let turn = session.begin(&name, context.work_prompt())?;
    session.watch_for(session.timeout(), |it| {
        offered(it, &name, kind).is_some() || it.end(&turn).is_some()
    })?;
    let Some(piece) = offered(&session, &name, kind) else {
        let seen = format!("no {} of the turn offers its cancel (--work-prompt)", kind.name);
        return Ok(Finding::unknown(seen));
    };
    let id = session.next_id();
    session.say(&request(&id, kind.method, &json!({"sessionId": name, kind.id: piece})))?;
    let answer = session.answer(&id)?;
    if let Some(error) = answer.get("error") {
        return Ok(match end_of(&session, &name, kind, &piece) {
            Some(end) => Finding::unknown(format!("the {} ends by itself with {end}", kind.name)),
            None => Finding::deviates(format!("refused with {}", text::message(error))),
        });
    }
    session.watch_for(session.timeout(), |it| end_of(it, &name, kind, &piece).is_some())?;
    Ok(match end_of(&session, &name, kind, &piece) {
        Some(end) => Finding::holds(format!("ends with {end}")),
        None => Finding::deviates(format!(
            "accepted, and no end of the {} within {:?}",
            kind.name, context.options.timeout
        )),
    })
}

/// SUP-06: `tool_call/cancel`.
pub(crate) fn cancel_tool_call(context: &Context) -> Result<Finding, SessionError> {
    cancel(context, TOOL_CALL)
}

/// SUP-06: `terminal/cancel`.
pub(crate) fn cancel_terminal(context: &Context) -> Result<Finding, SessionError> {
    cancel(context, TERMINAL)
}

/// SUP-06: a cancel that names no piece.
pub(crate) fn cancel_of_nothing(context: &Context) -> Result<Finding, SessionError> {
    if !context.speaks(V2) {
        return Ok(not_spoken());
    }
    let mut session = Session::start_in(context, V2)?;
    let name = session.open()?;
    let mut seen = Vec::new();
    for kind in [TOOL_CALL, TERMINAL] {
        let id = session.next_id();
        let params = json!({"sessionId": name, kind.id: "no-such-piece"});
        session.say(&request(&id, kind.method, &params))?;
        let answer = session.answer(&id)?;
        match answer["error"]["code"].as_i64() {
            Some(INVALID_PARAMS) => seen.push(format!("{} is refused", kind.method)),
            Some(METHOD_NOT_FOUND) => {}
            _ => {
                let said = text::message(&answer);
                return Ok(Finding::deviates(format!("{}: {said}", kind.method)));
            }
        }
    }
    Ok(match seen.is_empty() {
        true => Finding::unknown("the agent has no cancel of a single piece"),
        false => Finding::holds(seen.join(", ")),
    })
}

/// A session with work in the background.
struct Background<'a> {
    session: Session<'a>,
    name: String,
    /// Its pieces, as the agent lists them.
    pieces: Vec<Value>,
    /// Its processes.
    work: Names,
}

/// The last list of background work, and whether a state was told without one since the first.
fn background_of(session: &Session<'_>, name: &str) -> (Vec<Value>, bool) {
    let (mut last, mut is_left_out) = (None, false);
    for update in updates(session, name, 0).filter(|it| it["sessionUpdate"] == "state_update") {
        match update["background"].as_array() {
            Some(list) => last = Some(list.clone()),
            None => is_left_out |= last.is_some(),
        }
    }
    (last.unwrap_or_default(), is_left_out)
}

/// Whether two items of lists are for one piece: its other members may change while it runs.
fn is_same_piece(one: &Value, other: &Value) -> bool {
    ["type", TOOL_CALL.id, TERMINAL.id].iter().all(|key| one[key] == other[key])
}

/// A session whose last turn has left work in the background; the reason if there is none.
fn begin(context: &Context) -> Result<Result<Background<'_>, Finding>, SessionError> {
    if !context.speaks(V2) {
        return Ok(Err(not_spoken()));
    }
    let Some(prompt) = &context.options.background_prompt else {
        let wanted = "name a prompt that leaves background work with --background-prompt";
        return Ok(Err(Finding::unknown(wanted)));
    };
    let mut session = Session::start_in(context, V2)?;
    let name = session.open()?;
    session.permit();
    session.watch(EVERY)?;
    let before = processes(&session);
    let (turn, line) = session.prompt(&name, prompt);
    session.say(&line)?;
    session.ends(&turn)?;
    let (pieces, _) = background_of(&session, &name);
    if session.end(&turn).is_none() || pieces.is_empty() {
        let seen = "the turn of --background-prompt does not end with background work";
        return Ok(Err(Finding::unknown(seen)));
    }
    let work = without(processes(&session), &before);
    Ok(Ok(Background { session, name, pieces, work }))
}

/// SUP-05: a cancelled turn spares work in the background.
pub(crate) fn background_is_spared(context: &Context) -> Result<Finding, SessionError> {
    let Background { mut session, name, pieces, work } = match begin(context)? {
        Ok(background) => background,
        Err(unknown) => return Ok(unknown),
    };
    let turn = session.begin(&name, &context.options.prompt)?;
    session.cancel(&turn)?;
    if session.ends(&turn)?.is_none() {
        return Ok(Finding::unknown("the cancelled turn does not end"));
    }
    session.watch(session.window())?;
    let alive = processes(&session);
    let gone = work.into_iter().filter(|(pid, _)| !alive.contains_key(pid));
    let gone: Vec<String> = gone.map(|(_, name)| name).collect();
    if !gone.is_empty() {
        return Ok(Finding::deviates(format!("ended with the turn: {}", listed(gone))));
    }
    let (left, is_left_out) = background_of(&session, &name);
    let is_left = |piece: &&Value| left.iter().any(|other| is_same_piece(piece, other));
    if let Some(lost) = pieces.iter().find(|piece| !is_left(piece)) {
        let lost = text::message(lost);
        return Ok(Finding::deviates(format!("no longer listed after the cancel: {lost}")));
    }
    Ok(match is_left_out {
        true => Finding::deviates("a state_update after the first list has no background"),
        false => Finding::holds(format!("{} listed and running after the cancel", left.len())),
    })
}

/// SUP-05: `session/close` ends work in the background.
pub(crate) fn background_is_closed(context: &Context) -> Result<Finding, SessionError> {
    let Background { mut session, name, work, .. } = match begin(context)? {
        Ok(background) => background,
        Err(unknown) => return Ok(unknown),
    };
    if work.is_empty() {
        return Ok(Finding::unknown("the background work has no process of its own"));
    }
    let id = session.next_id();
    session.say(&request(&id, "session/close", &json!({"sessionId": name})))?;
    let answer = session.answer(&id)?;
    if let Some(error) = answer.get("error") {
        return Ok(match error["code"] == METHOD_NOT_FOUND {
            true => Finding::unknown("the agent does not close sessions"),
            false => Finding::deviates(format!("refused with {}", text::message(error))),
        });
    }
    let until = Instant::now() + session.timeout();
    loop {
        let alive = processes(&session);
        let left = work.iter().filter(|(pid, _)| alive.contains_key(pid));
        let left: Vec<String> = left.map(|(_, name)| name.clone()).collect();
        if left.is_empty() {
            return Ok(Finding::holds(format!("gone: {}", listed(work.into_values()))));
        }
        if until <= Instant::now() {
            return Ok(Finding::deviates(format!("alive after the close: {}", listed(left))));
        }
        session.watch(EVERY)?;
    }
}
