//! The ledger of rules, and the tests that name them.

use std::fs;

use serde::Deserialize;

use crate::workspace::{self, SourceFile};

#[derive(Deserialize)]
struct Ledger {
    rule: Vec<Rule>,
}

/// One row of `tests/rules.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name of the rule: a family and a number.
    pub id: String,
    /// Documents that state the rule.
    pub source: String,
    /// Strength of the rule in its source; `OURS` for promises of this project.
    pub level: String,
    /// Party bound by the rule.
    pub party: String,
    /// The rule, restated.
    pub rule: String,
    /// Behaviour that a test can observe.
    pub observe: String,
}

/// Every rule, in the order of the file.
///
/// # Panics
/// When the ledger cannot be read.
#[must_use]
pub fn rules() -> Vec<Rule> {
    let path = workspace::root().join("tests/rules.toml");
    let text = fs::read_to_string(&path).expect("the ledger is beside the tests");
    toml::from_str::<Ledger>(&text).expect("the ledger is valid TOML").rule
}

/// Test code of a file: all of it below `tests/`, elsewhere the text after `#[cfg(test)]`. The
/// suite of the ledger does not count, because it names rules without a test.
#[must_use]
pub fn test_code(file: &SourceFile) -> &str {
    if file.path == "tests/conformance/ledger.rs" {
        ""
    } else if file.path.starts_with("tests/") {
        &file.text
    } else {
        file.text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests)
    }
}

/// Whether `text` contains `id` as a whole word.
#[must_use]
pub fn names(text: &str, id: &str) -> bool {
    text.match_indices(id).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + id.len()..].chars().next();
        let part = |character: Option<char>| character.is_some_and(|c| c.is_ascii_alphanumeric());
        !part(before) && !part(after)
    })
}

/// Tests that name a rule, as `file::function`, or as `file` where no test function is near.
/// Functions come first.
#[must_use]
pub fn tests_of(id: &str, files: &[SourceFile]) -> Vec<String> {
    let mut found: Vec<(bool, String)> = Vec::new();
    for file in files {
        let code = test_code(file);
        if !code.contains(id) {
            continue;
        }
        let lines: Vec<&str> = code.lines().collect();
        let place = file.path.trim_end_matches(".rs");
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| names(line, id)) {
            let entry = match test_at(&lines, at) {
                Some(test) => (false, format!("{place}::{test}")),
                None => (true, place.to_owned()),
            };
            if !found.contains(&entry) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Test function of a line: the next one for a comment above it, otherwise the one around the line.
fn test_at<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let is_doc = |line: &str| line.trim_start().starts_with("///");
    let head = if is_doc(lines[at]) {
        let rest = lines.iter().enumerate().skip(at);
        rest.clone().find(|(_, line)| function(line).is_some()).map(|(number, _)| number)?
    } else {
        (0..=at).rev().find(|number| function(lines[*number]).is_some())?
    };
    let is_test = (0..head)
        .rev()
        .map(|number| lines[number].trim_start())
        .take_while(|line| line.starts_with('#') || line.starts_with("//"))
        .any(|line| line == "#[test]");
    if is_test { function(lines[head]) } else { None }
}

/// Name of the function whose signature begins on a line.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let (name, _) = line.strip_prefix("fn ")?.split_once(['(', '<'])?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_above_a_test_belongs_to_it() {
        let file = SourceFile {
            path: "tests/a.rs".into(),
            text: "/// XYZ-01: yes.\n#[test]\nfn one() {\n    // XYZ-02\n}\nfn helper() {\n    \
                   // XYZ-03\n}\n"
                .into(),
        };
        let files = [file];
        assert_eq!(tests_of("XYZ-01", &files), ["tests/a::one"]);
        assert_eq!(tests_of("XYZ-02", &files), ["tests/a::one"]);
        assert_eq!(tests_of("XYZ-03", &files), ["tests/a"]);
        assert!(tests_of("XYZ-0", &files).is_empty());
    }
}
