//! Formatting of results, tables, and foreign text.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Exit, Failure, Io};
use ceased_client::RpcError;
pub(super) use ceased_client::printable::clean;
pub(super) use ceased_client::printable::clean_lines;

/// The first line of a text, with a mark if there are more.
pub(super) fn first_line(text: &str) -> String {
    match text.trim().split_once('\n') {
        Some((first, _)) => format!("{} …", clean(first.trim_end())),
        None => clean(text.trim()).into_owned(),
    }
}

/// A number of things, in the singular for one.
pub(super) fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Prints rows in aligned columns. Cells are escaped here.
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
        // Padded manually: `format!` panics past a width of 65535. The last column is not padded,
        // so that one long cell does not widen every row.
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

/// Whether the server reports that a time limit ended the call.
pub(super) fn is_timeout(error: &RpcError) -> bool {
    error.data.as_ref().is_some_and(says_timed_out)
}

fn says_timed_out(value: &Value) -> bool {
    value.get("timedOut").and_then(Value::as_bool) == Some(true)
}

/// Prints the result of a tool and returns its exit status.
pub(super) fn result(result: &RawValue, io: &mut Io<'_>) -> Result<Exit, Failure> {
    result_without(result, &|_, _| false, io)
}

/// Prints the result of a tool as one JSON document and returns its exit status.
pub(super) fn result_as_json(result: &RawValue, io: &mut Io<'_>) -> Result<Exit, Failure> {
    raw(result.get(), io)?;
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    Ok(match (value["isError"] == true, says_timed_out(&value["structuredContent"])) {
        (_, true) => Exit::TimedOut,
        (true, false) => Exit::Failed,
        (false, false) => Exit::Done,
    })
}

/// As [`result`], without the texts that `is_shown` says so of, by their position.
pub(super) fn result_without(
    result: &RawValue,
    is_shown: &dyn Fn(usize, &str) -> bool,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
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
        // The task may come from a method other than `tools/call`.
        raw(result.get(), io)?;
        return Ok(Exit::Done);
    };
    let content = tool.content.as_deref().unwrap_or_default();
    for (position, block) in content.iter().enumerate() {
        match text_of(block) {
            Some(text) if is_shown(position, &text) => {}
            Some(text) => text_block(&text, io)?,
            None => raw(block.get(), io)?,
        }
    }
    let structured = tool.structured_content.map(RawValue::get);
    match (tool.content.is_some(), structured) {
        // Not a tool result: printed unchanged; `isError` still counts.
        (false, _) => raw(result.get(), io)?,
        // The numbers of a command that printed nothing are no output.
        (true, Some(structured)) if content.is_empty() && !is_of_command(structured) => {
            raw(structured, io)?;
        }
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

/// Whether these are the numbers that the daemon adds to the output of a command.
fn is_of_command(structured: &str) -> bool {
    let value: Value = serde_json::from_str(structured).unwrap_or_default();
    ["exitCode", "signal", "durationMs", "truncated", "bytes"]
        .iter()
        .all(|member| value.get(member).is_some())
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

/// Prints JSON on one line; JSON strings escape control characters below 0x20, the others are
/// cleaned here.
pub(super) fn raw(json: &str, io: &mut Io<'_>) -> io::Result<()> {
    let json = if io.out_is_terminal { clean(json) } else { Cow::Borrowed(json) };
    writeln!(io.out, "{json}")
}

/// Prints a value as one JSON document.
pub(super) fn json(value: &Value, io: &mut Io<'_>) -> io::Result<()> {
    raw(&value.to_string(), io)
}

/// Prints a list as one JSON document.
pub(super) fn raw_list<'a>(
    entries: impl Iterator<Item = &'a RawValue>,
    io: &mut Io<'_>,
) -> io::Result<()> {
    let entries: Vec<&str> = entries.map(RawValue::get).collect();
    raw(&format!("[{}]", entries.join(",")), io)
}

/// The last lines of a text.
pub(super) fn last_lines(text: &str, lines: usize) -> &str {
    if lines == 0 {
        return "";
    }
    let whole = text.strip_suffix('\n').unwrap_or(text);
    let start = whole.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}\u{202e}é"), "a\\u{1b}[2Jb\\nc\\u{9b}\\u{202e}é");
        assert_eq!(clean_lines("a\n\tb\r\x07"), "a\n\tb\\r\\u{7}");
        assert!(matches!(clean("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn columns_are_aligned_by_character_count() {
        let mut out = Vec::new();
        let row = |cells: [&str; 3]| cells.map(ToOwned::to_owned).to_vec();
        table(&mut out, &[row(["é", "b", "c\x07"]), row(["long", "", ""])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "é     b  c\\u{7}\nlong\n");
    }

    #[test]
    fn column_may_exceed_the_width_of_format() {
        let long = "x".repeat(70_000);
        let mut out = Vec::new();
        let row = |cells: [&str; 2]| cells.map(ToOwned::to_owned).to_vec();
        table(&mut out, &[row([&long, "b"]), row(["c", ""])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{long}  b\nc\n"));
    }

    #[test]
    fn only_the_first_line_is_shown() {
        assert_eq!(first_line("\n one\ntwo"), "one …");
        assert_eq!(first_line("one\n"), "one");
    }

    #[test]
    fn last_lines_are_whole() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 1, "c"),
            ("a\n", 5, "a\n"),
            ("a\n\n", 1, "\n"),
            ("", 3, ""),
            ("a\n", 0, ""),
        ] {
            assert_eq!(last_lines(text, lines), expected, "{text:?} {lines}");
        }
    }
}
