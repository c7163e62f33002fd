//! `ceased status`: the state of the daemon on one screen.

use super::args::ListArgs;
use super::format::{self, clean};
use super::table::{has_colours, paint, width};
use super::view::{Tone, Trees};
use super::{Backend, Exit, Failure, Io, discover, ps};

/// Lines of jobs and receipts that are shown.
const ROWS_MAX: usize = 12;

/// Runs the command.
pub(super) fn status(
    args: &ListArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let raw = ps::status(&mut session.client)?;
    if args.json {
        format::raw(raw.get(), io)?;
        return Ok(Exit::Done);
    }
    let status = ps::read(&raw, &args.daemon)?;
    let colours = has_colours(io);
    for (tone, name, text) in status.overview() {
        let label = if name.is_empty() { String::new() } else { format!("{name:<13}") };
        write!(io.out, "{label}")?;
        paint(io.out, &clean(&text), tone, colours)?;
        writeln!(io.out)?;
    }
    let rows = status.running_rows(Trees::Of(None), width(io));
    let more = rows.len().saturating_sub(ROWS_MAX);
    writeln!(io.out)?;
    for row in rows.iter().take(ROWS_MAX) {
        paint(io.out, &row.text, row.tone, colours)?;
        writeln!(io.out)?;
    }
    if more > 0 {
        paint(io.out, &format!("… {more} more lines; `ceased ps` has them"), Tone::Quiet, colours)?;
        writeln!(io.out)?;
    }
    Ok(Exit::Done)
}
