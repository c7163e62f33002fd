//! URIs of resources that several servers have: told apart by the name of the server, so that each is
//! reached (UPS-11, UPS-18).

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

/// Beginning of the form for a URI without an authority. The name of the server follows, then a slash
/// and the server's own URI as it is.
const BEGINNING: &str = "ceased://servers/";

/// The URI by which clients know a resource of this server. Its scheme stays, since hosts show a
/// resource by it: `ui://a/b` of the server `s` is `ui://s/a/b`.
pub(crate) fn wrapped(server: &str, own: &str) -> String {
    match own.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) && scheme != "ceased" => {
            format!("{scheme}://{server}/{rest}")
        }
        Some(_) | None => format!("{BEGINNING}{server}/{own}"),
    }
}

/// The name of a server and its own URI, if a URI is wrapped. The server decides: a URI of its own may
/// look the same.
pub(crate) fn unwrapped(shown: &str) -> Option<(&str, Cow<'_, str>)> {
    if let Some(rest) = shown.strip_prefix(BEGINNING) {
        let (server, own) = rest.split_once('/')?;
        return Some((server, Cow::Borrowed(own)));
    }
    let (scheme, rest) = shown.split_once("://").filter(|(scheme, _)| is_scheme(scheme))?;
    let (server, rest) = rest.split_once('/')?;
    Some((server, Cow::Owned(format!("{scheme}://{rest}"))))
}

/// Whether a wrapped URI is one of no server of its own.
pub(crate) fn is_ours(shown: &str) -> bool {
    shown.starts_with(BEGINNING)
}

fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPS-11, UPS-18: wrapping is reversible for every URI, and the scheme stays.
    #[test]
    fn wrapped_uri_is_unwrapped() {
        for (uri, expected) in [
            ("ui://app/main.html", "ui://s.1_x/app/main.html"),
            ("skill://a", "skill://s.1_x/a"),
            ("file:///a b/c", "file://s.1_x//a b/c"),
            ("x://y/{id}?q={q}", "x://s.1_x/y/{id}?q={q}"),
            ("", "ceased://servers/s.1_x/"),
            ("urn:a:b", "ceased://servers/s.1_x/urn:a:b"),
            ("a/b?c=%20://d", "ceased://servers/s.1_x/a/b?c=%20://d"),
            ("ceased://servers/b/x", "ceased://servers/s.1_x/ceased://servers/b/x"),
        ] {
            let shown = wrapped("s.1_x", uri);
            assert_eq!(shown, expected);
            let own = unwrapped(&shown).map(|(server, own)| (server, own.into_owned()));
            assert_eq!(own, Some(("s.1_x", uri.into())));
        }
        assert_eq!(unwrapped("x:y"), None);
    }
}
