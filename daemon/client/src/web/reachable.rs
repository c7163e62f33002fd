//! Whether a server can be reached, before a request that matters.

use std::io;
use std::time::Instant;

use crate::io::poll;
use rustix::event::{PollFd, PollFlags};

use super::fetch::Fetch;
use super::server::{HttpServer, is_later};

/// Bytes of an answer of a proxy that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

impl HttpServer {
    /// Makes sure that it accepts, and that its certificate is right, on the way that requests go. A
    /// proxy that forwards whole requests accepts for each server, so that it is sent one.
    ///
    /// # Errors
    /// If it cannot be reached until then.
    pub fn check(&self, until: Instant) -> io::Result<()> {
        let Some(proxy) = self.route.forwarder(&self.url) else { return self.handshake(until) };
        let body_bytes = ANSWER_BYTES_MAX;
        let fetch = Fetch { method: "OPTIONS", headers: &[], body: "", body_bytes, until };
        match fetch.head_from(self)?.status {
            status @ (407 | 502..=504) => Err(io::Error::other(format!(
                "the proxy {}:{} answers with HTTP {status}",
                proxy.host, proxy.port
            ))),
            _ => Ok(()),
        }
    }

    fn handshake(&self, until: Instant) -> io::Result<()> {
        let mut wire = self.connect(until)?;
        while wire.holds_output() {
            match wire.read(&mut [0]) {
                Ok(_) => break,
                Err(why) if is_later(&why) => {}
                Err(why) => return Err(why),
            }
            if Instant::now() >= until {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the TLS handshake takes long",
                ));
            }
            let interest = match wire.wants_room() {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            poll(&mut [PollFd::new(&wire, interest)], Some(until))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::proxy::Route;

    /// A proxy accepts, whether its server does or not.
    #[test]
    fn server_behind_a_proxy_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let answers = ["502 Bad Gateway", "407 Proxy Authentication Required", "405 No"];
        let served = thread::spawn(move || {
            answers.map(|status| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 1024];
                let count = stream.read(&mut asked).unwrap();
                write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
                String::from_utf8_lossy(&asked[..count]).into_owned()
            })
        });
        let mut server = HttpServer::at("http://far.example/mcp", None).unwrap();
        server.route =
            Route::with(&server.url, &|name| (name == "HTTP_PROXY").then(|| proxy.clone()));
        let until = Instant::now() + Duration::from_secs(20);
        let told = answers.map(|_| server.check(until).map_err(|why| why.to_string()));
        assert!(told[0].as_ref().unwrap_err().contains("HTTP 502"), "{told:?}");
        assert!(told[1].as_ref().unwrap_err().contains("HTTP 407"), "{told:?}");
        assert_eq!(told[2], Ok(()));
        for asked in served.join().unwrap() {
            assert!(asked.starts_with("OPTIONS http://far.example/mcp "), "{asked}");
        }
    }
}
