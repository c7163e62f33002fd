//! What `ceased top` shows and what its keys do to that.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::format::clean;
use super::super::view::{Key, Row, Sort, Status, Trees};

/// Characters of a filter.
const FILTER_MAX: usize = 40;

/// What a key asks of whoever runs the view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To be drawn again.
    Nothing,
    /// To end.
    Leave,
    /// To cancel this job.
    Cancel(u64),
}

/// What keys mean now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// They move and command.
    #[default]
    Browse,
    /// They make up the filter.
    Filter,
    /// They confirm that a job is to be cancelled.
    Confirm(u64),
}

/// Everything that is shown.
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
    /// The first row that is shown.
    pub(super) scroll: usize,
    /// Rows that fit, which is what a page key moves by.
    pub(super) height: usize,
}

impl State {
    /// Takes in a new status. The selection stays; a selected entry that is gone is followed by its
    /// neighbour.
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

    fn arrange(&mut self) {
        let trees = Trees::Of(self.selected.as_ref());
        self.rows = self.status.rows(&self.filter, self.sort, trees);
    }

    /// Which row is selected.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows.iter().position(|row| row.key.as_ref() == Some(selected))
    }

    /// Something to be read until the next key.
    pub(super) fn say(&mut self, message: &str) {
        self.message = Some(clean(message).into_owned());
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Wish {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Wish::Leave } else { Wish::Nothing };
        }
        match self.mode {
            Mode::Browse => return self.command(key.code),
            Mode::Filter => self.edit(key.code),
            Mode::Confirm(job) => {
                self.mode = Mode::Browse;
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    return Wish::Cancel(job);
                }
                self.say("not cancelled");
            }
        }
        Wish::Nothing
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "there are keys that mean nothing")]
    fn command(&mut self, key: KeyCode) -> Wish {
        match key {
            KeyCode::Char('q') => return Wish::Leave,
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
        Wish::Nothing
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "there are keys that mean nothing")]
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
        let job = match &self.selected {
            Some(Key::Job(job)) => Ok(*job),
            Some(Key::Task(id)) => {
                let task = self.status.task_list.iter().find(|task| task.task == *id);
                task.and_then(|task| task.job).ok_or("nothing of this task runs")
            }
            Some(Key::Connection(_)) => Err("a connection cannot be cancelled; choose a job"),
            Some(Key::Receipt(_)) => Err("this job has ceased already"),
            None => Err("nothing is selected"),
        };
        match job {
            Ok(job) if self.is_cancelling(job) => self.say("it is being cancelled already"),
            Ok(job) => self.mode = Mode::Confirm(job),
            Err(why) => self.say(why),
        }
    }

    fn is_cancelling(&self, job: u64) -> bool {
        self.status.jobs.iter().any(|known| known.job == job && known.state == "cancelling")
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
            "taskList": [{"task": "over", "tool": "count", "status": "completed"}]
        });
        let mut state = State::default();
        state.show(serde_json::from_value(status).expect("a status"));
        state
    }

    fn press(state: &mut State, keys: &str) -> Wish {
        let mut wish = Wish::Nothing;
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

    /// Cancelling jobs come first; a cancel is confirmed, and an entry that needs none says so.
    #[test]
    fn cancelling() {
        let mut state = state();
        assert_eq!(state.selected, Some(Key::Job(2)));
        assert_eq!(press(&mut state, "c"), Wish::Nothing);
        assert!(state.message.as_deref().is_some_and(|said| said.contains("already")));
        assert_eq!(press(&mut state, "jc"), Wish::Nothing);
        assert_eq!(state.mode, Mode::Confirm(1));
        assert_eq!(press(&mut state, "n"), Wish::Nothing);
        assert_eq!(press(&mut state, "cy"), Wish::Cancel(1));
        assert_eq!(press(&mut state, "Gc"), Wish::Nothing);
        assert!(state.message.as_deref().is_some_and(|said| said.contains("nothing of this task")));
    }

    #[test]
    fn filtering_and_leaving() {
        let mut state = state();
        press(&mut state, "/echq\u{8}o");
        assert_eq!((state.filter.as_str(), &state.mode), ("echo", &Mode::Filter));
        assert_eq!(state.selected, Some(Key::Job(3)), "what is left is selected");
        press(&mut state, "\n");
        assert_eq!(state.mode, Mode::Browse);
        press(&mut state, "\u{1b}");
        assert_eq!(state.filter, "");
        assert_eq!(press(&mut state, "q"), Wish::Leave);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(control_c), Wish::Leave);
    }

    /// The selection stays while other entries come and go; a gone entry is followed by another.
    #[test]
    fn the_selection_stays() {
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
