//! Sockets the service manager listens on for us: taken over instead of being bound.

use std::os::fd::OwnedFd;
use std::path::Path;

use ceased_transports::{Address, ListenError, Listener};

use ceased_process::daemon_support::inherited_descriptors;

/// A socket that was handed over.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// What the manager calls it.
    name: String,
    listener: Listener,
}

/// The sockets that were handed over and that nobody has claimed yet.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets {
    sockets: Vec<Inherited>,
    /// A descriptor that was handed over and is no listening socket.
    unusable: Vec<(String, ListenError)>,
}

impl InheritedSockets {
    /// Takes them over by `$LISTEN_PID`, `$LISTEN_FDS` and `$LISTEN_FDNAMES`: sets close-on-exec,
    /// so that no tool gets them.
    pub(super) fn take(var: &dyn Fn(&str) -> Option<String>) -> Self {
        let count = announced(
            var("LISTEN_PID").as_deref(),
            var("LISTEN_FDS").as_deref(),
            std::process::id(),
        );
        if count == 0 {
            return Self::default();
        }
        let names = var("LISTEN_FDNAMES").unwrap_or_default();
        Self::adopt(inherited_descriptors(count), &names)
    }

    fn adopt(descriptors: Vec<OwnedFd>, names: &str) -> Self {
        let mut names = names.split(':');
        let mut taken = Self::default();
        for descriptor in descriptors {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned();
            match Listener::adopt(descriptor) {
                Ok(listener) => taken.sockets.push(Inherited { name, listener }),
                Err(error) => taken.unusable.push((name, error)),
            }
        }
        taken
    }

    /// The socket that listens where a section of the configuration wants to.
    pub(crate) fn claim(&mut self, wanted: &Address) -> Option<Listener> {
        let found = self.sockets.iter().position(|it| is_at(it.listener.address(), wanted))?;
        Some(self.sockets.swap_remove(found).listener)
    }

    /// What nobody claimed, in words: peers that connect there would wait for ever.
    pub(crate) fn left(&self) -> Option<String> {
        let strange = self.unusable.iter().map(|(name, error)| format!("{name:?}: {error}"));
        let unclaimed = self.sockets.iter().map(|it| {
            let (name, address) = (&it.name, it.listener.address());
            format!("{name:?} at {address}: no [[listen]] of the configuration has this address")
        });
        let left: Vec<String> = strange.chain(unclaimed).collect();
        (!left.is_empty()).then(|| {
            format!("cannot use what the service manager handed over: {}", left.join("; "))
        })
    }
}

/// How many descriptors are meant for us.
fn announced(pid: Option<&str>, count: Option<&str>, own: u32) -> usize {
    let is_ours = pid.and_then(|pid| pid.parse().ok()) == Some(own);
    count.filter(|_| is_ours).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The same place, however it is written; modes are the manager's business.
fn is_at(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Unix { path: one, .. }, Address::Unix { path: other, .. }) => {
            one == other || is_same_file(one, other)
        }
        (Address::Tcp(one), Address::Tcp(other)) => one == other,
        (Address::Unix { .. } | Address::Tcp(_) | Address::Stdio, _) => false,
    }
}

/// `/var/run` is often a link to `/run`.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().ok();
    resolved(one).is_some_and(|one| Some(one) == resolved(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ceased_transports::SocketMode;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn for_whom_they_are() {
        assert_eq!(announced(Some("7"), Some("2"), 7), 2);
        assert_eq!(announced(Some("8"), Some("2"), 7), 0);
        assert_eq!(announced(None, Some("2"), 7), 0);
        assert_eq!(announced(Some("7"), None, 7), 0);
        assert_eq!(announced(Some("7"), Some("-1"), 7), 0);
        assert_eq!(announced(Some("me"), Some("1"), 7), 0);
    }

    #[test]
    fn claimed_by_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(tcp.local_addr().unwrap());
        let mut sockets = InheritedSockets::adopt(vec![unix.into(), tcp.into()], "mcp");
        assert!(sockets.claim(&Address::Stdio).is_none());
        assert!(sockets.claim(&address).is_some());
        assert!(sockets.claim(&address).is_none(), "claimed twice");
        let left = sockets.left().unwrap();
        assert!(left.contains("\"mcp\"") && left.contains("a.sock"), "{left}");
        // By another way to the same file, with another mode.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let mode = SocketMode::from_bits(0o660).unwrap();
        let claimed = sockets.claim(&Address::Unix { path: link.join("a.sock"), mode });
        assert_eq!(sockets.left(), None);
        drop(claimed);
        assert!(path.exists(), "the file is the manager's");
    }

    #[test]
    fn what_does_not_listen_is_named() {
        let (one, _other) = UnixDatagram::pair().unwrap();
        let left = InheritedSockets::adopt(vec![one.into()], "odd:more").left().unwrap();
        assert!(left.contains("\"odd\""), "{left}");
    }
}
