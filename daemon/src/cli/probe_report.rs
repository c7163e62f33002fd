//! Reports of a probe for programs and pages: JUnit XML and Markdown.

use std::fmt::Write as _;

use crate::printable::{clean, is_steering};
use crate::probe::{Findings, Verdict};

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

/// The result as JUnit XML: a deviation is a failure, an unknown is skipped.
pub(super) fn junit(found: &Findings) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let [failures, skipped] = [Verdict::Deviates, Verdict::Unknown].map(|it| found.count(it));
    let _ = writeln!(
        out,
        "<testsuite name=\"ceased probe: {}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">",
        xml(&found.heading()),
        found.checks.len()
    );
    for checked in &found.checks {
        let (id, evidence) = (checked.id, xml(&checked.finding.evidence));
        let inner = match checked.finding.verdict {
            Verdict::Holds => format!("<system-out>{evidence}</system-out>"),
            Verdict::Unknown => format!("<skipped message=\"{evidence}\"/>"),
            Verdict::Deviates => format!(
                "<failure message=\"{evidence}\">{}. Remedy: {}. See {}</failure>",
                xml(checked.rule),
                xml(checked.remedy),
                xml(&checked.link())
            ),
        };
        let _ = writeln!(out, "  <testcase classname=\"probe\" name=\"{id}\">{inner}</testcase>");
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
    out.push_str("\n| verdict | check | rule | evidence |\n| --- | --- | --- | --- |\n");
    for checked in &found.checks {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            checked.finding.verdict.name(),
            checked.id,
            checked.rule,
            code(&checked.finding.evidence)
        );
    }
    let [holds, deviates, unknown] =
        [Verdict::Holds, Verdict::Deviates, Verdict::Unknown].map(|it| found.count(it));
    let _ = writeln!(out, "\n{holds} hold, {deviates} deviate, {unknown} unknown.");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Checked, Finding};

    fn findings(evidence: &str) -> Findings {
        let finding =
            Finding { verdict: Verdict::Deviates, evidence: evidence.to_owned(), repeats: 1 };
        let (rule, title, remedy) = ("CAN-08", "does not answer", "be silent");
        Findings {
            subject: "server <a>".to_owned(),
            address: None,
            name: "s 1".to_owned(),
            revision: "2025-11-25".to_owned(),
            tool: None,
            containment: "cgroup",
            notes: Vec::new(),
            checks: vec![Checked { id: "cancel-no-answer", rule, title, remedy, finding }],
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
        assert!(junit.contains("failures=\"1\" skipped=\"0\"") && junit.contains("&lt;a&gt;"));
        let markdown = markdown(&found);
        let row = markdown.lines().find(|line| line.starts_with("| deviates")).unwrap();
        let evidence = r##"`a" <b> & \u{1} \| c\nd 'e' \u{202e}![x](http://y) \ \|` |"##;
        assert!(row.ends_with(evidence), "{row}");
    }
}
