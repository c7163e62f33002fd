//! Findings of a probe: verdicts with evidence.

use std::time::Duration;

use serde_json::{Value, json};

use super::about::About;

/// Why a session of a check could not go on.
#[derive(Debug)]
pub(crate) struct SessionError(pub(crate) String);

/// Verdict of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The rule holds.
    Holds,
    /// The subject deviates from the rule.
    Deviates,
    /// Nothing can be said; the evidence gives the reason.
    Unknown,
}

impl Verdict {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Deviates => "deviates",
            Self::Unknown => "unknown",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Observation that the verdict rests on. Parts of it may be text of the subject.
    pub evidence: String,
    /// Number of times that the check was done: more than one where luck has a part.
    pub repeats: u32,
}

impl Finding {
    /// The rule holds.
    pub(crate) fn holds(evidence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Holds, evidence: evidence.into(), repeats: 1 }
    }

    /// The subject deviates.
    pub(crate) fn deviates(evidence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Deviates, evidence: evidence.into(), repeats: 1 }
    }

    /// Nothing can be said.
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, evidence: reason.into(), repeats: 1 }
    }

    /// Holds if `holds`, else deviates.
    pub(crate) fn of(holds: bool, evidence: impl Into<String>) -> Self {
        if holds { Self::holds(evidence) } else { Self::deviates(evidence) }
    }

    /// The same, after so many repeats.
    pub(crate) const fn repeated(mut self, repeats: u32) -> Self {
        self.repeats = repeats;
        self
    }
}

/// A check and its finding.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The check.
    pub about: About,
    /// The finding.
    pub finding: Finding,
    /// Time that the check took.
    pub took: Duration,
    /// Whether the baseline has this deviation.
    pub is_known: bool,
}

/// A baseline beside the result of a probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Known deviations that were seen again.
    pub known: Vec<&'static str>,
    /// Entries whose check holds now.
    pub settled: Vec<&'static str>,
    /// Entries whose check is unknown now.
    pub unseen: Vec<&'static str>,
}

/// Result of a probe.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The probed command; empty if the server runs already.
    pub subject: String,
    /// The address of the server; `None` over its standard input and output.
    pub address: Option<String>,
    /// Name and version that it gives itself. Untrusted text.
    pub name: String,
    /// The protocol revision in use.
    pub revision: String,
    /// The call that takes long, and its origin.
    pub tool: Option<String>,
    /// Means of containment.
    pub containment: &'static str,
    /// Facts that limit the result.
    pub notes: Vec<String>,
    /// The reason for which the probe could not be done: the subject did not start, or was not
    /// reached.
    pub failure: Option<String>,
    /// The checks, in the order of the table.
    pub checks: Vec<Checked>,
    /// Ids of checks that were left out by a wish.
    pub skipped: Vec<&'static str>,
    /// The comparison with a baseline, if there is one.
    pub baseline: Option<Compared>,
    /// Processes that were alive after their server had exited, and were ended by the probe.
    pub ended: Vec<String>,
    /// Number of processes that could not be ended.
    pub left: u32,
}

impl Findings {
    /// The address and the command, as far as they are given.
    #[must_use]
    pub fn heading(&self) -> String {
        let parts = [self.address.as_deref().unwrap_or_default(), self.subject.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" of ")
    }

    /// Number of checks with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|checked| checked.finding.verdict == verdict).count()
    }

    /// Kind of the subject: `server`, `agent` or `client`.
    #[must_use]
    pub fn party(&self) -> &'static str {
        self.checks.first().map_or("server", |checked| checked.about.party())
    }

    /// Whether nothing deviates beyond the baseline.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.checks.iter().any(Checked::is_news)
    }

    /// The reason for which nothing about the cancel of a running call was seen, although checks
    /// for it were selected.
    #[must_use]
    pub fn blind(&self) -> Option<&str> {
        let mut reason = None;
        for checked in self.checks.iter().filter(|it| it.about.group.observes_calls()) {
            match checked.finding.verdict {
                Verdict::Unknown => reason = reason.or(Some(checked.finding.evidence.as_str())),
                Verdict::Holds | Verdict::Deviates => return None,
            }
        }
        reason
    }

    /// The numbers of verdicts, in words.
    #[must_use]
    pub fn summary(&self) -> String {
        let [holds, deviates, unknown] =
            [Verdict::Holds, Verdict::Deviates, Verdict::Unknown].map(|it| self.count(it));
        let known = match self.checks.iter().filter(|it| it.is_known).count() {
            0 => String::new(),
            count => format!(" ({count} known)"),
        };
        let skipped = match self.skipped.len() {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        format!("{holds} hold, {deviates} deviate{known}, {unknown} unknown{skipped}")
    }

    /// The result as JSON, as the published schema defines it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(Checked::to_json).collect();
        json!({
            "subject": self.subject,
            "address": self.address,
            "name": self.name,
            "revision": self.revision,
            "tool": self.tool,
            "containment": self.containment,
            "notes": self.notes,
            "failure": self.failure,
            "blind": self.blind(),
            "checks": checks,
            "holds": self.count(Verdict::Holds),
            "deviates": self.count(Verdict::Deviates),
            "unknown": self.count(Verdict::Unknown),
            "skipped": self.skipped,
            "baseline": self.baseline.as_ref().map(|it| json!({
                "known": it.known,
                "settled": it.settled,
                "unseen": it.unseen,
            })),
            "ended": self.ended,
            "left": self.left,
        })
    }
}

impl Checked {
    /// Whether it is a deviation that the baseline does not have.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.finding.verdict == Verdict::Deviates && !self.is_known
    }

    fn to_json(&self) -> Value {
        let deviates = self.finding.verdict == Verdict::Deviates;
        let rules = self.about.rules().map(|(id, level)| json!({"id": id, "level": level.name()}));
        json!({
            "id": self.about.id,
            "group": self.about.group.name(),
            "rule": self.about.rule,
            "rules": rules.collect::<Vec<_>>(),
            "level": self.about.level().name(),
            "title": self.about.title,
            "verdict": self.finding.verdict.name(),
            "known": self.is_known,
            "evidence": self.finding.evidence,
            "repeats": self.finding.repeats,
            "durationMs": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "remedy": deviates.then_some(self.about.remedy),
            "explain": self.about.explain(),
        })
    }
}
