//! URLs of servers, as far as a probe needs them.

/// The parts of an `http` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// Host and port as they are written, for the Host header.
    pub(crate) authority: String,
    /// Host without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
}

impl Url {
    /// Parses a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            let is_tls = text.starts_with("https://");
            let hint = if is_tls { ": a probe does not speak TLS" } else { "" };
            return Err(format!("must begin with http://{hint}"));
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("must consist of visible ASCII characters".to_owned());
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.contains('@') {
            return Err("must have no user; pass credentials with --header".to_owned());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("{port:?} is no port"))?)
            }
            _ => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("must have a host".to_owned());
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { authority: authority.to_owned(), host: host.to_owned(), port, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("http://localhost:81/mcp?a=1#x").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("localhost", 81, "/mcp?a=1"));
        assert_eq!(url.authority, "localhost:81");
        let url = Url::parse("http://[::1]").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("::1", 80, "/"));
        let wrong = ["https://a/", "ftp://a", "http://", "http://a:b/", "http://a /", "http://u@a"];
        for text in wrong {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
