//! State of `ceased top`, and the effect of keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::format::clean;
use super::super::view::{Key, Row, Sort, Status, Trees};

/// Maximum length of a filter.
const FILTER_MAX: usize = 40;

/// Action requested by a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    /// Redraw.
    Nothing,
    /// Exit.
    Leave,
    /// Cancel this job, or this task of another node.
    Cancel(Key),
}

/// Meaning of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// Navigation and commands.
    #[default]
    Browse,
    /// Editing of the filter.
    Filter,
    /// Confirmation of cancelling a job, or a task of another node.
    Confirm(Key),
}

/// State of the view.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) status: Status,
    pub(super) rows: Vec<Row>,
    pub(super) mode: Mode,
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) selected: Option<Key>,
    pub(super) inspects: bool,
    pub(super) message: Option<String>,
    /// The first visible row.
    pub(super) scroll: usize,
    /// Columns of the screen.
    pub(super) width: usize,
    /// Rows that fit; a page key moves by as many.
    pub(super) height: usize,
}

impl State {
    /// Replaces the status. The selection stays; if its entry is gone, its neighbour is selected.
    pub(super) fn show(&mut self, status: Status) {
        self.status = status;
        self.list();
    }

    fn list(&mut self) {
        let before = self.position();
        self.arrange();
        if self.position().is_none() {
            let near = before.unwrap_or(0).min(self.rows.len().saturating_sub(1));
            let (above, below) = self.rows.split_at(near);
            let next = below.iter().chain(above.iter().rev()).find_map(|row| row.key.clone());
            self.selected = next;
            self.arrange();
        }
    }

    /// Lays the rows out for a screen of so many columns.
    pub(super) fn fit(&mut self, width: usize) {
        if self.width != width {
            self.width = width;
            self.arrange();
        }
    }

    fn arrange(&mut self) {
        let trees = Trees::Of(self.selected.as_ref());
        self.rows = self.status.rows(&self.filter, self.sort, trees, Some(self.width));
    }

