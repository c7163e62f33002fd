//! Reports of a probe for programs and pages: JUnit XML and Markdown.

use std::fmt::Write as _;

use super::text::baseline;
use ceased_client::printable::{clean, is_steering};
use ceased_probe::{Checked, Findings, Verdict};

/// A text in XML; characters that XML cannot have are replaced.
fn xml(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(' '),
            c if is_steering(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Properties as JUnit XML.
fn properties(indent: &str, all: &[(&str, String)]) -> String {
    let mut out = format!("{indent}<properties>\n");
    for (name, value) in all.iter().filter(|(_, value)| !value.is_empty()) {
        let value = xml(value);
        let _ = writeln!(out, "{indent}  <property name=\"{name}\" value=\"{value}\"/>");
    }
    out + indent + "</properties>\n"
}

/// Properties of the whole probe.
fn suite_properties(found: &Findings) -> String {
    let mut all = vec![
        ("ceased", env!("CARGO_PKG_VERSION").to_owned()),
        (found.party(), found.name.clone()),
        ("revision", found.revision.clone()),
        ("tool", found.tool.clone().unwrap_or_default()),
        ("containment", found.containment.to_owned()),
        ("notes", found.notes.join("; ")),
        ("nothing seen of cancels", found.blind().unwrap_or_default().to_owned()),
        ("skipped", found.skipped.join(", ")),
    ];
    all.extend(baseline(found).map(|(id, state)| ("baseline", format!("{id} {state}"))));
    properties("  ", &all)
}

/// The result as JUnit XML: a deviation is a failure; one of the baseline and an unknown are
/// skipped. A probe that could not be done is an error of its handshake.
pub(super) fn junit(found: &Findings) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let is_error =
        |it: &Checked| found.failure.as_deref().is_some_and(|why| why == it.finding.evidence);
    let errors = found.checks.iter().filter(|it| is_error(it)).count();
    let failures = found.checks.iter().filter(|it| it.is_news()).count();
    let skipped = found.checks.len() - found.count(Verdict::Holds) - failures - errors;
    let time: f64 = found.checks.iter().map(|it| it.took.as_secs_f64()).sum();
    let _ = writeln!(
        out,
        "<testsuite name=\"ceased probe: {}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{time:.3}\">",
        xml(&found.heading()),
        found.checks.len()
    );
    out += &suite_properties(found);
    for checked in &found.checks {
        let (about, evidence) = (&checked.about, xml(&checked.finding.evidence));
        let inner = match checked.finding.verdict {
            Verdict::Holds => format!("<system-out>{evidence}</system-out>"),
            Verdict::Unknown if is_error(checked) => format!("<error message=\"{evidence}\"/>"),
            Verdict::Unknown => format!("<skipped message=\"{evidence}\"/>"),
            Verdict::Deviates if checked.is_known => {
                format!("<skipped message=\"known deviation: {evidence}\"/>")
            }
            Verdict::Deviates => format!(
                "<failure type=\"{}\" message=\"{evidence}\">{}. Remedy: {}. See {}</failure>",
                about.level().name(),
                xml(about.rule),
                xml(about.remedy),
                xml(&about.explain())
            ),
        };
        let rules = about.rules().map(|(rule, level)| format!("{rule} {}", level.name()));
        let rules = rules.collect::<Vec<_>>().join(", ");
        let known = [("level", about.level().name().to_owned()), ("rules", rules)];
        let _ = writeln!(
            out,
            "  <testcase classname=\"probe.{}.{}\" name=\"{}\" time=\"{:.3}\">\n{}    {inner}\n  </testcase>",
            about.party(),
            about.group.name(),
            about.id,
            checked.took.as_secs_f64(),
            properties("    ", &known),
        );
    }
    out.push_str("</testsuite>\n");
    out
}

/// A text of the target in Markdown: a code span, in which nothing is a link, an image, a mention or
/// HTML. In a table, a bar ends the cell unless a backslash stands before it, and a second backslash
/// would undo the first.
fn code(text: &str) -> String {
    match clean(text).trim() {
        "" => String::new(),
        text => {
            let text = text.replace('`', "'").replace("\\|", "\\ |").replace('|', "\\|");
            format!("`{text}`")
        }
    }
}

/// The result as a Markdown table.
pub(super) fn markdown(found: &Findings) -> String {
    let mut out = format!("# {}\n\n", code(&found.heading()));
    let _ = writeln!(out, "{} in revision {}", code(&found.name), code(&found.revision));
    if let Some(tool) = &found.tool {
        let _ = writeln!(out, "with the tool {}", code(tool));
    }
    out.push_str(
        "\n| verdict | check | level | rule | evidence |\n| --- | --- | --- | --- | --- |\n",
    );
    for checked in &found.checks {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            if checked.is_known { "known" } else { checked.finding.verdict.name() },
            checked.about.id,
            checked.about.level().name(),
            checked.about.rule,
            code(&checked.finding.evidence)
        );
    }
    let _ = writeln!(out, "\n{}.", found.summary());
    if let Some(reason) = &found.failure {
        let _ = writeln!(out, "\nThe probe could not be done: {}.", code(reason));
    }
    if let Some(reason) = found.blind() {
        let reason = code(reason);
        let _ = writeln!(out, "\nNothing about cancels of running work was seen: {reason}.");
    }
    for (id, state) in baseline(found) {
        let _ = writeln!(out, "\n{id} is in the baseline, and {state}.");
    }
    for checked in found.checks.iter().filter(|it| it.is_news()) {
        let (id, remedy, explain) =
            (checked.about.id, checked.about.remedy, checked.about.explain());
        let _ = writeln!(out, "\nRemedy for {id}: {remedy}. See `{explain}`.");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use ceased_probe::{About, Finding, Group};

    fn findings(evidence: &str) -> Findings {
        let finding =
            Finding { verdict: Verdict::Deviates, evidence: evidence.to_owned(), repeats: 1 };
        let about = About {
            id: "cancel-no-answer",
            group: Group::Calls,
            rule: "CAN-08",
            title: "does not answer",
            method: "Cancels.",
            remedy: "be silent",
        };
        let took = Duration::from_millis(1250);
        Findings {
            subject: "server <a>".to_owned(),
            address: None,
            name: "s 1".to_owned(),
            revision: "2025-11-25".to_owned(),
            tool: None,
            containment: "cgroup",
            notes: Vec::new(),
            failure: None,
            checks: vec![Checked { about, finding, took, is_known: false }],
            skipped: Vec::new(),
            baseline: None,
            ended: Vec::new(),
            left: 0,
        }
    }

    #[test]
    fn text_of_a_server_cannot_break_a_report() {
        let found = findings("a\" <b> & \u{1} | c\nd `e` \u{202e}![x](http://y) \\|");
        let junit = junit(&found);
        assert!(junit.contains("a&quot; &lt;b&gt; &amp; \u{fffd} | c d"), "{junit}");
        assert!(!junit.contains('\u{202e}'), "{junit}");
        let counts = "failures=\"1\" errors=\"0\" skipped=\"0\" time=\"1.250\"";
        assert!(junit.contains(counts) && junit.contains("&lt;a&gt;"), "{junit}");
        assert!(junit.contains("classname=\"probe.server.calls\""), "{junit}");
        let markdown = markdown(&found);
        let row = markdown.lines().find(|line| line.starts_with("| deviates")).unwrap();
        let evidence = r##"`a" <b> & \u{1} \| c\nd 'e' \u{202e}![x](http://y) \ \|` |"##;
        assert!(row.ends_with(evidence), "{row}");
    }
}
