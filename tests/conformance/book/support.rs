//! The tables of "Protocol support", written from the one in the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use ceased_core::protocol::support::{ACP, EXTENSIONS, MCP, McpRow, Treatment};
use ceased_tests::workspace;
use serde_json::Value;

use super::is_current;

const PAGE: &str = "docs/src/protocol/support.md";
const BEGIN: &str = "<!-- Written by `UPDATE=1 cargo test -p ceased-tests --test conformance book::` from core/src/protocol/support.rs. -->\n";
const END: &str = "<!-- The end of the written tables. -->\n";

fn rows(page: &mut String, all: &[McpRow]) {
    for (method, one, several, note) in all {
        let name =
            if method.starts_with("every") { (*method).to_owned() } else { format!("`{method}`") };
        let _ = writeln!(page, "| {name} | {} | {} | {note} |", one.as_str(), several.as_str());
    }
}

fn tables() -> String {
    let head = |first: &str, one: &str, other: &str| {
        format!("| {first} | {one} | {other} | |\n| --- | --- | --- | --- |\n")
    };
    let mut page = head("method", "one server shows through", "several servers");
    rows(&mut page, &MCP);
    page += "\n";
    page += &head("extension", "one server shows through", "several servers");
    rows(&mut page, &EXTENSIONS);
    page += "\n";
    page += &head("method of ACP", "version 1", "version 2");
    for (method, one, two, note) in ACP {
        let name =
            if method.starts_with("every") { method.to_owned() } else { format!("`{method}`") };
        let word = |of: Option<Treatment>| of.map_or("", Treatment::as_str);
        let _ = writeln!(page, "| {name} | {} | {} | {note} |", word(one), word(two));
    }
    page
}

#[test]
fn protocol_support_is_that_of_the_code() {
    let text = fs::read_to_string(workspace::root().join(PAGE)).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("the place of the tables");
    let (_, after) = rest.split_once(END).expect("the end of the tables");
    is_current(PAGE, &format!("{before}{BEGIN}\n{}\n{END}{after}", tables()));
}

/// Methods of a published schema.
fn methods(schema: &Value) -> BTreeSet<String> {
    let definitions = schema.get("$defs").or_else(|| schema.get("definitions"));
    let all = definitions.and_then(Value::as_object).into_iter().flatten();
    let named = all.filter_map(|(_, of)| {
        let own = of.get("x-method").or_else(|| of.pointer("/properties/method/const"));
        own.and_then(Value::as_str).map(str::to_owned)
    });
    named.collect()
}

/// Every method of every published schema has a row, in the version that has it.
#[test]
fn every_published_method_has_a_row() {
    let folder = std::env::var_os("CEASED_SCHEMAS")
        .map_or_else(|| workspace::root().join("../shared/schemas"), Into::into);
    let Ok(files) = fs::read_dir(&folder) else { return };
    let mut unknown = Vec::new();
    for file in files.filter_map(Result::ok) {
        let name = file.file_name().to_string_lossy().into_owned();
        let Ok(text) = fs::read_to_string(file.path()) else { continue };
        let Ok(schema) = serde_json::from_str::<Value>(&text) else { continue };
        for method in methods(&schema) {
            let is_known = match name.get(..6) {
                Some("acp-v1") => ACP.iter().any(|row| row.0 == method && row.1.is_some()),
                Some("acp-v2") => ACP.iter().any(|row| row.0 == method && row.2.is_some()),
                _ => MCP.iter().any(|row| row.0 == method),
            };
            if !is_known {
                unknown.push(format!("{method} of {name}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}
