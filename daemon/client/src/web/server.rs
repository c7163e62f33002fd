//! The place of a server, and connections to it.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use ceased_transports::http::client::{ClientRequest, Place, RequestError, Url, UrlError};
use ceased_transports::tls::{Tls, TlsConfig};
use ceased_transports::{Socket, Transport};

use super::connect;
use crate::private_address::is_private;
use crate::proxy::Route;

/// A connection to a server: a socket, below TLS or not.
pub trait Wire: Transport + AsFd {
    /// Whether bytes that it holds wait for room.
    fn wants_room(&self) -> bool;
}

impl Wire for Socket {
    fn wants_room(&self) -> bool {
        false
    }
}

impl<T: Transport + AsFd> Wire for Tls<T> {
    fn wants_room(&self) -> bool {
        self.wants_room()
    }
}

/// A server over HTTP.
#[derive(Debug, Clone)]
pub struct HttpServer {
    pub(super) url: Url,
    tls: Option<TlsConfig>,
    pub(super) route: Route,
    /// Whether addresses of private networks are permitted.
    private: bool,
}

impl HttpServer {
    /// The server with this URL.
    pub fn at(url: &str, tls: Option<TlsConfig>) -> Result<Self, UrlError> {
        let url = Url::parse(url)?;
        Ok(Self { route: Route::to(&url), url, tls, private: true })
    }

    /// The server with this URL, verified against the authorities of the system or of a file.
    ///
    /// # Errors
    /// Why it cannot be one.
    pub fn trusting(url: &str, ca_file: Option<&Path>) -> Result<Self, String> {
        let tls = match (ca_file, url.starts_with("https:")) {
            (_, false) => None,
            (Some(file), true) => Some(TlsConfig::with_ca_file(file)),
            (None, true) => Some(TlsConfig::with_system_roots()),
        };
        let tls = tls.transpose().map_err(|why| why.to_string())?;
        Self::at(url, tls).map_err(|why| format!("{url:?} {why}"))
    }

    /// The same server, which must not be in a private network (REM-05).
    pub fn in_public(self) -> Self {
        Self { private: false, ..self }
    }

    /// Connects.
    pub fn connect(&self, until: Instant) -> io::Result<Box<dyn Wire>> {
        Ok(match &self.url.place {
            Place::Unix(path) => Box::new(Socket::from_unix(connect::unix(path, until)?)?),
            Place::Tcp { host, port, is_tls } => {
                let socket = Socket::from_tcp(self.connect_tcp((host, *port), until)?)?;
                match (&self.tls, is_tls) {
                    (Some(tls), true) => match self.route.tunnel(socket, (host, *port)) {
                        Ok(below) => {
                            Box::new(Tls::new(below, tls, host).map_err(io::Error::other)?)
                        }
                        Err(below) => {
                            Box::new(Tls::new(below, tls, host).map_err(io::Error::other)?)
                        }
                    },
                    (None, true) => return Err(io::ErrorKind::Unsupported.into()),
                    (_, false) => Box::new(socket),
                }
            }
        })
    }

    /// Connects to a host, or to the proxy before it, which looks up its name.
    fn connect_tcp(&self, (host, port): (&str, u16), until: Instant) -> io::Result<TcpStream> {
        let Some(proxy) = self.route.proxy().map_err(io::Error::other)? else {
            return connect::tcp((host, port), self.private, until);
        };
        if !self.private && host.parse().is_ok_and(|ip: IpAddr| is_private(ip.to_canonical())) {
            return Err(io::Error::other(format!("{host} is a private address, which is refused")));
        }
        let tell =
            |why| io::Error::other(format!("the proxy {}:{}: {why}", proxy.host, proxy.port));
        connect::tcp((&proxy.host, proxy.port), true, until).map_err(tell)
    }

    /// The bytes of a request, behind which the connection is closed.
    pub fn request(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Vec<u8>, RequestError> {
        let target = self.route.target(&self.url, &self.url.target);
        let (target, authority) = (&*target, &*self.url.authority);
        let headers = [headers, self.route.header(&self.url).as_slice()].concat();
        let (headers, body) = (&*headers, body.as_bytes());
        let mut bytes = Vec::new();
        ClientRequest { method, target, authority, headers, body, keep_alive: false }
            .write(&mut bytes)?;
        Ok(bytes)
    }
}

/// Whether an operation can be done later.
pub fn is_later(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
