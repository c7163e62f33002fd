//! Display of a running call: a bar on a terminal, lines elsewhere.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Io;
use super::format::clean;
use ceased_client::{CallId, Log, Notification, Progress, Task, TaskStatus};

/// Resolution of the bar: progress values have an arbitrary unit.
const STEPS: f64 = 1000.0;

/// The command cannot read answers from the user.
const WANTS_INPUT: &str = "input_required: the tool requests input; another client of yours that supports \
                           that and waits for this task can answer, or Ctrl-C cancels it";

/// Shows the notifications of one call.
pub(super) struct Display<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    call: CallId,
    task: Option<&'a str>,
    bar: Option<ProgressBar>,
    /// The server reports progress, which the bar shows.
    has_progress: bool,
}

impl<'a> Display<'a> {
    /// For `call`, and for the task it created.
    pub(super) fn new(io: &'a mut Io<'_>, call: CallId, task: Option<&'a str>) -> Self {
        let bar = io.err_is_terminal.then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(STEPS as u64), ProgressDrawTarget::stderr());
            bar.set_style(style("{spinner} {wide_msg}"));
            bar
        });
        Self { out: &mut *io.out, err: &mut *io.err, call, task, bar, has_progress: false }
    }

    /// Shows `note` if it belongs to this call.
    pub(super) fn show(&mut self, note: &Notification) {
        match note {
            Notification::Progress(progress) if progress.call == self.call => {
                self.progress(progress);
            }
            Notification::Log(log) => self.line(&log_line(log)),
            Notification::Task(task) if Some(task.id.as_str()) == self.task => {
                self.task(task);
            }
            Notification::Progress(_) | Notification::Task(_) | Notification::Other { .. } => {}
        }
    }

    fn task(&mut self, task: &Task) {
        let message = task.message.as_deref().map(clean);
        match (task.status, message) {
            (status, Some(message)) if !status.is_terminal() => {
                self.line(&format!("{status}: {message}"));
            }
            (TaskStatus::InputRequired, None) => self.line(WANTS_INPUT),
            (
                TaskStatus::Working
                | TaskStatus::InputRequired
                | TaskStatus::Completed
                | TaskStatus::Failed
                | TaskStatus::Cancelled,
                _,
            ) => {}
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let text = progress_text(progress);
        self.has_progress = true;
        let Some(bar) = &self.bar else {
            self.line(&format!("progress {text}"));
            return;
        };
        match progress.total {
            Some(total) if total > 0.0 => {
                bar.set_style(style("{spinner} [{bar:30}] {wide_msg}"));
                // Saturates, and converts NaN to zero.
                bar.set_position(((progress.done / total).min(1.0) * STEPS) as u64);
            }
            Some(_) | None => {
                bar.set_style(style("{spinner} {wide_msg}"));
                bar.tick();
            }
        }
        bar.set_message(text);
    }

    /// Shows the time of a call whose server has reported no progress yet.
    pub(super) fn tick(&mut self, elapsed: Duration) {
        if let (Some(bar), false) = (&self.bar, self.has_progress) {
            bar.set_message(format!("running for {} s", elapsed.as_secs()));
            bar.tick();
        }
    }

    /// Prints lines of output above the bar: to standard output if they are the result.
    pub(super) fn output(&mut self, lines: &str, is_result: bool) {
        let out = if is_result { &mut self.out } else { &mut self.err };
        let end = if lines.ends_with('\n') { "" } else { "\n" };
        // Ignored: a closed stream does not end a call here.
        let mut write = || {
            let _ = write!(out, "{lines}{end}").and_then(|()| out.flush());
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn line(&mut self, line: &str) {
        let err = &mut self.err;
        // Ignored: a closed stderr does not end a call.
        let mut write = || {
            let _ = writeln!(err, "{line}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Display<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("our templates are well-formed")
}

/// Formats progress as `3/10 message`.
fn progress_text(progress: &Progress) -> String {
    let mut text = progress.done.to_string();
    if let Some(total) = progress.total {
        text = format!("{text}/{total}");
    }
    if let Some(message) = &progress.message {
        text = format!("{text} {}", clean(message));
    }
    text
}

fn log_line(log: &Log) -> String {
    let text = match log.data.as_str() {
        Some(text) => clean(text).into_owned(),
        None => clean(&log.data.to_string()).into_owned(),
    };
    let level = clean(&log.level);
    match &log.logger {
        Some(logger) => format!("[{level}] {}: {text}", clean(logger)),
        None => format!("[{level}] {text}"),
    }
}
