//! The book and the documents beside it: generated pages are current, links resolve, and programs
//! accept their examples.

mod keys;
mod rules;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ceased::config::Config;
use ceased_tests::binary::ceased;
use ceased_tests::prose;
use ceased_tests::workspace::{self, SourceFile};

/// Maximum length of the README.
const README_LINES_MAX: usize = 150;

/// Folders of the repository, to tell a path from a method name.
const FOLDERS: [&str; 6] = ["core/", "transports/", "daemon/", "tests/", "examples/", "docs/"];

fn documents() -> Vec<SourceFile> {
    let is_markdown = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    workspace::files(is_markdown)
}

fn document(path: &str) -> SourceFile {
    documents()
        .into_iter()
        .find(|document| document.path == path)
        .unwrap_or_else(|| panic!("{path} is missing"))
}

fn complain(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Compares a generated page with the committed one; `UPDATE=1` writes it.
fn is_current(path: &str, page: &str) {
    let path = workspace::root().join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, page).expect("the page can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let stale = committed.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        committed == page,
        "{} is stale ({stale:?}); run UPDATE=1 cargo test -p ceased-tests --test conformance book::",
        path.display()
    );
}

/// Code blocks of a document: the line where each begins, its language, its text.
fn blocks(text: &str) -> Vec<(usize, &str, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((at + 1, language, String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some((_, _, block))) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a code block has no end");
    found
}

/// The anchor that mdBook makes of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    text.lines()
        .filter(|line| {
            in_code ^= line.starts_with("```");
            !in_code && line.starts_with('#')
        })
        .map(anchor)
        .collect()
}

/// Targets of the inline links of a document, with their lines. Code is skipped.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        if in_code {
            continue;
        }
        for (start, _) in line.match_indices("](") {
            let rest = &line[start + 2..];
            if let Some(end) = rest.find(')') {
                found.push((at + 1, rest[..end].to_owned()));
            }
        }
    }
    found
}

#[test]
fn page_of_configuration_keys_is_current() {
    is_current("docs/src/reference/configuration.md", &keys::page());
}

#[test]
fn page_of_rules_is_current() {
    is_current("docs/src/protocol/rules.md", &rules::page());
}

#[test]
fn summary_lists_every_page() {
    let summary = document("docs/src/SUMMARY.md");
    let listed: BTreeSet<String> =
        links(&summary.text).into_iter().map(|(_, page)| format!("docs/src/{page}")).collect();
    let pages: BTreeSet<String> = documents()
        .into_iter()
        .map(|document| document.path)
        .filter(|path| path.starts_with("docs/src/") && *path != summary.path)
        .collect();
    assert_eq!(listed, pages);
}

#[test]
fn links_resolve() {
    let mut found = Vec::new();
    for document in documents() {
        let folder = workspace::root().join(&document.path);
        let folder = folder.parent().expect("a document is in a folder").to_path_buf();
        for (line, target) in links(&document.text) {
            if target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = match path {
                "" => workspace::root().join(&document.path),
                path => folder.join(path),
            };
            let text = fs::read_to_string(&file).unwrap_or_default();
            let is_there =
                file.exists() && (heading.is_empty() || anchors(&text).contains(heading));
            if !is_there {
                found.push(format!("{}:{line}: {target}", document.path));
            }
        }
    }
    complain(&found);
}

/// Pages that include another file as a whole.
#[test]
fn included_files_exist() {
    let mut found = Vec::new();
    for document in documents() {
        let folder = workspace::root().join(&document.path);
        for (start, mark) in document.text.match_indices("{{#include ") {
            let rest = &document.text[start + mark.len()..];
            let target = rest.split(['}', ':']).next().unwrap_or_default();
            if !folder.with_file_name("").join(target).exists() {
                found.push(format!("{}: {target}", document.path));
            }
        }
    }
    complain(&found);
}

#[test]
fn toml_examples_are_valid_configurations() {
    let mut found = Vec::new();
    let mut count = 0;
    for document in documents() {
        for (line, _, text) in blocks(&document.text).iter().filter(|block| block.1 == "toml") {
            count += 1;
            let file = PathBuf::from(format!("{}.toml", document.path));
            // The page of keys has fragments; tests of `config.toml` check their source.
            let is_fragment = document.path == "docs/src/reference/configuration.md";
            if !is_fragment && let Err(why) = Config::parse(text, &file) {
                found.push(format!("{}:{line}: {why}", document.path));
            }
        }
    }
    assert!(count > 4, "{count} examples");
    complain(&found);
}

#[test]
fn json_examples_are_json() {
    let mut found = Vec::new();
    for document in documents() {
        for (line, _, text) in blocks(&document.text).iter().filter(|block| block.1 == "json") {
            if let Err(why) = serde_json::from_str::<serde_json::Value>(text) {
                found.push(format!("{}:{line}: {why}", document.path));
            }
        }
    }
    complain(&found);
}

