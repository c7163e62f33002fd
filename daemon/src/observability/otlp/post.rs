//! Requests to the collector.

use std::time::Instant;

use crate::config::Otlp;
use crate::header_lines::header_lines;
use crate::owned_file::{self, Secrecy};
use ceased_client::web::{Fetch, HttpServer};

/// Bytes of a file of headers.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A collector of spans.
#[derive(Debug)]
pub(crate) struct Collector {
    server: HttpServer,
    headers: Vec<(String, String)>,
}

impl Collector {
    /// The collector of a configuration.
    ///
    /// # Errors
    /// Why it cannot be used, without a secret.
    pub(crate) fn of(policy: &Otlp) -> Result<Self, String> {
        let url = url_of(&policy.endpoint);
        let server = HttpServer::trusting(&url, policy.ca_file.as_deref())?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        if let Some(path) = &policy.headers_file {
            let failed = |why: String| format!("{}: {why}", path.display());
            let bytes = owned_file::read(path, Secrecy::Secret, FILE_BYTES_MAX)
                .map_err(|why| failed(why.to_string()))?;
            let text = String::from_utf8(bytes).map_err(|_| failed("it is no UTF-8".into()))?;
            headers.extend(header_lines(&text).map_err(failed)?);
        }
        Ok(Self { server, headers })
    }

    /// Delivers a body.
    ///
    /// # Errors
    /// Why it was not delivered.
    pub(super) fn post(&self, body: &str, until: Instant) -> Result<(), String> {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let body_bytes = ANSWER_BYTES_MAX;
        let fetch = Fetch { method: "POST", headers: &headers, body, body_bytes, until };
        match fetch.head_from(&self.server).map_err(|why| why.to_string())?.status {
            200..300 => Ok(()),
            status => Err(format!("it answers with {status}")),
        }
    }
}

/// The URL of the spans of a collector: `/v1/traces` below its endpoint.
fn url_of(endpoint: &str) -> String {
    match endpoint.trim_end_matches('/') {
        whole if whole.ends_with("/v1/traces") => whole.to_owned(),
        base if base.starts_with("unix:") => format!("{base}:/v1/traces"),
        base => format!("{base}/v1/traces"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// An answer that ends, or stays away, behind any of its bytes delays nothing beyond the deadline,
    /// and counts as a delivery only with its whole head.
    #[test]
    fn answer_may_be_cut_at_every_byte() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let whole = format!("{HEAD}content-length: 22\r\n\r\n{{\"partialSuccess\":null}}");
        let head = whole.find("\r\n\r\n").unwrap() + 4;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let server = HttpServer::at(&url, None).unwrap();
        let collector = Collector { server, headers: Vec::new() };
        let cuts: Vec<usize> = (0..=whole.len()).collect();
        let answer = whole.clone();
        let peers = thread::spawn(move || {
            // Silent connections stay open until the end.
            let mut open = Vec::new();
            for (cut, is_closed) in cuts.into_iter().flat_map(|cut| [(cut, true), (cut, false)]) {
                let (mut stream, _) = listener.accept().unwrap();
                let mut piece = [0; 1024];
                let mut asked = Vec::new();
                while !asked.ends_with(b"{}") {
                    match stream.read(&mut piece).unwrap() {
                        0 => break,
                        count => asked.extend_from_slice(&piece[..count]),
                    }
                }
                let _ = stream.write_all(&answer.as_bytes()[..cut]);
                if is_closed {
                    let _ = stream.shutdown(Shutdown::Write);
                }
                open.push(stream);
            }
            open
        });
        for cut in 0..=whole.len() {
            for is_closed in [true, false] {
                let is_whole = cut >= head;
                let within = if is_closed || is_whole { 20_000 } else { 10 };
                let until = Instant::now() + Duration::from_millis(within);
                let told = collector.post("{}", until);
                assert_eq!(told.is_ok(), is_whole, "{cut} {is_closed}: {told:?}");
            }
        }
        drop(peers.join().unwrap());
    }

    #[test]
    fn spans_go_below_the_endpoint() {
        for (endpoint, url) in [
            ("http://h:4318", "http://h:4318/v1/traces"),
            ("http://h:4318/", "http://h:4318/v1/traces"),
            ("https://h/otlp", "https://h/otlp/v1/traces"),
            ("https://h/v1/traces", "https://h/v1/traces"),
            ("unix:/run/c.sock", "unix:/run/c.sock:/v1/traces"),
        ] {
            assert_eq!(url_of(endpoint), url);
        }
    }
}
