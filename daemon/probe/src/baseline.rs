//! A baseline: the known deviations of a subject, as a file with the id of a check on each line.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::about::hint;
use super::finding::{Compared, Findings, Verdict};

/// Known deviations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline(BTreeSet<&'static str>);

impl Baseline {
    /// Reads the text of a file: an id of a check on each line; the rest of a line from `#` on is a
    /// comment. `known` are the ids of all checks: one file can serve several probes.
    ///
    /// # Errors
    ///
    /// The line that names no check, with the most similar id.
    pub fn parse(text: &str, known: &[&'static str]) -> Result<Self, String> {
        let mut ids = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let name = line.split('#').next().unwrap_or_default().trim();
            if name.is_empty() {
                continue;
            }
            match known.iter().find(|id| **id == name) {
                Some(id) => ids.insert(*id),
                None => {
                    let line = number + 1;
                    return Err(format!("line {line}: no check {name:?}\n{}", hint(name, known)));
                }
            };
        }
        Ok(Self(ids))
    }

    /// The text of a baseline with all deviations of a result; the evidence is a comment.
    #[must_use]
    pub fn of(found: &Findings) -> String {
        let mut text = String::from("# Known deviations, for `ceased probe --baseline FILE`.\n");
        for checked in found.checks.iter().filter(|it| it.finding.verdict == Verdict::Deviates) {
            let (about, evidence) = (&checked.about, &checked.finding.evidence);
            let evidence = ceased_client::printable::clean(evidence).replace('\n', " ");
            let (level, rule) = (about.level().name(), about.rule);
            let _ = writeln!(text, "{}  # {rule} ({level}): {evidence}", about.id);
        }
        text
    }

    /// Marks the known deviations in a result.
    pub fn mark(&self, found: &mut Findings) {
        let mut compared = Compared::default();
        for checked in found.checks.iter_mut().filter(|it| self.0.contains(it.about.id)) {
            let list = match checked.finding.verdict {
                Verdict::Deviates => {
                    checked.is_known = true;
                    &mut compared.known
                }
                Verdict::Holds => &mut compared.settled,
                Verdict::Unknown => &mut compared.unseen,
            };
            list.push(checked.about.id);
        }
        found.baseline = Some(compared);
    }
}
