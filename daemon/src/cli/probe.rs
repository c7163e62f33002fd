//! `ceased probe`: a checkup of an MCP server.

use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use super::args::ProbeArgs;
use super::format::clean;
use super::table::{Cell, Table, has_colours, paint};
use super::view::Tone;
use super::{Backend, Exit, Failure, Io, probe_report};
use crate::probe::{self, Findings, Verdict};

/// Runs the command.
pub(super) fn probe(
    args: &ProbeArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    for wanted in &args.only {
        if !probe::ids().any(|id| id.starts_with(wanted.as_str())) {
            let ids: Vec<&str> = probe::ids().collect();
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
    let found = probe::probe(args.options(), backend.containment()?, &told).map_err(cannot)?;
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
    paint(io.out, &clean(&found.subject), Tone::Heading, colours)?;
    writeln!(io.out)?;
    let tool = found.tool.as_deref().unwrap_or("none");
    for (label, value) in
        [("server", found.name.as_str()), ("revision", &found.revision), ("tool", tool)]
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
        writeln!(io.out, ": expected that the server {}", checked.title)?;
        writeln!(io.out, "  seen: {}", clean(&checked.finding.evidence))?;
        writeln!(io.out, "  remedy: {}", checked.remedy)?;
        writeln!(io.out, "  see: {}", checked.link())?;
    }
    writeln!(io.out)?;
    if !found.ended.is_empty() {
        let names = found.ended.join(", ");
        writeln!(io.out, "processes left behind by the server, ended now: {}", clean(&names))?;
    }
    if found.left > 0 {
        writeln!(io.out, "processes that cannot be ended: {}", found.left)?;
    }
    let [holds, deviates, unknown] =
        [Verdict::Holds, Verdict::Deviates, Verdict::Unknown].map(|it| found.count(it));
    writeln!(io.out, "{holds} hold, {deviates} deviate, {unknown} unknown")
}
