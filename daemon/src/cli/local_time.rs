//! Times of a server in the time zone of the user.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

use super::format::clean;

/// The zone of the user and the present moment, which decides whether a time needs its date.
pub(super) struct LocalTime {
    zone: TimeZone,
    now: Timestamp,
}

impl LocalTime {
    /// The zone of `$TZ` or of the machine; UTC where neither is known.
    pub(super) fn of_user() -> Self {
        Self { zone: TimeZone::system(), now: Timestamp::now() }
    }

    fn zoned(&self, time: Timestamp) -> ZonedDateTime {
        ZonedDateTime::new(time, self.zone.clone())
    }

    /// A time of today without its date, any other with it. A text that is no time stays as it is.
    pub(super) fn short(&self, iso8601: &str) -> String {
        let Ok(time) = iso8601.parse::<Timestamp>() else { return clean(iso8601).into_owned() };
        let (time, now) = (self.zoned(time), self.zoned(self.now));
        let format = if time.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
        time.strftime(format).to_string()
    }

    /// A time with its date and its offset from UTC.
    pub(super) fn long(&self, iso8601: &str) -> String {
        match iso8601.parse::<Timestamp>() {
            Ok(time) => self.zoned(time).strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
            Err(_) => clean(iso8601).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_today_has_no_date() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let now = "2026-01-02T10:00:00Z".parse().expect("a time");
        let local = LocalTime { zone, now };
        assert_eq!(local.short("2026-01-02T09:08:07.123Z"), "11:08:07");
        // Yesterday in UTC, today in the zone.
        assert_eq!(local.short("2026-01-01T22:30:00Z"), "00:30:00");
        assert_eq!(local.short("2026-01-01T09:08:07Z"), "2026-01-01 11:08");
        assert_eq!(local.long("2026-01-01T09:08:07Z"), "2026-01-01 11:08:07 +02:00");
        assert_eq!(local.short("soon\u{1b}"), "soon\\u{1b}");
    }
}
