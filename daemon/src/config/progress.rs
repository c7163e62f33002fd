//! `progress` of a tool: a pattern that reads progress from the lines of its output.

use std::fmt;

use regex::{Regex, RegexBuilder};

use ceased_process::ReadProgress;

/// Bytes of memory that a compiled pattern may take; larger patterns are refused.
const SIZE_MAX: usize = 256 * 1024;

/// A regular expression with one or two groups: how much is done, and of how much.
#[derive(Debug, Clone)]
pub struct ProgressPattern(Regex);

impl ProgressPattern {
    /// A pattern as written.
    ///
    /// # Errors
    /// A hint when it is no regular expression, is too large, or has no groups.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let regex = RegexBuilder::new(text).size_limit(SIZE_MAX).build().map_err(|error| {
            // The first line says that there is an error, the last one which.
            let error = error.to_string();
            let which = error.lines().last().unwrap_or_default().to_owned();
            format!("it is not a regular expression: {which}")
        })?;
        match regex.captures_len() {
            2 | 3 => Ok(Self(regex)),
            _ => {
                Err("it takes one group for what is done and perhaps a second one for the total, \
                      such as '\\[(\\d+)/(\\d+)\\]' or '(\\d+)%'"
                    .into())
            }
        }
    }
}

impl PartialEq for ProgressPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl fmt::Display for ProgressPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_str())
    }
}

impl ReadProgress for ProgressPattern {
    /// The last match of the line counts: tools append. One group before a `%` is of 100.
    fn read(&self, line: &str) -> Option<(f64, Option<f64>)> {
        let found = self.0.captures_iter(line).last()?;
        let number = |group: usize| found.get(group)?.as_str().trim().parse::<f64>().ok();
        let done = number(1).filter(|done| done.is_finite())?;
        let end = found.get(1)?.end();
        let percent = || line.get(end..).is_some_and(|rest| rest.trim_start().starts_with('%'));
        let total = match self.0.captures_len() {
            2 => percent().then_some(100.0),
            _ => number(2).filter(|total| total.is_finite()),
        };
        Some((done, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_lines() {
        let read = |pattern: &str, line: &str| ProgressPattern::new(pattern).unwrap().read(line);
        let fraction = r"\[(\d+)/(\d+)\]";
        assert_eq!(read(fraction, "[12/345] Building a.o"), Some((12.0, Some(345.0))));
        assert_eq!(read(fraction, "[1/2] then [2/2]"), Some((2.0, Some(2.0))));
        assert_eq!(read(fraction, "nothing"), None);
        assert_eq!(read(r"(\d+)%", "tests/a.py ....  [ 45%]"), Some((45.0, Some(100.0))));
        assert_eq!(read(r"([\d.]+) ?%", "3.5 %"), Some((3.5, Some(100.0))));
        assert_eq!(read(r"step (\d+)", "step 7"), Some((7.0, None)));
        assert_eq!(read(r"(\d+)(?: of (\d+))?", "7 things"), Some((7.0, None)));
        assert_eq!(read(r"(\w+)", "word"), None);
    }

    #[test]
    fn patterns_without_groups_are_refused() {
        for bad in ["(", "no group", r"(\d)(\d)(\d)", r"(\w{1000}){1000}"] {
            assert!(ProgressPattern::new(bad).is_err(), "{bad}");
        }
    }
}
