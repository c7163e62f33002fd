//! `ceased probe`: a checkup of an MCP server from outside.
//!
//! Each check starts the server anew, in a contained and bounded job that is ended afterwards, or
//! connects to one that runs. It sends raw messages: a check must see every message and may send
//! malformed ones.
//!
//! ```text
//! table ─▶ checks ─▶ session ─▶ channel ─▶ pipe | http   messages in and out
//!             │         └─────▶ arena                    processes, CPU time, exits
//!             └─▶ finding: holds | deviates | unknown, with evidence
//! ```

pub mod agent;
mod arena;
mod channel;
mod checks;
pub mod client;
mod context;
mod endings;
mod era;
mod finding;
mod http;
mod life;
mod observed;
mod options;
mod pick;
mod pipe;
mod room;
mod session;
mod suite;
mod table;
mod target;
mod text;
mod weight;
mod work;

use std::io;
use std::time::Duration;

use ceased_process::Containment;
use serde_json::{Value, json};

use arena::Arena;
use context::{Context, Facts};
use era::{Era, SESSION, TASKS};
use session::{Session, Trouble, cancel};
use suite::Check;
use table::{CHECKS, HANDSHAKE, Needs};

pub use finding::{Checked, Finding, Findings, Verdict};
pub use options::{Options, ToolCall};
pub use target::Target;

/// Time in which a call that fails is answered.
const BEGUN: Duration = Duration::from_millis(500);

/// Checks a URL, in which {port} may stand.
///
/// # Errors
///
/// The reason for which it cannot be used.
pub fn check_url(text: &str) -> Result<(), String> {
    match Target::Url(text.to_owned()).at(1) {
        Target::Url(url) => http::Url::parse(&url).map(drop),
        Target::Stdio | Target::Socket(_) => Ok(()),
    }
}

/// Ids of all checks, in the order of the report.
pub fn ids() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.id)
}

/// Probes a server. `told` is called with the name of each check that is about to begin.
///
/// # Errors
///
/// When no process can be started here.
pub fn probe(
    options: Options,
    containment: Containment,
    told: &(dyn Fn(&str) + Sync),
) -> io::Result<Findings> {
    let arena = Arena::new(containment, options.memory_max, options.pids_max)?;
    let context = Context::new(arena, options);
    let target = &context.options.target;
    told(HANDSHAKE);
    let greeted = gather(&context);
    let selected = |check: &&Check<Context>| {
        check.is_one_of(&context.options.only) && check.needs.over.concerns(target)
    };
    let (checks, facts) = match greeted {
        Ok(facts) => {
            context.learn(facts.clone());
            (run_all(&context, CHECKS.iter().filter(selected).collect(), told), Some(facts))
        }
        Err(Trouble(why)) => {
            let chosen = CHECKS.iter().filter(|it| it.id == HANDSHAKE || selected(it));
            (suite::without_handshake(chosen, HANDSHAKE, &why), None)
        }
    };
    let findings = context.arena.findings(&context.options.command, checks);
    Ok(Findings {
        address: target.address().map(str::to_owned),
        name: facts.as_ref().map(|facts| facts.name.clone()).unwrap_or_default(),
        revision: facts.as_ref().map(|facts| facts.revision.clone()).unwrap_or_default(),
        tool: facts.and_then(|facts| facts.tool),
        ..findings
    })
}

/// Runs checks, as many at once as the subject allows; the results are in the order of the table.
fn run_all(
    context: &Context,
    checks: Vec<&Check<Context>>,
    told: &(dyn Fn(&str) + Sync),
) -> Vec<Checked> {
    // Instances of a server share its store, in which a check of the store is alone.
    let is_alone = |check: &&Check<Context>| check.needs.needs == Needs::Restart;
    let (alone, together): (Vec<_>, Vec<_>) = checks.into_iter().partition(is_alone);
    let options = &context.options;
    let at_once = match options.target.is_plural() || options.command.is_empty() {
        true => options.at_once,
        // Instances with one address cannot run at once.
        false => 1,
    };
    let mut done = suite::run_all(context, &together, at_once, told);
    done.extend(suite::run_all(context, &alone, 1, told));
    done.sort_by_key(|it| CHECKS.iter().position(|check| check.id == it.id));
    done
}

