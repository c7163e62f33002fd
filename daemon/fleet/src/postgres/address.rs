//! Addresses of databases, in the form that libpq has.

use std::fmt;
use std::path::PathBuf;

/// Port of a host without one.
const PORT: u16 = 5432;

/// The place of a database, and the role: `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?sslmode=MODE`.
///
/// A host that begins with `/` (written `%2F`) is the directory of a Unix socket; so is the value of
/// the parameter `host`. Its `Debug` has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The hosts, in the order in which they are tried.
    pub hosts: Vec<Host>,
    /// The role.
    pub user: String,
    /// Its password; `None` where the server asks for none.
    pub password: Option<String>,
    /// The database.
    pub database: String,
    /// Whether the connection is encrypted.
    pub tls: TlsMode,
    /// The authorities that are trusted, in PEM format (`sslrootcert`).
    pub ca_file: Option<PathBuf>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Whether a connection is encrypted (`sslmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// Where the server can, without a look at its certificate. The default, as in libpq.
    Prefer,
    /// Always, without a look at the certificate.
    Require,
    /// Always, with a certificate of a trusted authority.
    VerifyCa,
    /// Always, with a certificate of a trusted authority for the name of the host.
    VerifyFull,
}

/// Why a text is no address of a database. The texts have no password.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// It begins with neither `postgres://` nor `postgresql://`.
    Scheme,
    /// A host cannot be read.
    Host(String),
    /// The port is no number from 1 to 65535.
    Port(String),
    /// An escape (`%41`) is none, or the text that is written so is no UTF-8.
    Escape,
    /// A parameter that this client does not know.
    Parameter(String),
    /// A value that a parameter does not have.
    Value {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
    },
    /// There is no role.
    NoUser,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("the address of a database begins with postgres://"),
            Self::Host(host) => write!(f, "{host:?} is no host"),
            Self::Port(port) => {
                write!(f, "{port:?} is no port; a port is a number from 1 to 65535")
            }
            Self::Escape => f.write_str("after % in an address stand two hexadecimal digits"),
            Self::Parameter(name) => write!(
                f,
                "unknown parameter {name:?}; there are host, sslmode, sslrootcert and target_session_attrs"
            ),
            Self::Value { name, value } => write!(f, "{name} has no value {value:?}"),
            Self::NoUser => {
                f.write_str("the address names no role; write postgres://ROLE@HOST/DATABASE")
            }
        }
    }
}

impl std::error::Error for AddressError {}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp(name, port) => write!(f, "{name}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`AddressError`], without the password.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or(AddressError::Scheme)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (role, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match role.split_once(':') {
            Some((user, password)) => (user, Some(unescaped(password)?)),
            None => (role, None),
        };
        let user = unescaped(user)?;
        if user.is_empty() {
            return Err(AddressError::NoUser);
        }
        let database = match unescaped(database)? {
            empty if empty.is_empty() => user.clone(),
            database => database,
        };
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).map(host);
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let mut address =
            Self { hosts, user, password, database, tls: TlsMode::Prefer, ca_file: None };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address.set(name, unescaped(value)?)?;
        }
        if address.hosts.is_empty() {
            address.hosts.push(Host::Tcp("localhost".to_owned(), PORT));
        }
        Ok(address)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), AddressError> {
        let wrong = |value| AddressError::Value { name: name.to_owned(), value };
        match name {
            "host" => self.hosts.push(host_named(&value, PORT)),
            "sslmode" => {
                self.tls = match value.as_str() {
                    "disable" => TlsMode::Disable,
                    "prefer" | "allow" => TlsMode::Prefer,
                    "require" => TlsMode::Require,
                    "verify-ca" => TlsMode::VerifyCa,
                    "verify-full" => TlsMode::VerifyFull,
                    _ => return Err(wrong(value)),
                };
            }
            "sslrootcert" => self.ca_file = Some(value.into()),
            // The writable host is used in any case.
            "target_session_attrs" if value == "read-write" || value == "primary" => {}
            "target_session_attrs" => return Err(wrong(value)),
            _ => return Err(AddressError::Parameter(name.to_owned())),
        }
        Ok(())
    }
}

fn host(text: &str) -> Result<Host, AddressError> {
    let wrong = || AddressError::Host(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or_else(wrong)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => self::port(port)?,
            None if rest.is_empty() => PORT,
            None => return Err(wrong()),
        };
        return Ok(Host::Tcp(name.to_owned(), port));
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, self::port(port)?),
        None => (text, PORT),
    };
    let name = unescaped(name)?;
    if name.is_empty() { Err(wrong()) } else { Ok(host_named(&name, port)) }
}

fn host_named(name: &str, port: u16) -> Host {
    if name.starts_with('/') {
        Host::Unix(PathBuf::from(name).join(format!(".s.PGSQL.{port}")))
    } else {
        Host::Tcp(name.to_owned(), port)
    }
}

fn port(text: &str) -> Result<u16, AddressError> {
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| AddressError::Port(text.to_owned()))
}

fn unescaped(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(AddressError::Escape) };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| AddressError::Escape)?);
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(name: &str, port: u16) -> Host {
        Host::Tcp(name.to_owned(), port)
    }

    #[test]
    fn address_has_hosts_a_role_and_a_mode() {
        let address = Address::parse(
            "postgres://ceased:p%40ss%3A@db1:6432,[::1]:7000,db3/tasks?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        );
        let address = address.unwrap();
        assert_eq!(address.hosts, [tcp("db1", 6432), tcp("::1", 7000), tcp("db3", 5432)]);
        assert_eq!(address.user, "ceased");
        assert_eq!(address.password.as_deref(), Some("p@ss:"));
        assert_eq!(address.database, "tasks");
        assert_eq!(address.tls, TlsMode::VerifyFull);
        assert_eq!(address.ca_file, Some("/etc/ca.pem".into()));
        assert!(!format!("{address:?}").contains("p@ss"));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let address = Address::parse("postgresql://ann@").unwrap();
        assert_eq!(address.hosts, [tcp("localhost", 5432)]);
        assert_eq!(address.database, "ann");
        assert_eq!(address.password, None);
        let socket = Address::parse("postgres://ann@%2Frun%2Fpostgresql:5433/x").unwrap();
        assert_eq!(socket.hosts, [Host::Unix("/run/postgresql/.s.PGSQL.5433".into())]);
        let socket = Address::parse("postgres://ann@/x?host=/run/postgresql").unwrap();
        assert_eq!(socket.hosts, [Host::Unix("/run/postgresql/.s.PGSQL.5432".into())]);
    }

    #[test]
    fn errors_name_the_value_and_not_the_password() {
        for (text, part) in [
            ("http://x", "postgres://"),
            ("postgres://db/x", "role"),
            ("postgres://ann:secret@db:99999/x", "99999"),
            ("postgres://ann:secret@db/x?sslmode=on", "\"on\""),
            ("postgres://ann:secret@db/x?colour=red", "colour"),
            ("postgres://ann:%zz@db/x", "hexadecimal"),
            ("postgres://ann:secret@db/x?target_session_attrs=any", "any"),
            ("postgres://ann:secret@[::1/x", "[::1"),
        ] {
            let told = Address::parse(text).unwrap_err().to_string();
            assert!(told.contains(part) && !told.contains("secret"), "{text}: {told}");
        }
    }
}
