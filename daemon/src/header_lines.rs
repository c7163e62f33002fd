//! Files of headers: lines `Name: value`.

use ceased_transports::http::client::{RequestError, check_header};

/// The headers of a text, with names in lower case; empty lines and those that begin with `#` are
/// skipped.
///
/// # Errors
/// The line that is none, without its value, which may be secret.
pub(crate) fn header_lines(text: &str) -> Result<Vec<(String, String)>, String> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &str)| {
        let (name, value) = line.split_once(':').ok_or(format!("line {number} has no colon"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        check_header(&name, &value).map_err(|why| {
            // The colon may be one of a value.
            let why = match matches!(why, RequestError::HeaderName(_)) {
                true => "it does not begin with the name of a header and a colon".to_owned(),
                false => why.to_string(),
            };
            format!("line {number}: {why}")
        })?;
        Ok((name, value))
    };
    lines.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_headers_are_read_strictly() {
        let text = "# a comment\n\nAuthorization: Bearer a:b\n x-scope :  1 \n";
        let headers = header_lines(text).unwrap();
        let told = [("authorization", "Bearer a:b"), ("x-scope", "1")];
        assert_eq!(headers, told.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for line in ["none-secret", "Authorization Bearer secret:rest", "secret\u{fc}: 1"] {
            let why = header_lines(&format!("a: 1\n{line}")).unwrap_err();
            assert!(why.contains("line 2") && !why.contains("secret"), "{why}");
        }
    }
}
