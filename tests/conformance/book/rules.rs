//! The page of rules, generated from the ledger and from the tests that name its rules.

use std::fmt::Write as _;

use ceased_tests::{ledger, workspace};

/// Tests shown per rule.
const SHOWN: usize = 3;

const HEAD: &str = "\
# Rules and their tests

<!-- Generated from tests/rules.toml by `UPDATE=1 cargo test -p ceased-tests --test conformance book::`. -->

Every normative rule that ceased implements, restated, with tests that prove it (three at most). A rule
that no test names fails the build. `OURS` marks promises of ceased beyond its sources.

";

/// Families of rules by the beginning of their ids.
const FAMILIES: [(&str, &str); 21] = [
    ("CAN", "MCP cancellation"),
    ("TSK", "MCP tasks (2025-11-25)"),
    ("MOD", "MCP 2026-07-28"),
    ("EXT", "MCP tasks extension"),
    ("HTTP", "Streamable HTTP"),
    ("UPS", "Upstream servers"),
    ("REM", "Servers by URL"),
    ("AUTH", "Authorization and profiles"),
    ("FLT", "Several machines"),
    ("SUP", "ACP agents under supervision"),
    ("ACP", "Agent Client Protocol: request cancellation"),
    ("PRG", "Progress of silent jobs"),
    ("OUT", "Output of jobs"),
    ("TOOL", "Errors of tools"),
    ("GATE", "Limits and locks of tools"),
    ("RPC", "JSON-RPC"),
    ("DET", "Determinism"),
    ("STOP", "Stopping"),
    ("DUR", "Durability"),
    ("SEC", "Environment, files and directories of commands"),
    ("OBS", "Observability"),
];

/// The page.
pub(crate) fn page() -> String {
    let files = workspace::rust_files();
    let mut page = String::from(HEAD);
    let mut rules = ledger::rules();
    for (family, title) in FAMILIES {
        let _ = write!(page, "## {title}\n\n| rule | level | binds | rule text | tests |\n");
        page.push_str("| --- | --- | --- | --- | --- |\n");
        for rule in rules.extract_if(.., |rule| rule.id.starts_with(family)) {
            let tests = ledger::tests_of(&rule.id, &files);
            let shown: Vec<String> =
                tests.iter().take(SHOWN).map(|test| format!("`{test}`")).collect();
            let shown =
                if shown.is_empty() { "not implemented".to_owned() } else { shown.join(", ") };
            let text = rule.rule.replace('|', "\\|");
            let _ = writeln!(
                page,
                "| {} | {} | {} | {text} | {shown} |",
                rule.id, rule.level, rule.party
            );
        }
        page.push('\n');
    }
    let left: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert!(left.is_empty(), "add the family of {left:?} to FAMILIES");
    let end = page.trim_end().len();
    page.truncate(end);
    page.push('\n');
    page
}
