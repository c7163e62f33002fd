//! Columns of rows, as wide as the screen, and the formats of numbers in them.

use super::super::format::clean;
use super::model::Status;
use super::row::{Key, Row, Tone};

/// Width of a progress bar.
const BAR: usize = 10;
/// Columns from which a row has the usage and the arguments of its job; a narrower screen has them
/// on a line below it.
const WIDE: usize = 120;
/// Columns where there is no terminal.
const NO_SCREEN: usize = 100;
/// Columns of all but the tool and the user: `JOB`, `STARTED` and their gaps.
const FIXED: usize = 8 + 1 + 1 + 1 + 9 + 2;
/// Columns of the CPU and the memory, with their gaps.
const USAGE: usize = 5 + 1 + 6 + 2;

/// Widths of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Layout {
    /// Columns of the screen.
    pub(super) width: usize,
    pub(super) is_wide: bool,
    tool: usize,
    user: usize,
    arguments: usize,
}

impl Layout {
    /// The layout of a status on a screen of so many columns; `None` where output goes elsewhere.
    pub(super) fn of(status: &Status, width: Option<usize>) -> Self {
        let width = width.unwrap_or(NO_SCREEN);
        if width < WIDE {
            return Self { width, is_wide: false, tool: 12, user: 10, arguments: 0 };
        }
        let longest = |texts: &mut dyn Iterator<Item = &str>, least: usize, most: usize| {
            texts.map(|text| text.chars().count()).max().unwrap_or_default().clamp(least, most)
        };
        let (jobs, tasks) = (&status.jobs, &status.task_list);
        let mut tools =
            jobs.iter().map(|job| &*job.tool).chain(tasks.iter().map(|task| &*task.tool));
        let mut users = jobs
            .iter()
            .map(|job| &*job.identity)
            .chain(tasks.iter().map(|task| &*task.identity))
            .chain(status.peers.iter().map(|peer| &*peer.identity));
        let (tool, user) = (longest(&mut tools, 12, 24), longest(&mut users, 10, 20));
        let rest = width.saturating_sub(FIXED + tool + user + USAGE);
        let mut arguments = jobs.iter().filter_map(|job| job.work.arguments.as_deref());
        let arguments = longest(&mut arguments, 9, rest / 2);
        Self { width, is_wide: true, tool, user, arguments }
    }

    /// A line of five columns; the last one is not limited.
    pub(super) fn line(
        &self,
        id: &str,
        what: &str,
        user: &str,
        since: &str,
        state: &str,
    ) -> String {
        let [id, what, user, state] = [id, what, user, state].map(clean);
        let (what, user) = (short(&what, self.tool), short(&user, self.user));
        let (tool_width, user_width) = (self.tool, self.user);
        format!("{id:>8} {what:<tool_width$} {user:<user_width$} {since:>9}  {state}")
            .trim_end()
            .to_owned()
    }

    /// A line for a job of a wide screen, with its CPU, memory and arguments.
    pub(super) fn job_line(&self, columns: [&str; 4], usage: [&str; 3], state: &str) -> String {
        let [id, what, user, since] = columns;
        let [cpu, memory, arguments] = usage;
        let arguments = short(&clean(arguments), self.arguments);
        let width = self.arguments;
        let rest = format!("{cpu:>5} {memory:>6}  {arguments:<width$}  {}", clean(state));
        self.line(id, what, user, since, &rest)
    }

    /// A line of secondary information below a row, cut at the end of the screen.
    pub(super) fn below(&self, text: &str) -> Row {
        let text = short(&clean(&format!("{:9}{text}", "")), self.width.max(10));
        Row { key: None, tone: Tone::Quiet, text }
    }

    /// The heading of a list.
    pub(super) fn heading(&self, names: [&str; 4], state: &str) -> Row {
        let [id, what, user, since] = names;
        Row { key: None, tone: Tone::Heading, text: self.line(id, what, user, since, state) }
    }

    /// The heading of the list of jobs.
    pub(super) fn job_heading(&self) -> Row {
        let names = ["JOB", "TOOL", "USER", "STARTED"];
        if !self.is_wide {
            return self.heading(names, "STATE");
        }
        let text = self.job_line(names, ["CPU", "MEMORY", "ARGUMENTS"], "STATE");
        Row { key: None, tone: Tone::Heading, text }
    }

    /// A row of an entry.
    pub(super) fn row(&self, key: Key, tone: Tone, columns: [&str; 4], state: &str) -> Row {
        let [id, what, user, since] = columns;
        Row { key: Some(key), tone, text: self.line(id, what, user, since, state) }
    }
}

/// Truncates to a number of characters.
pub(super) fn short(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

pub(super) fn bar(done: f64, total: f64) -> String {
    let share = if total > 0.0 { (done / total).clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * BAR as f64).round() as usize;
    format!("[{}{}] {:.0}%", "#".repeat(full), "-".repeat(BAR - full.min(BAR)), share * 100.0)
}

/// Formats a duration in two units.
pub(in crate::cli) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Formats an elapsed time.
pub(super) fn ago(millis: u64) -> String {
    format!("{} ago", span(millis))
}

pub(super) fn millis(millis: f64) -> String {
    if millis < 1000.0 { format!("{millis:.0}ms") } else { format!("{:.1}s", millis / 1e3) }
}

/// Formats a number of bytes in four characters or five.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or_default();
    if value < 9.95 && unit != "K" {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// A number that may be unknown.
pub(super) fn known(number: Option<u64>) -> String {
    number.map_or(String::from("unknown"), |number| number.to_string())
}
