//! Findings of a probe: verdicts with evidence.

use serde_json::{Value, json};

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
    /// Id of the check.
    pub id: &'static str,
    /// Ids of the rules.
    pub rule: &'static str,
    /// The expectation.
    pub title: &'static str,
    /// Remedy for a deviation.
    pub remedy: &'static str,
    /// The finding.
    pub finding: Finding,
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
    /// The checks, in the order of the table.
    pub checks: Vec<Checked>,
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
        self.checks.first().map_or("server", Checked::party)
    }

    /// Whether nothing deviates.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.count(Verdict::Deviates) == 0
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
            "checks": checks,
            "holds": self.count(Verdict::Holds),
            "deviates": self.count(Verdict::Deviates),
            "unknown": self.count(Verdict::Unknown),
            "ended": self.ended,
            "left": self.left,
        })
    }
}

impl Checked {
    /// Place of the check in the documentation.
    #[must_use]
    pub fn link(&self) -> String {
        let page = match self.party() {
            "agent" => "probe-agents",
            "client" => "probe-clients",
            _ => "probe",
        };
        format!("docs/src/{page}.md#{}", self.id)
    }

    /// Kind of the subject: `server`, `agent` or `client`.
    #[must_use]
    pub fn party(&self) -> &'static str {
        let is =
            |party: &str| self.id.strip_prefix(party).is_some_and(|rest| rest.starts_with('-'));
        ["agent", "client"].into_iter().find(|party| is(party)).unwrap_or("server")
    }

    fn to_json(&self) -> Value {
        let deviates = self.finding.verdict == Verdict::Deviates;
        json!({
            "id": self.id,
            "rule": self.rule,
            "title": self.title,
            "verdict": self.finding.verdict.name(),
            "evidence": self.finding.evidence,
            "repeats": self.finding.repeats,
            "remedy": deviates.then_some(self.remedy),
            "link": self.link(),
        })
    }
}
