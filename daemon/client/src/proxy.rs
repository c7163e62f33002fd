//! Proxies of the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as other programs read
//! them. In lower case they come first.

use std::borrow::Cow;
use std::env;
use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ceased_transports::Transport;
use ceased_transports::Tunnel;
use ceased_transports::http::client::{Place, Url};

use crate::private_address::is_this_machine;

/// An HTTP proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Value of `Proxy-Authorization`, which is secret.
    authorization: Option<String>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The proxy on it, or the reason for which that cannot be used.
    proxy: Result<Option<Proxy>, String>,
}

impl Route {
    /// The way that the environment of this process has for a server.
    pub fn to(url: &Url) -> Self {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Self::with(url, &variable)
    }

    pub(crate) fn with(url: &Url, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self { proxy: proxy_for(url, variable) }
    }

    /// The proxy, if there is one.
    ///
    /// # Errors
    /// If the one of the environment cannot be used.
    pub fn proxy(&self) -> Result<Option<&Proxy>, String> {
        self.proxy.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The proxy that is given whole requests: those without TLS.
    pub(crate) fn forwarder(&self, url: &Url) -> Option<&Proxy> {
        let is_plain = matches!(url.place, Place::Tcp { is_tls: false, .. });
        self.proxy.as_ref().ok()?.as_ref().filter(|_| is_plain)
    }

    /// The target of a request for a path.
    pub fn target<'a>(&self, url: &Url, path: &'a str) -> Cow<'a, str> {
        match self.forwarder(url) {
            Some(_) => format!("http://{}{path}", url.authority).into(),
            None => path.into(),
        }
    }

    /// The header that a request has for the proxy.
    pub fn header(&self, url: &Url) -> Option<(&'static str, &str)> {
        let value = self.forwarder(url)?.authorization.as_deref()?;
        Some(("proxy-authorization", value))
    }

    /// The tunnel to a server with TLS, on a connection to the proxy.
    pub fn tunnel<T: Transport>(
        &self,
        below: T,
        (host, port): (&str, u16),
    ) -> Result<Tunnel<T>, T> {
        let Ok(Some(proxy)) = &self.proxy else { return Err(below) };
        let target = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Ok(Tunnel::new(below, &target, proxy.authorization.as_deref()))
    }
}

fn proxy_for(
    url: &Url,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, String> {
    let Place::Tcp { host, port, is_tls } = &url.place else { return Ok(None) };
    let names: &[&str] = match is_tls {
        true => &["https_proxy", "HTTPS_PROXY"],
        false => &["http_proxy", "HTTP_PROXY"],
    };
    let found = names.iter().find_map(|name| Some((*name, variable(name)?)));
    let Some((name, text)) = found else { return Ok(None) };
    let excepted = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
    if is_this_machine(host) || excepted.split(',').any(|entry| excepts(entry.trim(), host, *port))
    {
        return Ok(None);
    }
    let proxy = read(&text).map_err(|why| {
        // It may have a password.
        format!("the proxy in {name} cannot be used: {why}; correct it, or name {host} in NO_PROXY")
    })?;
    Ok(Some(proxy))
}

/// A part of a URL as it was meant: `%2F` is a slash. A text that is no code stays.
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| first == b'%');
        let code = digits.and_then(|two| std::str::from_utf8(two).ok());
        let code = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads the URL of a proxy, with or without its scheme, user and password.
fn read(text: &str) -> Result<Proxy, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    if !scheme.eq_ignore_ascii_case("http") {
        return Err("it must begin with http://".to_owned());
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(percent_decoded(user)), place),
        None => (None, authority),
    };
    if path.contains('@') {
        return Err("a /, ? or # in its password must be written as %2F, %3F or %23".to_owned());
    }
    // The wrong part may be one of a password.
    let url = Url::parse(&format!("http://{place}{path}"))
        .map_err(|_| "it has no host and port that can be read".to_owned())?;
    let Place::Tcp { host, port, .. } = url.place else { return Err("it has no host".to_owned()) };
    let user = user.map(|user| if user.contains(':') { user } else { format!("{user}:") });
    let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(user)));
    Ok(Proxy { host, port, authorization })
}

