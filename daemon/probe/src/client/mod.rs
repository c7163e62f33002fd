//! A checkup of an MCP client or host, which gets a scripted server.
//!
//! ```text
//! client (contained) ─▶ ceased probe-server (contained, with a child) ─▶ socket ─▶ script
//! ```
//!
//! Three runs of the client are observed, and each check judges one of them.

mod checks;
mod context;
mod observed;
mod options;
mod run;
mod script;
mod server;
mod stage;
mod table;

use std::io;

use ceased_process::Containment;
use serde_json::Value;

use super::about::About;
use super::arena::Arena;
use super::era::STATELESS;
use super::finding::Findings;
use super::suite::{self, Load};
use context::Context;
use table::CHECKS;

pub use options::ClientOptions;
pub use server::serve;

/// The checks of a client, in the order of the report.
pub fn checks() -> impl Iterator<Item = &'static About> {
    CHECKS.iter().map(|check| &check.about)
}

/// Probes a client. `told` is called with the name of each check that is about to begin.
///
/// # Errors
///
/// When no process can be started here.
pub fn probe(
    options: ClientOptions,
    containment: Containment,
    told: &(dyn Fn(&str) + Sync),
) -> io::Result<Findings> {
    let arena = Arena::new(containment, options.memory_max, options.pids_max)?;
    let context = Context::new(arena, options);
    let selected: Vec<_> =
        CHECKS.iter().filter(|it| context.options.checks.contains(it.about.id)).collect();
    let load = Load { at_once: context.options.at_once, timeout: context.options.timeout };
    let checks = suite::run_all(&context, &selected, load, told);
    let (heard, failure) = match context.whole() {
        Ok(observed) => (observed.heard.clone(), observed.not_started()),
        Err(_) => (Vec::new(), None),
    };
    let findings = context.arena.findings(&context.options.command, checks);
    let (name, revision) = identity(heard.iter().map(|(_, it)| it));
    Ok(Findings { failure, name, revision, ..findings })
}

/// Name with version of the client, and its revision: by `initialize`, or by the description in its
/// first request. Empty for a client that sends neither.
fn identity<'a>(mut heard: impl Iterator<Item = &'a Value>) -> (String, String) {
    let found = heard.find_map(|it| {
        let params = &it["params"];
        if it["method"] == "initialize" {
            return Some((&params["clientInfo"], script::session_revision(params)));
        }
        let info = &params["_meta"]["io.modelcontextprotocol/clientInfo"];
        (!info.is_null()).then_some((info, STATELESS))
    });
    let Some((info, revision)) = found else { return (String::new(), String::new()) };
    let text = |key: &str| info[key].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    (name.trim().to_owned(), revision.to_owned())
}
