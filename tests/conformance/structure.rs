//! Figures of the structure that may only fall: calls of the engine across folders, files with its
//! methods, the circle of files that such calls make, long functions; and documentation that names
//! no thing.

use std::collections::{BTreeMap, BTreeSet};

use ceased_tests::workspace;

/// Calls `self.x()` of the engine into a file of another folder.
const CROSS_CALLS_MAX: usize = 103;
/// Files with methods of the engine.
const ENGINE_FILES_MAX: usize = 22;
/// Files in the largest circle of such calls, within folders as well.
const CIRCLE_MAX: usize = 2;
/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// Sentences that ask instead of stating a thing.
const QUESTIONS: [&str; 15] = [
    "By what",
    "For what",
    "How",
    "How hard",
    "How it ended",
    "How many there are",
    "How severe",
    "On whose behalf",
    "What",
    "When",
    "Where",
    "Which",
    "Whom",
    "Whose",
    "Why",
];

/// A function: its name, its first line, and its lines.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some((lead, rest)) = code.split_once("fn ") else { continue };
        let words = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "extern", "\"C\""];
        if !lead.split_whitespace().all(|word| words.contains(&word)) {
            continue;
        }
        // A declaration ends before any body begins.
        let head = lines[first..].iter().find(|line| line.ends_with([';', '{', '}']));
        let has_body = head.is_some_and(|line| line.ends_with('{'));
        let end = format!("{indent}}}");
        let last = lines[first..].iter().position(|line| **line == end).filter(|_| has_body);
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        found.push((name.to_owned(), first, last.map_or(1, |last| last + 1)));
    }
    found
}

/// Each file of the shipped packages, without tests and benches.
fn shipped() -> Vec<(String, String)> {
    let mut files = workspace::rust_files();
    files.retain(|file| {
        let is_source = file.path.contains("/src/") && !file.path.starts_with("tests/");
        let is_test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
        is_source && !is_test
    });
    files.into_iter().map(|file| (file.path, file.text)).collect()
}

#[test]
fn functions_have_at_most_70_lines() {
    let mut found = Vec::new();
    for (path, text) in shipped() {
        let long = functions(&text).into_iter().filter(|it| it.2 > FUNCTION_LINES_MAX);
        found.extend(
            long.map(|(name, first, lines)| {
                format!("{path}:{}: {name} has {lines} lines", first + 1)
            }),
        );
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The texts from each `begin` to the end of its item.
fn blocks<'a>(text: &'a str, begin: &'static str) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split_once("\n}")).map(|(block, _)| block)
}

/// Names of structs with a field that other files see, and a method that changes them.
fn open_machines(text: &str) -> Vec<String> {
    let has_fields =
        |body: &str| body.find(['{', ';']).is_some_and(|at| body[at..].starts_with('{'));
    let is_open = |body: &&str| has_fields(body) && body.contains("\n    pub");
    let mut found = Vec::new();
    for block in blocks(text, " struct ").filter(is_open) {
        let name = block.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let head = format!("{name} ");
        let mut methods = blocks(text, "\nimpl ").filter(|block| block.starts_with(&head));
        if methods.any(|block| block.contains("&mut self")) {
            found.push(name.to_owned());
        }
    }
    found
}

/// A transition of the event loop's state is a method of its type: no other file changes a field.
#[test]
fn machines_of_the_event_loop_have_private_fields() {
    let mut found = Vec::new();
    for (path, text) in shipped() {
        if path.starts_with("daemon/src/event_loop/state/") {
            found.extend(open_machines(&text).into_iter().map(|name| format!("{path}: {name}")));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    let open = "\npub(crate) struct Door {\n    pub(crate) at: u8,\n}\n\nimpl Door {\n    fn open(&mut self) {}\n}\n";
    assert_eq!(open_machines(open), ["Door"]);
}

#[test]
fn documentation_states_a_thing() {
    let mut found = Vec::new();
    for (path, text) in shipped() {
        for (at, line) in text.lines().enumerate() {
            let Some((_, sentence)) = line.split_once("/// ") else { continue };
            if sentence.strip_suffix('.').is_some_and(|it| QUESTIONS.contains(&it)) {
                found.push(format!("{path}:{}: {sentence}", at + 1));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Files of the core with methods of the engine: the text of those methods.
fn engine_files() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for (path, text) in shipped().into_iter().filter(|(path, _)| path.starts_with("core/src/")) {
        let mut blocks = String::new();
        for block in text.split("\nimpl Engine {\n").skip(1) {
            blocks += block.split("\n}\n").next().unwrap_or_default();
            blocks.push('\n');
        }
        if !blocks.is_empty() {
            files.insert(path, blocks);
        }
    }
    files
}

/// Names behind `self.` that are called, with line breaks of chains removed.
fn called(text: &str) -> Vec<String> {
    let code: String = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".");
    let names = code.split("self.").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        rest[end..].starts_with('(').then(|| rest[..end].to_owned())
    });
    names.collect()
}

/// For each file, the files that define the methods that it calls, with repetitions.
fn calls() -> BTreeMap<String, Vec<String>> {
    let files = engine_files();
    let mut defined: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for (path, text) in &files {
        for (name, first, _) in functions(text) {
            // Methods stand one level in.
            let is_method = text.lines().nth(first).is_some_and(|line| !line.starts_with("     "));
            if is_method {
                defined.entry(name).or_default().push(path);
            }
        }
    }
    let targets = |(path, text): (&String, &String)| {
        let targets = called(text).into_iter().flat_map(|name| defined.get(&name).cloned());
        let others = targets.flatten().filter(|target| *target != path).cloned();
        (path.clone(), others.collect())
    };
    files.iter().map(targets).collect()
}

#[test]
fn engine_calls_across_folders_may_only_fall() {
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let calls = calls();
    assert!(calls.len() > 10, "{} files with methods of the engine", calls.len());
    let across = calls.iter().flat_map(|(from, to)| {
        let from = folder(from);
        to.iter().filter(move |to| folder(to) != from)
    });
    let across = across.count();
    assert!(across <= CROSS_CALLS_MAX, "{across} calls across folders, of {CROSS_CALLS_MAX}");
    println!("{across} calls across folders");
}

#[test]
fn files_with_methods_of_the_engine_may_only_become_fewer() {
    let files = engine_files().len();
    assert!(files <= ENGINE_FILES_MAX, "{files} files have methods of the engine");
    println!("{files} files with methods of the engine");
}

/// Every file that is reached from one by calls.
fn reached<'a>(calls: &'a BTreeMap<String, Vec<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let targets = calls.get(file).into_iter().flatten();
        next.extend(targets.map(String::as_str).filter(|target| seen.insert(*target)));
    }
    seen
}

#[test]
fn circle_of_engine_files_may_only_shrink() {
    let calls = calls();
    let all: BTreeMap<&str, BTreeSet<&str>> =
        calls.keys().map(|file| (file.as_str(), reached(&calls, file))).collect();
    let circle = |file: &str| {
        let mutual = all[file].iter().filter(|other| all[**other].contains(file));
        mutual.count()
    };
    let largest = calls.keys().map(|file| circle(file)).max().unwrap_or_default();
    assert!(largest <= CIRCLE_MAX, "{largest} files call each other in a circle of {CIRCLE_MAX}");
    println!("{largest} files call each other in a circle");
}
