//! Tokens: identities of the peers of a TCP listener, from a file of names and secrets (TSK-39).
//!
//! Secrets are compared in constant time, never displayed, and never leave this module.

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::owned_file::{self, Secrecy, Unfit};

/// Size limit of a token file: thousands of tokens.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Minimum length of a token; shorter ones could be guessed.
const TOKEN_BYTES_MIN: usize = 32;
const TOKEN_BYTES_MAX: usize = 256;
/// Maximum length of a token's name.
const NAME_BYTES_MAX: usize = 64;

/// A secret, padded so that every comparison reads the same number of bytes.
#[derive(Clone)]
pub(crate) struct Secret {
    bytes: [u8; TOKEN_BYTES_MAX],
    length: usize,
}

impl Secret {
    /// `None` if the text is too long for a token.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; TOKEN_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { bytes, length: text.len() })
    }

    /// Compares in constant time.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        let mut difference = self.length ^ other.length;
        for (ours, theirs) in self.bytes.iter().zip(&other.bytes) {
            difference |= usize::from(black_box(ours ^ theirs));
        }
        black_box(difference) == 0
    }
}

/// A secret and the name it authenticates.
pub(crate) struct Token {
    name: Arc<str>,
    secret: Secret,
}

impl Token {
    /// Name of the token.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.name)
    }
}

/// The tokens of one file.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    tokens: Vec<Arc<Token>>,
}

/// Why a token file cannot be used. Names the place, never a token.
#[derive(Debug)]
#[non_exhaustive]
pub struct TokenFileError {
    path: PathBuf,
    /// Line number from 1; `None` for errors about the whole file.
    line: Option<usize>,
    what: String,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for TokenFileError {}

impl Tokens {
    /// Reads a file that only this process's user and root may read or write.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub(crate) fn load(path: &Path) -> Result<Self, TokenFileError> {
        let fail = |what: String| TokenFileError { path: path.to_owned(), line: None, what };
        let bytes = owned_file::read(path, Secrecy::Secret, FILE_BYTES_MAX).map_err(|why| {
            fail(match why {
                Unfit::Io(why) if why.kind() == io::ErrorKind::FileTooLarge => {
                    format!("the file exceeds the limit of {FILE_BYTES_MAX} bytes")
                }
                Unfit::Io(why) => format!("cannot read the token file: {why}"),
                Unfit::Refused { .. } => why.to_string(),
            })
        })?;
        let text =
            String::from_utf8(bytes).map_err(|_| fail("the file is not valid UTF-8".into()))?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, TokenFileError> {
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        let mut lines: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = |what| TokenFileError { path: path.to_owned(), line: Some(number), what };
            let (name, secret) = entry(line).map_err(fail)?;
            if let Some(first) = lines.insert(Arc::clone(&name), number) {
                let what =
                    format!("the name {name:?} is already used in line {first}; choose another");
                return Err(fail(what));
            }
            if let Some(twin) = tokens.iter().find(|token| token.secret.equals(&secret)) {
                let (twin, first) = (&twin.name, lines.get(&twin.name).copied().unwrap_or(0));
                let what = format!(
                    "the token is the same as that of {twin:?} in line {first}; generate a new one"
                );
                return Err(fail(what));
            }
            tokens.push(Arc::new(Token { name, secret }));
        }
        if tokens.is_empty() {
            let what = "the file has no token; write one `name token` per line".to_owned();
            return Err(TokenFileError { path: path.to_owned(), line: None, what });
        }
        Ok(Self { tokens })
    }

    /// Finds the token. Compares with every token in full, whether or not one matched.
    pub(crate) fn find(&self, presented: &str) -> Option<&Arc<Token>> {
        let presented = Secret::new(presented)?;
        let mut found = None;
        for token in &self.tokens {
            if token.secret.equals(&presented) {
                found = Some(token);
            }
        }
        found
    }

    /// Whether this token, of an earlier reading, is still valid.
    pub(crate) fn still_has(&self, token: &Token) -> bool {
        let is_same =
            |other: &Arc<Token>| other.name == token.name && other.secret.equals(&token.secret);
        self.tokens.iter().any(is_same)
    }
}

/// Parses a line.
fn entry(line: &str) -> Result<(Arc<str>, Secret), String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(token), None) = (words.next(), words.next(), words.next()) else {
        return Err("not of the form `name token`".into());
    };
    if !is_name(name) {
        return Err(format!(
            "the name {name:.80?} is invalid: use 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 _ - ."
        ));
    }
    if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "the token of {name:?} must be {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable \
             ASCII characters; make one with `openssl rand -hex 32`"
        ));
    }
    let secret = Secret::new(token)
        .ok_or_else(|| format!("the token of {name:?} is longer than {TOKEN_BYTES_MAX} bytes"))?;
    Ok((name.into(), secret))
}

/// Whether a name is valid.
pub(crate) fn is_name(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::process::geteuid;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";

    fn parse(text: &str) -> Result<Tokens, String> {
        Tokens::parse(text, Path::new("F")).map_err(|error| error.to_string())
    }

    /// TSK-39: a token authenticates its name, and similar texts do not.
    #[test]
    fn token_is_found_by_its_exact_text() {
        let tokens = parse(&format!("# names\n\nci {A}\n  ed\t{B}  \n")).unwrap();
        let name = |presented: &str| tokens.find(presented).map(|token| token.name().to_string());
        assert_eq!(name(A).as_deref(), Some("ci"));
        assert_eq!(name(B).as_deref(), Some("ed"));
        let long = "a".repeat(300);
        for wrong in ["", "ci", &A[1..], &format!("{A}a"), &format!("{A}\0"), &long] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        let later = parse(&format!("ci {B}\nnew {A}")).unwrap();
        assert!(
            tokens.tokens.iter().all(|token| tokens.still_has(token) && !later.still_has(token))
        );
        let shown = format!("{tokens:?}");
        assert!(shown.contains("ci") && !shown.contains("aaa"), "{shown}");
    }

    #[test]
    fn error_names_the_line_and_not_the_token() {
        for (text, want) in [
            (format!("ci {A}\nci {B}"), "F:2: the name \"ci\" is already used in line 1"),
            (format!("ci {A}\ned {A}"), "F:2: the token is the same as that of \"ci\" in line 1"),
            (format!("#\nci {}", &A[1..]), "F:2: the token of \"ci\" must be 32 to 256"),
            (format!("ci {}", "a".repeat(257)), "F:1: the token of \"ci\" is longer than 256"),
            (format!("ci {A}é"), "F:1: the token of \"ci\" must be"),
            (A.to_owned(), "F:1: not of the form `name token`"),
            (format!("ci {A} x"), "F:1: not of the form `name token`"),
            (format!("c/i {A}"), "F:1: the name \"c/i\" is invalid"),
            (format!("{} {A}", "n".repeat(65)), "F:1: the name"),
            ("# none\n".to_owned(), "F: the file has no token"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(want), "{text:?}: {error}");
            assert!(!error.contains("aaaa"), "{error}");
        }
    }

    #[test]
    fn file_readable_by_others_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        fs::write(&path, format!("ci {A}")).unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let loaded = Tokens::load(&path);
            assert_eq!(loaded.is_ok(), good, "{mode:o}: {loaded:?}");
            if let Err(error) = loaded {
                assert!(error.to_string().contains("chmod 600"), "{error}");
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            let error = Tokens::load(&path).unwrap_err().to_string();
            assert!(error.contains("belongs to uid 1"), "{error}");
        }
        let error = Tokens::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        let error = Tokens::load(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("cannot read"), "{error}");
    }
}
