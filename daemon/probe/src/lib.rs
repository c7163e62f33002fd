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

mod about;
pub mod agent;
mod arena;
mod baseline;
mod channel;
mod checks;
pub mod client;
mod context;
mod endings;
mod era;
mod finding;
pub(crate) mod http;
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
use std::time::{Duration, Instant};

use ceased_process::Containment;
use ceased_transports::http::client::{Place, Url, UrlError};
use serde_json::{Value, json};

use arena::Arena;
use context::{Context, Facts};
use era::{Era, SESSION, TASKS};
use finding::SessionError;
use session::{Session, cancel};
use suite::{Check, NoHandshake};
use table::{CHECKS, HANDSHAKE, Needs};

pub use about::{About, Group, Level, named};
pub use baseline::Baseline;
pub use finding::{Checked, Compared, Finding, Findings, Verdict};
pub use options::{Options, ToolCall};
pub use target::Target;

pub use ceased_transports::tls::{RootsError, TlsConfig};

/// Time in which a call that fails is answered.
const BEGUN: Duration = Duration::from_millis(500);

/// Checks a URL, in which {port} may stand.
///
/// # Errors
///
/// The reason for which it cannot be used.
pub fn check_url(text: &str) -> Result<(), String> {
    parsed(text).map(drop).map_err(|why| why.to_string())
}

/// Whether a URL, in which {port} may stand, is that of a server over TLS.
#[must_use]
pub fn is_tls_url(text: &str) -> bool {
    parsed(text).is_ok_and(|url| matches!(url.place, Place::Tcp { is_tls: true, .. }))
}

fn parsed(text: &str) -> Result<Url, UrlError> {
    match Target::Url(text.to_owned()).at(1) {
        Target::Url(url) | Target::Socket(url) => Url::parse(&url),
        Target::Stdio => Url::parse(text),
    }
}

/// The checks of a server with this target, in the order of the report.
pub fn checks(target: &Target) -> impl Iterator<Item = &'static About> {
    CHECKS.iter().filter(|check| check.needs.over.concerns(target)).map(|check| &check.about)
}

/// The checks of every kind of subject.
pub fn abouts() -> impl Iterator<Item = &'static About> {
    let servers = CHECKS.iter().map(|check| &check.about);
    servers.chain(agent::checks()).chain(client::checks())
}

/// Why a probe has no result.
#[derive(Debug)]
pub enum Failed {
    /// No process can be started here.
    Here(io::Error),
    /// The server has no tool with this name; those that it has.
    NoTool(String, Vec<String>),
}

impl From<io::Error> for Failed {
    fn from(why: io::Error) -> Self {
        Self::Here(why)
    }
}

/// The trouble of a probe before its first check.
enum Early {
    NoHandshake(NoHandshake),
    NoTool(String, Vec<String>),
}

impl From<SessionError> for Early {
    fn from(SessionError(why): SessionError) -> Self {
        Self::NoHandshake(NoHandshake::Unanswered(why))
    }
}

/// Probes a server. `told` is called with the name of each check that is about to begin.
///
/// # Errors
///
/// When no process can be started here, or the server has no tool of the name that was given.
pub fn probe(
    options: Options,
    containment: Containment,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Findings, Failed> {
    let arena = Arena::new(containment, options.memory_max, options.pids_max)?;
    let context = Context::new(arena, options);
    let target = &context.options.target;
    told(HANDSHAKE);
    let began = Instant::now();
    let greeted = gather(&context);
    let took = began.elapsed();
    let selected = |check: &&Check<Context>| {
        context.options.checks.contains(check.about.id) && check.needs.over.concerns(target)
    };
    let (checks, failure, facts) = match greeted {
        Ok(facts) => {
            context.learn(facts.clone());
            let mut checks = run_all(&context, CHECKS.iter().filter(selected).collect(), told);
            // The handshake was done before all checks.
            let of_handshake = checks.iter_mut().find(|it| it.about.id == HANDSHAKE);
            of_handshake.into_iter().for_each(|it| it.took = took);
            (checks, None, Some(facts))
        }
        Err(Early::NoHandshake(trouble)) => {
            let chosen = CHECKS.iter().filter(|it| it.about.id == HANDSHAKE || selected(it));
            let (checks, failure) = suite::without_handshake(chosen, HANDSHAKE, trouble, took);
            (checks, failure, None)
        }
        Err(Early::NoTool(name, there)) => return Err(Failed::NoTool(name, there)),
    };
    let findings = context.arena.findings(&context.options.command, checks);
    Ok(Findings {
        failure,
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
    let load = |at_once| suite::Load { at_once, timeout: options.timeout };
    let mut done = suite::run_all(context, &together, load(at_once), told);
    done.extend(suite::run_all(context, &alone, load(1), told));
    done.sort_by_key(|it| CHECKS.iter().position(|check| check.about.id == it.about.id));
    done
}

/// Learns the facts about a server: its revision, its capabilities, and a tool for the checks.
fn gather(context: &Context) -> Result<Facts, Early> {
    let wanted = context.options.revision.as_deref();
    let era = Era::of(wanted.unwrap_or(SESSION));
    let mut session = match greet(context, era) {
        Err(_) if wanted.is_none() => greet(context, Era::Stateless).map_err(Early::NoHandshake)?,
        result => result.map_err(Early::NoHandshake)?,
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

/// Starts a session, and tells a server that is not there from one that does not answer.
fn greet(context: &Context, era: Era) -> Result<Session<'_>, NoHandshake> {
    let mut session =
        Session::silent(context, era).map_err(|SessionError(why)| NoHandshake::Unreached(why))?;
    match session.greet() {
        Ok(()) => Ok(session),
        Err(SessionError(why)) if session.has_failed() => {
            Err(NoHandshake::Unreached(format!("the server does not start: {why}")))
        }
        Err(SessionError(why)) if session.channel.is_denied() => Err(NoHandshake::Unreached(why)),
        Err(SessionError(why)) => Err(NoHandshake::Unanswered(why)),
    }
}

/// All tools of all pages.
fn tools(session: &mut Session<'_>) -> Result<Vec<Value>, SessionError> {
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
fn choose(context: &Context, tools: &[Value], facts: &mut Facts) -> Result<(), Early> {
    let options = &context.options;
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    let mut asked = options.long.iter().chain(&options.stubborn);
    if let Some(call) = asked.find(|call| named(&call.name).is_none()) {
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        return Err(Early::NoTool(call.name.clone(), names.map(str::to_owned).collect()));
    }
    if let Some(call) = &options.long {
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
fn fails(session: &mut Session<'_>, call: &ToolCall) -> Result<Option<String>, SessionError> {
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
