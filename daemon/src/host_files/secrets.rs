//! Secrets of a host's file: the parts of it that are not shown.
//!
//! A value is shown only if it is known to be none: texts of an entry that look like no secret, numbers
//! and booleans. Everything else is hidden with its bytes, on one line or on several.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::document::{Format, Node, Value};
use super::entry::Entry;

/// Text shown in place of a secret.
pub(crate) const SHOWN: &str = "•••";
/// Length from which a word of letters and digits is taken for a token.
const TOKEN_MIN: usize = 20;

/// Names of options, variables, headers and members whose values are secrets.
static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = "key|token|secret|passw|passphrase|pwd|auth|credential|bearer|cookie|header|\
                 session|private|signature|dsn|pin$|^pat$|[_-]pat$|connection.?string|database.?ur[il]";
    Regex::new(&format!("(?i)(?:{words})")).ok()
});

/// Texts that are or hold secrets.
static TEXTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts = [
        // Known beginnings of tokens.
        r"\b(?:sk|pk|rk)[-_][A-Za-z0-9]|\b(?:gh[opusr]|hf|npm|gsk|shpat|figd|ntn)_[A-Za-z0-9]",
        r"\b(?:xox[a-z]|glpat|tvly)-[A-Za-z0-9]|\bpypi-Ag",
        r"\bgithub_pat_|\bAKIA[A-Z0-9]|\bAIza[A-Za-z0-9]|\beyJ[A-Za-z0-9]|-----BEGIN",
        r"(?i)\b(?:bearer|basic)\s+\S",
        // A password in an address.
        r"[a-z][a-z0-9+.-]*://[^/\s@]*:[^/\s@]*@",
        // A secret in the query of an address, or set within a text.
        r"(?i)(?:key|token|secret|passw|passphrase|pwd|auth|credential|cookie|signature)[A-Za-z0-9_-]*['\x22]?\s*[=:]\s*\S",
        // A variable that is set, such as of `env` or `docker run -e`.
        r"^[A-Z_][A-Z0-9_]*=.",
        // Lines: a script or a certificate.
        r"[\r\n]",
    ];
    Regex::new(&parts.map(|part| format!("(?:{part})")).join("|")).ok()
});

/// Whether the value of an option, variable, header or member of this name is a secret.
fn is_secret_name(name: &str) -> bool {
    // Without its patterns, nothing is known to be harmless.
    NAMES.as_ref().is_none_or(|names| names.is_match(name))
}

/// Whether a text is or holds a secret.
fn is_secret(text: &str) -> bool {
    TEXTS.as_ref().is_none_or(|texts| texts.is_match(text)) || text.split_whitespace().any(is_token)
}

/// Whether a word has letters and digits as generated ones have.
fn is_token(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'', ',', ';', '`']);
    let is_dense = |c: char| c.is_ascii_alphanumeric() || "+/=_-.".contains(c);
    if word.len() < TOKEN_MIN || !word.chars().all(is_dense) {
        return false;
    }
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    let (digit, upper, lower) =
        (has(char::is_ascii_digit), has(char::is_ascii_uppercase), has(char::is_ascii_lowercase));
    let is_hex = word.chars().filter(char::is_ascii_hexdigit).count() >= 32
        && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let is_path = word.contains('/') && !word.contains('+') && !word.ends_with('=');
    is_hex || (digit && upper && lower && !is_path)
}

/// The first byte of an argument that is not shown, if there is one. `before` is the argument in
/// front of it.
pub(super) fn hidden_from(before: Option<&str>, argument: &str) -> Option<usize> {
    if argument.starts_with('-') && !argument.contains(char::is_whitespace) {
        let (name, value) = argument.split_once('=')?;
        let is_hidden = is_secret_name(name) || is_secret(value);
        return (is_hidden && !value.is_empty()).then_some(name.len() + 1);
    }
    let is_value = |option: &str| {
        let is_variable = ["-e", "--env"].contains(&option) && argument.contains('=');
        is_variable || option == "-H" || is_secret_name(option)
    };
    let option = before.filter(|it| it.starts_with('-') && !it.contains('='));
    if option.is_some_and(is_value) || is_secret(argument) {
        let named = argument.find(['=', ':']).filter(|at| {
            let name = argument.get(..*at).unwrap_or_default();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            !name.is_empty() && name.chars().all(is_plain) && !argument[*at..].starts_with("://")
        });
        return Some(named.map_or(0, |at| at + 1));
    }
    None
}

/// An argument as it is shown.
pub(super) fn shown<'t>(before: Option<&str>, argument: &'t str) -> Cow<'t, str> {
    match hidden_from(before, argument) {
        None => Cow::Borrowed(argument),
        Some(at) => Cow::Owned(format!("{}{SHOWN}", argument.get(..at).unwrap_or_default())),
    }
}

