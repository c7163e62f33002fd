//! TLS over another transport, of a client or a server.
//!
//! [`Tls`] is a [`Transport`] itself, so that an event loop drives it through a [`Link`](crate::Link)
//! as it drives a socket. Its handshake takes place in reads and writes. Bytes that are written
//! meanwhile wait in it and leave with its end; afterwards a write takes some only when those before
//! them have left.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::{Registry, Token};
use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection,
};

use crate::transport::{Peer, Readiness, Transport};

/// Bytes that one write takes, so that the encrypted copy of a large message stays small.
const WRITE_BYTES: usize = 64 * 1024;

/// The authorities that are trusted, and the sessions that can be resumed; for many connections.
#[derive(Debug, Clone)]
pub struct TlsConfig(Arc<ClientConfig>);

impl PartialEq for TlsConfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Why no authority is trusted.
#[derive(Debug)]
#[non_exhaustive]
pub enum RootsError {
    /// The system has no certificate of an authority.
    NoneInSystem {
        /// The first error of its files, if there was one.
        why: Option<String>,
    },
    /// A file of certificates cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Its error.
        why: String,
    },
    /// The cryptography of this program has no version of TLS.
    NoVersion(String),
}

impl fmt::Display for RootsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneInSystem { why } => {
                f.write_str("this system has no certificates of authorities")?;
                if let Some(why) = why {
                    write!(f, ": {why}")?;
                }
                f.write_str("; install its package ca-certificates, or name a file of them")
            }
            Self::File { path, why } => {
                write!(f, "cannot read certificates of authorities from {}: {why}", path.display())
            }
            Self::NoVersion(why) => write!(f, "TLS cannot be used: {why}"),
        }
    }
}

impl Error for RootsError {}

impl TlsConfig {
    /// Trusts the authorities of the system, or those of the file in `SSL_CERT_FILE`.
    ///
    /// # Errors
    /// When there are none.
    pub fn with_system_roots() -> Result<Self, RootsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // Systems have certificates that no verifier takes; the others count.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map(ToString::to_string);
            return Err(RootsError::NoneInSystem { why });
        }
        Self::with(roots)
    }

    /// Trusts the authorities of a file in PEM format, and no other.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub fn with_ca_file(path: &Path) -> Result<Self, RootsError> {
        let failed = |why: &str| RootsError::File { path: path.to_owned(), why: why.to_owned() };
        let told = |why: pem::Error| failed(&why.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(told)? {
            let certificate = certificate.map_err(told)?;
            roots.add(certificate).map_err(|why| failed(&why.to_string()))?;
        }
        if roots.is_empty() {
            return Err(failed("it has no certificate in PEM format"));
        }
        Self::with(roots)
    }

    fn with(roots: RootCertStore) -> Result<Self, RootsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| RootsError::NoVersion(why.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// The same authorities, and this certificate of the client, behind which those of intermediate
    /// authorities are, with its key, for servers that ask for one; both in PEM format.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn identified(&self, certificates: &[u8], key: &[u8]) -> Result<Self, String> {
        let (chain, key) = identity(certificates, key)?;
        let certified = CertifiedKey::from_der(chain, key, self.0.crypto_provider())
            .map_err(|why| format!("the certificate and its key cannot be used: {why}"))?;
        let mut config = ClientConfig::clone(&self.0);
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        // A session of a client without the certificate must not be resumed.
        config.resumption = Resumption::default();
        Ok(Self(Arc::new(config)))
    }
}

/// A certificate with those of its authorities, and its key.
fn identity(
    certificates: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(|why| format!("it has no certificate in PEM format: {why}"))?;
    if chain.is_empty() {
        return Err("it has no certificate in PEM format".into());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|why| format!("its key is no private key in PEM format: {why}"))?;
    Ok((chain, key))
}

/// The certificate of a server, and the sessions that its clients can resume.
#[derive(Debug, Clone)]
pub struct TlsAcceptor(Arc<ServerConfig>);

