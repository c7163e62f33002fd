//! Tidiness of the whole workspace, as far as a program can see it.

use ceased_tests::prose;
use ceased_tests::workspace::{self, SourceFile};

/// Lines that a file has at most.
const LINES_MAX: usize = 1000;

/// Databases that older versions of the store wrote, for the test of their migration.
const BINARIES: [&str; 2] = ["tests/store/v1.db", "tests/store/v2.db"];

fn complain(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The lines of a file with their numbers.
fn lines(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// Lines that hold one of `words` outside a comment, in the files `wanted` wants.
fn holding(words: &[&str], wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in workspace::rust_files().iter().filter(|file| wanted(&file.path)) {
        for (number, line) in lines(file) {
            let code = line.split("//").next().unwrap_or_default();
            for word in words.iter().filter(|word| code.contains(**word)) {
                found.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    found
}

/// This file writes what it looks for.
fn not_here(path: &str) -> bool {
    path != "tests/conformance/tidy.rs"
}

#[test]
fn every_file_says_what_it_is() {
    let files = workspace::rust_files();
    assert!(files.len() > 40, "{} files", files.len());
    let silent = files.iter().filter(|file| !file.text.starts_with("//! "));
    complain(&silent.map(|file| file.path.clone()).collect::<Vec<_>>());
}

#[test]
fn files_have_at_most_1000_lines() {
    let mut found = Vec::new();
    for file in workspace::rust_files() {
        let count = file.text.lines().count();
        if count > LINES_MAX {
            found.push(format!("{}: {count} lines of {LINES_MAX}", file.path));
        }
    }
    complain(&found);
}

/// A program or a database that a run left behind is not source.
#[test]
fn no_binary_file_is_in_the_tree() {
    let mut found = workspace::binary_files();
    found.retain(|path| !BINARIES.contains(&path.as_str()));
    complain(&found);
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["todo!", "dbg!", "unimplemented!", "FIXME", "XXX"];
    complain(&holding(&words, not_here));
}

#[test]
fn unsafe_is_in_one_module() {
    let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "allow(unsafe_code"];
    complain(&holding(&words, |path| {
        not_here(path) && !path.starts_with("daemon/process/src/sys")
    }));
}

/// DET-01: what is hashed is never seen in the order of its hashes, which two files see to.
#[test]
fn the_core_hashes_in_its_tables_alone() {
    let words = ["HashMap", "HashSet", "std::time", "std::thread", "SystemTime"];
    complain(&holding(&words, |path| path.starts_with("core/src/")));
    let tables = ["core/src/collections/det_map.rs", "core/src/collections/slot_map.rs"];
    let words = ["hashbrown", "foldhash", "HashTable"];
    complain(&holding(&words, |path| path.starts_with("core/src/") && !tables.contains(&path)));
}

/// Nothing names a path of the machine it was written on.
#[test]
fn no_path_of_a_machine() {
    let text = ["rs", "toml", "md", "txt", "yml", "service", "socket"];
    let files = workspace::files(|path| {
        path.extension().and_then(|extension| extension.to_str()).is_some_and(|e| text.contains(&e))
    });
    let mut found = Vec::new();
    for file in files.iter().filter(|file| not_here(&file.path)) {
        for (number, line) in lines(file) {
            for top in ["work", "root", "Users", "tmp/bash"] {
                // Put together here, or this line would be one of them.
                let path = format!("/{top}/");
                if line.contains(&path) {
                    found.push(format!("{}:{number}: {path}", file.path));
                }
            }
        }
    }
    complain(&found);
}

/// White space that a diff would show.
#[test]
fn lines_are_clean() {
    let mut found = Vec::new();
    for file in workspace::rust_files() {
        for (number, line) in lines(&file) {
            if line.ends_with([' ', '\t', '\r']) || line.contains('\t') {
                found.push(format!("{}:{number}", file.path));
            }
        }
        if !file.text.ends_with('\n') || file.text.ends_with("\n\n") {
            found.push(format!("{}: its end", file.path));
        }
    }
    complain(&found);
}

/// A test file that no target names would never run.
#[test]
fn no_test_file_is_forgotten() {
    let files = workspace::files(|path| path.ends_with("Cargo.toml"));
    let manifest = files.iter().find(|file| file.path == "tests/Cargo.toml").expect("it is there");
    let mut found = Vec::new();
    for file in workspace::rust_files() {
        let Some(name) = file.path.strip_prefix("tests/") else { continue };
        if !name.contains('/') && !manifest.text.contains(&format!("path = \"{name}\"")) {
            found.push(format!("{}: no [[test]] names it", file.path));
        }
    }
    complain(&found);
}

/// Folders whose comments are looked at.
const FOLDERS: [&str; 5] = ["core", "daemon", "examples", "tests", "transports"];

#[test]
fn sentences_of_comments_have_a_subject() {
    let files = workspace::rust_files();
    let mut complaints = Vec::new();
    for folder in FOLDERS {
        for file in files.iter().filter(|file| file.path.starts_with(&format!("{folder}/"))) {
            for (line, text) in prose::in_comments(&file.text) {
                complaints.push(format!("{}:{line}: {text}", file.path));
            }
        }
    }
    complain(&complaints);
}
