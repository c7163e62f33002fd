//! `ceased probe`: a checkup of an MCP server.

pub(super) mod args;
mod report;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use super::format::clean;
use super::{Backend, Exit, Failure, Io, discover};
use args::{ProbeArgs, ProbeServerArgs};
use ceased_probe::{self as probe, About, Baseline, Findings};

/// Names of tools that a message lists.
const NAMES_MAX: usize = 50;

/// Runs the command.
pub(super) fn probe(
    args: &ProbeArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    if !args.explain.is_empty() {
        return explain(&args.explain, io);
    }
    let selection = Selection::of(args)?;
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    crate::resource_limits::raise_files();
    let mut found = run(args, &selection, io, backend)?;
    found.skipped = selection.skipped;
    if let Some(baseline) = &baseline {
        baseline.mark(&mut found);
    }
    report(args, &found, io)?;
    if let Some(why) = &found.failure {
        let message = format!("cannot probe the {}: {}", found.party(), clean(why));
        return Err(Failure::new(Exit::Unreachable, message));
    }
    if let Some(path) = &args.write_baseline {
        store(path, &Baseline::of(&found))?;
        return Ok(Exit::Done);
    }
    Ok(if found.is_clean() { Exit::Done } else { Exit::Failed })
}

/// The checks of a probe.
struct Selection {
    checks: BTreeSet<&'static str>,
    /// Checks that `--skip` leaves out.
    skipped: Vec<&'static str>,
}

impl Selection {
    fn of(args: &ProbeArgs) -> Result<Self, Failure> {
        let usage = |message: String| Failure::new(Exit::Usage, message);
        let target = args.target();
        let concerned: Vec<&'static About> = match (args.acp, args.client) {
            (true, _) => probe::agent::checks().collect(),
            (_, true) => probe::client::checks().collect(),
            (false, false) => probe::checks(&target).collect(),
        };
        // Checks of other transports, which may be named in one command line for several targets.
        let known = || {
            let party = concerned.first().map(|about| about.party());
            probe::abouts().filter(move |about| Some(about.party()) == party)
        };
        let only = probe::named(&args.only, known()).map_err(usage)?;
        let skip = probe::named(&args.skip, known()).map_err(usage)?;
        let is_wanted = |id: &&str| args.only.is_empty() || only.contains(id);
        let wanted = concerned.iter().map(|about| about.id).filter(is_wanted);
        let (skipped, checks): (Vec<_>, Vec<_>) = wanted.partition(|id| skip.contains(id));
        if checks.is_empty() {
            return Err(usage("no check is left; give other ids with --only or --skip".to_owned()));
        }
        Ok(Self { checks: checks.into_iter().collect(), skipped })
    }
}

/// Runs the probe of the subject that the arguments name.
fn run(
    args: &ProbeArgs,
    selection: &Selection,
    io: &Io<'_>,
    backend: &dyn Backend,
) -> Result<Findings, Failure> {
    let shows = io.err_is_terminal;
    let told = |id: &str| {
        if shows {
            let _ = write!(io::stderr(), "\r\x1b[2Kceased: {id} …\r");
        }
    };
    let containment = backend.containment()?;
    let checks = selection.checks.clone();
    let found = match (args.acp, args.client) {
        (true, _) => probe::agent::probe(args.agent_options(checks), containment, &told)
            .map_err(probe::Failed::Here)?,
        (_, true) => probe::client::probe(args.client_options(checks), containment, &told)
            .map_err(probe::Failed::Here)?,
        (false, false) => {
            let mut options = args.options(checks);
            options.tls = args.tls().map_err(|why| Failure::new(Exit::Usage, why))?;
            if let Some(path) = &args.token_file
                && let Some(token) = discover::read_token(path)?
            {
                options.headers.push(("authorization".to_owned(), format!("Bearer {token}")));
            }
            probe::probe(options, containment, &told)?
        }
    };
    if shows && io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[2K");
    }
    Ok(found)
}

impl From<probe::Failed> for Failure {
    fn from(why: probe::Failed) -> Self {
        match why {
            probe::Failed::Here(why) => {
                Self::new(Exit::Unreachable, format!("cannot probe: {why}"))
            }
            probe::Failed::NoTool(name, there) => {
                let more = there.len().saturating_sub(NAMES_MAX);
                let names: Vec<_> = there.iter().take(NAMES_MAX).map(|name| clean(name)).collect();
                let has = match (names.is_empty(), more) {
                    (true, _) => "it has no tools".to_owned(),
                    (false, 0) => format!("it has {}", names.join(", ")),
                    (false, more) => format!("it has {} and {more} more", names.join(", ")),
                };
                Self::new(Exit::Usage, format!("the server has no tool {name:?}\n{has}"))
            }
        }
    }
}

/// Prints checks in words.
fn explain(wanted: &[String], io: &mut Io<'_>) -> Result<Exit, Failure> {
    let wanted = probe::named(wanted, probe::abouts())
        .map_err(|message| Failure::new(Exit::Usage, message))?;
    let chosen = probe::abouts().filter(|about| wanted.contains(about.id));
    for (number, about) in chosen.enumerate() {
        let gap = if number == 0 { "" } else { "\n" };
        write!(io.out, "{gap}{about}")?;
    }
    Ok(Exit::Done)
}

fn read_baseline(path: &Path) -> Result<Baseline, Failure> {
    let wrong = |why: String| Failure::new(Exit::Usage, format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|why| wrong(why.to_string()))?;
    let known: Vec<&'static str> = probe::abouts().map(|about| about.id).collect();
    Baseline::parse(&text, &known).map_err(wrong)
}

/// Writes the reports, and prints the one for people unless the JSON is printed.
fn report(args: &ProbeArgs, found: &Findings, io: &mut Io<'_>) -> Result<(), Failure> {
    let json = format!("{:#}\n", found.to_json());
    let is_stdout = |path: &Path| path.as_os_str() == "-";
    match &args.json {
        Some(path) if is_stdout(path) => io.out.write_all(json.as_bytes())?,
        Some(path) => store(path, &json)?,
        None => {}
    }
    if let Some(path) = &args.junit {
        store(path, &report::junit(found))?;
    }
    if let Some(path) = &args.markdown {
        store(path, &report::markdown(found))?;
    }
    // The reason of a failure is an error, and no check says anything.
    if found.failure.is_none() && !args.json.as_deref().is_some_and(is_stdout) {
        text::print(found, io)?;
    }
    Ok(())
}

/// Runs the scripted server of a probe of a client.
pub(super) fn serve(args: &ProbeServerArgs) -> Result<Exit, Failure> {
    let failed = |why: io::Error| Failure::new(Exit::Failed, format!("no probe is there: {why}"));
    probe::client::serve(args.socket.as_deref()).map(|()| Exit::Done).map_err(failed)
}

fn store(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|why| {
        Failure::new(Exit::Failed, format!("cannot write {}: {why}", path.display()))
    })
}
