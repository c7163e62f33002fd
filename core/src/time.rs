//! Time as the engine sees it: handed in with every event, never asked for.

use alloc::string::String;
use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the host's monotonic clock, in nanoseconds since a zero the host chose.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Instant(u64);

impl Instant {
    /// The host's zero.
    pub const ZERO: Self = Self(0);

    /// The point `nanos` nanoseconds after the host's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the host's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time instead of wrapping.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// A point on the wall clock, in milliseconds since 1970. For stamps, never for timers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Wall(u64);

impl Wall {
    /// The point `millis` milliseconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The stamp as ISO 8601 in UTC with milliseconds, as `createdAt` wants it (TSK-12).
    #[must_use]
    pub fn to_iso8601(self) -> String {
        String::from_utf8_lossy(&self.stamp()).into_owned()
    }

    /// [`Wall::to_iso8601`] as ASCII.
    pub(crate) fn stamp(self) -> Stamp {
        // Days to a civil date by Howard Hinnant's algorithm; years past 9999 are clamped, since
        // ISO 8601 has no agreed form for them.
        let millis = self.0.min(253_402_300_799_999);
        // Both fit into 32 bits, which divide in half the time.
        let (days, ms) = ((millis / 86_400_000) as u32, (millis % 86_400_000) as u32);
        let z = days + 719_468;
        let (era, doe) = (z / 146_097, z % 146_097);
        let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + u32::from(month <= 2);
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, milli) = (ms / 1_000 % 60, ms % 1_000);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, number: u32| {
            text[at..at + 2].copy_from_slice(&PAIRS[number as usize % PAIRS.len()]);
        };
        put(0, year / 100);
        put(2, year % 100);
        put(5, month);
        put(8, day);
        put(11, hour);
        put(14, minute);
        put(17, second);
        put(21, milli % 100);
        text[20] = b'0' + (milli / 100) as u8;
        text
    }
}

/// A point on the wall clock as ASCII: `2025-11-01T00:00:00.000Z`.
pub(crate) type Stamp = [u8; 24];

/// The numbers below a hundred, as two digits each.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

impl Wall {
    /// The time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Wall {
    type Output = Self;

    /// Saturates at the end of time instead of wrapping.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The current time, handed in with every event.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Now {
    /// On the monotonic clock; never goes back.
    pub at: Instant,
    /// On the wall clock; may jump either way.
    pub wall: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso8601_of_known_stamps() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_764_547_200_001, "2025-12-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Wall::from_millis(millis).to_iso8601(), text);
        }
    }

    #[test]
    fn instants_saturate() {
        let late = Instant::from_nanos(u64::MAX - 1) + Duration::from_secs(1);
        assert_eq!(late.as_nanos(), u64::MAX);
        assert_eq!(Instant::ZERO - late, Duration::ZERO);
    }
}
