//! Layers: no file of a package imports, directly or indirectly, a file that imports it, and in
//! `ceased-process` no folder imports one that is above it.

use std::collections::{BTreeMap, BTreeSet};

use ceased_tests::workspace;

/// The modules of a package by their path (`rpc::message`), each with its text.
fn modules(source: &str) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    for file in workspace::rust_files() {
        let Some(path) = file.path.strip_prefix(source) else { continue };
        let path = path.trim_end_matches(".rs").replace('/', "::");
        let path = path.strip_suffix("::mod").unwrap_or(&path).to_owned();
        let is_test = path.split("::").any(|part| part == "tests");
        if !is_test && !["lib", "main"].contains(&path.as_str()) {
            modules.insert(path, code_of(&file.text));
        }
    }
    modules
}

/// A file's text without comments and without its tests.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Expands the groups of a `use` into single paths.
fn expand(path: &str) -> Vec<String> {
    let Some((lead, group)) = path.split_once('{') else { return vec![path.to_owned()] };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for character in group.chars() {
        match character {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {
                depth += i32::from(character == '{') - i32::from(character == '}');
                part.push(character);
            }
        }
    }
    parts.push(part);
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{lead}{part}"))).collect()
}

/// Every path of a text that begins with `crate::`, `super::` or `self::`, groups expanded.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for lead in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(lead) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &code[at..];
            let mut depth = 0;
            let end = rest.find(|c: char| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                let inside = depth > 0 && (c.is_whitespace() || c == ',');
                !(c.is_alphanumeric() || "_:{}".contains(c) || inside) || depth < 0
            });
            let path: String = rest[..end.unwrap_or(rest.len())].split_whitespace().collect();
            found.extend(expand(&path));
        }
    }
    found
}

/// The module that contains `path` as written in `module`.
fn target(modules: &BTreeMap<String, String>, module: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    let mut base: Vec<&str> = module.split("::").collect();
    if parts.first() == Some(&"crate") {
        base.clear();
        parts.remove(0);
    }
    while let Some(part @ ("super" | "self")) = parts.first().copied() {
        if part == "super" {
            base.pop();
        }
        parts.remove(0);
    }
    base.extend(parts);
    (1..=base.len()).rev().map(|n| base[..n].join("::")).find(|path| modules.contains_key(path))
}

/// Imports of each module of a package.
fn graph(source: &str) -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules(source);
    assert!(modules.len() > 5, "{source} has {} modules", modules.len());
    let edges = modules.iter().map(|(module, code)| {
        let targets = paths(code).into_iter().filter_map(|path| target(&modules, module, &path));
        let targets = targets.filter(|target| target != module);
        (module.clone(), targets.chain(children(&modules, module, code)).collect())
    });
    edges.collect()
}

/// Children of a module that its code names without a leading `self`.
fn children(modules: &BTreeMap<String, String>, module: &str, code: &str) -> Vec<String> {
    let lead = format!("{module}::");
    let child = |path: &&String| path.strip_prefix(&lead).is_some_and(|name| !name.contains("::"));
    let is_named = |path: &&String| {
        let name = format!("{}::", path.trim_start_matches(&lead));
        code.match_indices(&name).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && !"_:.".contains(c))
        })
    };
    modules.keys().filter(child).filter(is_named).cloned().collect()
}

