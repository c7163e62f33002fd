//! Requests to authorization servers: their URLs come from servers, so they lead neither to plain
//! HTTP nor into a private network, unless the server by URL itself is there (REM-05).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ceased_client::proxy::percent_decoded;
use ceased_client::web::{Fetch, Fetched, HttpServer};
use ceased_transports::http::client::{Place, Url};
use ceased_transports::tls::TlsConfig;

use crate::config::TlsFiles;
use crate::safe_url::{is_local_authority, is_safe_url};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// How long one request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The way to the authorization server of a server by URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// Authorities that are trusted instead of those of the system.
    ca_file: Option<PathBuf>,
    /// The place of the server by URL, which alone is shown the certificate of this side.
    place: Option<Place>,
    /// That certificate, for a server that asks for one.
    client: Option<TlsFiles>,
    /// Whether addresses of private networks are permitted.
    pub(crate) private: bool,
}

impl Reach {
    /// The way for the server with this URL.
    pub(crate) fn of(
        url: &Url,
        ca_file: Option<PathBuf>,
        client: Option<TlsFiles>,
        allow_private: bool,
    ) -> Self {
        let is_local = match &url.place {
            Place::Unix(_) => true,
            Place::Tcp { .. } => is_local_authority(&url.authority),
        };
        let place = Some(url.place.clone());
        Self { ca_file, place, client, private: allow_private || is_local }
    }

    /// The server by URL itself.
    pub(super) fn own_server(&self, url: &str) -> Result<HttpServer, String> {
        let Some(files) = self.client.as_ref().filter(|_| url.starts_with("https:")) else {
            return HttpServer::trusting(url, self.ca_file.as_deref());
        };
        let config = match &self.ca_file {
            Some(file) => TlsConfig::with_ca_file(file),
            None => TlsConfig::with_system_roots(),
        };
        let pem = files.read()?;
        let failed = |why| format!("{}: {why}", files.cert.display());
        let config = config.map_err(|why| why.to_string())?;
        let config = config.identified(&pem.cert, &pem.key).map_err(failed)?;
        HttpServer::at(url, Some(config)).map_err(|why| format!("{url:?} {why}"))
    }

    /// The server with this URL.
    pub(super) fn server(&self, url: &str) -> Result<HttpServer, String> {
        if !is_safe_url(url) || !(self.private || url.starts_with("https:")) {
            return Err(format!("{url:?} must begin with https://"));
        }
        let server = match Url::parse(url).ok().map(|url| url.place) == self.place {
            true => self.own_server(url)?,
            false => HttpServer::trusting(url, self.ca_file.as_deref())?,
        };
        Ok(if self.private { server } else { server.in_public() })
    }

    /// Gets a document.
    ///
    /// # Errors
    /// Why there is no answer, without a secret.
    pub(super) fn get(&self, url: &str) -> Result<Fetched, String> {
        self.send(url, "GET", &[("accept", "application/json")], "")
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Why there is no answer, without a secret.
    pub(super) fn send(
        &self,
        url: &str,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Fetched, String> {
        let server = self.server(url)?;
        let until = Instant::now() + ANSWER_WITHIN;
        let fetch = Fetch { method, headers, body, body_bytes: ANSWER_BYTES_MAX, until };
        fetch.from(&server).map_err(|why| format!("{url}: {why}"))
    }
}

/// A form of these fields (`application/x-www-form-urlencoded`).
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A text as a part of a query or form.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A part of a query as it was meant; a text that is no code stays.
pub(super) fn decode(text: &str) -> String {
    percent_decoded(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_and_decoded() {
        assert_eq!(form(&[("a b", "c&d=é")]), "a%20b=c%26d%3D%C3%A9");
        for text in ["", "a b+c", "%41", "https://h/x?y=z#f", "é"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(decode("a+b%2Bc%zz%4"), "a b+c%zz%4");
    }

    /// REM-05
    #[test]
    fn authorization_servers_are_public_and_below_tls() {
        let of = |url: &str| Reach::of(&Url::parse(url).unwrap(), None, None, false);
        let public = of("https://example.org/mcp");
        assert!(!public.private && of("http://127.0.0.1:1/mcp").private);
        assert!(of("http://localhost:1/mcp").private && !of("http://10.0.0.1/mcp").private);
        for url in ["http://example.org", "http://127.0.0.1", "unix:/s", "ftp://h"] {
            assert!(public.server(url).is_err(), "{url}");
        }
        assert!(of("http://127.0.0.1:1/mcp").server("http://127.0.0.1:2/token").is_ok());
        assert!(of("http://127.0.0.1:1/mcp").server("http://example.org/token").is_err());
        let why = public.get("https://127.0.0.1:1/").unwrap_err();
        assert!(why.contains("private"), "{why}");
    }
}
