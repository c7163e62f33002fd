//! The address of a subject, and the place of one instance of it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};

use uuid::Uuid;

/// In an address or a command: a free port, another for each instance.
const PORT: &str = "{port}";
/// Ports that are tried for a free one.
const OFFERS_MAX: usize = 1000;
/// Ports that are enough for all instances of some probes.
const PORTS_MIN: usize = 2000;

/// The transport of a subject, and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard input and output of the command.
    Stdio,
    /// A Unix socket with JSON lines, by its path.
    Socket(String),
    /// Streamable HTTP, by its URL.
    Url(String),
}

impl Target {
    /// Whether it is an HTTP server.
    pub(crate) const fn is_http(&self) -> bool {
        matches!(self, Self::Url(_))
    }

    /// Whether it speaks over its standard input and output.
    pub(crate) const fn is_stdio(&self) -> bool {
        matches!(self, Self::Stdio)
    }

    /// The address for the report; the command is told apart from it.
    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            Self::Stdio => None,
            Self::Socket(address) | Self::Url(address) => Some(address),
        }
    }

    /// Whether instances can run at once: their addresses differ.
    pub(crate) fn is_plural(&self) -> bool {
        self.address().is_none_or(|address| address.contains(PORT))
    }

    /// Whether an instance has a free port in its address.
    pub(crate) fn has_port(&self) -> bool {
        self.address().is_some() && self.is_plural()
    }

    /// The target of an instance with this port.
    pub(crate) fn at(&self, port: u16) -> Self {
        let put = |address: &String| address.replace(PORT, &port.to_string());
        match self {
            Self::Stdio => Self::Stdio,
            Self::Socket(path) => Self::Socket(put(path)),
            Self::Url(url) => Self::Url(put(url)),
        }
    }
}

/// A port of the loopback interface for one server. No other probe takes it while this lives.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Its name is the number, and one socket of the system can have it.
    _claim: UnixDatagram,
}

impl Port {
    /// A port that is free now.
    ///
    /// It is not one that the system gives to connections, of which a check opens many: one of them
    /// could take it before the server has bound it.
    pub(crate) fn free() -> io::Result<Self> {
        let range =
            fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let ports = ports_beside(&range);
        for _ in 0..OFFERS_MAX {
            match Self::claim(random_of(&ports)) {
                Err(why) if why.kind() == io::ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn claim(wanted: u16) -> io::Result<Self> {
        let number = TcpListener::bind(("127.0.0.1", wanted))?.local_addr()?.port();
        let name = SocketAddr::from_abstract_name(format!("ceased-probe-port-{number}"))?;
        Ok(Self { number, _claim: UnixDatagram::bind_addr(&name)? })
    }
}

/// Ports that no connection gets, of a system with this range for them; port 0, for which the
/// system offers one, if there are too few.
fn ports_beside(range: &str) -> RangeInclusive<u16> {
    let mut words = range.split_whitespace().map(str::parse);
    let (Some(Ok(first)), Some(Ok(last))) = (words.next(), words.next()) else { return 0..=0 };
    let (below, above) =
        (10_000..=u16::saturating_sub(first, 1), u16::saturating_add(last, 1)..=u16::MAX);
    [below, above].into_iter().find(|ports| ports.len() >= PORTS_MIN).unwrap_or(0..=0)
}

/// Probes that run at once begin at different ports.
fn random_of(ports: &RangeInclusive<u16>) -> u16 {
    let span = u128::from(ports.end() - ports.start()) + 1;
    let offset = u16::try_from(Uuid::new_v4().as_u128() % span).unwrap_or_default();
    ports.start() + offset
}

/// The command of an instance with this port.
pub(crate) fn command_at(command: &[OsString], port: u16) -> Vec<OsString> {
    let port = port.to_string();
    command.iter().map(|word| replaced(word, port.as_bytes())).collect()
}

fn replaced(word: &OsStr, port: &[u8]) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = memchr::memmem::find(rest, PORT.as_bytes()) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(port);
        rest = after.get(PORT.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_instance_has_a_port_of_its_own() {
        let ports: Vec<Port> = (0..200).map(|_| Port::free().unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers.len(), 200);
        let taken = |number| Port::claim(number).unwrap_err().kind();
        assert!(numbers.iter().all(|number| taken(*number) == io::ErrorKind::AddrInUse));
    }

    #[test]
    fn ports_of_connections_are_left_out() {
        assert_eq!(ports_beside("32768\t60999\n"), 10_000..=32_767);
        assert_eq!(ports_beside("1024 50000"), 50_001..=u16::MAX);
        assert_eq!(ports_beside("0 65535"), 0..=0);
        assert_eq!(ports_beside("1024 65000"), 0..=0);
        assert_eq!(ports_beside(""), 0..=0);
        assert!((0..1000).all(|_| (7..=9).contains(&random_of(&(7..=9)))));
        assert_eq!(random_of(&(0..=0)), 0);
    }

    #[test]
    fn port_is_put_into_addresses_and_commands() {
        let target = Target::Url("http://127.0.0.1:{port}/mcp".to_owned());
        assert!(target.is_plural());
        assert_eq!(target.at(81), Target::Url("http://127.0.0.1:81/mcp".to_owned()));
        assert!(!Target::Socket("/run/s".to_owned()).is_plural());
        let command = ["server".into(), "--port={port},{port}".into()];
        let expected: Vec<OsString> = vec!["server".into(), "--port=7,7".into()];
        assert_eq!(command_at(&command, 7), expected);
    }
}