/// Learns the facts about a server: its revision, its capabilities, and a tool for the checks.
fn gather(context: &Context) -> Result<Facts, Trouble> {
    let wanted = context.options.revision.as_deref();
    let era = Era::of(wanted.unwrap_or(SESSION));
    let mut session = match Session::start_in(context, era.clone()) {
        Err(_) if wanted.is_none() => Session::start_in(context, Era::Stateless)?,
        result => result?,
    };
    let era = session.era().clone();
    let greeting = session.greeting.clone();
    let info = match &era {
        Era::Session(_) => greeting["serverInfo"].clone(),
        Era::Stateless => greeting["_meta"]["io.modelcontextprotocol/serverInfo"].clone(),
    };
    let revision = match &era {
        Era::Session(_) => greeting["protocolVersion"].as_str().unwrap_or_default().to_owned(),
        Era::Stateless => era::STATELESS.to_owned(),
    };
    let capabilities = greeting["capabilities"].clone();
    let tools = tools(&mut session)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut facts = Facts {
        era,
        revision,
        name: format!("{} {}", text(&info["name"]), text(&info["version"])).trim().to_owned(),
        capabilities,
        long: None,
        brief: None,
        failed: None,
        tool: None,
        has_tasks: false,
        must_be_task: false,
        has_extension: has_extension(context),
    };
    choose(context, &tools, &mut facts)?;
    if let (Some(call), false) = (&facts.long, facts.must_be_task)
        && let Some(why) = fails(&mut session, call)?
    {
        facts.failed = Some(format!("the call that takes long fails: {why}"));
        (facts.long, facts.brief) = (None, None);
    }
    Ok(facts)
}

/// All tools of all pages.
fn tools(session: &mut Session<'_>) -> Result<Vec<Value>, Trouble> {
    const PAGES_MAX: usize = 100;
    let (mut tools, mut params) = (Vec::new(), json!({}));
    for _ in 0..PAGES_MAX {
        let answer = session.ask("tools/list", params)?;
        tools.extend(answer["result"]["tools"].as_array().cloned().unwrap_or_default());
        match answer["result"]["nextCursor"].as_str() {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    Ok(tools)
}

/// Selects the calls for the checks.
fn choose(context: &Context, tools: &[Value], facts: &mut Facts) -> Result<(), Trouble> {
    let options = &context.options;
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    if let Some(call) = &options.long {
        if named(&call.name).is_none() {
            return Err(Trouble(format!("the server has no tool {:?}", call.name)));
        }
        facts.tool = Some(format!("{} {}", call.name, call.arguments));
        facts.long = Some(call.clone());
        let brief = options.brief.clone();
        facts.brief = brief.map(|arguments| ToolCall { name: call.name.clone(), arguments });
    } else if let Some(picked) = pick::pick(tools) {
        let call = picked.long;
        facts.tool = Some(format!("{} {} (chosen by its schema)", call.name, call.arguments));
        facts.brief = Some(ToolCall { name: call.name.clone(), arguments: picked.brief });
        facts.long = Some(call);
    }
    let tool = facts.long.as_ref().and_then(|call| named(&call.name));
    let support = tool.and_then(|tool| tool["execution"]["taskSupport"].as_str());
    let declared = facts.capabilities.pointer("/tasks/requests/tools/call").is_some();
    facts.has_tasks = declared && matches!(support, Some("optional" | "required"));
    facts.must_be_task = declared && support == Some("required");
    Ok(())
}

/// The error of a call that fails at once; other calls are cancelled.
fn fails(session: &mut Session<'_>, call: &ToolCall) -> Result<Option<String>, Trouble> {
    let id = session.next_id();
    let line = session.call(&id, call);
    session.say(&line)?;
    session.watch_for(BEGUN, |session| !session.answers(&id).is_empty())?;
    let Some(answer) = session.answers(&id).first().copied().cloned() else {
        session.say(&cancel(&id))?;
        return Ok(None);
    };
    let is_failed = answer.get("error").is_some() || answer["result"]["isError"] == true;
    Ok(is_failed.then(|| text::message(&answer)))
}

/// Whether the server declares the tasks extension, in the revision that has it.
fn has_extension(context: &Context) -> bool {
    let session = Session::start_in(context, Era::Stateless);
    session.is_ok_and(|it| it.greeting["capabilities"]["extensions"].get(TASKS).is_some())
}
