//! Style rules of the whole workspace that a program can check.

use ceased_tests::prose;
use ceased_tests::workspace::{self, SourceFile};

/// Maximum length of a file.
const LINES_MAX: usize = 1000;

/// Databases in old formats of the store, for the test of their migration, and the picture of the
/// live view in the book.
const BINARIES: [&str; 4] =
    ["docs/src/view-phone.png", "docs/src/view.png", "tests/store/v1.db", "tests/store/v2.db"];
/// Limit of the picture: each clone of the repository has it.
const PICTURE_BYTES_MAX: u64 = 100_000;

fn complain(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Lines of a file with their numbers.
fn lines(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// Lines that contain one of `words` outside a comment, in the files selected by `wanted`.
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

/// Excludes this file, which contains the forbidden words.
fn not_here(path: &str) -> bool {
    path != "tests/conformance/tidy.rs"
}

#[test]
fn every_file_has_a_module_comment() {
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

/// Excludes programs and databases that a run left behind.
#[test]
fn no_binary_file_is_in_the_tree() {
    let mut found = workspace::binary_files();
    found.retain(|path| !BINARIES.contains(&path.as_str()));
    complain(&found);
    let picture = std::fs::metadata(workspace::root().join(BINARIES[0])).expect("a picture");
    assert!(picture.len() <= PICTURE_BYTES_MAX, "{} bytes", picture.len());
}

#[test]
fn no_marker_of_unfinished_work() {
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

/// DET-01: hash order is never visible; only two files use hashed tables.
#[test]
fn only_the_tables_of_the_core_hash() {
    let words = ["HashMap", "HashSet", "std::time", "std::thread", "SystemTime"];
    complain(&holding(&words, |path| path.starts_with("core/src/")));
    let tables = ["core/src/collections/det_map.rs", "core/src/collections/slot_map.rs"];
    let words = ["hashbrown", "foldhash", "HashTable"];
    complain(&holding(&words, |path| path.starts_with("core/src/") && !tables.contains(&path)));
}

/// Paths of the author's machine do not belong into the tree.
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
                // Assembled here, so that this line is no match.
                let path = format!("/{top}/");
                if line.contains(&path) {
                    found.push(format!("{}:{number}: {path}", file.path));
                }
            }
        }
    }
    complain(&found);
}

/// Trailing white space, tabs, and missing or doubled line ends.
#[test]
fn lines_have_no_stray_white_space() {
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

/// Cargo runs a test file only if a target names it.
#[test]
fn every_test_file_belongs_to_a_target() {
    let files = workspace::files(|path| path.ends_with("Cargo.toml"));
    let mut found = Vec::new();
    for folder in ["tests/", "tests/simulator/"] {
        let manifest = files.iter().find(|file| file.path == format!("{folder}Cargo.toml"));
        let manifest = manifest.expect("it is there");
        for file in workspace::rust_files() {
            let Some(name) = file.path.strip_prefix(folder) else { continue };
            if !name.contains('/') && !manifest.text.contains(&format!("path = \"{name}\"")) {
                found.push(format!("{}: no [[test]] names it", file.path));
            }
        }
    }
    complain(&found);
}

#[test]
fn comments_and_names_state_their_subject() {
    let mut found = Vec::new();
    for file in workspace::rust_files() {
        for (line, text) in &prose::in_code(&file.text) {
            found.push(format!("{}:{line}: {text}", file.path));
        }
    }
    complain(&found);
}
