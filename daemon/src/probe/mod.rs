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
mod era;
mod finding;
mod http;
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
mod work;

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ceased_process::{Bounds, Containment};
use serde_json::{Value, json};

use arena::Arena;
use context::{Context, Facts};
use era::{Era, SESSION, TASKS};
use session::{Session, Trouble, cancel};
use table::{CHECKS, Check, HANDSHAKE, Needs};

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
    let bounds = Bounds {
        memory_max: Some(options.memory_max),
        pids_max: Some(options.pids_max),
        ..Bounds::default()
    };
    let context = Context::new(Arena::new(containment, bounds)?, options);
    told(HANDSHAKE);
    let greeted = gather(&context);
    let selected = |check: &&Check| {
        let only = &context.options.only;
        let is_named =
            only.is_empty() || only.iter().any(|wanted| check.id.starts_with(wanted.as_str()));
        is_named && check.over.concerns(&context.options.target)
    };
    let (checks, facts) = match greeted {
        Ok(facts) => {
            context.learn(facts.clone());
            let selected: Vec<&Check> = CHECKS.iter().filter(selected).collect();
            // Instances of a server share its store, in which a check of the store is alone.
            let (alone, together): (Vec<&Check>, Vec<&Check>) =
                selected.iter().partition(|check| check.needs == Needs::Restart);
            let has_command = !context.options.command.is_empty();
            let at_once = match context.options.target.is_plural() || !has_command {
                true => context.options.at_once,
                // Instances with one address cannot run at once.
                false => 1,
            };
            let mut done = run_all(&context, &together, at_once, told);
            done.extend(run_all(&context, &alone, 1, told));
            let place = |it: &Checked| CHECKS.iter().position(|check| check.id == it.id);
            done.sort_by_key(place);
            (done, Some(facts))
        }
        Err(Trouble(why)) => {
            let not_greeted = |check: &Check| match check.id {
                HANDSHAKE => Finding::deviates(why.clone()),
                _ => Finding::unknown("the handshake is not answered"),
            };
            let chosen = CHECKS.iter().filter(|it| it.id == HANDSHAKE || selected(it));
            (chosen.map(|check| checked(check, not_greeted(check))).collect(), None)
        }
    };
    let (ended, left) = context.arena.survivors();
    let words = context.options.command.iter().map(|word| word.to_string_lossy());
    Ok(Findings {
        subject: words.collect::<Vec<_>>().join(" "),
        address: context.options.target.address().map(str::to_owned),
        name: facts.as_ref().map(|facts| facts.name.clone()).unwrap_or_default(),
        revision: facts.as_ref().map(|facts| facts.revision.clone()).unwrap_or_default(),
        tool: facts.and_then(|facts| facts.tool),
        containment: context.arena.containment,
        notes: context.arena.notes.clone(),
        checks,
        ended,
        left,
    })
}

const fn checked(check: &Check, finding: Finding) -> Checked {
    let Check { id, rule, title, remedy, .. } = *check;
    Checked { id, rule, title, remedy, finding }
}

/// Runs checks, some at once; the results are in no order.
fn run_all(
    context: &Context,
    checks: &[&Check],
    at_once: usize,
    told: &(dyn Fn(&str) + Sync),
) -> Vec<Checked> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Checked>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    told(check.id);
                    let finding = run(context, check);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push(checked(check, finding));
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run(context: &Context, check: &Check) -> Finding {
    let missing = check.over.missing(&context.options, &context.facts().era);
    let missing = missing.map(str::to_owned);
    let missing = missing.or_else(|| check.needs.missing(context.facts(), context.options.restart));
    if let Some(reason) = missing {
        return Finding::unknown(reason);
    }
    (check.run)(context).unwrap_or_else(|Trouble(why)| Finding::unknown(why))
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
