//! Parsing and formatting of sizes and durations.

use std::time::Duration;

/// Units of a size, largest first; the first spelling is used for output.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// Parses a size such as `64KiB`, `8MB` or `512`; units are case-insensitive.
///
/// # Errors
/// The problem and the expected form.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = unit.trim();
    if digits.is_empty() {
        return Err(
            "write a whole number and a unit, such as \"64KiB\", \"8MB\" or \"512B\"".into()
        );
    }
    let factor = match SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err("the units are B, kB, KiB, MB, MiB, GB, GiB".into()),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| "exceeds the range of a 64-bit number".into())
}

/// Formats a size in the largest binary unit that divides it.
pub(crate) fn show_size(bytes: u64) -> String {
    let (unit, factor) = SIZE_UNITS
        .iter()
        .filter(|(unit, _)| unit.contains('i') || *unit == "B")
        .find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor))
        .unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / factor)
}

/// Parses a humantime duration such as `10s` or `1h 30m`.
///
/// # Errors
/// The problem and the expected form.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|why| format!("{why}; write it like \"500ms\", \"10s\" or \"1h 30m\""))
}

/// Formats a duration exactly, in units up to days of 24 hours.
pub(super) fn show_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut parts = Vec::new();
    for (unit, size) in [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ] {
        let least = if unit == "d" { 2 * size } else { size };
        if rest >= least {
            parts.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if parts.is_empty() { "0s".into() } else { parts.join(" ") }
}

pub(super) fn heartbeat(span: Option<Duration>) -> String {
    span.map_or_else(|| "off".into(), show_duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("8MB", 8_000_000),
            ("8kb", 8_000),
            (" 1MiB ", 1_048_576),
            ("2GiB", 2_147_483_648),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_size_is_rejected_with_a_hint() {
        for (text, part) in [
            ("", "write a whole number"),
            ("MiB", "write a whole number"),
            ("-1", "write a whole number"),
            ("1.5MiB", "the units are"),
            ("8M", "the units are"),
            ("99999999999999999999", "exceeds the range"),
            ("17179869184GiB", "exceeds the range"),
        ] {
            let why = parse_size(text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn formatted_values_parse_back() {
        for bytes in [0, 1, 1000, 1024, 65_536, 1_048_576, 8_000_000, 1 << 30, (1 << 30) + 1] {
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes), "{}", show_size(bytes));
        }
        for nanos in [0, 1, 1_500, 500_000_000, 5_400_000_000_000, 86_400_000_000_001] {
            let duration = Duration::from_nanos(nanos);
            let text = show_duration(duration);
            assert_eq!(parse_duration(&text), Ok(duration), "{text}");
        }
        assert_eq!(show_duration(Duration::from_secs(5_400)), "1h 30m");
        assert_eq!(show_size(16 << 20), "16MiB");
    }
}
