//! How things look when printed: results, tables, and text that came from somewhere else.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Exit, Failure, Io};
pub(super) use crate::printable::clean;
use crate::printable::clean_lines;
use ceased_client::RpcError;

/// The first line of a text, marked when there is more.
pub(super) fn first_line(text: &str) -> String {
    match text.trim().split_once('\n') {
        Some((first, _)) => format!("{} …", clean(first.trim_end())),
        None => clean(text.trim()).into_owned(),
    }
}

/// Prints rows in aligned columns, each as wide as its widest cell. Cells are cleaned here.
pub(super) fn table(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &rows {
        // Padded by hand: `format!` panics past a width of 65535. And only up to the next cell, or
        // one long cell in the last column would cost its length in every row.
        let mut line = String::new();
        let mut gap = 0;
        for (cell, width) in row.iter().zip(&widths) {
            line.extend(std::iter::repeat_n(' ', gap));
            line.push_str(cell);
            gap = width - cell.chars().count() + 2;
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// True when the server says that it was a time limit that ended the call.
pub(super) fn is_timeout(error: &RpcError) -> bool {
    error.data.as_ref().is_some_and(says_timed_out)
}

fn says_timed_out(value: &Value) -> bool {
    value.get("timedOut").and_then(Value::as_bool) == Some(true)
}

/// Prints what a tool returned and says how it ended.
pub(super) fn result(result: &RawValue, io: &mut Io<'_>) -> Result<Exit, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolResult<'a> {
        #[serde(default, borrow)]
        content: Option<Vec<&'a RawValue>>,
        #[serde(default, borrow)]
        structured_content: Option<&'a RawValue>,
        #[serde(default)]
        is_error: bool,
    }
    let Ok(tool) = serde_json::from_str::<ToolResult<'_>>(result.get()) else {
        // A task may come from something that is no tool.
        raw(result.get(), io)?;
        return Ok(Exit::Done);
    };
    let content = tool.content.as_deref().unwrap_or_default();
    for block in content {
        match text_of(block) {
            Some(text) => text_block(&text, io)?,
            None => raw(block.get(), io)?,
        }
    }
    let structured = tool.structured_content.map(RawValue::get);
    match (tool.content.is_some(), structured) {
        // What it is instead is shown as it came; whether it failed still counts.
        (false, _) => raw(result.get(), io)?,
        (true, Some(structured)) if content.is_empty() => raw(structured, io)?,
        (true, _) => {}
    }
    let structured: Value =
        structured.and_then(|structured| serde_json::from_str(structured).ok()).unwrap_or_default();
    Ok(match (tool.is_error, says_timed_out(&structured)) {
        (_, true) => Exit::TimedOut,
        (true, false) => Exit::Failed,
        (false, false) => Exit::Done,
    })
}

fn text_of(block: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        text: Cow<'a, str>,
    }
    let block: Block<'_> = serde_json::from_str(block.get()).ok()?;
    (block.kind == "text").then_some(block.text)
}

fn text_block(text: &str, io: &mut Io<'_>) -> io::Result<()> {
    let text = if io.out_is_terminal { clean_lines(text) } else { Cow::Borrowed(text) };
    io.out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        io.out.write_all(b"\n")?;
    }
    Ok(())
}

/// Prints JSON on one line, as it came; its strings have no control characters but 0x7f and above.
pub(super) fn raw(json: &str, io: &mut Io<'_>) -> io::Result<()> {
    let json = if io.out_is_terminal { clean(json) } else { Cow::Borrowed(json) };
    writeln!(io.out, "{json}")
}

/// Prints a list as one JSON document.
pub(super) fn raw_list<'a>(
    entries: impl Iterator<Item = &'a RawValue>,
    io: &mut Io<'_>,
) -> io::Result<()> {
    let entries: Vec<&str> = entries.map(RawValue::get).collect();
    raw(&format!("[{}]", entries.join(",")), io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_gets_through() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}\u{202e}é"), "a\\u{1b}[2Jb\\nc\\u{9b}\\u{202e}é");
        assert_eq!(clean_lines("a\n\tb\r\x07"), "a\n\tb\\r\\u{7}");
        assert!(matches!(clean("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let mut out = Vec::new();
        let row = |cells: [&str; 3]| cells.map(ToOwned::to_owned).to_vec();
        table(&mut out, &[row(["é", "b", "c\x07"]), row(["long", "", ""])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "é     b  c\\u{7}\nlong\n");
    }

    #[test]
    fn a_column_may_be_wider_than_a_format_takes() {
        let long = "x".repeat(70_000);
        let mut out = Vec::new();
        let row = |cells: [&str; 2]| cells.map(ToOwned::to_owned).to_vec();
        table(&mut out, &[row([&long, "b"]), row(["c", ""])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{long}  b\nc\n"));
    }

    #[test]
    fn only_the_first_line_of_a_description() {
        assert_eq!(first_line("\n one\ntwo"), "one …");
        assert_eq!(first_line("one\n"), "one");
    }
}
