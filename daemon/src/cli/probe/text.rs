//! The report of a probe for people.

use std::collections::BTreeMap;
use std::io;

use crate::cli::Io;
use crate::cli::format::clean;
use crate::cli::table::{Cell, Table, has_colours, paint};
use crate::cli::view::Tone;
use ceased_probe::{Checked, Findings, Verdict};

/// Unknown checks with one reason that are worth a line of their own.
const APART_MAX: usize = 2;

/// Prints the report.
pub(super) fn print(found: &Findings, io: &mut Io<'_>) -> io::Result<()> {
    head(found, io)?;
    table(found).print(io)?;
    deviations(found, io)?;
    writeln!(io.out)?;
    if !found.ended.is_empty() {
        let (party, names) = (found.party(), found.ended.join(", "));
        writeln!(io.out, "processes left behind by the {party}, ended now: {}", clean(&names))?;
    }
    if found.left > 0 {
        writeln!(io.out, "processes that cannot be ended: {}", found.left)?;
    }
    for (id, state) in baseline(found) {
        writeln!(io.out, "{id} is in the baseline, and {state}")?;
    }
    if let Some(reason) = found.blind() {
        writeln!(io.out, "nothing about cancels of running work was seen: {}", clean(reason))?;
    }
    writeln!(io.out, "{}", found.summary())
}

/// Entries of the baseline that do not deviate.
pub(super) fn baseline(found: &Findings) -> impl Iterator<Item = (&'static str, &'static str)> {
    let compared = found.baseline.clone().unwrap_or_default();
    let settled = compared.settled.into_iter().map(|id| (id, "holds now: remove it there"));
    settled.chain(compared.unseen.into_iter().map(|id| (id, "is unknown now")))
}

fn head(found: &Findings, io: &mut Io<'_>) -> io::Result<()> {
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
    writeln!(io.out)
}

fn table(found: &Findings) -> Table {
    let mut reasons: BTreeMap<&str, Vec<&Checked>> = BTreeMap::new();
    for checked in found.checks.iter().filter(|it| it.finding.verdict == Verdict::Unknown) {
        reasons.entry(&checked.finding.evidence).or_default().push(checked);
    }
    let mut table = Table::new(&["VERDICT", "LEVEL", "CHECK", "RULE", "EVIDENCE"]);
    for checked in &found.checks {
        // One reason for many unknown checks has one line, at the place of the first.
        let alike = match reasons.get(checked.finding.evidence.as_str()) {
            Some(alike) if checked.finding.verdict == Verdict::Unknown => alike.as_slice(),
            Some(_) | None => &[],
        };
        let is_first = alike.first().is_some_and(|first| first.about.id == checked.about.id);
        match alike.len() > APART_MAX {
            true if is_first => table.row(together(found, alike)),
            true => {}
            false => table.row(alone(checked)),
        }
    }
    table
}

fn alone(checked: &Checked) -> Vec<Cell> {
    let (about, verdict) = (&checked.about, checked.finding.verdict);
    let (name, tone) = match verdict {
        Verdict::Holds => (verdict.name(), Tone::Good),
        Verdict::Deviates if checked.is_known => ("known", Tone::Quiet),
        Verdict::Deviates => (verdict.name(), Tone::Bad),
        Verdict::Unknown => (verdict.name(), Tone::Quiet),
    };
    let repeats = match checked.finding.repeats {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    vec![
        Cell::toned(name, tone),
        Cell::new(about.level().name()),
        Cell::new(about.id),
        Cell::new(about.rule),
        Cell::new(format!("{}{repeats}", checked.finding.evidence)),
    ]
}

/// The line of unknown checks with one reason.
fn together(found: &Findings, alike: &[&Checked]) -> Vec<Cell> {
    let first = alike.first().map_or("", |checked| checked.finding.evidence.as_str());
    vec![
        Cell::toned(Verdict::Unknown.name(), Tone::Quiet),
        Cell::new(""),
        Cell::new(format!("{} checks", alike.len())),
        Cell::new(""),
        Cell::new(format!("{first}: {}", names(found, alike))),
    ]
}

/// The ids of checks; `task-*` for all checks that begin so.
fn names(found: &Findings, alike: &[&Checked]) -> String {
    let family = |checked: &Checked| {
        let party = format!("{}-", checked.about.party());
        let rest = checked.about.id.strip_prefix(&party).unwrap_or(checked.about.id);
        rest.split('-').next().unwrap_or(rest)
    };
    let count = |name: &str| found.checks.iter().filter(|it| family(it) == name).count();
    let mut families: Vec<(&str, Vec<&str>)> = Vec::new();
    for checked in alike {
        let name = family(checked);
        match families.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ids)) => ids.push(checked.about.id),
            None => families.push((name, vec![checked.about.id])),
        }
    }
    let named = families.into_iter().map(|(name, ids)| match ids.len() {
        length if length > 1 && length == count(name) => format!("{name}-*"),
        _ => ids.join(", "),
    });
    named.collect::<Vec<_>>().join(", ")
}

fn deviations(found: &Findings, io: &mut Io<'_>) -> io::Result<()> {
    let colours = has_colours(io);
    for checked in found.checks.iter().filter(|it| it.is_news()) {
        let about = &checked.about;
        writeln!(io.out)?;
        paint(io.out, about.id, Tone::Bad, colours)?;
        writeln!(io.out, ": expected that the {} {}", about.party(), about.title)?;
        writeln!(io.out, "  seen: {}", clean(&checked.finding.evidence))?;
        writeln!(io.out, "  remedy: {}", about.remedy)?;
        writeln!(io.out, "  see: {}", about.explain())?;
    }
    Ok(())
}
