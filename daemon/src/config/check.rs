//! Validation of values that collects all problems instead of stopping at the first.

use std::path::{Path, PathBuf};

use super::discover::Environment;
use super::error::{Problem, line_of};
use super::values;
use ceased_client::printable::clean;

/// A key and its table, as named in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Heading of the table, such as `[daemon]`.
    pub(super) table: &'static str,
    /// The key.
    pub(super) name: &'static str,
}

/// The text being checked and the problems found.
pub(super) struct Checker<'a> {
    /// Text of the file.
    pub(super) text: &'a str,
    /// Path of the file, for messages.
    pub(super) file: &'a Path,
    /// Base of relative paths.
    pub(super) dir: &'a Path,
    /// Environment for defaults that depend on the user.
    pub(super) environment: &'a Environment,
    /// Whether a listener takes signed tokens, whose groups and scopes `allow` may name.
    pub(super) has_issuer: bool,
    /// Problems found so far.
    pub(super) problems: Vec<Problem>,
    /// Starts of the tables without some keys, which are reported already.
    pub(super) partial: Vec<usize>,
}

impl Checker<'_> {
    /// Reports a problem at a byte of the text.
    pub(super) fn problem(&mut self, at: usize, what: impl Into<String>, hint: impl Into<String>) {
        // TOML escapes allow any character in keys and values.
        let (what, hint) = (clean(&what.into()).into_owned(), clean(&hint.into()).into_owned());
        let (file, line) = (self.file.to_owned(), line_of(self.text, at));
        self.problems.push(Problem { file, line, what, hint });
    }

    /// Reports a table at a byte of the text that lacks a key, unless a key of it is reported already.
    pub(super) fn missing(&mut self, at: usize, what: impl Into<String>, hint: impl Into<String>) {
        if !self.partial.contains(&at) {
            self.problem(at, what, hint);
        }
    }

    /// Reports a part at a byte of the text whose feature this build lacks; returns whether it does.
    pub(super) fn lacks(&mut self, is_built: bool, feature: &str, at: usize, part: &str) -> bool {
        if !is_built {
            let what = format!("{part} needs a build with the feature `{feature}`");
            self.problem(at, what, "install a build with it, or remove the part");
        }
        !is_built
    }

    /// As above, of the feature that has the client of HTTP, too.
    pub(super) fn lacks_tls(&mut self, at: usize, part: &str) -> bool {
        self.lacks(cfg!(feature = "tls"), "tls", at, part)
    }

    /// Reports a problem of a written value.
    pub(super) fn bad_value(
        &mut self,
        key: Key,
        at: usize,
        written: &str,
        hint: impl Into<String>,
    ) {
        self.problem(at, format!("`{}` in {} is {written}", key.name, key.table), hint);
    }

    /// A path: absolute, below the home directory (`~/`), or relative to the file's directory.
    pub(super) fn path(&mut self, key: Key, raw: &values::Text) -> Option<PathBuf> {
        self.path_in(key, raw, raw.get_ref())
    }

    /// The path `text`, a part of the written value; as [`Self::path`].
    pub(super) fn path_in(&mut self, key: Key, raw: &values::Text, text: &str) -> Option<PathBuf> {
        let hint = if text.is_empty() {
            "write a path, or leave the key out"
        } else if text.contains('\0') {
            "a path must not contain a NUL byte"
        } else {
            match self.anchored(text) {
                Ok((base, rest)) => return Some(base.join(rest)),
                Err(hint) => hint,
            }
        };
        self.bad_value(key, raw.span().start, &format!("{:?}", raw.get_ref()), hint);
        None
    }

    /// Splits a path into its base and the rest, which is never absolute, except that `/` itself
    /// can be the base.
    ///
    /// # Errors
    /// A hint if the base is unknown.
    pub(super) fn anchored<'t>(&self, text: &'t str) -> Result<(PathBuf, &'t str), &'static str> {
        if text.starts_with('/') {
            return Ok((PathBuf::from("/"), text.trim_start_matches('/')));
        }
        if let Some(rest) = text.strip_prefix("~/") {
            let home = self.environment.home.clone();
            let rest = rest.trim_start_matches('/');
            return Ok((home.ok_or("`~/` needs $HOME, which is not set here")?, rest));
        }
        if text.starts_with('~') {
            return Err("only `~/`, your home directory, is supported");
        }
        Ok((self.dir.to_owned(), text))
    }
}
