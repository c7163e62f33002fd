//! Errors of a configuration: all problems, each with file, line and hint.

use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum number of printed problems; a file with more has a common cause, or is not a
/// configuration.
const PROBLEMS_SHOWN_MAX: usize = 20;

/// Maximum length of a quoted value.
const VALUE_SHOWN_MAX: usize = 80;

/// A problem of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as named on the command line or found.
    pub file: PathBuf,
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// The problem: names the key, its table and the value.
    pub what: String,
    /// The remedy: the limit, the known keys, or the nearest known key.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{} ({}); {}", self.what, self.file.display(), self.hint),
            line => write!(f, "{} at {}:{line}; {}", self.what, self.file.display(), self.hint),
        }
    }
}

/// Why a configuration cannot be used: at least one [`Problem`], in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    /// An error with these `problems`, of which there is at least one.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        assert!(!problems.is_empty(), "an error without a problem");
        problems.sort_by_key(|problem| problem.line);
        Self { problems }
    }

    /// An error with these problems, if there are any.
    #[cfg(feature = "cli")]
    pub(crate) fn of(problems: Vec<Problem>) -> Option<Self> {
        (!problems.is_empty()).then(|| Self::new(problems))
    }

    /// An error about a file as a whole.
    pub(crate) fn of_file(file: &Path, what: impl Into<String>, hint: impl Into<String>) -> Self {
        let (what, hint) = (what.into(), hint.into());
        Self { problems: vec![Problem { file: file.into(), line: 0, what, hint }] }
    }

    /// All problems, in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    /// Writes one problem per line, without a final newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().take(PROBLEMS_SHOWN_MAX).enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        match self.problems.len().saturating_sub(PROBLEMS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The line of the byte at `offset`, counted from 1; offsets past the end give the last line.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    line.min(text.lines().count().max(1))
}

/// `text` shortened to one line for a message.
pub(super) fn shown(text: &str) -> String {
    let line = text.trim().split(['\n', '\r']).next().unwrap_or_default();
    let cut = line.char_indices().nth(VALUE_SHOWN_MAX).map_or(line.len(), |(at, _)| at);
    let short = line.get(..cut).unwrap_or_default();
    if short.len() < text.trim().len() { format!("{short}…") } else { short.to_owned() }
}

/// The known name most similar to `name`.
#[cfg(feature = "config")]
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // Up to a third of the letters may differ.
    let tolerated = (name.chars().count() / 3).max(1);
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .filter(|(distance, _)| *distance <= tolerated)
        .min()
        .map(|(_, known)| known)
}

/// The known name that is a prefix of `name`, or has it as a prefix: `warning`, `str`.
fn cut_or_continued<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let related = |known: &&str| known.starts_with(name) || name.starts_with(*known);
    known.iter().copied().find(|known| name.len() >= 3 && related(known))
}

/// Hint for an unknown name.
#[cfg(feature = "config")]
pub(super) fn did_you_mean(name: &str, noun: &str, known: &[&str]) -> String {
    match nearest(name, known).or_else(|| cut_or_continued(name, known)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("there are no {noun} here"),
        None => format!("known {noun}: {}", known.join(", ")),
    }
}
