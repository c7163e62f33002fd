//! Times of the parts of a stream, from which its output since a time is found.

use std::time::{Duration, Instant};

/// Parts of one stream at most; where there are more, two neighbours become one.
const PARTS_MAX: usize = 48;
/// Shortest time from the begin of a part to that of the next one.
const INTERVAL: Duration = Duration::from_millis(250);

/// The parts of a stream with their times: the older a part, the longer it is.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Part>);

#[derive(Debug, Clone, Copy)]
struct Part {
    /// When its first bytes came.
    first: Instant,
    /// When its last bytes came.
    last: Instant,
    /// Its place in the stream.
    place: u64,
}

impl Marks {
    /// Bytes come at a place.
    pub(super) fn note(&mut self, now: Instant, place: u64) {
        if let Some(part) = self.0.last_mut()
            && now.saturating_duration_since(part.first) < INTERVAL
        {
            part.last = now;
            return;
        }
        self.0.push(Part { first: now, last: now, place });
        if self.0.len() > PARTS_MAX {
            self.join(now);
        }
    }

    /// Joins the two neighbours that together are shortest for their age.
    fn join(&mut self, now: Instant) {
        let length = |pair: &[Part]| match pair {
            [earlier, later] => {
                let together = later.last.saturating_duration_since(earlier.first);
                let age = now.saturating_duration_since(later.last) + INTERVAL;
                together.as_secs_f64() / age.as_secs_f64()
            }
            _ => f64::INFINITY,
        };
        let lengths = self.0.windows(2).map(length).enumerate();
        let shortest = lengths.min_by(|(_, one), (_, other)| one.total_cmp(other));
        let Some((at, _)) = shortest.filter(|(at, _)| at + 1 < self.0.len()) else { return };
        let later = self.0.remove(at + 1);
        if let Some(earlier) = self.0.get_mut(at) {
            earlier.last = later.last;
        }
    }

    /// The place of the first byte that came since a time, of a stream of this length. Earlier bytes
    /// of the same part are included.
    pub(super) fn since(&self, time: Instant, total: u64) -> u64 {
        self.0.iter().find(|part| part.last >= time).map_or(total, |part| part.place)
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
        let place = |second: u64| (second - 3600) * 10 + 5;
        for second in 3600..90_000 {
            marks.note(at(second), place(second));
            if second == 3700 {
                let found = marks.since(at(3000), place(3701));
                assert_eq!(found, 5, "nothing of the time before the silence");
            }
        }
        let total = place(90_000);
        assert!(marks.0.len() <= PARTS_MAX);
        assert_eq!(marks.since(at(100_000), total), total);
        assert_eq!(marks.since(begin, total), 0);
        for age in [1, 60, 600, 7200, 50_000] {
            let found = marks.since(at(90_000 - age), total);
            assert!(found <= place(90_000 - age), "{age}: {found}");
            let too_much = place(90_000 - age) - found;
            assert!(too_much <= (age + 2) * 10, "{age}: {too_much} bytes too much");
        }
    }
}