impl TlsAcceptor {
    /// A server with this certificate, behind which those of intermediate authorities are, and its
    /// key, both in PEM format.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, String> {
        let (chain, key) = identity(certificates, key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|why| format!("the certificate and its key cannot be used: {why}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Speaks TLS with a client that has connected.
    ///
    /// # Errors
    /// When the library has no room for it.
    pub fn accept<T: Transport>(&self, below: T) -> io::Result<Tls<T>> {
        let session = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Ok(Tls::over(below, session.into(), "the client"))
    }
}

/// Why there is no TLS with a server. The error of a read has it as its source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The host is no name that a certificate can have.
    Host(String),
    /// The certificate is not valid any more.
    Expired {
        /// The host.
        host: Box<str>,
        /// Time since its end, if it has one.
        ago: Option<Duration>,
    },
    /// The certificate is not valid yet.
    NotYetValid {
        /// The host.
        host: Box<str>,
    },
    /// The certificate is for other names.
    WrongName {
        /// The host.
        host: Box<str>,
        /// Names in the certificate.
        names: Vec<String>,
    },
    /// No trusted authority has signed the certificate.
    UnknownIssuer {
        /// The host.
        host: Box<str>,
    },
    /// The certificate is one of an authority, which must not be that of a server.
    Authority {
        /// The host.
        host: Box<str>,
    },
    /// The answer is no TLS.
    NotTls {
        /// The host.
        host: Box<str>,
    },
    /// The server closed the connection during the handshake.
    CutHandshake {
        /// The host.
        host: Box<str>,
    },
    /// The connection was closed without the end that TLS has: bytes may be missing.
    Cut,
    /// Another error.
    Failed {
        /// The host.
        host: Box<str>,
        /// The error.
        why: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const TRUST: &str =
            "the certificate of its authority can be trusted by a file (ca_file, --ca-file)";
        match self {
            Self::Host(host) => write!(f, "{host:?} is no host that a certificate can name"),
            Self::Expired { host, ago } => {
                write!(f, "the certificate of {host} has expired")?;
                match ago.map(|ago| ago.as_secs() / 86_400) {
                    None => {}
                    Some(0) => f.write_str(" within the last day")?,
                    Some(1) => f.write_str(" a day ago")?,
                    Some(days) => write!(f, " {days} days ago")?,
                }
                f.write_str("; renew it, or set the clock of this machine")
            }
            Self::NotYetValid { host } => write!(
                f,
                "the certificate of {host} is not valid yet; set the clock of this machine, or of \
                 the one that made it"
            ),
            Self::WrongName { host, names } if names.is_empty() => {
                write!(f, "the certificate of {host} names no host (subjectAltName); renew it")
            }
            Self::WrongName { host, names } => write!(
                f,
                "the certificate of {host} is for {}; use that name in the URL, or renew it",
                names.join(", ")
            ),
            Self::UnknownIssuer { host } => {
                write!(
                    f,
                    "no authority that is trusted has signed the certificate of {host}; {TRUST}"
                )
            }
            Self::Authority { host } => write!(
                f,
                "the certificate of {host} is that of an authority (self-signed, CA:TRUE); have the \
                 server use one that the authority has signed: {TRUST}"
            ),
            Self::NotTls { host } => {
                write!(f, "{host} does not speak TLS there; use another port, or http://")
            }
            Self::CutHandshake { host } => {
                write!(f, "{host} closed the connection during the TLS handshake")
            }
            Self::Cut => f.write_str("the connection was cut: bytes may be missing"),
            Self::Failed { host, why } => write!(f, "no TLS with {host}: {why}"),
        }
    }
}

impl Error for TlsError {}

impl TlsError {
    fn of(why: &rustls::Error, host: &str) -> Self {
        let host: Box<str> = host.into();
        if let rustls::Error::InvalidCertificate(why) = why {
            return Self::of_certificate(why, host);
        }
        match matches!(why, rustls::Error::InvalidMessage(_)) {
            true => Self::NotTls { host },
            false => Self::Failed { host, why: why.to_string() },
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "an enum of another package, which may have more variants"
    )]
    fn of_certificate(why: &CertificateError, host: Box<str>) -> Self {
        match why {
            CertificateError::Expired => Self::Expired { host, ago: None },
            CertificateError::ExpiredContext { time, not_after } => {
                let ago = time.as_secs().saturating_sub(not_after.as_secs());
                Self::Expired { host, ago: Some(Duration::from_secs(ago)) }
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid { host }
            }
            CertificateError::NotValidForName => Self::WrongName { host, names: Vec::new() },
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::WrongName { host, names: presented.iter().map(|name| bare(name)).collect() }
            }
            // An authority with another key may have the name of one that is trusted.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownIssuer { host }
            }
            // The verifier has no kind for it, only this text.
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                Self::Authority { host }
            }
            other => Self::Failed { host, why: format!("its certificate: {other}") },
        }
    }
}