    /// Index of the selected row.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows.iter().position(|row| row.key.as_ref() == Some(selected))
    }

    /// Shows a message until the next key.
    pub(super) fn say(&mut self, message: &str) {
        self.message = Some(clean(message).into_owned());
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyAction {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') {
                KeyAction::Leave
            } else {
                KeyAction::Nothing
            };
        }
        match std::mem::take(&mut self.mode) {
            Mode::Browse => return self.command(key.code),
            Mode::Filter => {
                self.mode = Mode::Filter;
                self.edit(key.code);
            }
            Mode::Confirm(chosen) => {
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    return KeyAction::Cancel(chosen);
                }
                self.say("not cancelled");
            }
        }
        KeyAction::Nothing
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "other keys have no effect")]
    fn command(&mut self, key: KeyCode) -> KeyAction {
        match key {
            KeyCode::Char('q') => return KeyAction::Leave,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.page(false),
            KeyCode::PageDown => self.page(true),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Enter | KeyCode::Char('i') => self.inspects = !self.inspects,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.list();
            }
            KeyCode::Char('c') => self.ask_to_cancel(),
            KeyCode::Esc if self.inspects => self.inspects = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.list();
            }
            _ => {}
        }
        KeyAction::Nothing
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "other keys have no effect")]
    fn edit(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::Browse,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Browse;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(character);
            }
            _ => {}
        }
        self.list();
    }

    /// Selects the last entry within one screen of the selected one, or the first on the way up.
    fn page(&mut self, down: bool) {
        let rows = self.height.saturating_sub(1).max(1);
        let at = self.position().unwrap_or_default();
        let last = self.rows.len().saturating_sub(1);
        let to = if down { (at + rows).min(last) } else { at.saturating_sub(rows) };
        let key = |row: &Row| row.key.clone();
        let entries = if down {
            self.rows.get(at + 1..=to).unwrap_or_default().iter().rev().find_map(key)
        } else {
            self.rows.get(to..at).unwrap_or_default().iter().find_map(key)
        };
        match entries {
            Some(found) => {
                self.selected = Some(found);
                self.arrange();
            }
            // Between two entries there may be more than a screen of processes.
            None => self.step(if down { 1 } else { -1 }),
        }
    }

    /// Selects the row that is so many selectable ones away, or the last on the way.
    fn step(&mut self, by: isize) {
        let keys: Vec<&Key> = self.rows.iter().filter_map(|row| row.key.as_ref()).collect();
        let at = keys.iter().position(|key| Some(*key) == self.selected.as_ref()).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(keys.len().saturating_sub(1));
        self.selected = keys.get(to).map(|key| (*key).clone());
        self.arrange();
    }

    fn ask_to_cancel(&mut self) {
        let chosen = match &self.selected {
            Some(Key::Job(job)) => Ok(Key::Job(*job)),
            Some(Key::Task(id)) => {
                let task = self.status.task_list.iter().find(|task| task.task == *id);
                match task.map(|task| (task.job, task.is_live() && task.node.is_some())) {
                    Some((Some(job), _)) => Ok(Key::Job(job)),
                    Some((None, true)) => Ok(Key::Task(id.clone())),
                    Some((None, false)) | None => Err("this task has no running job"),
                }
            }
            Some(Key::Connection(_)) => Err("a connection cannot be cancelled; choose a job"),
            Some(Key::Receipt(_)) => Err("this job has already ended"),
            Some(Key::Instance(_)) => {
                Err("choose a job or turn; `ceased restart` replaces instances")
            }
            None => Err("no row is selected"),
        };
        match chosen {
            Ok(Key::Job(job)) if self.is_cancelling(job) => {
                self.say("the job is already being cancelled");
            }
            Ok(chosen) => self.mode = Mode::Confirm(chosen),
            Err(why) => self.say(why),
        }
    }

    fn is_cancelling(&self, job: u64) -> bool {
        self.status.jobs.iter().any(|known| known.job == job && known.state == "cancelling")
            || self.status.is_agent_request_cancelling(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state() -> State {
        let status = json!({
            "jobs": [
                {"job": 1, "tool": "count", "identity": "uid:7", "state": "running"},
                {"job": 2, "tool": "tree", "identity": "uid:7", "state": "cancelling"},
                {"job": 3, "tool": "echo", "identity": "uid:8", "state": "running"}
            ],
            "taskList": [
                {"task": "far", "tool": "count", "status": "working", "node": "b", "ageMs": 1},
                {"task": "over", "tool": "count", "status": "completed", "node": "b", "ageMs": 2}
            ]
        });
        let mut state = State::default();
        state.show(serde_json::from_value(status).expect("a status"));
        state
    }

    fn press(state: &mut State, keys: &str) -> KeyAction {
        let mut wish = KeyAction::Nothing;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                other => KeyCode::Char(other),
            };
            wish = state.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        wish
    }

    /// Cancelling jobs are first; a cancel needs confirmation, and is rejected for other entries.
    #[test]
    fn cancel_needs_confirmation() {
        let mut state = state();
        assert_eq!(state.selected, Some(Key::Job(2)));
        assert_eq!(press(&mut state, "c"), KeyAction::Nothing);
        assert!(state.message.as_deref().is_some_and(|said| said.contains("already")));
        assert_eq!(press(&mut state, "jc"), KeyAction::Nothing);
        assert_eq!(state.mode, Mode::Confirm(Key::Job(1)));
        assert_eq!(press(&mut state, "n"), KeyAction::Nothing);
        assert_eq!(press(&mut state, "cy"), KeyAction::Cancel(Key::Job(1)));
        let far = Key::Task("far".to_owned());
        assert_eq!(press(&mut state, "Gkcy"), KeyAction::Cancel(far), "at another node");
        assert_eq!(press(&mut state, "Gc"), KeyAction::Nothing);
        assert!(state.message.as_deref().is_some_and(|said| said.contains("no running job")));
    }

    #[test]
    fn filter_selects_rows_and_escape_clears_it() {
        let mut state = state();
        press(&mut state, "/echq\u{8}o");
        assert_eq!((state.filter.as_str(), &state.mode), ("echo", &Mode::Filter));
        assert_eq!(state.selected, Some(Key::Job(3)), "what is left is selected");
        press(&mut state, "\n");
        assert_eq!(state.mode, Mode::Browse);
        press(&mut state, "\u{1b}");
        assert_eq!(state.filter, "");
        assert_eq!(press(&mut state, "q"), KeyAction::Leave);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(control_c), KeyAction::Leave);
    }

    /// The selection stays while entries change; if its entry is gone, another one is selected.
    #[test]
    fn selection_stays_while_entries_change() {
        let mut state = state();
        press(&mut state, "jj");
        assert_eq!(state.selected, Some(Key::Job(3)));
        let mut status = state.status.clone();
        status.jobs.remove(0);
        state.show(status.clone());
        assert_eq!(state.selected, Some(Key::Job(3)));
        status.jobs.retain(|job| job.job != 3);
        state.show(status);
        assert!(state.selected.is_some());
        state.show(Status::default());
        assert_eq!(state.selected, None);
        press(&mut state, "jkGgci");
    }
}
