//! A checkup of an ACP agent on standard input and output.
//!
//! Each check starts the agent anew in a contained job, opens a session, begins a turn and cancels
//! it. Version 1 answers a prompt at the end of its turn; version 2 answers it at once and reports
//! the end with a state update.

mod checks;
mod context;
mod options;
mod session;
mod table;

use std::io;
use std::time::Instant;

use ceased_process::Containment;
use serde_json::Value;

use super::about::About;
use super::arena::Arena;
use super::finding::{Findings, SessionError};
use super::suite::{self, Load, NoHandshake};
use context::{Context, Facts, V1, V2};
use session::Session;
use table::{CHECKS, HANDSHAKE};

pub use options::AgentOptions;

/// The checks of an agent, in the order of the report.
pub fn checks() -> impl Iterator<Item = &'static About> {
    CHECKS.iter().map(|check| &check.about)
}

/// Probes an agent. `told` is called with the name of each check that is about to begin.
///
/// # Errors
///
/// When no process can be started here.
pub fn probe(
    options: AgentOptions,
    containment: Containment,
    told: &(dyn Fn(&str) + Sync),
) -> io::Result<Findings> {
    let arena = Arena::new(containment, options.memory_max, options.pids_max)?;
    let context = Context::new(arena, options);
    told(HANDSHAKE);
    let selected = |id| context.options.checks.contains(id);
    let began = Instant::now();
    let (checks, failure, facts) = match gather(&context) {
        Ok(facts) => {
            context.learn(facts.clone());
            let load = Load { at_once: context.options.at_once, timeout: context.options.timeout };
            let selected: Vec<_> = CHECKS.iter().filter(|it| selected(it.about.id)).collect();
            (suite::run_all(&context, &selected, load, told), None, facts)
        }
        Err(trouble) => {
            let is_chosen = |id| id == HANDSHAKE || selected(id);
            let chosen = CHECKS.iter().filter(|it| is_chosen(it.about.id));
            let (checks, failure) =
                suite::without_handshake(chosen, HANDSHAKE, trouble, began.elapsed());
            (checks, failure, Facts::default())
        }
    };
    let versions: Vec<String> = facts.versions.iter().map(|it| format!("ACP {it}")).collect();
    let findings = context.arena.findings(&context.options.command, checks);
    Ok(Findings { failure, name: facts.name, revision: versions.join(", "), ..findings })
}

/// Learns the name of the agent and the versions that it speaks.
fn gather(context: &Context) -> Result<Facts, NoHandshake> {
    let unreached = |SessionError(why): SessionError| NoHandshake::Unreached(why);
    let mut facts = Facts::default();
    for version in [V1, V2] {
        let mut session = Session::silent(context, version).map_err(unreached)?;
        let greeting = match session.greet() {
            Ok(greeting) => greeting,
            // An agent may refuse a version that it does not speak.
            Err(_) if version == V2 && !facts.versions.is_empty() => continue,
            Err(_) if version == V1 => continue,
            Err(SessionError(why)) if session.has_failed() => {
                return Err(NoHandshake::Unreached(format!("the agent does not start: {why}")));
            }
            Err(SessionError(why)) => return Err(NoHandshake::Unanswered(why)),
        };
        let Some(answered) = greeting["protocolVersion"].as_u64() else {
            let why = "initialize is answered without a protocolVersion";
            return Err(NoHandshake::Unanswered(why.to_owned()));
        };
        if [V1, V2].contains(&answered) && !facts.versions.contains(&answered) {
            facts.versions.push(answered);
        }
        let info = [&greeting["agentInfo"], &greeting["info"]];
        if let Some(info) = info.into_iter().find(|info| info.is_object()) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = format!("{} {}", text(&info["name"]), text(&info["version"]));
            facts.name = name.trim().to_owned();
        }
    }
    match facts.versions.is_empty() {
        true => {
            let why = "the agent speaks neither version 1 nor version 2";
            Err(NoHandshake::Unanswered(why.to_owned()))
        }
        false => Ok(facts),
    }
}
