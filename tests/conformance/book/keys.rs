//! The page of configuration keys, generated from `config.toml`.

use std::fmt::Write as _;

use ceased_tests::workspace;

/// Beginning of the text about tools, which no table header precedes.
const TOOLS: &str = "# Tools. Each has a `name`";

const HEAD: &str = "\
# Configuration keys

<!-- Generated from config.toml by `UPDATE=1 cargo test -p ceased-tests --test conformance book::`. -->

Every key with its default. `ceased check` prints the values that are in effect.

";

/// A table of the file.
#[derive(Default)]
struct Table {
    header: String,
    keys: Vec<(String, String)>,
    body: String,
}

/// The page.
pub(crate) fn page() -> String {
    let path = workspace::root().join("config.toml");
    let text = std::fs::read_to_string(&path).expect("the default configuration is there");
    let mut page = String::from(HEAD);
    let tables = tables(&text);
    page.push_str("| table | key | default |\n| --- | --- | --- |\n");
    for table in &tables {
        for (key, default) in &table.keys {
            let _ = writeln!(page, "| `{}` | `{key}` | `{default}` |", table.header);
        }
    }
    for table in tables {
        let _ = write!(page, "\n## `{}`\n\n{}", table.header, table.body.trim_start());
    }
    page
}

fn tables(text: &str) -> Vec<Table> {
    let (configuration, examples) = split(text);
    let mut tables: Vec<Table> = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    for line in configuration.lines() {
        if line.starts_with('[') {
            tables.push(Table { header: line.to_owned(), ..Table::default() });
            end_block(&mut tables, &mut block);
        } else if let Some(key) = key(line) {
            let table = tables.last_mut().expect("a key is in a table");
            write_keys(table, &[key], &mut block);
        } else if line.starts_with("# ") || line == "#" {
            if line == TOOLS || line.starts_with(TOOLS) {
                tables.push(Table { header: "[[tool]]".to_owned(), ..Table::default() });
            }
            block.push(line);
        } else {
            end_block(&mut tables, &mut block);
        }
    }
    end_block(&mut tables, &mut block);
    let tools = tables.last_mut().expect("the tools come last");
    let _ = write!(tools.body, "\n### Examples\n\n```toml\n{}\n```\n", examples.trim());
    tables
}

/// Splits the file before the comment of its first example tool.
fn split(text: &str) -> (&str, &str) {
    let tool = text.find("\n[[tool]]").expect("the file has tools");
    let comment = text[..tool].rfind("\n\n").expect("a blank line precedes the comment");
    let start = text.find("\n[daemon]").expect("the first table") + 1;
    (&text[start..comment], &text[comment..])
}

/// A key and its value, whether commented out or not.
fn key(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix('#').unwrap_or(line);
    let (name, value) = line.split_once(" = ")?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

/// Writes a heading for the keys, their defaults, and the text before them. Keys without text refer
/// to the key before them.
fn write_keys(table: &mut Table, keys: &[(String, String)], block: &mut Vec<&str>) {
    for (key, default) in keys {
        let _ = write!(table.body, "\n### `{key}`\n\nDefault: `{default}`\n");
        table.keys.push((key.clone(), default.clone()));
    }
    if block.is_empty() {
        table.body.push_str("\nSee the key before.\n");
    } else {
        table.body.push('\n');
        write_text(&mut table.body, block);
        block.clear();
    }
}

fn end_block(tables: &mut [Table], block: &mut Vec<&str>) {
    // A comment directly before a table header belongs to that table.
    if let Some(table) = tables.last_mut()
        && !block.is_empty()
    {
        table.body.push('\n');
        write_text(&mut table.body, block);
        block.clear();
    }
}

/// Comment lines as Markdown: indented ones are code.
fn write_text(body: &mut String, block: &[&str]) {
    let mut in_code = false;
    for line in block {
        let text = line.trim_start_matches('#');
        let code = text.strip_prefix("     ");
        let goes_on = in_code && text.trim().is_empty();
        if code.is_some() != in_code && !goes_on {
            body.push_str(if in_code { "```\n\n" } else { "```toml\n" });
            in_code = !in_code;
        }
        let text = code.unwrap_or_else(|| text.strip_prefix(' ').unwrap_or(text));
        body.push_str(text.trim_end());
        body.push('\n');
    }
    if in_code {
        body.push_str("```\n");
    }
}
