//! Times of places in a stream, from which its output since a time is found.

use std::time::{Duration, Instant};

/// Marks of one stream at most; where there are more, every second one goes.
const MARKS_MAX: usize = 32;
/// Shortest time between two marks.
const INTERVAL: Duration = Duration::from_millis(250);

/// Places in a stream with the times at which it went on there.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Vec<(Instant, u64)>,
    /// Shortest time between two marks, which doubles as the marks become more.
    interval: Duration,
}

impl Marks {
    /// Bytes come at a place.
    pub(super) fn note(&mut self, now: Instant, place: u64) {
        let interval = self.interval.max(INTERVAL);
        if self.marks.last().is_some_and(|(at, _)| now.saturating_duration_since(*at) < interval) {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.interval = interval * 2;
        }
        self.marks.push((now, place));
    }

    /// The place of the first byte that came since a time, of a stream of this length. Bytes of one
    /// interval before it may be included.
    pub(super) fn since(&self, time: Instant, total: u64) -> u64 {
        let interval = self.interval.max(INTERVAL);
        let first = self.marks.iter().find(|(at, _)| *at + interval >= time);
        first.map_or(total, |(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_since_a_time_is_found_whole() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut marks = Marks::default();
        assert_eq!(marks.since(begin, 0), 0);
        marks.note(begin, 0);
        // An hour of silence, then ten bytes a second for a day.
        for second in 3600..90_000 {
            marks.note(at(second), (second - 3600) * 10 + 5);
        }
        let total = 864_005;
        assert!(marks.marks.len() <= MARKS_MAX);
        assert_eq!(marks.since(at(100_000), total), total);
        assert_eq!(marks.since(begin, total), 0);
        let expected = |second: u64| (second - 3600) * 10 + 5;
        for second in [8000_u64, 20_000, 89_990] {
            let found = marks.since(at(second), total);
            assert!(found <= expected(second), "{second}: {found}");
            assert!(found + 10 * 4 * 4096 > expected(second), "{second}: {found}");
        }
        // Nothing of the time before the silence.
        assert_eq!(marks.since(at(3000), total), 5);
    }
}
