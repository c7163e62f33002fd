//! The place of a server, and connections to it.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use ceased_transports::http::client::{ClientRequest, Place, RequestError, Url, UrlError};
use ceased_transports::{Socket, Transport};

use crate::probe::connect;

/// A connection to a server: a socket.
pub(crate) trait Wire: Transport + AsFd + fmt::Debug {}

impl<T: Transport + AsFd> Wire for T {}

/// A server over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct HttpServer {
    url: Url,
}

impl HttpServer {
    /// The server with this URL.
    pub(crate) fn at(url: &str) -> Result<Self, UrlError> {
        Ok(Self { url: Url::parse(url)? })
    }

    /// Connects.
    pub(crate) fn connect(&self, until: Instant) -> io::Result<Box<dyn Wire>> {
        Ok(match &self.url.place {
            Place::Unix(path) => Box::new(Socket::from_unix(connect::unix(path, until)?)?),
            Place::Tcp { host, port, .. } => {
                Box::new(Socket::from_tcp(connect::tcp(host, *port, until)?)?)
            }
        })
    }

    /// The bytes of a request, behind which the connection is closed.
    pub(crate) fn request(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Vec<u8>, RequestError> {
        let (target, authority) = (&*self.url.target, &*self.url.authority);
        let body = body.as_bytes();
        let mut bytes = Vec::new();
        ClientRequest { method, target, authority, headers, body, keep_alive: false }
            .write(&mut bytes)?;
        Ok(bytes)
    }
}
