//! References of hosts in their files: `${NAME}` and its relatives.

/// Beginnings of references, with the character that ends them: `${NAME}` of most hosts, `{env:NAME}`
/// and `{file:PATH}` of OpenCode.
const BEGINNINGS: [&str; 3] = ["${", "{env:", "{file:"];

/// A reference within a text.
struct Reference<'t> {
    start: usize,
    end: usize,
    /// The text between the braces, without `env:`.
    inner: &'t str,
}

fn next(text: &str, from: usize) -> Option<Reference<'_>> {
    let rest = text.get(from..)?;
    let found = BEGINNINGS.iter().filter_map(|begin| Some((rest.find(begin)?, *begin)));
    let (at, begin) = found.min_by_key(|(at, _)| *at)?;
    let start = from + at;
    let inner = text.get(start + begin.len()..)?;
    let inner = inner.get(..inner.find('}')?)?;
    let end = start + begin.len() + inner.len() + 1;
    // `${{ secrets.X }}` has two.
    let end = if text.get(end..).is_some_and(|it| inner.starts_with('{') && it.starts_with('}')) {
        end + 1
    } else {
        end
    };
    let inner = match begin {
        "{file:" => "",
        _ => inner.strip_prefix("env:").unwrap_or(inner),
    };
    Some(Reference { start, end, inner })
}

/// A text with the references filled in that `value` knows, or that have a default; others stay.
pub(super) fn fill_in(text: &str, value: &impl Fn(&str) -> Option<String>) -> String {
    if let Some(name) = plain(text) {
        return value(name).unwrap_or_else(|| text.to_owned());
    }
    let (mut filled, mut at) = (String::new(), 0);
    while let Some(found) = next(text, at) {
        filled.push_str(text.get(at..found.start).unwrap_or_default());
        let (name, default) = match found.inner.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (found.inner, None),
        };
        let written = text.get(found.start..found.end).unwrap_or_default();
        filled.push_str(&value(name).or(default).unwrap_or_else(|| written.to_owned()));
        at = found.end;
    }
    filled + text.get(at..).unwrap_or_default()
}

/// The references in a text, as they are written. Nothing else of the text is in them.
pub(super) fn references(text: &str) -> Vec<String> {
    if plain(text).is_some() {
        return vec![text.to_owned()];
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(reference) = next(text, at) {
        // A default can be a secret.
        let written = text.get(reference.start..reference.end).unwrap_or_default();
        found
            .push(written.split_once(":-").map_or(written.to_owned(), |(it, _)| format!("{it}}}")));
        at = reference.end;
    }
    found
}

/// The variable that a value names as a whole: `${NAME}` of Claude Code, `${env:NAME}` of VS Code
/// and Cursor, `{env:NAME}` of OpenCode, `$NAME` of Gemini.
pub(super) fn whole(value: &str) -> Option<&str> {
    let found = next(value, 0).filter(|it| it.start == 0 && it.end == value.len());
    found.map(|it| it.inner).filter(|it| is_name(it)).or_else(|| plain(value))
}

/// The name in `$NAME`, of capitals.
fn plain(value: &str) -> Option<&str> {
    let name = value.strip_prefix('$')?;
    (is_name(name) && !name.chars().any(|c| c.is_ascii_lowercase())).then_some(name)
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_filled_in_and_named() {
        let value = |name: &str| (name == "X").then(|| "/x".to_owned());
        for (text, filled, left) in [
            ("${X}/run", "/x/run", &[][..]),
            ("-${env:X}-", "-/x-", &[]),
            ("{env:X}", "/x", &[]),
            ("$X", "/x", &[]),
            ("${env:Y:-z}", "z", &[]),
            ("a ${W} s3cret", "a ${W} s3cret", &["${W}"]),
            ("${{ secrets.K }}", "${{ secrets.K }}", &["${{ secrets.K }}"]),
            ("{file:k}", "{file:k}", &["{file:k}"]),
            ("${", "${", &[]),
            ("$5", "$5", &[]),
            ("a$X", "a$X", &[]),
        ] {
            assert_eq!(fill_in(text, &value), filled, "{text}");
            assert_eq!(references(filled), left, "{text}");
        }
        assert_eq!(references("${W:-s3cret}"), ["${W}"]);
        assert_eq!(whole("${env:A}"), Some("A"));
        assert_eq!(whole("${input:a}"), None);
        assert_eq!(whole("x${A}"), None);
    }
}
