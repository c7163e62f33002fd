//! Rendering of `ceased top`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::super::format::clean;
use super::super::view::{Row, Tone};
use super::state::{Mode, State};

/// Lines of the details pane, including its border.
const DETAILS: u16 = 11;

/// Styles, with or without colours; colours carry no information of their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    coloured: bool,
}

impl Theme {
    pub(super) const fn of(coloured: bool) -> Self {
        Self { coloured }
    }

    fn style(self, tone: Tone) -> Style {
        let (color, modifier) = match tone {
            Tone::Heading => (None, Modifier::BOLD | Modifier::UNDERLINED),
            Tone::Plain => (None, Modifier::empty()),
            Tone::Pending => (Some(Color::Yellow), Modifier::BOLD),
            Tone::Good => (Some(Color::Green), Modifier::empty()),
            Tone::Bad => (Some(Color::Red), Modifier::BOLD),
            Tone::Quiet => (None, Modifier::DIM),
        };
        let style = Style::new().add_modifier(modifier);
        match color.filter(|_| self.coloured) {
            Some(color) => style.fg(color),
            None => style,
        }
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, theme: Theme) {
    state.fit(usize::from(frame.area().width));
    let details = if state.inspects { DETAILS.min(frame.area().height / 2) } else { 0 };
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(1),
        Constraint::Length(details),
        Constraint::Length(1),
    ])
    .split(frame.area());
    let [summary, list, pane, bottom] = *areas else { return };
    let lines = state.status.summary().map(|(tone, text)| Line::styled(text, theme.style(tone)));
    frame.render_widget(Paragraph::new(lines.to_vec()), summary);
    draw_list(frame, list, state, theme);
    if details > 0 {
        draw_details(frame, pane, state);
    }
    frame.render_widget(Paragraph::new(bottom_line(state, theme)), bottom);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, state: &mut State, theme: Theme) {
    // A list that does not fit says so in its last line.
    let fits = state.rows.len() <= usize::from(area.height);
    let height = usize::from(area.height) - usize::from(!fits && area.height > 1);
    state.height = height;
    let at = state.position();
    if let Some(at) = at {
        // Keep the heading above the first row and the tree below the last one visible.
        let first = if at <= 1 { 0 } else { at };
        state.scroll = state.scroll.min(first).max((at + 1).saturating_sub(height));
    }
    state.scroll = state.scroll.min(state.rows.len().saturating_sub(height));
    let shown = state.rows.iter().enumerate().skip(state.scroll).take(height);
    let mut lines: Vec<Line<'_>> =
        shown.map(|(row, it)| line(it, at == Some(row), theme)).collect();
    if !fits && area.height > 1 {
        let below = state.rows.len().saturating_sub(state.scroll + height);
        let more =
            format!("{:9}{} more above, {below} more below (PageUp, PageDown)", "", state.scroll);
        lines.push(Line::styled(more, theme.style(Tone::Quiet)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn line(row: &Row, is_selected: bool, theme: Theme) -> Line<'_> {
    let style = theme.style(row.tone);
    if is_selected {
        // The mark shows the selection on terminals without reverse video.
        let text = row.text.strip_prefix(' ').unwrap_or(&row.text);
        let mark = if text.len() < row.text.len() { ">" } else { "" };
        let style = style.add_modifier(Modifier::REVERSED);
        return Line::from(vec![Span::styled(mark, style), Span::styled(text, style)]);
    }
    Line::styled(row.text.as_str(), style)
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let block = Block::new().borders(Borders::TOP).title(" details ");
    let details = match &state.selected {
        Some(key) => state.status.details(key),
        None => vec!["no row is selected".into()],
    };
    let lines: Vec<Line<'_>> =
        details.iter().map(|line| Line::raw(clean(line).into_owned())).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn bottom_line(state: &State, theme: Theme) -> Line<'static> {
    let urgent = theme.style(Tone::Pending);
    match (&state.mode, &state.message) {
        (Mode::Confirm(chosen), _) => {
            let (named, subject) = state.status.named(chosen);
            let (tool, whose) = subject.unwrap_or(("?", "?"));
            let (tool, whose) = (clean(tool), clean(whose));
            Line::styled(format!("cancel {named} ({tool}, for {whose})? y: yes, else no"), urgent)
        }
        (Mode::Filter, _) => {
            Line::raw(format!("filter: {}_  (Enter: apply, Esc: clear)", clean(&state.filter)))
        }
        (Mode::Browse, Some(message)) => Line::styled(message.clone(), urgent),
        (Mode::Browse, None) => {
            let filter = match state.filter.as_str() {
                "" => String::new(),
                filter => format!("  filter: {}", clean(filter)),
            };
            let keys = "q quit  c cancel  i inspect  / filter  s sort";
            Line::raw(format!("{keys} ({}){filter}", state.sort.name()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn drawn(state: &mut State, width: u16, height: u16, theme: Theme) -> (Vec<String>, bool) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, state, theme)).expect("it can be drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let coloured = buffer.content.iter().any(|cell| cell.fg != Color::Reset);
        ((0..height).map(line).map(|line| line.trim_end().to_owned()).collect(), coloured)
    }

    fn many() -> State {
        let job = |n: u64| {
            json!({"job": n, "tool": "a_tool_with_a_very_long_name", "identity": "uid:1000",
                "state": "cancelling", "step": "SIGKILL", "said": "long ".repeat(50)})
        };
        let jobs: Vec<_> = (1..100).map(job).collect();
        let mut state = State::default();
        state.show(serde_json::from_value(json!({"jobs": jobs})).expect("a status"));
        state
    }

    /// CAN-13: every size is drawn, with and without colours, and the selection is visible.
    #[test]
    fn every_size_is_drawn() {
        let mut state = many();
        for (width, height) in [(80, 24), (200, 60), (40, 10), (10, 5), (3, 2), (1, 1)] {
            for selected in [1, 50, 99, 2] {
                state.selected = Some(super::super::super::view::Key::Job(selected));
                for inspects in [false, true] {
                    state.inspects = inspects;
                    let (lines, coloured) = drawn(&mut state, width, height, Theme::of(false));
                    assert!(!coloured);
                    if (width, height) == (80, 24) {
                        let at = lines.iter().position(|line| line.starts_with('>'));
                        let text = at.map(|at| lines[at].as_str()).unwrap_or_default();
                        assert!(text.contains(&format!(" {selected} a_tool_with…")), "{lines:?}");
                    }
                }
            }
        }
        assert!(drawn(&mut state, 80, 24, Theme::of(true)).1);
    }
}
