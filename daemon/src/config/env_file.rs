//! `env_file`: environment variables of a tool in a file of their own, usually secrets.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Problem};
use crate::owned_file::{self, Secrecy, Unfit};
use ceased_process::daemon_support::is_private;

/// Size limit of the file: the environment of one command.
const FILE_BYTES_MAX: u64 = crate::tools::arguments::COMMAND_BYTES_MAX as u64;

/// Prefix of the variables that the daemon sets for a job.
const RESERVED_VARIABLES: &str = "CEASED_";

/// Why a variable of this name is not allowed.
pub(super) fn variable_flaw(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.contains(['=', '\0']) {
        Some("a variable name must not be empty or contain `=`")
    } else if name.starts_with(RESERVED_VARIABLES) {
        Some("the daemon sets the variables that begin with CEASED_")
    } else if is_private(name.as_ref()) {
        Some("this variable is reserved for the service manager and the daemon")
    } else {
        None
    }
}

/// A file of variables and its content. The values are never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Its variables; `None` until [`Self::read`].
    variables: Option<Vec<(String, String)>>,
}

impl fmt::Debug for EnvFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Option<Vec<_>> =
            self.variables.as_ref().map(|list| list.iter().map(|(name, _)| name).collect());
        f.debug_struct("EnvFile").field("path", &self.path).field("names", &names).finish()
    }
}

impl EnvFile {
    /// A file that has not been read.
    pub(super) const fn at(path: PathBuf) -> Self {
        Self { path, variables: None }
    }

    /// A file that has been read.
    ///
    /// # Errors
    /// As [`crate::config::Config::read_env_files`].
    pub(crate) fn load(path: PathBuf) -> Result<Self, ConfigError> {
        let mut file = Self::at(path);
        file.read()?;
        Ok(file)
    }

    /// Reads the file.
    pub(super) fn read(&mut self) -> Result<(), ConfigError> {
        let path = &self.path;
        let fail = |what: String, hint: &str| Err(ConfigError::of_file(path, what, hint));
        let bytes = match owned_file::read(path, Secrecy::Public, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(Unfit::Io(why)) if why.kind() == std::io::ErrorKind::FileTooLarge => {
                let what = format!("the `env_file` is larger than {FILE_BYTES_MAX} bytes");
                return fail(what, "check the path");
            }
            Err(Unfit::Io(why)) => {
                let hint = "write `NAME=value` lines into it, or leave the key out";
                return fail(format!("cannot read the `env_file`: {why}"), hint);
            }
            Err(Unfit::Refused { what, remedy }) => {
                return fail(format!("rejected the `env_file`: {what}"), &remedy);
            }
        };
        let Ok(text) = String::from_utf8(bytes) else {
            return fail("the `env_file` is not UTF-8".into(), "save it as UTF-8");
        };
        self.variables = Some(parse(&text, path)?);
        Ok(())
    }

    /// The variables, in the order of the file.
    ///
    /// # Errors
    /// If the file has not been read.
    pub(crate) fn variables(&self) -> Result<&[(String, String)], String> {
        self.variables.as_deref().ok_or_else(|| {
            let path = self.path.display();
            format!("the `env_file` {path} of this tool was not read; load the configuration")
        })
    }
}

/// Parses `NAME=value` lines; empty lines and lines that begin with `#` are ignored.
fn parse(text: &str, path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let (mut variables, mut problems) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let text = text.strip_prefix("export ").unwrap_or(text);
        let mut problem = |what: &str, hint: &str| {
            let (file, what, hint) = (path.to_owned(), what.to_owned(), hint.to_owned());
            problems.push(Problem { file, line, what, hint });
        };
        let Some((name, written)) = text.split_once('=') else {
            problem("a line of the `env_file` has no `=`", "write NAME=value");
            continue;
        };
        let name = name.trim_end();
        if name.contains(char::is_whitespace) {
            problem("a name in the `env_file` contains a space", "write NAME=value");
        } else if let Some(hint) = variable_flaw(name) {
            problem(&format!("the `env_file` sets {name:.80?}"), hint);
        } else {
            match value(written.trim()) {
                Ok(value) => variables.push((name.to_owned(), value)),
                Err(hint) => problem(&format!("cannot parse the value of {name}"), hint),
            }
        }
    }
    if problems.is_empty() { Ok(variables) } else { Err(ConfigError::new(problems)) }
}

