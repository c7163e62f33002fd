//! Edits as a unified diff, in which secrets are hidden.

use std::fmt::Write as _;
use std::ops::Range;

use super::document::Format;
use super::edit::{Edit, apply};
use super::entry::entries_of;
use super::error::HostFileError;
use super::reader::parse;
use super::secrets::{SHOWN, hidden};
use ceased_client::printable::clean;

/// Lines shown before and after a change.
const CONTEXT: usize = 3;
/// Longest line that is shown whole; files written by programs can be one line.
const LINE_SHOWN_MAX: usize = 400;
/// Bytes shown around a change in a longer line.
const AROUND: usize = 60;

/// A text and the parts of it that are not shown.
struct Shown<'t> {
    text: &'t str,
    hidden: Vec<Range<usize>>,
    /// Lines without their line ends.
    lines: Vec<Range<usize>>,
}

impl<'t> Shown<'t> {
    fn new(text: &'t str, format: Format) -> Result<Self, HostFileError> {
        let root = parse(text, format)?;
        let entries = entries_of(&root, text, format)?;
        let hidden = hidden(&root, &entries, text, format);
        let mut at = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            let start = at;
            at += line.len();
            start..at - usize::from(line.ends_with('\n'))
        });
        let lines = lines.collect();
        Ok(Self { text, hidden, lines })
    }

    /// The hidden parts within a range.
    fn hidden_in(&self, range: &Range<usize>) -> &[Range<usize>] {
        let first = self.hidden.partition_point(|it| it.end <= range.start);
        let last = self.hidden.partition_point(|it| it.start < range.end);
        self.hidden.get(first..last).unwrap_or_default()
    }

    /// Whether a line is shown as it is.
    fn is_clean(&self, line: usize) -> bool {
        self.lines
            .get(line)
            .is_some_and(|range| range.len() <= LINE_SHOWN_MAX && self.hidden_in(range).is_empty())
    }

    /// A part for people.
    fn part(&self, range: Range<usize>) -> String {
        let (mut shown, mut at) = (String::new(), range.start);
        for secret in self.hidden_in(&range) {
            shown.push_str(self.text.get(at..secret.start).unwrap_or_default());
            shown.push_str(SHOWN);
            at = secret.end.min(range.end);
        }
        shown.push_str(self.text.get(at..range.end).unwrap_or_default());
        shown
    }

    /// Writes a line.
    fn show(&self, diff: &mut String, sign: char, line: usize) {
        let Some(range) = self.lines.get(line).cloned() else { return };
        let is_last = range.end == self.text.len();
        let line = self.part(range);
        // A carriage return belongs to the line end.
        let (line, end) = line.strip_suffix('\r').map_or((line.as_str(), ""), |line| (line, "\r"));
        let cut = line.floor_char_boundary(LINE_SHOWN_MAX);
        let dots = if cut < line.len() { "…" } else { "" };
        // Tabs are indentation, not control of the terminal.
        let parts: Vec<_> = line.get(..cut).unwrap_or_default().split('\t').map(clean).collect();
        let _ = writeln!(diff, "{sign}{}{dots}{end}", parts.join("\t"));
        if is_last {
            diff.push_str("\\ No newline at end of file\n");
        }
    }

    /// The line of a byte.
    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.end < at).min(self.lines.len().saturating_sub(1))
    }
}

/// Changed lines, and the unchanged ones around them.
struct Hunk<'e> {
    /// Changed lines of the old text, by number from 0; the unchanged ones between two of them are
    /// shown once.
    changes: Vec<Change<'e>>,
    before: usize,
    after: usize,
}

/// Neighbouring changed lines.
#[derive(Clone)]
struct Change<'e> {
    old: Range<usize>,
    new: Range<usize>,
    edits: Vec<&'e Edit>,
}

/// A unified diff of a text and the text with the edits. Control characters are escaped.
///
/// # Errors
/// If one of them cannot be read.
pub(crate) fn diff(
    name: &str,
    text: &str,
    format: Format,
    edits: &[Edit],
) -> Result<String, HostFileError> {
    if edits.is_empty() {
        return Ok(String::new());
    }
    let edited = apply(text, edits);
    let (old, new) = (Shown::new(text, format)?, Shown::new(&edited, format)?);
    let mut diff = format!("--- {0}\n+++ {0}\n", clean(name));
    for hunk in hunks(&old, changes(&old, &new, edits)) {
        write_hunk(&mut diff, &old, &new, &hunk);
    }
    Ok(diff)
}

