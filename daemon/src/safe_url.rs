//! Authorities and URLs that belong to this machine.

use ceased_client::private_address::is_this_machine;

/// Whether `host[:port]` names this machine.
pub(crate) fn is_local_authority(authority: &str) -> bool {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some(parts) => parts,
            None => return false,
        },
        None => match authority.find(':') {
            Some(at) => authority.split_at(at),
            None => (authority, ""),
        },
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !rest.is_empty() && !rest.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    is_this_machine(host)
}

/// Whether the answer at a URL cannot be changed on the way: https, or this machine.
pub(crate) fn is_safe_url(url: &str) -> bool {
    let authority = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => !authority(rest).is_empty(),
        (None, Some(rest)) => is_local_authority(&authority(rest)),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_urls_are_https_or_of_this_machine() {
        for (url, expected) in [
            ("https://a.example/keys", true),
            ("https:///keys", false),
            ("http://127.0.0.1:8080/keys", true),
            ("http://localhost/keys", true),
            ("http://a.example/keys", false),
            ("http://localhost.a.example/keys", false),
            ("http://localhost@a.example/keys", false),
            ("file:/etc/passwd", false),
        ] {
            assert_eq!(is_safe_url(url), expected, "{url}");
        }
    }
}