/// The parts of a document that are not shown, in order.
pub(super) fn hidden(
    root: &Node,
    entries: &[Entry],
    text: &str,
    format: Format,
) -> Vec<Range<usize>> {
    let mut finder = Finder { text, entries, hidden: Vec::new(), scalars: Vec::new() };
    finder.outside(root, "");
    let Finder { mut hidden, mut scalars, .. } = finder;
    scalars.sort_by_key(|span| span.start);
    hidden.extend(comments(text, &scalars, format));
    hidden.retain(|span| !span.is_empty());
    hidden.sort_by_key(|span| span.start);
    hidden
}

struct Finder<'d> {
    text: &'d str,
    entries: &'d [Entry],
    hidden: Vec<Range<usize>>,
    /// Bytes of keys and values, in which no comment begins.
    scalars: Vec<Range<usize>>,
}

impl Finder<'_> {
    /// A value outside of the entries, at the key `name`.
    fn outside(&mut self, node: &Node, name: &str) {
        let entry = self.entries.iter().find(|it| it.span == node.span);
        match &node.value {
            Value::Map(members) => {
                for member in members {
                    self.scalars.push(member.key.clone());
                    match entry {
                        Some(_) => self.inside(&member.node, &member.name, true),
                        None => self.outside(&member.node, &member.name),
                    }
                }
            }
            Value::List(items) => items.iter().for_each(|item| self.outside(item, name)),
            Value::Flag(_) | Value::Null => {}
            Value::Plain(_) if !is_secret_name(name) => self.scalars.push(node.span.clone()),
            Value::Plain(_) | Value::Text(_) | Value::Bound(_) => self.hide(node, 0),
        }
    }

    /// A value of an entry: that of its member `name` if `is_direct`, or one deeper.
    fn inside(&mut self, node: &Node, name: &str, is_direct: bool) {
        let is_shown = is_direct && !["env", "envs", "environment"].contains(&name);
        match &node.value {
            Value::Map(members) => {
                // The older form of Zed has the command in an object.
                let is_shown = is_shown && name == "command";
                for member in members {
                    self.scalars.push(member.key.clone());
                    self.inside(&member.node, &member.name, is_shown);
                }
            }
            Value::List(items) => {
                let mut before: Option<&str> = None;
                for item in items {
                    match item.text().filter(|_| is_shown && is_open(name)) {
                        Some(text) => self.argument(item, before, text),
                        None => self.inside(item, name, false),
                    }
                    before = item.text();
                }
            }
            Value::Flag(_) | Value::Null => {}
            Value::Text(text) if is_shown && is_open(name) => self.argument(node, None, text),
            Value::Plain(_) if is_shown && is_open(name) => self.scalars.push(node.span.clone()),
            Value::Plain(_) | Value::Text(_) | Value::Bound(_) => self.hide(node, 0),
        }
    }

    fn argument(&mut self, node: &Node, before: Option<&str>, text: &str) {
        match hidden_from(before, text) {
            None => self.scalars.push(node.span.clone()),
            Some(at) => {
                let inner = unquoted(self.text, &node.span);
                let is_literal = self.text.get(inner) == Some(text);
                self.hide(node, if is_literal { at } else { 0 });
            }
        }
    }

    /// Hides a value from a byte on; its quotes stay.
    fn hide(&mut self, node: &Node, from: usize) {
        let inner = unquoted(self.text, &node.span);
        self.hidden.push((inner.start + from).min(inner.end)..inner.end);
        self.scalars.push(node.span.clone());
    }
}

/// Whether the values of a member of an entry can be shown.
fn is_open(name: &str) -> bool {
    ["env_vars", "env_keys"].contains(&name) || !is_secret_name(name)
}

/// The bytes of a scalar without its quotes.
fn unquoted(text: &str, span: &Range<usize>) -> Range<usize> {
    let (mut start, mut end) = (span.start, span.end);
    let quote = |at: usize| text.as_bytes().get(at).copied().filter(|it| b"\"'".contains(it));
    let first = quote(start);
    while start + 2 <= end && first.is_some() && quote(start) == first && quote(end - 1) == first {
        (start, end) = (start + 1, end - 1);
    }
    start..end
}

