//! Edits as a unified diff.

use std::fmt::Write as _;
use std::ops::Range;

use super::edit::{Edit, apply_within};
use super::error::line_of;
use super::secrets::shown;
use crate::printable::clean;

/// Lines shown before and after a change.
const CONTEXT: usize = 3;
/// Longest line that is shown whole; files written by programs can be one line.
const LINE_SHOWN_MAX: usize = 400;
/// Bytes shown around a change in a longer line.
const AROUND: usize = 60;

/// Changed whole lines of a text.
struct Hunk<'e> {
    /// Bytes of the lines, without the last line end.
    lines: Range<usize>,
    edits: Vec<&'e Edit>,
}

/// A unified diff of the text and the text with the edits, with control characters escaped.
pub(crate) fn diff(name: &str, text: &str, edits: &[Edit]) -> String {
    let mut diff = format!("--- {0}\n+++ {0}\n", clean(name));
    let mut grown = 0_isize;
    for hunk in hunks(text, edits) {
        let edits: Vec<Edit> = hunk.edits.iter().map(|edit| (*edit).clone()).collect();
        let old = text.get(hunk.lines.clone()).unwrap_or_default();
        let new = apply_within(text, hunk.lines.clone(), &edits);
        let before = last_lines(text.get(..hunk.lines.start).unwrap_or_default());
        let after = text.get(hunk.lines.end..).unwrap_or_default();
        let after: Vec<&str> = after.lines().skip(1).take(CONTEXT).collect();
        let first = line_of(text, hunk.lines.start) - before.len();
        let count = |lines: &str| before.len() + lines.split('\n').count() + after.len();
        let moved = first.saturating_add_signed(grown);
        let _ = writeln!(diff, "@@ -{first},{} +{moved},{} @@", count(old), count(&new));
        grown += new.split('\n').count().cast_signed() - old.split('\n').count().cast_signed();
        before.iter().for_each(|line| show(&mut diff, ' ', line));
        if old.len() > LINE_SHOWN_MAX && !old.contains('\n') {
            excerpts(&mut diff, text, &hunk.lines, &edits);
        } else {
            old.split('\n').for_each(|line| show(&mut diff, '-', line));
            new.split('\n').for_each(|line| show(&mut diff, '+', line));
        }
        after.iter().for_each(|line| show(&mut diff, ' ', line));
    }
    diff
}

/// Groups edits that touch the same or neighbouring lines.
fn hunks<'e>(text: &str, edits: &'e [Edit]) -> Vec<Hunk<'e>> {
    let mut hunks: Vec<Hunk<'e>> = Vec::new();
    for edit in edits {
        let start =
            text.get(..edit.span.start).and_then(|it| it.rfind('\n')).map_or(0, |at| at + 1);
        let end = text.get(edit.span.end..).and_then(|it| it.find('\n'));
        let end = end.map_or(text.len(), |at| edit.span.end + at);
        match hunks.last_mut() {
            Some(last) if start <= last.lines.end + 1 => {
                last.lines.end = last.lines.end.max(end);
                last.edits.push(edit);
            }
            _ => hunks.push(Hunk { lines: start..end, edits: vec![edit] }),
        }
    }
    hunks
}

fn last_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().rev().take(CONTEXT).collect();
    lines.reverse();
    lines
}

/// Shows the surroundings of each edit in a long line.
fn excerpts(diff: &mut String, text: &str, line: &Range<usize>, edits: &[Edit]) {
    for edit in edits {
        let from = text.floor_char_boundary(edit.span.start.saturating_sub(AROUND).max(line.start));
        let to = text.ceil_char_boundary((edit.span.end + AROUND).min(line.end));
        let old = text.get(from..to).unwrap_or_default();
        let new = apply_within(text, from..to, std::slice::from_ref(edit));
        let _ = writeln!(diff, "-…{}…\n+…{}…", clean(&shown(old)), clean(&shown(&new)));
    }
}

fn show(diff: &mut String, sign: char, line: &str) {
    let line = shown(line.strip_suffix('\r').unwrap_or(line));
    let cut = line.floor_char_boundary(LINE_SHOWN_MAX);
    let dots = if cut < line.len() { "…" } else { "" };
    // Tabs are indentation, not control of the terminal.
    let parts: Vec<_> = line.get(..cut).unwrap_or_default().split('\t').map(clean).collect();
    let _ = writeln!(diff, "{sign}{}{dots}", parts.join("\t"));
}
