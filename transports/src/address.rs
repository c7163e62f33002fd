//! Where peers are: addresses as people write them.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen, or the peer on standard input and output.
///
/// Written `unix:PATH`, `unix:PATH?mode=0660`, `tcp:IP:PORT` or `stdio`; parsing the displayed form
/// gives the same address, provided its path is UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix stream socket.
    Unix {
        /// Where its file is.
        path: PathBuf,
        /// Permissions of the socket file.
        mode: SocketMode,
    },
    /// A TCP address; port 0 lets the system choose one.
    Tcp(SocketAddr),
    /// Standard input and output of this process.
    Stdio,
}

/// Permission bits of a socket file: write permission is permission to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(u32);

impl SocketMode {
    /// 0600: only its owner may connect.
    pub const OWNER: Self = Self(0o600);

    /// The mode with these bits; `None` when there are others than permissions (0777).
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !0o777 == 0 { Some(Self(bits)) } else { None }
    }

    /// The bits, within 0777.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl Default for SocketMode {
    fn default() -> Self {
        Self::OWNER
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for SocketMode {
    type Err = AddressError;

    /// Three or four octal digits: "600", "0660".
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::Mode { text: text.to_owned() };
        if !(3..=4).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        u32::from_str_radix(text, 8).ok().and_then(Self::from_bits).ok_or_else(wrong)
    }
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// It does not start with a transport we know.
    Transport {
        /// The text.
        text: String,
    },
    /// `unix:` without a path.
    NoPath,
    /// The text after `tcp:` is no IP address with a port.
    Tcp {
        /// The text.
        text: String,
    },
    /// A mode that is not three or four octal digits up to 0777.
    Mode {
        /// The mode.
        text: String,
    },
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport { text } => write!(
                f,
                "{text:?} is no address; write unix:PATH, tcp:IP:PORT or stdio, for example \
                 tcp:127.0.0.1:7411"
            ),
            Self::NoPath => f.write_str("\"unix:\" lacks its path; write unix:PATH"),
            Self::Tcp { text } => write!(
                f,
                "{text:?} is no TCP address; write IP:PORT, for example 127.0.0.1:7411 or \
                 [::1]:7411"
            ),
            Self::Mode { text } => write!(
                f,
                "{text:?} is no socket mode; write octal permissions up to 0777, for example 0600"
            ),
        }
    }
}

impl Error for AddressError {}

/// Between a path and its mode.
const MODE_MARK: &str = "?mode=";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path, mode } => {
                let path = path.to_string_lossy();
                write!(f, "unix:{path}")?;
                // A path that looks as if a mode followed it must not be read back as one.
                if *mode != SocketMode::OWNER || path.contains(MODE_MARK) {
                    write!(f, "{MODE_MARK}{mode}")?;
                }
                Ok(())
            }
            Self::Tcp(addr) => write!(f, "tcp:{addr}"),
            Self::Stdio => f.write_str("stdio"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let (path, mode) = match rest.rsplit_once(MODE_MARK) {
                Some((path, mode)) => (path, mode.parse()?),
                None => (rest, SocketMode::OWNER),
            };
            if path.is_empty() {
                return Err(AddressError::NoPath);
            }
            return Ok(Self::Unix { path: path.into(), mode });
        }
        if let Some(rest) = text.strip_prefix("tcp:") {
            let wrong = |_| AddressError::Tcp { text: rest.to_owned() };
            return rest.parse().map(Self::Tcp).map_err(wrong);
        }
        match text {
            "stdio" | "stdio:" => Ok(Self::Stdio),
            _ => Err(AddressError::Transport { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_can_be_parsed() {
        for (address, text) in [
            (
                Address::Unix { path: "/run/x.sock".into(), mode: SocketMode::OWNER },
                "unix:/run/x.sock",
            ),
            (
                Address::Unix {
                    path: "x, y:z?".into(),
                    mode: SocketMode::from_bits(0o60).unwrap(),
                },
                "unix:x, y:z??mode=0060",
            ),
            (
                Address::Unix { path: "x?mode=0660".into(), mode: SocketMode::OWNER },
                "unix:x?mode=0660?mode=0600",
            ),
            (Address::Tcp("127.0.0.1:7411".parse().unwrap()), "tcp:127.0.0.1:7411"),
            (Address::Tcp("[::1]:0".parse().unwrap()), "tcp:[::1]:0"),
            (Address::Stdio, "stdio"),
        ] {
            assert_eq!(address.to_string(), text);
            assert_eq!(text.parse::<Address>().unwrap(), address);
        }
        assert_eq!("stdio:".parse::<Address>(), Ok(Address::Stdio));
        assert_eq!("600".parse::<SocketMode>(), Ok(SocketMode::OWNER));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "\"\""),
            ("/run/x.sock", "/run/x.sock"),
            ("stdio:x", "stdio:x"),
            ("unix:", "lacks its path"),
            ("unix:?mode=0600", "lacks its path"),
            ("unix:x?mode=888", "\"888\""),
            ("unix:x?mode=1777", "\"1777\""),
            ("unix:x?mode=+60", "\"+60\""),
            ("unix:x?mode=", "\"\""),
            ("tcp:localhost:80", "\"localhost:80\""),
            ("tcp:127.0.0.1", "\"127.0.0.1\""),
            ("tcp:127.0.0.1:65536", "\"127.0.0.1:65536\""),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(named), "{text:?}: {error}");
        }
        assert_eq!(SocketMode::from_bits(0o1000), None);
    }
}