/// Modules that `from` imports, directly or indirectly.
fn reach(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = left.pop() {
        for next in &graph[&module] {
            if seen.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    seen
}

/// Modules that import themselves indirectly, each with its imports within the circle.
fn circles(source: &str, graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reach: BTreeMap<&str, BTreeSet<String>> =
        graph.keys().map(|module| (module.as_str(), reach(graph, module))).collect();
    let circular = graph.keys().filter(|module| reach[module.as_str()].contains(*module));
    let lines = circular.map(|module| {
        let back = graph[module].iter().filter(|next| reach[next.as_str()].contains(module));
        let back: Vec<&str> = back.map(String::as_str).collect();
        format!("{source}{module} -> {}", back.join(", "))
    });
    lines.collect()
}

fn assert_layered(source: &str) {
    let found = circles(source, &graph(source));
    assert!(found.is_empty(), "files import each other in a circle:\n{}", found.join("\n"));
}

#[test]
fn core_has_no_import_circle() {
    assert_layered("core/src/");
}

/// The outbox is below every group of methods: those of the engine are in files that import it.
#[test]
fn outbox_does_not_reach_the_engine() {
    let graph = graph("core/src/");
    for module in ["outbox", "outbox::answering", "outbox::sending"] {
        assert!(!reach(&graph, module).contains("engine"), "{module} imports the engine");
    }
}

#[test]
fn transports_have_no_import_circle() {
    assert_layered("transports/src/");
}

#[test]
fn process_has_no_import_circle() {
    assert_layered("daemon/process/src/");
}

#[test]
fn client_has_no_import_circle() {
    assert_layered("daemon/client/src/");
}

#[test]
fn fleet_has_no_import_circle() {
    assert_layered("daemon/fleet/src/");
}

#[test]
fn probe_has_no_import_circle() {
    assert_layered("daemon/probe/src/");
}

/// Modules of the daemon whose own file holds the types of its children. Names of its children in
/// such a file do not count as imports.
const PARENTS: [&str; 2] = ["cli", "config"];

#[test]
fn daemon_has_no_import_circle() {
    let source = "daemon/src/";
    let mut graph = graph(source);
    for parent in PARENTS {
        let lead = format!("{parent}::");
        let targets = graph.get_mut(parent).expect("the parent is a module");
        targets.retain(|target| !target.starts_with(&lead));
    }
    let found = circles(source, &graph);
    assert!(found.is_empty(), "files import each other in a circle:\n{}", found.join("\n"));
}

/// Imports from a folder into the rest of the folder that contains it.
fn imports_of_parent(graph: &BTreeMap<String, BTreeSet<String>>, folder: &str) -> Vec<String> {
    let (parent, _) = folder.rsplit_once("::").expect("the folder is in another one");
    let is_in = |path: &str, of: &str| {
        path == of || path.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"))
    };
    let inside = graph.iter().filter(|(module, _)| is_in(module, folder));
    let found = inside.flat_map(|(module, targets)| {
        let outside = targets.iter().filter(|it| is_in(it, parent) && !is_in(it, folder));
        outside.map(move |target| format!("{module} -> {target}"))
    });
    found.collect()
}

#[test]
fn state_of_the_event_loop_does_not_import_the_loop() {
    let graph = graph("daemon/src/");
    assert!(graph.contains_key("event_loop::state::connections"), "the folder has moved");
    let found = imports_of_parent(&graph, "event_loop::state");
    assert!(found.is_empty(), "imports upwards:\n{}", found.join("\n"));
    let edges = [("a::b::c", &["a::d", "a::b::e", "f"][..]), ("a::b::e", &[]), ("a::d", &[])];
    assert_eq!(imports_of_parent(&example(&edges), "a::b"), ["a::b::c -> a::d"]);
}

/// The folders and files at the top of `ceased-process`, lowest first.
const PROCESS: [&[&str]; 9] = [
    &[
        "account",
        "bounds",
        "ids",
        "isolation",
        "limit_hint",
        "nameless_file",
        "null_device",
        "ready",
    ],
    &["sys", "output", "proc"],
    &["launch", "spawn_ways"],
    &["cgroup"],
    &["guard"],
    &["containment"],
    &["supervisor"],
    &["tree"],
    &["daemon_support"],
];

/// Imports from one layer into the same or a higher one, but within a folder.
fn upwards(graph: &BTreeMap<String, BTreeSet<String>>, layers: &[&[&str]]) -> Vec<String> {
    let layer = |module: &str| {
        let top = module.split("::").next().unwrap_or_default();
        let found = layers.iter().position(|layer| layer.contains(&top));
        (top.to_owned(), found.unwrap_or_else(|| panic!("{top} is in no layer")))
    };
    let mut found = Vec::new();
    for (module, targets) in graph {
        let (top, at) = layer(module);
        for target in targets {
            let (below, depth) = layer(target);
            if below != top && depth >= at {
                found.push(format!("{module} -> {target}"));
            }
        }
    }
    found
}

#[test]
fn process_has_no_import_upwards() {
    let found = upwards(&graph("daemon/process/src/"), &PROCESS);
    assert!(found.is_empty(), "imports upwards:\n{}", found.join("\n"));
}

/// The graph of these modules and imports.
fn example(edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
    let set = |targets: &[&str]| targets.iter().map(|target| (*target).to_owned()).collect();
    edges.iter().map(|(module, targets)| ((*module).to_owned(), set(targets))).collect()
}

#[test]
fn circle_and_an_import_upwards_are_found() {
    let tree = example(&[("low", &[]), ("mid::a", &["low"]), ("top", &["mid::a", "low"])]);
    let layers: [&[&str]; 3] = [&["low"], &["mid"], &["top"]];
    assert!(circles("", &tree).is_empty() && upwards(&tree, &layers).is_empty());
    let circle = example(&[("low", &["top"]), ("mid::a", &["low"]), ("top", &["mid::a", "low"])]);
    assert_eq!(circles("", &circle).len(), 3);
    assert_eq!(upwards(&circle, &layers), ["low -> top"]);
}

#[test]
fn children_are_found_without_self() {
    let names = ["a", "a::b", "a::c", "ab"];
    let modules = names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
    assert_eq!(children(&modules, "a", "pub use b::X;\nlet y = x::c::d();"), ["a::b"]);
}

#[test]
fn groups_of_imports_are_written_out() {
    let code = "use crate::a::{self, b::{C, d}, E};\nlet x = super::f::g(1);";
    let expected = ["crate::a::self", "crate::a::b::C", "crate::a::b::d", "crate::a::E"];
    assert_eq!(paths(code), [&expected[..], &["super::f::g"]].concat());
}