/// The comments that look like secrets. A comment that others follow without a value between them
/// is one with them: a key of several lines can be commented out.
fn comments(text: &str, scalars: &[Range<usize>], format: Format) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let ends = scalars.iter().map(|span| span.start).chain([text.len()]);
    let mut at = 0;
    for (number, end) in ends.enumerate() {
        let gap = at..end.max(at);
        let part = text.get(gap.clone()).unwrap_or_default();
        let begin = match format {
            Format::Json => part.find("//").into_iter().chain(part.find("/*")).min(),
            Format::Toml | Format::Yaml => part.find('#'),
        };
        if let Some(begin) = begin {
            let comment = part.get(begin..).unwrap_or_default();
            if is_suspicious(comment) {
                let last =
                    comment.trim_end_matches(|c: char| c.is_whitespace() || "{[]},".contains(c));
                let start = gap.start + begin;
                hidden.push(start + mark(comment)..start + last.len());
            }
        }
        at = scalars.get(number).map_or(end, |span| span.end).max(at);
    }
    hidden
}

/// Length of the mark with which a comment begins.
fn mark(comment: &str) -> usize {
    if comment.starts_with('/') { 2 } else { 1 }
}

/// Whether a comment has more than prose: a value that is set, a quoted text, or a token.
fn is_suspicious(comment: &str) -> bool {
    let is_set = |line: &str| {
        line.split_once(['=', ':']).is_some_and(|(_, value)| !value.trim().is_empty())
            && !line.contains("://")
    };
    let is_dense = |word: &str| {
        word.len() >= 8
            && word.chars().any(|c| c.is_ascii_digit())
            && word.chars().any(|c| c.is_ascii_alphabetic())
    };
    comment.contains(['"', '\''])
        || comment
            .lines()
            .any(|line| is_set(line) || is_secret(line) || line.split_whitespace().any(is_dense))
}

#[cfg(test)]
mod tests {
    use super::super::entry::entries_of;
    use super::super::reader::parse;
    use super::*;

    fn seen(text: &str, format: Format) -> String {
        let root = parse(text, format).unwrap();
        let entries = entries_of(&root, text, format).unwrap();
        let (mut seen, mut at) = (String::new(), 0);
        for span in hidden(&root, &entries, text, format) {
            seen.push_str(&text[at..span.start]);
            seen.push_str(SHOWN);
            at = span.end;
        }
        seen + &text[at..]
    }

    #[test]
    fn values_of_variables_and_headers_are_hidden() {
        let text = r#"{"servers": {"a": {"command": "x", "env": {"A": "s3cret ä", "B": 7, "C": ""}},
            "b": {"url": "u", "headers": {"Authorization": "Bearer t"}}}}"#;
        let seen = seen(text, Format::Json);
        assert!(seen.contains(r#""env": {"A": "•••", "B": •••, "C": ""}"#), "{seen}");
        assert!(seen.contains(r#""Authorization": "•••""#), "{seen}");
        assert!(seen.contains(r#""command": "x""#), "{seen}");
    }

    #[test]
    fn arguments_that_look_like_secrets_are_hidden() {
        for (argv, want) in [
            (&["--api-key", "abc"][..], &["--api-key", "•••"][..]),
            (&["--api-key=abc"], &["--api-key=•••"]),
            (&["-H", "X-Any: abc"], &["-H", "X-Any:•••"]),
            (&["--header", "Authorization: Bearer abc"], &["--header", "Authorization:•••"]),
            (&["run", "-e", "PLAIN=abc", "image"], &["run", "-e", "PLAIN=•••", "image"]),
            (&["run", "-e", "NAME", "image"], &["run", "-e", "NAME", "image"]),
            (&["postgres://u:p@h/d"], &["•••"]),
            (&["https://h/mcp?api_key=abc"], &["•••"]),
            (&["ghp_abc"], &["•••"]),
            (&["-c", "export TOKEN=abc; run"], &["-c", "•••"]),
            (&["a\nb"], &["•••"]),
            (&["0123456789abcdef0123456789abcdef"], &["•••"]),
            (
                &["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop2"],
                &["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop2"],
            ),
            (
                &["mcp-server-time", "--local-timezone=Europe/Berlin"],
                &["mcp-server-time", "--local-timezone=Europe/Berlin"],
            ),
        ] {
            let mut before = None;
            let seen: Vec<_> = argv
                .iter()
                .map(|argument| shown(before.replace(*argument), argument).into_owned())
                .collect();
            assert_eq!(seen, want);
        }
    }

    #[test]
    fn comments_with_values_are_hidden() {
        let text = "# plain words\n# TOKEN = \"s3cret\"\n[mcp_servers.a]\ncommand = \"x\" # why\n\
                    # -----BEGIN\n# s3cret\n[other]\nfree = \"s3cret\"\nnumber = 7\n";
        let seen = seen(text, Format::Toml);
        assert!(!seen.contains("s3cret"), "{seen}");
        assert!(seen.contains("command = \"x\" #") && seen.contains("number = 7"), "{seen}");
        let prose = seen.clone();
        assert!(prose.contains("[mcp_servers.a]"), "{prose}");
    }
}
