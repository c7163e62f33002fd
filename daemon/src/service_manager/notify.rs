//! What the service manager is told: one datagram each, by the rules of `sd_notify(3)`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long a manager that does not read may hold up the loop.
const WITHIN: Duration = Duration::from_secs(1);

/// Tells the service manager how the daemon is; does nothing where nobody asked.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// For the address in `$NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    pub(crate) fn to(address: Option<&OsStr>) -> Self {
        let Some(address) = address else { return Self(None) };
        Self(
            open(address)
                .inspect_err(|error| {
                    // The log has not started yet, and a manager that waits for us will say so, too.
                    let address = address.display();
                    crate::announce::say(format_args!("warning: NOTIFY_SOCKET={address}: {error}"));
                })
                .ok(),
        )
    }

    /// Whether anybody listens.
    pub(crate) const fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Peers are accepted from now on; also the end of a reload.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// A reload begins.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading"));
    }

    /// The end begins and may take this long, whatever the manager would give it by itself.
    pub(crate) fn stopping(&self, within: Duration) {
        let micros = within.as_micros();
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\nSTATUS=stopping"));
    }

    /// All is well.
    pub(crate) fn alive(&self, status: &str) {
        self.tell(&format!("WATCHDOG=1\nSTATUS={status}"));
    }

    fn tell(&self, state: &str) {
        let Some((socket, address)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, state, "the service manager could not be told");
        }
    }
}

fn open(address: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(io::Error::other("neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(WITHIN))?;
    Ok((socket, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes.get(..count).unwrap().to_vec()).unwrap()
    }

    fn say_everything(notifier: &Notifier, manager: &UnixDatagram) {
        assert!(notifier.is_heard());
        notifier.ready("as ever");
        assert_eq!(heard(manager), "READY=1\nSTATUS=as ever");
        notifier.reloading();
        let text = heard(manager);
        let (_, micros) = text.split_once("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        let micros = micros.split_once('\n').unwrap().0;
        assert!(micros.parse::<u64>().unwrap() > 0, "{text}");
        notifier.stopping(Duration::from_millis(1500));
        assert_eq!(heard(manager), "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000\nSTATUS=stopping");
        notifier.alive("1 connection");
        assert_eq!(heard(manager), "WATCHDOG=1\nSTATUS=1 connection");
    }

    #[test]
    fn by_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        say_everything(&Notifier::to(Some(path.as_os_str())), &manager);
    }

    #[test]
    fn by_abstract_name() {
        let name = format!("ceased-test-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        say_everything(&Notifier::to(Some(OsStr::new(&format!("@{name}")))), &manager);
    }

    #[test]
    fn nobody_asked() {
        for notifier in [Notifier::to(None), Notifier::to(Some(OsStr::new("relative")))] {
            assert!(!notifier.is_heard());
            notifier.ready("");
        }
        // A manager that is gone must not end the daemon.
        let dir = tempfile::tempdir().unwrap();
        Notifier::to(Some(dir.path().join("gone").as_os_str())).ready("");
    }
}
