//! Arguments in front of the command of an entry, and their removal, as edits.

use std::ops::Range;

use super::binary::Binary;
use super::command::{Args, CommandEntry, Layout, Text};
use super::document::Format;
use super::edit::Edit;

/// Puts a program and its arguments in front of a command.
///
/// # Errors
/// If the bytes of the command mean something else in the list of arguments.
pub(super) fn wrap(
    text: &str,
    format: Format,
    entry: &CommandEntry,
    binary: &Binary,
    leading: &[String],
) -> Result<Vec<Edit>, String> {
    let leading: Vec<String> = leading.iter().map(|text| format.quoted(text)).collect();
    let ours = format.quoted(&binary.0);
    let (program, key, args) = match &entry.layout {
        Layout::Joined { program, list } => {
            let separator = separator(text, format, list, program)?;
            let all: String =
                std::iter::once(ours).chain(leading).map(|word| word + &separator).collect();
            return Ok(vec![Edit::new(program.span.start..program.span.start, all)]);
        }
        Layout::Split { program, key, args } => (program, key, args),
    };
    // The bytes of the command move, so that `unwrap` restores its very spelling.
    let command = written(text, &program.span);
    let is_flow = match args {
        Some(args) => written(text, &args.span).starts_with('['),
        None => true,
    };
    if format == Format::Yaml && is_flow && !is_quoted(command) && command.contains(FLOW) {
        return Err("its command has a character that would need quotes in a list".to_owned());
    }
    let insertion = match args {
        None => {
            // Written without spaces, which tells `unwrap` that there was no member.
            let list = format!("{}[{},{command}]", format.args_key(), leading.join(","));
            new_member(text, format, entry, key, program.span.end, &list)
        }
        Some(args) => match args.items.first() {
            Some(first) => {
                let separator = separator(text, format, args, first)?;
                let all: String = leading
                    .iter()
                    .map(String::as_str)
                    .chain([command])
                    .map(|word| format!("{word}{separator}"))
                    .collect();
                Edit::new(first.span.start..first.span.start, all)
            }
            None => {
                let at = args.span.start + 1;
                Edit::new(at..at, format!("{}, {command}", leading.join(", ")))
            }
        },
    };
    Ok(vec![Edit::new(program.span.clone(), ours), insertion])
}

/// Characters that end a plain text in a list of YAML.
pub(super) const FLOW: [char; 5] = [',', '[', ']', '{', '}'];

fn is_quoted(text: &str) -> bool {
    text.starts_with(['"', '\''])
}

fn written<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    text.get(span.clone()).unwrap_or_default()
}

/// The text between two items of a list, of which `first` is the first.
fn separator(text: &str, format: Format, list: &Args, first: &Text) -> Result<String, String> {
    if format != Format::Yaml || written(text, &list.span).starts_with('[') {
        return Ok(", ".to_owned());
    }
    let line = line_start(text, first.span.start);
    let before = written(text, &(line..first.span.start));
    let dash =
        before.trim_end_matches(' ').strip_suffix('-').filter(|it| it.len() < before.len() - 1);
    let Some(indent) = dash.filter(|it| it.chars().all(|c| c == ' ')) else {
        return Err("the first of its args does not stand alone behind its dash".to_owned());
    };
    Ok(format!("{}{indent}- ", line_end(text, first.span.start)))
}

/// Whether members of a map stand in lines of their own.
pub(super) fn is_block(text: &str, format: Format, map: &Range<usize>) -> bool {
    match format {
        Format::Json => false,
        Format::Toml | Format::Yaml => !written(text, map).starts_with('{'),
    }
}

/// The text between two members of a map, of which the first has this key.
pub(super) fn member_separator(
    text: &str,
    format: Format,
    map: &Range<usize>,
    key: &Range<usize>,
) -> String {
    if !is_block(text, format, map) {
        return ", ".to_owned();
    }
    let before = written(text, &(line_start(text, key.start)..key.start));
    let prefix = match format {
        // Of a dotted key, all but its last part.
        Format::Toml => before.to_owned(),
        // A dash of a list stands before the first member alone.
        Format::Json | Format::Yaml => " ".repeat(before.chars().count()),
    };
    format!("{}{prefix}", line_end(text, key.start))
}

/// Adds a member behind the program, whose key is `key` and which ends at `end`.
fn new_member(
    text: &str,
    format: Format,
    entry: &CommandEntry,
    key: &Range<usize>,
    end: usize,
    member: &str,
) -> Edit {
    let new = member_separator(text, format, &entry.map, key) + member;
    if !is_block(text, format, &entry.map) {
        return Edit::new(end..end, new);
    }
    let line = text.get(end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| end + at);
    let line = if written(text, &(end..line)).ends_with('\r') { line - 1 } else { line };
    Edit::new(line..line, new)
}

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1)
}

/// The line end that a text uses around a position.
fn line_end(text: &str, at: usize) -> &'static str {
    let next = text.get(at..).and_then(|rest| rest.split_once('\n'));
    if next.is_some_and(|(line, _)| line.ends_with('\r')) { "\r\n" } else { "\n" }
}

/// Removes the program and the arguments that [`wrap`] puts in front, with further options.
pub(super) fn unwrap(text: &str, format: Format, entry: &CommandEntry) -> Vec<Edit> {
    let Some(dashes) = entry.wrapping() else { return Vec::new() };
    let Some(command) = entry.arguments().get(dashes + 1) else { return Vec::new() };
    let (program, args) = match &entry.layout {
        Layout::Joined { program, .. } => {
            return vec![Edit::new(program.span.start..command.span.start, "")];
        }
        Layout::Split { program, args: Some(args), .. } => (program, args),
        Layout::Split { args: None, .. } => return Vec::new(),
    };
    let restored = Edit::new(program.span.clone(), written(text, &command.span));
    let [first, .., last] = args.items.as_slice() else { return Vec::new() };
    let removed = match args.items.get(dashes + 2) {
        Some(rest) => Edit::new(first.span.start..rest.span.start, ""),
        None => match own_member(text, format, entry, program, args) {
            Some(member) => Edit::new(member, ""),
            // A list of lines has no empty form.
            None if !written(text, &args.span).starts_with('[') => {
                Edit::new(args.key.end..args.span.end, ": []")
            }
            // A trailing comma goes with the last argument.
            None if written(text, &(last.span.end..args.span.end)).contains(',') => {
                Edit::new(args.span.start + 1..args.span.end - 1, "")
            }
            None => Edit::new(first.span.start..last.span.end, ""),
        },
    };
    vec![restored, removed]
}

/// The bytes of the arguments as [`new_member`] adds them, if it has.
fn own_member(
    text: &str,
    format: Format,
    entry: &CommandEntry,
    program: &Text,
    args: &Args,
) -> Option<Range<usize>> {
    let mut pairs = args.items.iter().zip(args.items.iter().skip(1));
    let is_dense = pairs.all(|(one, next)| written(text, &(one.span.end..next.span.start)) == ",");
    if !is_dense {
        return None;
    }
    if !is_block(text, format, &entry.map) {
        let is_next = text.get(program.span.end..args.key.start)? == ", ";
        return is_next.then_some(program.span.end..args.span.end);
    }
    let line = line_start(text, args.key.start);
    let is_next = line > program.span.end && !text.get(program.span.end..line - 1)?.contains('\n');
    let rest = text.get(args.span.end..)?.split('\n').next()?;
    let start = line - 1;
    let start = if text.get(..start)?.ends_with('\r') { start - 1 } else { start };
    (is_next && rest.trim().is_empty()).then_some(start..args.span.end)
}