/// Parses a value, plain or quoted. Between `'` every character is literal; between `"` a backslash
/// escapes `\n`, `\t`, `\"`, `\\` and `\$`. Nothing is expanded.
fn value(written: &str) -> Result<String, &'static str> {
    const OPEN: &str = "unterminated quote; a value must be on one line";
    if written.contains('\0') {
        return Err("must not contain a NUL byte");
    }
    if let Some(rest) = written.strip_prefix('\'') {
        let inner = rest.strip_suffix('\'').ok_or(OPEN)?;
        return if inner.contains('\'') { Err(OPEN) } else { Ok(inner.to_owned()) };
    }
    let Some(rest) = written.strip_prefix('"') else {
        // Parsers of such files disagree: some treat this as a comment, others as part of the
        // value.
        return if written.contains(" #") || written.contains("\t#") {
            Err("quote a value that contains ` #`; comments need lines of their own")
        } else {
            Ok(written.to_owned())
        };
    };
    let (mut text, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next() {
            Some('"') if chars.as_str().is_empty() => return Ok(text),
            Some('"') | None => return Err(OPEN),
            Some('\\') => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(c @ ('"' | '\\' | '$' | '`')) => text.push(c),
                Some(_) | None => {
                    return Err("after a backslash in `\"` quotes use n, t, \", \\, $ or `");
                }
            },
            Some(c) => text.push(c),
        }
    }
}

/// The variables in the form that a launch needs.
pub(crate) fn for_launch(variables: &[(String, String)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        parse(text, Path::new("F")).map_err(|why| why.to_string())
    }

    #[test]
    fn values_are_parsed_as_written() {
        for (text, want) in [
            ("A=b", "b"),
            ("  A=b c  \r\n", "b c"),
            ("export A=b", "b"),
            ("A = b", "b"),
            ("A=", ""),
            ("A=b=c$D`e`", "b=c$D`e`"),
            ("A=p#q", "p#q"),
            ("A='b # \"c\" \\n'", "b # \"c\" \\n"),
            (r#"A="b\n\t\"\\\$ # c""#, "b\n\t\"\\$ # c"),
            ("\u{feff}A=b", "b"),
            ("# A=c\n\n#\nA=b", "b"),
        ] {
            assert_eq!(read(text), Ok(vec![("A".into(), want.into())]), "{text}");
        }
    }

    #[test]
    fn ambiguous_value_is_rejected_with_its_line() {
        for (text, want) in [
            ("A", "a line of the `env_file` has no `=` at F:1; write NAME=value"),
            ("\nA B=c", "a name in the `env_file` contains a space at F:2"),
            ("=c", "the `env_file` sets \"\" at F:1"),
            ("CEASED_JOB=j1", "the `env_file` sets \"CEASED_JOB\" at F:1"),
            ("NOTIFY_SOCKET=/x", "the `env_file` sets \"NOTIFY_SOCKET\" at F:1"),
            ("A=secret # x", "cannot parse the value of A at F:1"),
            ("A='secret", "cannot parse the value of A at F:1"),
            ("A='sec'ret'", "cannot parse the value of A at F:1"),
            ("A=\"secret\" x", "cannot parse the value of A at F:1"),
            ("A=\"secret\\x\"", "cannot parse the value of A at F:1"),
            ("A=secret\0", "cannot parse the value of A at F:1"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.starts_with(want), "{text:?}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
        assert!(read("A\nB\nC=1").unwrap_err().contains("F:2"));
    }

    #[test]
    fn values_are_not_displayed() {
        let file =
            EnvFile { path: "F".into(), variables: Some(vec![("A".into(), "secret".into())]) };
        let shown = format!("{file:?}");
        assert!(shown.contains("\"A\"") && !shown.contains("secret"), "{shown}");
        assert!(EnvFile::at("F".into()).variables().unwrap_err().contains("was not read"));
    }
}