/// Error codes in the source, by their constants.
fn codes() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for file in workspace::rust_files().iter().filter(|file| !file.path.starts_with("tests/")) {
        for line in file.text.lines() {
            let Some(rest) = line.trim_start().strip_prefix("pub const ") else { continue };
            let Some((name, value)) = rest.split_once(": i64 = ") else { continue };
            let value = value.trim_end_matches(';');
            if value.starts_with("-3") && value.len() == 6 {
                found.insert((value.to_owned(), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn error_codes_are_those_of_the_source() {
    let page = document("docs/src/reference/errors.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `-")?.split('`');
        let code = format!("-{}", cells.next()?);
        Some((code, cells.nth(1)?.to_owned()))
    };
    let listed: BTreeSet<_> = page.text.lines().filter_map(row).collect();
    assert!(listed.len() > 10, "{listed:?}");
    assert_eq!(listed, codes());
}

#[test]
fn every_command_is_documented() {
    let help = Command::new(ceased()).arg("--help").output().expect("it runs").stdout;
    let help = String::from_utf8(help).expect("help is text");
    let commands = help.split_once("Commands:\n").expect("a list").1;
    let commands = commands.split_once("\n\n").expect("an end").0;
    let page = document("docs/src/commands.md").text;
    let missing: Vec<String> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .filter(|name| {
            !page.contains(&format!("`ceased {name}")) && !page.contains(&format!("`{name}"))
        })
        .map(str::to_owned)
        .collect();
    complain(&missing);
}

/// The tutorial shows the tools as the program lists them.
#[test]
fn tutorial_shows_output_of_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let listed = Command::new(ceased())
        .args(["tools", "--config"])
        .arg(workspace::root().join("config.toml"))
        .env("XDG_RUNTIME_DIR", dir.path())
        .env("HOME", dir.path())
        .env_remove("CEASED_SOCKET")
        .output()
        .expect("it runs");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let tutorial = document("docs/src/tutorial.md").text;
    assert!(listed.contains("tree"), "{listed}");
    assert!(tutorial.contains(&format!("$ ceased tools\n{listed}")), "{listed}");
}

/// Pages do not deny features of the program.
#[test]
fn pages_agree_with_the_program() {
    let support = document("docs/src/protocol/support.md").text;
    assert!(!support.contains("not implemented yet"));
    let introduction = document("docs/src/introduction.md").text;
    for package in ["ceased", "ceased-core", "ceased-transports", "ceased-process", "ceased-client"]
    {
        assert!(introduction.contains(&format!("| `{package}` |")), "{package}");
    }
    let monitoring = document("docs/src/operations/monitoring.md").text;
    assert!(monitoring.contains("seeing the jobs of all users"));
    // The keys of a tool stand once.
    let config = fs::read_to_string(workspace::root().join("config.toml")).expect("it is there");
    let keys =
        config.split("\n# Existing MCP servers that speak stdio.").next().unwrap_or_default();
    assert_eq!(keys.matches("#     memory_max = ").count(), 1, "config.toml");
}

/// Table rows of ARCHITECTURE.md name existing files and functions in them.
#[test]
fn architecture_names_files_and_functions_that_exist() {
    let document = document("ARCHITECTURE.md");
    let mut found = Vec::new();
    let mut functions = 0;
    for (at, line) in document.text.lines().enumerate() {
        let words: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let is_path = |word: &&&str| FOLDERS.iter().any(|folder| word.starts_with(folder));
        for path in words.iter().filter(is_path) {
            if !workspace::root().join(path).exists() {
                found.push(format!("ARCHITECTURE.md:{}: {path} does not exist", at + 1));
            }
        }
        let files: Vec<&str> = words.iter().copied().filter(|word| word.ends_with(".rs")).collect();
        if files.is_empty() {
            continue;
        }
        let read = |file: &&str| fs::read_to_string(workspace::root().join(file)).ok();
        let code: String = files.iter().filter_map(read).collect();
        for name in words.iter().filter_map(|word| word.strip_suffix("()")) {
            functions += 1;
            if line.starts_with('|') && !code.contains(&format!("fn {name}")) {
                found.push(format!("ARCHITECTURE.md:{}: {files:?}: no {name}()", at + 1));
            }
        }
    }
    assert!(functions > 40, "{functions} functions");
    complain(&found);
}

#[test]
fn readme_is_short_and_names_the_two_commands() {
    let readme = document("README.md");
    let lines = readme.text.lines().count();
    assert!(lines <= README_LINES_MAX, "{lines} lines of {README_LINES_MAX}");
    for command in ["\ncargo run --example tour\n", "\ncargo test --workspace\n"] {
        assert!(readme.text.contains(command), "{command}");
    }
    for door in ["ceased init", "ceased probe", "ceased adopt", "minutes", "Rust 1.91"] {
        assert!(readme.text.contains(door), "{door}");
    }
}

#[test]
fn sentences_of_documents_state_their_subject() {
    let mut found = Vec::new();
    for document in documents() {
        // Generated text with names of tests and faults.
        if document.path.starts_with("tests/") {
            continue;
        }
        for (line, text) in prose::in_markdown(&document.text) {
            // The style table shows counter-examples.
            if !(document.path == "CONTRIBUTING.md" && text.starts_with('|')) {
                found.push(format!("{}:{line}: {text}", document.path));
            }
        }
    }
    complain(&found);
}
