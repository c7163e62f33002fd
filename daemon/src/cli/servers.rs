//! `ceased servers` and `ceased restart`: the MCP servers behind the daemon.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{ListArgs, RestartArgs};
use super::format::{self, clean};
use super::view::{Server, Status, Token, span};
use super::{Backend, Exit, Failure, Io, discover, ps};
use ceased_client::{Error, INVALID_PARAMS, METHOD_NOT_FOUND};

/// Lines of standard error that are shown of an instance.
const LINES_MAX: usize = 3;

/// `ceased servers`.
pub(super) fn servers(
    args: &ListArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let raw = ps::status(&mut session.client)?;
    if args.json {
        let value: Value = serde_json::from_str(raw.get()).map_err(|why| {
            Failure::new(Exit::Failed, format!("cannot parse the status ({why})"))
        })?;
        format::raw(&joined(&value).to_string(), io)?;
        return Ok(Exit::Done);
    }
    let status = ps::read(&raw, &args.daemon)?;
    if status.servers.is_empty() {
        io.say("no [[server]] is configured, or none is for you");
        return Ok(Exit::Done);
    }
    let header = row(["SERVER", "STATE", "INST", "PID", "CALLS", "STARTS", "RESTARTS", "MEMORY"]);
    writeln!(io.out, "{header}")?;
    for server in &status.servers {
        write!(io.out, "{}", table(server, &status))?;
    }
    Ok(Exit::Done)
}

/// The servers of a status, each instance with its processes.
fn joined(status: &Value) -> Value {
    let mut servers = status["servers"].as_array().cloned().unwrap_or_default();
    for server in &mut servers {
        let tokens = status["host"]["tokens"].as_array().into_iter().flatten();
        let own: Vec<&Value> = tokens.filter(|it| it["server"] == server["server"]).collect();
        if !own.is_empty() {
            server["tokens"] = json!(own);
        }
        let Some(instances) = server["instances"].as_array_mut() else { continue };
        for instance in instances {
            let id = instance["instance"].as_u64().unwrap_or_default().to_string();
            let of = status["host"]["instances"][&id].as_object().cloned().unwrap_or_default();
            if let Some(members) = instance.as_object_mut() {
                members.extend(of);
            }
        }
    }
    json!({ "servers": servers })
}

fn row(cells: [&str; 8]) -> String {
    let [name, state, instances, pid, calls, starts, restarts, memory] = cells.map(clean);
    let line = format!(
        "{name:<16} {state:<9} {instances:>4} {pid:>8} {calls:>6} {starts:>7} {restarts:>9} {memory:>9}"
    );
    line.trim_end().to_owned()
}

/// A line of the server, one of each instance, and the last error.
fn table(server: &Server, status: &Status) -> String {
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let of = |id: u64| status.host.instances.get(&id);
    let mib = |bytes: u64| format!("{} MiB", bytes / 1024 / 1024);
    let memory = server.instances.iter().filter_map(|it| of(it.instance)).map(|of| of.memory());
    let mut text = row([
        &server.server,
        &server.state,
        &server.instances.len().to_string(),
        "",
        &count(server.calls),
        &count(server.starts),
        &count(server.restarts),
        &mib(memory.sum()),
    ]);
    text.push('\n');
    let mut note = |line: &str| _ = writeln!(text, "  {}", clean(line));
    if let (Some(replaced), Some(strays), Some(deaths)) =
        (server.replaced, server.strays_ended, server.deaths)
        && replaced + strays + deaths > 0
    {
        note(&format!("{deaths} died, {replaced} replaced, {strays} strays ended"));
    }
    if let Some(error) = &server.last_error {
        note(&format!("last error: {error}"));
    }
    let tokens = status.host.tokens.iter().filter(|token| token.server == server.server);
    tokens.for_each(|token| note(&token_in_words(token)));
    server.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    for instance in &server.instances {
        let found = of(instance.instance);
        let pid = found.and_then(|of| of.root()).map(|root| root.pid.to_string());
        let memory = found.map(|of| mib(of.memory()));
        let name =
            format!("  i{} {}", instance.instance, instance.identity.as_deref().unwrap_or(""));
        let processes = found.map_or(0, |of| of.processes.len()).to_string();
        let _ = writeln!(
            text,
            "{}",
            row([
                &name,
                &instance.state,
                &processes,
                &pid.unwrap_or_default(),
                &instance.jobs.len().to_string(),
                "",
                "",
                &memory.unwrap_or_default(),
            ])
        );
        let mut note = |line: &str| _ = writeln!(text, "    {}", clean(line));
        if let Some(why) = instance.why.as_ref().filter(|_| instance.state != "ready") {
            note(&format!("because {why}"));
        }
        let Some(of) = found else { continue };
        if of.skipped_lines > 0 {
            let first = of.first_skipped.first().map_or("", String::as_str);
            note(&format!("{} lines are no messages, the first: {first}", of.skipped_lines));
        }
        let last = of.stderr.len().saturating_sub(LINES_MAX);
        of.stderr.iter().skip(last).for_each(|line| note(&format!("| {line}")));
    }
    text
}

/// The state of a token, its time, and the next step.
fn token_in_words(token: &Token) -> String {
    let of = token.identity.as_ref().map(|identity| format!(" of {identity}"));
    let mut words = format!("token{}: {}", of.unwrap_or_default(), token.state.replace('_', " "));
    if let Some(left) = token.expires_in_ms.filter(|_| token.state == "valid") {
        let _ = write!(words, ", for {}", span(left));
    }
    if let Some(why) = &token.why {
        let _ = write!(words, ": {why}");
    }
    words
}

/// `ceased restart`.
pub(super) fn restart(
    args: &RestartArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    #[derive(Deserialize)]
    struct Restarted {
        instances: u64,
    }

    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let answer = session.client.call_raw("ceased/restart", json!({"server": args.server}));
    let answer = match answer {
        Ok(answer) => answer,
        Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let message = "this daemon has no ceased/restart; it is an older one, or not ceased";
            return Err(Failure::new(Exit::Failed, message));
        }
        Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {
            return Err(Failure::new(Exit::Usage, clean(&error.message)));
        }
        Err(error) => return Err(error.into()),
    };
    let Restarted { instances } = serde_json::from_str(answer.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot parse the answer ({why})")))?;
    if args.json {
        format::json(&json!({"server": args.server, "instances": instances}), io)?;
        return Ok(Exit::Done);
    }
    let name = &args.server;
    io.say(&match instances {
        0 => format!("{name} has no running instance; the next request starts one"),
        1 => format!("{name}: one instance is replaced; it finishes the calls that it has"),
        many => format!("{name}: {many} instances are replaced; they finish the calls they have"),
    });
    Ok(Exit::Done)
}
