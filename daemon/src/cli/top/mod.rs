//! `ceased top`: live view of running jobs with owner, age and cancel state.
//!
//! It polls the daemon once a second and otherwise waits for keys. The terminal is restored on
//! exit, also after a panic or a signal.

mod screen;
mod state;

use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::json;

use super::args::{DaemonArgs, TopArgs};
use super::view::Key;
use super::{Backend, Exit, Failure, Io, discover, ps};
use ceased_client::{Client, Error, Interrupts};
use screen::Theme;
use state::{KeyAction, State};

/// Default refresh interval.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum delay of handling a signal.
const SIGNAL_WITHIN: Duration = Duration::from_millis(250);
/// Reason sent with cancels.
const REASON: &str = "ceased top";

/// Runs the command.
pub(super) fn top(args: &TopArgs, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    if !io.out_is_terminal {
        let message = "ceased top needs a terminal\nuse ceased ps to print the list once";
        return Err(Failure::new(Exit::Usage, message));
    }
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let every = args.every.unwrap_or(LOOK_EVERY).max(Duration::from_millis(100));
    let mut terminal = Terminal::take_over()?;
    let theme = Theme::of(io.env.colours);
    let (client, state, daemon) = (&mut session.client, State::default(), &args.daemon);
    let mut top = Top { client, daemon, state, theme, every };
    top.run(&mut terminal.0)
}

/// The terminal in raw mode, restored on drop.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn take_over() -> Result<Self, Failure> {
        ratatui::try_init()
            .map(Self)
            .map_err(|why| Failure::new(Exit::Failed, format!("cannot use the terminal: {why}")))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

struct Top<'a> {
    client: &'a mut Client,
    daemon: &'a DaemonArgs,
    state: State,
    theme: Theme,
    every: Duration,
}

impl Top<'_> {
    fn run(&mut self, terminal: &mut DefaultTerminal) -> Result<Exit, Failure> {
        let failed = |why| Failure::new(Exit::Failed, format!("cannot use the terminal: {why}"));
        let mut look_at = Instant::now();
        loop {
            if look_at <= Instant::now() {
                let raw = match ps::status(self.client) {
                    Ok(raw) => raw,
                    Err(Failure { exit: Exit::Cancelled, .. }) => return Ok(Exit::Done),
                    Err(failure) => return Err(failure),
                };
                self.state.show(ps::read(&raw, self.daemon)?);
                look_at = Instant::now() + self.every;
            }
            terminal
                .draw(|frame| screen::draw(frame, &mut self.state, self.theme))
                .map_err(failed)?;
            // Redraw only after a change.
            loop {
                if self.client.interrupts().is_some_and(Interrupts::take) {
                    return Ok(Exit::Done);
                }
                let left = look_at.saturating_duration_since(Instant::now());
                if event::poll(left.min(SIGNAL_WITHIN)).map_err(failed)? {
                    match self.take(&event::read().map_err(failed)?)? {
                        KeyAction::Nothing => break,
                        KeyAction::Leave => return Ok(Exit::Done),
                        KeyAction::Cancel(chosen) => {
                            self.cancel(&chosen)?;
                            look_at = Instant::now();
                            break;
                        }
                    }
                }
                if look_at <= Instant::now() {
                    break;
                }
            }
        }
    }

    fn take(&mut self, event: &Event) -> Result<KeyAction, Failure> {
        Ok(match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.state.press(*key),
            Event::Key(_)
            | Event::Resize(..)
            | Event::FocusGained
            | Event::FocusLost
            | Event::Mouse(_)
            | Event::Paste(_) => KeyAction::Nothing,
        })
    }

    fn cancel(&mut self, chosen: &Key) -> Result<(), Failure> {
        let cancelled = match chosen {
            Key::Job(job) => {
                let params = json!({"job": job, "reason": REASON});
                self.client.call("ceased/cancel", params).map(|_| {
                    format!("stopping job {job}; it has ended when it is listed under CEASED")
                })
            }
            Key::Task(id) => self.client.cancel_task(id, Some(REASON)).map(|task| {
                format!("task {} is {}; its node stops its work", task.id, task.status)
            }),
            Key::Connection(_) | Key::Instance(_) | Key::Receipt(_) => return Ok(()),
        };
        let said = match cancelled {
            Ok(said) => said,
            Err(Error::Rpc(error)) if matches!(chosen, Key::Task(_)) => {
                format!("{}; its owner can cancel it here, an operator at its node", error.message)
            }
            // The job has ended meanwhile, or the daemon is an older version.
            Err(Error::Rpc(error)) => error.message,
            Err(error) => return Err(error.into()),
        };
        self.state.say(&said);
        Ok(())
    }
}
