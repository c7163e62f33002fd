//! Places of the metadata of an authorization server (RFC 8414, OpenID Connect Discovery).

/// URLs of the metadata of an issuer, in the order of MCP: RFC 8414 before its path, OpenID Connect
/// before it, and OpenID Connect behind it.
pub(crate) fn metadata_urls(issuer: &str) -> Vec<String> {
    let whole = issuer.trim_end_matches('/');
    let start = whole.find("://").map_or(0, |at| at + 3);
    let path =
        whole.get(start..).and_then(|rest| rest.find('/')).map_or(whole.len(), |at| start + at);
    let (origin, path) = whole.split_at_checked(path).unwrap_or((whole, ""));
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
        format!("{whole}/.well-known/openid-configuration"),
    ];
    urls.dedup();
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_an_issuer_have_their_places() {
        assert_eq!(
            metadata_urls("https://a.example/realms/x"),
            [
                "https://a.example/.well-known/oauth-authorization-server/realms/x",
                "https://a.example/.well-known/openid-configuration/realms/x",
                "https://a.example/realms/x/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            metadata_urls("https://a.example/"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
    }
}
