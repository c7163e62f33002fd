//! URIs of resources that several servers have: wrapped, so that each is reached (UPS-11).

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

/// Beginning of a wrapped URI. The name of the server follows, then a slash and the server's own
/// URI as it is.
const BEGINNING: &str = "ceased://servers/";

/// The URI by which clients know a resource of this server.
pub(crate) fn wrapped(server: &str, own: &str) -> String {
    format!("{BEGINNING}{server}/{own}")
}

/// Whether a URI is a wrapped one.
pub(crate) fn is_wrapped(shown: &str) -> bool {
    server_of(shown).is_some()
}

/// Name of the server in a wrapped URI.
pub(crate) fn server_of(shown: &str) -> Option<&str> {
    Some(shown.strip_prefix(BEGINNING)?.split_once('/')?.0)
}

/// The URI that the server knows.
pub(crate) fn own(shown: &str) -> &str {
    let rest = shown.strip_prefix(BEGINNING).and_then(|rest| rest.split_once('/'));
    rest.map_or(shown, |(_, own)| own)
}

/// The URI of a listed resource as clients see it: wrapped, if a server before has it as well.
pub(crate) fn shown<'a>(server: &str, own: &'a str, is_taken: bool) -> Cow<'a, str> {
    match is_taken {
        true => Cow::Owned(wrapped(server, own)),
        false => Cow::Borrowed(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPS-11: wrapping is reversible for every URI.
    #[test]
    fn wrapped_uri_is_unwrapped() {
        for uri in ["file:///a b/c", "x://y", "", "ceased://servers/b/x", "a/b?c=%20#d"] {
            let shown = wrapped("s.1_x", uri);
            assert_eq!((server_of(&shown), own(&shown)), (Some("s.1_x"), uri));
        }
        assert_eq!((server_of("x://y/z"), own("x://y/z")), (None, "x://y/z"));
        assert_eq!(shown("b", "x", true), "ceased://servers/b/x");
        assert_eq!(shown("b", "x", false), "x");
    }
}
