//! Date of responses: the wall clock of the host as an HTTP date.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ceased_core::time::Wall;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The `Date` of responses, in the form IMF-fixdate (RFC 9110, 5.6.7), shared by connections.
///
/// The host owns the clock and [sets](Self::set) the time; a date that was never set is left out of
/// responses, as of a server without a clock.
#[derive(Debug, Default)]
pub struct HttpDate(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    second: u64,
    /// Empty before the time is set.
    text: String,
}

impl HttpDate {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time. A time of the same second costs a comparison.
    pub fn set(&self, now: Wall) {
        let second = now.as_millis() / 1000;
        let mut written = self.written();
        if written.text.is_empty() || written.second != second {
            *written = Written { second, text: fixdate(now) };
        }
    }

    /// Writes the header.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let written = self.written();
        if !written.text.is_empty() {
            for part in ["date: ", &written.text, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// A time as `Sun, 06 Nov 1994 08:49:37 GMT`; empty for one that the calendar cannot write.
#[must_use]
pub fn fixdate(time: Wall) -> String {
    let iso = time.to_iso8601();
    let part = |from: usize, to: usize| iso.get(from..to).unwrap_or_default();
    let days = usize::try_from(time.as_millis() / 86_400_000).unwrap_or(usize::MAX);
    let month = part(5, 7).parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let month = month.and_then(|at| MONTHS.get(at));
    let (Some(day), Some(month)) = (DAYS.get(days % DAYS.len()), month) else {
        return String::new();
    };
    format!("{day}, {} {month} {} {} GMT", part(8, 10), part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110, 5.6.7.
    #[test]
    fn dates_are_written_as_imf_fixdate() {
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
        ] {
            assert_eq!(fixdate(Wall::from_millis(second * 1000 + 999)), text);
        }
    }

    #[test]
    fn date_without_a_time_is_not_written() {
        let (date, mut out) = (HttpDate::default(), Vec::new());
        date.write(&mut out);
        assert!(out.is_empty());
        date.set(Wall::from_millis(999));
        date.write(&mut out);
        assert_eq!(out, b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
    }
}
