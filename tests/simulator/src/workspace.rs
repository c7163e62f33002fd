//! The workspace as files, for tests that read the repository itself.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    let simulator = Path::new(env!("CARGO_MANIFEST_DIR"));
    simulator.ancestors().nth(2).expect("the simulator is a member").to_path_buf()
}

/// A file of the workspace.
#[derive(Debug)]
pub struct SourceFile {
    /// Its path below the root, with `/` between the parts.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Every Rust file of the workspace, in the order of their paths.
///
/// # Panics
/// When the workspace cannot be read.
#[must_use]
pub fn rust_files() -> Vec<SourceFile> {
    files(|path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// Every file of the workspace selected by `wanted`, sorted by path. Skips hidden folders and
/// `target`.
///
/// # Panics
/// When the workspace cannot be read.
pub fn files(wanted: impl Fn(&Path) -> bool) -> Vec<SourceFile> {
    let mut found = Vec::new();
    walk(&|name| name.starts_with('.') || name == "target", &mut |path| {
        if wanted(path) {
            let text = fs::read_to_string(path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            found.push(SourceFile { path: below_root(path), text });
        }
    });
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Paths of the files that are not UTF-8 text or hold a NUL byte, hidden files included. Skips the
/// folders of Git, Cargo and npm.
///
/// # Panics
/// When the workspace cannot be read.
#[must_use]
pub fn binary_files() -> Vec<String> {
    let mut found = Vec::new();
    walk(&|name| matches!(name, ".git" | "target" | "node_modules"), &mut |path| {
        // A temporary file may be gone by now.
        let Ok(bytes) = fs::read(path) else { return };
        if bytes.contains(&0) || std::str::from_utf8(&bytes).is_err() {
            found.push(below_root(path));
        }
    });
    found.sort();
    found
}

/// Calls `visit` with every file of the workspace that is not below a skipped name.
fn walk(skip: &dyn Fn(&str) -> bool, visit: &mut dyn FnMut(&Path)) {
    let mut open = vec![root()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if skip(name) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                visit(&path);
            }
        }
    }
}

fn below_root(path: &Path) -> String {
    let below = path.strip_prefix(root()).expect("the walk starts at the root");
    below.to_string_lossy().replace('\\', "/")
}
