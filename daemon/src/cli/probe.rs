//! `ceased probe`: a checkup of an MCP server.

use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use super::args::{ProbeArgs, ProbeServerArgs};
use super::format::clean;
use super::table::{Cell, Table, has_colours, paint};
use super::view::Tone;
use super::{Backend, Exit, Failure, Io, discover, probe_report};
use crate::probe::{self, Findings, Verdict};

/// Runs the command.
pub(super) fn probe(
    args: &ProbeArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let ids: Vec<&str> = match (args.acp, args.client) {
        (true, _) => probe::agent::ids().collect(),
        (_, true) => probe::client::ids().collect(),
        (false, false) => probe::ids().collect(),
    };
    for wanted in &args.only {
        if !ids.iter().any(|id| id.starts_with(wanted.as_str())) {
            let message = format!("no check begins with {wanted:?}\nthey are {}", ids.join(", "));
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    crate::resource_limits::raise_files();
    let shows = io.err_is_terminal;
    let told = |id: &str| {
        if shows {
            let _ = write!(io::stderr(), "\r\x1b[2Kceased: {id} …\r");
        }
    };
    let cannot = |why: io::Error| Failure::new(Exit::Failed, format!("cannot probe: {why}"));
    let containment = backend.containment()?;
    let found = match (args.acp, args.client) {
        (true, _) => probe::agent::probe(args.agent_options(), containment, &told),
        (_, true) => probe::client::probe(args.client_options(), containment, &told),
        (false, false) => {
            let mut options = args.options();
            if let Some(path) = &args.token_file
                && let Some(token) = discover::read_token(path)?
            {
                options.headers.push(("authorization".to_owned(), format!("Bearer {token}")));
            }
            probe::probe(options, containment, &told)
        }
    }
    .map_err(cannot)?;
    if shows && io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[2K");
    }
    let json = format!("{:#}\n", found.to_json());
    let is_stdout = |path: &Path| path.as_os_str() == "-";
    match &args.json {
        Some(path) if is_stdout(path) => io.out.write_all(json.as_bytes())?,
        Some(path) => store(path, &json)?,
        None => {}
    }
    if let Some(path) = &args.junit {
        store(path, &probe_report::junit(&found))?;
    }
    if let Some(path) = &args.markdown {
        store(path, &probe_report::markdown(&found))?;
    }
    if !args.json.as_deref().is_some_and(is_stdout) {
        print(&found, io)?;
    }
    Ok(if found.is_clean() { Exit::Done } else { Exit::Failed })
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

const fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Holds => Tone::Good,
        Verdict::Deviates => Tone::Bad,
        Verdict::Unknown => Tone::Quiet,
    }
}

/// Prints the report for people.
fn print(found: &Findings, io: &mut Io<'_>) -> io::Result<()> {
    let colours = has_colours(io);
    paint(io.out, &clean(&found.heading()), Tone::Heading, colours)?;
    writeln!(io.out)?;
    let tool = match found.party() {
        "server" => found.tool.as_deref().unwrap_or("none"),
        _ => "",
    };
    for (label, value) in
        [(found.party(), found.name.as_str()), ("revision", &found.revision), ("tool", tool)]
    {
        if !value.is_empty() {
            writeln!(io.out, "{label}: {}", clean(value))?;
        }
    }
    for note in &found.notes {
        writeln!(io.out, "note: {}", clean(note))?;
    }
    writeln!(io.out)?;
    let mut table = Table::new(&["VERDICT", "CHECK", "RULE", "EVIDENCE"]);
    for checked in &found.checks {
        let verdict = checked.finding.verdict;
        let repeats = match checked.finding.repeats {
            1 => String::new(),
            count => format!(" ({count} times)"),
        };
        table.row(vec![
            Cell::toned(verdict.name(), tone(verdict)),
            Cell::new(checked.id),
            Cell::new(checked.rule),
            Cell::new(format!("{}{repeats}", checked.finding.evidence)),
        ]);
    }
    table.print(io)?;
    let deviations = found.checks.iter().filter(|it| it.finding.verdict == Verdict::Deviates);
    for checked in deviations {
        writeln!(io.out)?;
        paint(io.out, checked.id, Tone::Bad, colours)?;
        writeln!(io.out, ": expected that the {} {}", checked.party(), checked.title)?;
        writeln!(io.out, "  seen: {}", clean(&checked.finding.evidence))?;
        writeln!(io.out, "  remedy: {}", checked.remedy)?;
        writeln!(io.out, "  see: {}", checked.link())?;
    }
    writeln!(io.out)?;
    if !found.ended.is_empty() {
        let names = found.ended.join(", ");
        writeln!(
            io.out,
            "processes left behind by the {}, ended now: {}",
            found.party(),
            clean(&names)
        )?;
    }
    if found.left > 0 {
        writeln!(io.out, "processes that cannot be ended: {}", found.left)?;
    }
    let [holds, deviates, unknown] =
        [Verdict::Holds, Verdict::Deviates, Verdict::Unknown].map(|it| found.count(it));
    writeln!(io.out, "{holds} hold, {deviates} deviate, {unknown} unknown")
}
