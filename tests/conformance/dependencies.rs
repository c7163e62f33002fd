//! Dependencies: how many crates an embedder compiles, and which Rust version they need.

use std::collections::BTreeSet;
use std::process::Command;

use ceased_tests::workspace;

/// The output of cargo, which must not need the network.
fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--locked", "--offline"]).current_dir(workspace::root());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages that `ceased` needs with these features, without itself.
fn dependencies(features: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "-p", "ceased", "-e", "normal,build", "--prefix", "none", "-f", "{p}"];
    let listed = cargo(&[&tree[..], features].concat());
    let names = listed.lines().filter_map(|line| line.split(' ').next().map(str::to_owned));
    names.filter(|name| !name.is_empty() && name != "ceased").collect()
}

#[test]
fn book_names_the_number_of_crates_of_an_embedder() {
    let crates = dependencies(&["--no-default-features"]);
    let said = format!("compiles {} other crates", crates.len());
    let book = std::fs::read_to_string(workspace::root().join("docs/src/embedding.md")).unwrap();
    assert!(book.contains(&said), "docs/src/embedding.md does not say: {said}");
}

/// The build that the README offers for `wrap` and `stdio`: no C, and half of the crates.
#[test]
fn small_program_leaves_out_its_large_parts() {
    let crates = dependencies(&["--no-default-features", "--features", "cli"]);
    let all = dependencies(&[]);
    for name in [
        "ceased-fleet",
        "ceased-probe",
        "cc",
        "jsonschema",
        "ratatui",
        "ring",
        "rusqlite",
        "rustls",
    ] {
        assert!(all.contains(name), "{name} is no dependency of the program");
        assert!(!crates.contains(name), "{name}");
    }
    let said = format!("with `cli` alone {}, and all of it {}", crates.len(), all.len());
    let book = std::fs::read_to_string(workspace::root().join("docs/src/embedding.md")).unwrap();
    assert!(book.contains(&said), "docs/src/embedding.md does not say: {said}");
}

#[test]
fn embedder_compiles_no_part_of_the_command_line() {
    let crates = dependencies(&["--no-default-features"]);
    let all = dependencies(&[]);
    for name in ["clap", "clap_complete", "clap_mangen", "indicatif", "ratatui", "crossterm"] {
        assert!(all.contains(name), "{name} is no dependency of the program");
        assert!(!crates.contains(name), "{name}");
    }
    for name in
        ["jsonschema", "toml", "strsim", "rusqlite", "tracing-subscriber", "tracing-appender"]
    {
        assert!(!crates.contains(name), "{name}");
    }
}

/// A version as numbers, so that 1.9 comes before 1.88.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|part| part.parse().unwrap()).collect()
}

#[test]
fn dependencies_allow_the_minimum_rust_version() {
    let text = cargo(&["metadata", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let own = packages.iter().find(|package| package["name"] == "ceased").unwrap();
    let minimum = own["rust_version"].as_str().unwrap();
    let mut needed = packages.iter().filter_map(|package| {
        let needs = package["rust_version"].as_str()?;
        (version(needs) > version(minimum)).then(|| format!("{} {needs}", package["name"]))
    });
    assert_eq!(needed.next(), None, "needs more than Rust {minimum}");
    assert!(packages.len() > 50, "{} packages", packages.len());
}