/// The changed lines of both texts.
fn changes<'e>(old: &Shown<'_>, new: &Shown<'_>, edits: &'e [Edit]) -> Vec<Change<'e>> {
    let mut changes: Vec<Change<'e>> = Vec::new();
    let mut grown = 0_isize;
    for edit in edits {
        let start = old.line(edit.span.start);
        let lines = start..old.line(edit.span.end) + 1;
        let begin = edit.span.start.saturating_add_signed(grown);
        let new_lines = new.line(begin)..new.line(begin + edit.new.len()) + 1;
        grown += edit.new.len().cast_signed() - edit.span.len().cast_signed();
        match changes.last_mut() {
            Some(last) if lines.start <= last.old.end => {
                last.old.end = last.old.end.max(lines.end);
                last.new.end = last.new.end.max(new_lines.end);
                last.edits.push(edit);
            }
            _ => changes.push(Change { old: lines, new: new_lines, edits: vec![edit] }),
        }
    }
    changes
}

/// Groups changes whose surroundings touch. A line with a secret is never shown around a change, so
/// that every line of a hunk is one of the file; `patch` wants as many lines before as after.
fn hunks<'e>(text: &Shown<'_>, changes: Vec<Change<'e>>) -> Vec<Hunk<'e>> {
    let mut hunks: Vec<Hunk<'e>> = Vec::new();
    for change in changes {
        let reach = hunks.last().and_then(|hunk| hunk.changes.last()).map_or(0, |it| it.old.end);
        let gap = change.old.start.saturating_sub(reach);
        let is_near = gap <= 2 * CONTEXT && (reach..change.old.start).all(|at| text.is_clean(at));
        let before = (1..=CONTEXT.min(gap)).take_while(|n| text.is_clean(change.old.start - n));
        let before = before.count();
        match hunks.last_mut() {
            Some(last) if is_near => last.changes.push(change),
            _ => hunks.push(Hunk { changes: vec![change], before, after: 0 }),
        }
    }
    let starts: Vec<usize> = hunks
        .iter()
        .filter_map(|hunk| hunk.changes.first().map(|it| it.old.start))
        .skip(1)
        .chain([text.lines.len()])
        .collect();
    for (hunk, limit) in hunks.iter_mut().zip(starts) {
        let (Some(first), Some(last)) = (hunk.changes.first(), hunk.changes.last()) else {
            continue;
        };
        let (start, end) = (first.old.start, last.old.end);
        let after = (end..limit).take(CONTEXT).take_while(|at| text.is_clean(*at));
        hunk.after = after.count();
        let (is_first, is_last) = (hunk.before == start, end + hunk.after == text.lines.len());
        if hunk.before > hunk.after && !is_last {
            hunk.before = hunk.after;
        } else if hunk.after > hunk.before && !is_first {
            hunk.after = hunk.before;
        }
    }
    hunks
}

fn write_hunk(diff: &mut String, old: &Shown<'_>, new: &Shown<'_>, hunk: &Hunk<'_>) {
    let (Some(first), Some(last)) = (hunk.changes.first(), hunk.changes.last()) else { return };
    let range = |start: usize, end: usize| {
        let (start, end) = (start - hunk.before, end + hunk.after);
        format!("{},{}", start + 1, end - start)
    };
    let (was, is) = (range(first.old.start, last.old.end), range(first.new.start, last.new.end));
    let _ = writeln!(diff, "@@ -{was} +{is} @@");
    let mut at = first.old.start - hunk.before;
    for change in &hunk.changes {
        (at..change.old.start).for_each(|line| old.show(diff, ' ', line));
        let line = old.lines.get(change.old.start).cloned().unwrap_or_default();
        if change.old.len() == 1 && line.len() > LINE_SHOWN_MAX {
            excerpts(diff, old, new, &line, change);
        } else {
            change.old.clone().for_each(|line| old.show(diff, '-', line));
            change.new.clone().for_each(|line| new.show(diff, '+', line));
        }
        at = change.old.end;
    }
    (at..at + hunk.after).for_each(|line| old.show(diff, ' ', line));
}

/// Shows the surroundings of each edit in a long line.
fn excerpts(
    diff: &mut String,
    old: &Shown<'_>,
    new: &Shown<'_>,
    line: &Range<usize>,
    change: &Change<'_>,
) {
    let place = new.lines.get(change.new.start).map_or(0, |line| line.start);
    let mut grown = place.cast_signed() - line.start.cast_signed();
    for edit in &change.edits {
        let from =
            old.text.floor_char_boundary(edit.span.start.saturating_sub(AROUND).max(line.start));
        let to = old.text.ceil_char_boundary((edit.span.end + AROUND).min(line.end));
        let begin = from.saturating_add_signed(grown);
        grown += edit.new.len().cast_signed() - edit.span.len().cast_signed();
        let end = to.saturating_add_signed(grown);
        let parts = (old.part(from..to), new.part(begin..end));
        let _ = writeln!(diff, "-…{}…\n+…{}…", clean(&parts.0), clean(&parts.1));
    }
}
