//! Challenges of a server: the parameters of `WWW-Authenticate` (RFC 9110, 6750, 9728).

/// The parameters of a challenge that a client heeds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Place of the metadata of the server.
    pub(super) resource_metadata: Option<String>,
    /// Scopes that the server asks for.
    pub(super) scope: Option<String>,
}

/// Reads the values of all headers.
pub(super) fn read<'a>(values: impl Iterator<Item = &'a str>) -> Challenge {
    let mut found = Challenge::default();
    for value in values {
        for (name, text) in parameters(value) {
            let place = match &*name {
                "resource_metadata" => &mut found.resource_metadata,
                "scope" => &mut found.scope,
                _ => continue,
            };
            place.get_or_insert(text);
        }
    }
    found
}

/// Each `name=value` of a header, whose value is a token or in quotes. Names of schemes are skipped.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.rsplit([' ', ',', '\t']).next().unwrap_or_default().to_ascii_lowercase();
        let (value, behind) = value(after.trim_start());
        found.push((name, value));
        rest = behind;
    }
    found
}

/// The value at the start of a text, and the text behind it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_bearer_are_found() {
        for (text, metadata, scope) in [
            (
                r#"Bearer resource_metadata="https://h/x", scope="a b""#,
                Some("https://h/x"),
                Some("a b"),
            ),
            (r#"Basic realm="x=\"y, scope=z", Bearer scope=read"#, None, Some("read")),
            (r#"Bearer error="invalid_token",Resource_Metadata="u""#, Some("u"), None),
            ("Bearer", None, None),
            ("Bearer scope=\"open", None, Some("open")),
            ("=", None, None),
        ] {
            let found = read([text].into_iter());
            assert_eq!(found.resource_metadata.as_deref(), metadata, "{text}");
            assert_eq!(found.scope.as_deref(), scope, "{text}");
        }
    }
}