/// Whether an entry of `NO_PROXY` is for a host: `*`, a name with those below it, an address, a
/// network, each but the first with a port or without.
fn excepts(entry: &str, host: &str, port: u16) -> bool {
    let entry = entry.to_ascii_lowercase();
    if entry.is_empty() || entry == "*" {
        return !entry.is_empty();
    }
    let address = host.parse::<IpAddr>().ok();
    if let (Some((network, bits)), Some(address)) = (entry.split_once('/'), address) {
        return is_within(address, network, bits);
    }
    let is_address = entry.parse::<IpAddr>().is_ok();
    let (name, of_port) = match entry.rsplit_once(':') {
        Some((name, text)) if !is_address && !text.ends_with(']') => (name, Some(text)),
        Some(_) | None => (&*entry, None),
    };
    if of_port.is_some_and(|text| text.parse() != Ok(port)) {
        return false;
    }
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if let Some(address) = address {
        return bare.parse() == Ok(address);
    }
    let is_below_alone = name.starts_with('.') || name.starts_with("*.");
    let name = name.trim_start_matches('*').trim_start_matches('.');
    let below = host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    !name.is_empty() && (below || host == name && !is_below_alone)
}

/// Whether an address is in a network, written as its first address and the length of its prefix.
fn is_within(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) if bits <= 32 => {
            (one.to_bits() ^ other.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) if bits <= 128 => {
            (one.to_bits() ^ other.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V4(_) | IpAddr::V6(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(url: &str, variables: &[(&str, &str)]) -> Route {
        let value = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Route::with(&Url::parse(url).unwrap(), &value)
    }

    #[test]
    fn proxy_is_that_of_the_scheme() {
        let both = [("HTTPS_PROXY", "http://s:1"), ("HTTP_PROXY", "p:2")];
        for (url, variables, expected) in [
            ("https://a.org/", &both[..], Some(("s", 1))),
            ("http://a.org/", &both, Some(("p", 2))),
            ("http://a.org/", &both[..1], None),
            ("https://a.org/", &[("HTTPS_PROXY", "s:1"), ("https_proxy", "l:3")], Some(("l", 3))),
            ("https://a.org/", &[("HTTPS_PROXY", "s"), ("NO_PROXY", "*")], None),
            ("http://127.0.0.1:8/", &both, None),
            ("https://[::1]/", &both, None),
            ("https://localhost/", &both, None),
            ("http://app.localhost:3000/", &both, None),
            ("unix:/run/s.sock", &both, None),
        ] {
            let found = route(url, variables);
            let found = found.proxy().unwrap().map(|proxy| (&*proxy.host, proxy.port));
            assert_eq!(found, expected, "{url} {variables:?}");
        }
    }

    #[test]
    fn plain_requests_name_the_server_to_the_proxy() {
        let variables = [("HTTP_PROXY", "http://us%40er:p%3Aw@p/"), ("HTTPS_PROXY", "http://u@p/")];
        let url = Url::parse("http://a.org:81/mcp").unwrap();
        let found = route("http://a.org:81/mcp", &variables);
        assert_eq!(found.target(&url, "/mcp"), "http://a.org:81/mcp");
        let header = ("proxy-authorization", "Basic dXNAZXI6cDp3");
        assert_eq!(found.header(&url), Some(header));
        assert!(!format!("{found:?}").contains("dXNAZXI6cDp3"), "it is secret");
        let url = Url::parse("https://a.org/mcp").unwrap();
        let found = route("https://a.org/mcp", &variables);
        assert_eq!((&*found.target(&url, "/mcp"), found.header(&url)), ("/mcp", None));
    }

    #[test]
    fn wrong_proxy_is_told_without_its_password() {
        for text in [
            "socks5://u:secret@p:1",
            "https://p",
            "http://u:secret@p:x",
            "http://u:secret@",
            "http://u:secret/x@p:1",
            "http://u:12/secret@p:1",
        ] {
            let why = route("https://a.org/", &[("HTTPS_PROXY", text)]).proxy().unwrap_err();
            assert!(why.contains("HTTPS_PROXY") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn no_proxy_is_read_as_others_read_it() {
        for (entry, host, port, expected) in [
            ("a.org", "a.org", 443, true),
            ("a.org", "b.a.org", 443, true),
            ("a.org", "ba.org", 443, false),
            (".a.org", "b.a.org", 443, true),
            ("*.a.org", "b.a.org", 443, true),
            (".a.org", "a.org", 443, false),
            ("A.ORG:443", "a.org", 443, true),
            ("a.org:80", "a.org", 443, false),
            ("10.0.0.0/8", "10.1.2.3", 80, true),
            ("10.0.0.0/8", "11.1.2.3", 80, false),
            ("0.0.0.0/0", "11.1.2.3", 80, true),
            ("fd00::/8", "fd00::1", 80, true),
            ("10.0.0.1", "10.0.0.1", 80, true),
            ("10.0.0.1:81", "10.0.0.1", 80, false),
            ("[fd00::1]:80", "fd00::1", 80, true),
            ("fd00::1", "fd00::1", 80, true),
            ("", "a.org", 80, false),
            (".", "a.org", 80, false),
            ("*", "a.org", 80, true),
        ] {
            assert_eq!(excepts(entry, host, port), expected, "{entry} {host}:{port}");
        }
    }
}