/// A name of a certificate, which the verifier has as `DnsName("example.org")`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner.trim_end_matches(')'));
    inner.trim_matches('"').to_owned()
}

/// TLS over another transport.
pub struct Tls<T> {
    below: T,
    session: Connection,
    host: Box<str>,
    failed: Option<TlsError>,
    /// The transport below is to be finished once nothing is held.
    finishes: bool,
}

impl<T: fmt::Debug> fmt::Debug for Tls<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { below, host, failed, finishes, session: _ } = self;
        f.debug_struct("Tls")
            .field("below", below)
            .field("host", host)
            .field("failed", failed)
            .field("finishes", finishes)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> Tls<T> {
    /// Speaks TLS with this host, whose name or address its certificate must have.
    ///
    /// # Errors
    /// When no certificate can have such a name.
    pub fn new(below: T, config: &TlsConfig, host: &str) -> Result<Self, TlsError> {
        let wrong = || TlsError::Host(host.to_owned());
        let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        let session = ClientConnection::new(Arc::clone(&config.0), name)
            .map_err(|why| TlsError::of(&why, host))?;
        Ok(Self::over(below, session.into(), host))
    }

    fn over(below: T, mut session: Connection, host: &str) -> Self {
        // A request that is written during the handshake leaves with its end.
        session.set_buffer_limit(None);
        Self { below, session, host: host.into(), failed: None, finishes: false }
    }

    /// Whether held bytes wait for room.
    pub fn wants_room(&self) -> bool {
        self.session.wants_write()
    }

    /// Sends held bytes as far as there is room; whether nothing is left.
    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Below(&mut self.below)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(why) => return Err(why),
            }
        }
        if std::mem::take(&mut self.finishes) {
            self.below.finish()?;
        }
        Ok(true)
    }

    fn fail(&mut self, kind: ErrorKind, why: TlsError) -> io::Error {
        self.failed = Some(why.clone());
        io::Error::new(kind, why)
    }
}

impl<T: Transport> Transport for Tls<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(why) = &self.failed {
            return Err(io::Error::new(ErrorKind::InvalidData, why.clone()));
        }
        loop {
            match self.session.reader().read(buf) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                Err(why) if why.kind() == ErrorKind::UnexpectedEof => {
                    let why = match self.session.is_handshaking() {
                        true => TlsError::CutHandshake { host: self.host.clone() },
                        false => TlsError::Cut,
                    };
                    return Err(self.fail(ErrorKind::UnexpectedEof, why));
                }
                result => return result,
            }
            // A peer that is gone is told by a read, behind its last words.
            let _ = self.flush();
            self.session.read_tls(&mut Below(&mut self.below))?;
            let processed = self.session.process_new_packets();
            // The next part of the handshake, or the reason for its end.
            let _ = self.flush();
            if let Err(why) = processed {
                let why = TlsError::of(&why, &self.host);
                return Err(self.fail(ErrorKind::InvalidData, why));
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.session.writer().write(bytes.get(..WRITE_BYTES).unwrap_or(bytes))?;
        self.flush()?;
        Ok(count)
    }

    /// Room is awaited for the life of the connection: a handshake and held bytes need it.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.below.register(registry, token)?;
        self.below.await_room(registry, token, true)
    }

    fn await_room(&mut self, registry: &Registry, token: Token, _: bool) -> io::Result<()> {
        self.below.await_room(registry, token, true)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.below.deregister(registry)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.session.send_close_notify();
        self.finishes = true;
        self.flush().map(drop)
    }

    fn peer(&self) -> &Peer {
        self.below.peer()
    }

    fn peer_process(&self) -> io::Result<Option<OwnedFd>> {
        self.below.peer_process()
    }

    fn holds_output(&self) -> bool {
        self.session.wants_write() || self.session.is_handshaking() || self.below.holds_output()
    }

    /// Room for held bytes is used by a read.
    fn readiness(&self, event: &Event) -> Readiness {
        let below = self.below.readiness(event);
        let readable = below.readable || below.writable && self.session.wants_write();
        Readiness { readable, ..below }
    }

    fn short_read_drains(&self) -> bool {
        false
    }
}

impl<T: AsFd> AsFd for Tls<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.below.as_fd()
    }
}

/// A transport as the session reads and writes it.
struct Below<'a, T>(&'a mut T);

impl<T: Transport> Read for Below<'_, T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<T: Transport> Write for Below<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
