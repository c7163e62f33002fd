//! Whole numbers in every spelling of JSON.

use alloc::format;
use alloc::string::String;

use crate::json::scan;

/// A whole number of any size. `41`, `41.0`, `410e-1` and `4.1e1` are equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WholeNumber {
    negative: bool,
    /// Digits without leading and trailing zeros; empty for zero.
    digits: String,
    /// Number of zeros that follow the digits.
    zeros: u64,
}

/// Zeros that the canonical spelling writes out; more become an exponent.
const ZEROS_WRITTEN_MAX: u64 = 20;

impl WholeNumber {
    /// Reads a JSON number. `None` for a fraction, an exponent beyond 64 bits, or another text.
    pub(crate) fn read(token: &str) -> Option<Self> {
        if scan::number(token.as_bytes(), 0) != Some(token.len()) {
            return None;
        }
        let unsigned = token.strip_prefix('-').unwrap_or(token);
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let significant = all.trim_end_matches('0');
        let digits = significant.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self { negative: false, digits: String::new(), zeros: 0 });
        }
        let behind = i64::try_from(all.len() - significant.len()).ok()?;
        let exponent: i64 = exponent.parse().ok()?;
        let zeros = exponent.checked_add(behind)?.checked_sub(fraction.len().try_into().ok()?)?;
        let zeros = u64::try_from(zeros).ok()?;
        Some(Self { negative: unsigned.len() < token.len(), digits: digits.into(), zeros })
    }

    /// Absolute value; `None` beyond 64 bits.
    fn magnitude(&self) -> Option<u64> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let digits: u64 = self.digits.parse().ok()?;
        10_u64.checked_pow(u32::try_from(self.zeros).ok()?)?.checked_mul(digits)
    }

    /// The value; `None` beyond 64 bits.
    pub(crate) fn to_i64(&self) -> Option<i64> {
        let magnitude = i128::from(self.magnitude()?);
        i64::try_from(if self.negative { -magnitude } else { magnitude }).ok()
    }

    /// The value, at most `u64::MAX`; `None` for a negative number.
    pub(crate) fn to_u64_saturating(&self) -> Option<u64> {
        (!self.negative).then(|| self.magnitude().unwrap_or(u64::MAX))
    }

    /// Canonical spelling.
    pub(crate) fn canonical(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits = if self.digits.is_empty() { "0" } else { &self.digits };
        match usize::try_from(self.zeros) {
            Ok(zeros) if self.zeros <= ZEROS_WRITTEN_MAX => {
                format!("{sign}{digits}{:0<zeros$}", "")
            }
            Ok(_) | Err(_) => format!("{sign}{digits}e{}", self.zeros),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(token: &str) -> Option<String> {
        WholeNumber::read(token).map(|whole| whole.canonical())
    }

    /// CAN-01, RPC-02: all spellings of a number are equal.
    #[test]
    fn spellings_of_a_number_are_equal() {
        for (spellings, value) in [
            (&["41", "41.0", "4.1e1", "4.1E+1", "410e-1", "0.41e2", "41.000e0"][..], "41"),
            (&["0", "-0", "0.0", "-0.0e5", "0e99999999999999999999999"], "0"),
            (&["-7", "-7.0", "-70e-1"], "-7"),
            (&["18446744073709551616", "18446744073709551616.0"], "18446744073709551616"),
            (&["1e20", "100000000000000000000", "10.0e19"], "100000000000000000000"),
            (&["1e21", "1000000000000000000000", "0.1e22"], "1e21"),
            (&["-12e400", "-1.2e401"], "-12e400"),
        ] {
            for spelling in spellings {
                assert_eq!(canonical(spelling).as_deref(), Some(value), "{spelling}");
            }
        }
    }

    #[test]
    fn fractions_and_other_texts_are_rejected() {
        for text in [
            "1.5",
            "15e-1",
            "1e-1",
            "0.1",
            "1e-99999999999999999999",
            "1e99999999999999999999",
            "",
            "-",
            "+1",
            "01",
            "1.",
            ".5",
            "1e",
            "1 ",
            " 1",
            "NaN",
            "null",
            "\"1\"",
            "0x1",
        ] {
            assert_eq!(WholeNumber::read(text), None, "{text}");
        }
    }

    #[test]
    fn values_beyond_64_bits_are_none() {
        for (token, signed, unsigned) in [
            ("9223372036854775807", Some(i64::MAX), Some(i64::MAX as u64)),
            ("9223372036854775808", None, Some(1 << 63)),
            ("-9223372036854775808", Some(i64::MIN), None),
            ("-9223372036854775809", None, None),
            ("18446744073709551615", None, Some(u64::MAX)),
            ("18446744073709551616", None, Some(u64::MAX)),
            ("6e4", Some(60_000), Some(60_000)),
            ("1e18", Some(1_000_000_000_000_000_000), Some(1_000_000_000_000_000_000)),
            ("1e4294967296", None, Some(u64::MAX)),
            ("-0.0", Some(0), Some(0)),
        ] {
            let whole = WholeNumber::read(token).expect(token);
            assert_eq!(whole.to_i64(), signed, "{token}");
            assert_eq!(whole.to_u64_saturating(), unsigned, "{token}");
        }
    }
}
