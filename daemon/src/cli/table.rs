//! Tables with a heading, coloured where the terminal has colours, as wide as the terminal at most.

use std::borrow::Cow;
use std::io::{self, Write};

use super::Io;
use super::format::clean;
use super::view::Tone;

/// One cell of a table.
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell of this text, cleaned when it is printed.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    /// A cell that its colour sets apart.
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

/// Rows below a heading.
pub(super) struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Prints the heading and the rows; nothing of a table without rows. On a terminal the last
    /// column ends where the terminal does.
    pub(super) fn print(&self, io: &mut Io<'_>) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let (colours, room) = (has_colours(io), width(io));
        let heading: Vec<Cell> =
            self.heading.iter().map(|name| Cell::toned(*name, Tone::Heading)).collect();
        let rows: Vec<&Vec<Cell>> = std::iter::once(&heading).chain(&self.rows).collect();
        let mut widths = vec![0; self.heading.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row.iter()) {
                *width = (*width).max(clean(&cell.text).chars().count());
            }
        }
        rows.into_iter().try_for_each(|row| line(io.out, row, &widths, room, colours))
    }
}

fn line(
    out: &mut dyn Write,
    row: &[Cell],
    widths: &[usize],
    room: Option<usize>,
    colours: bool,
) -> io::Result<()> {
    let mut used = 0;
    let mut gap = 0;
    for (cell, width) in row.iter().zip(widths) {
        let text = clean(&cell.text);
        if text.is_empty() {
            gap += width + 2;
            continue;
        }
        out.write_all(" ".repeat(gap).as_bytes())?;
        used += gap;
        let text = match room {
            Some(room) => cut(&text, room.saturating_sub(used)),
            None => text,
        };
        let length = text.chars().count();
        paint(out, &text, cell.tone, colours)?;
        used += length;
        gap = width.saturating_sub(length) + 2;
    }
    writeln!(out)
}

/// At most this many characters, the last one a mark where more follow.
pub(super) fn cut(text: &str, room: usize) -> Cow<'_, str> {
    if text.chars().count() <= room {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    Cow::Owned(if room == 0 { kept } else { kept + "…" })
}

/// Writes a text in the colour of its tone.
pub(super) fn paint(out: &mut dyn Write, text: &str, tone: Tone, colours: bool) -> io::Result<()> {
    let code = match tone {
        Tone::Heading => "1",
        Tone::Pending => "33",
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Quiet => "2",
        Tone::Plain => "",
    };
    if colours && !code.is_empty() {
        write!(out, "\x1b[{code}m{text}\x1b[0m")
    } else {
        write!(out, "{text}")
    }
}

/// Whether standard output is a terminal that shows colours and its user has not refused them.
pub(super) fn has_colours(io: &Io<'_>) -> bool {
    io.out_is_terminal && io.env.colours
}

/// Columns of the terminal; `None` where output goes elsewhere.
pub(super) fn width(io: &Io<'_>) -> Option<usize> {
    let size = io.out_is_terminal.then(|| rustix::termios::tcgetwinsize(io.output).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The tone of the state of a task.
pub(super) fn tone_of(state: &str) -> Tone {
    match state {
        "completed" => Tone::Good,
        "failed" => Tone::Bad,
        "input_required" => Tone::Pending,
        "cancelled" => Tone::Quiet,
        _ => Tone::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(room: Option<usize>, colours: bool) -> String {
        let mut out = Vec::new();
        let rows = [
            [Cell::new("é"), Cell::new("")],
            [Cell::new("a"), Cell::toned("failed\x07", Tone::Bad)],
        ];
        for row in &rows {
            line(&mut out, row, &[4, 10], room, colours).expect("a buffer");
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn cells_are_cleaned_aligned_and_cut() {
        assert_eq!(printed(None, false), "é\na     failed\\u{7}\n");
        assert_eq!(printed(Some(10), false), "é\na     fai…\n");
        assert_eq!(printed(None, true), "é\na     \x1b[31mfailed\\u{7}\x1b[0m\n");
    }
}
