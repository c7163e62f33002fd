//! State notifications to the service manager: one datagram each, per `sd_notify(3)`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Send timeout: bounds the delay of the loop by a manager that does not read.
const WITHIN: Duration = Duration::from_secs(1);

/// Notifier of the service manager; does nothing without `$NOTIFY_SOCKET`.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// Opens the address in `$NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    pub(crate) fn to(address: Option<&OsStr>) -> Self {
        let Some(address) = address else { return Self(None) };
        Self(
            open(address)
                .inspect_err(|error| {
                    // Logging has not started yet; the manager reports the missing READY=1 too.
                    let address = address.display();
                    crate::announce::say(format_args!("warning: NOTIFY_SOCKET={address}: {error}"));
                })
                .ok(),
        )
    }

    /// Whether there is a service manager to notify.
    pub(crate) const fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Sends READY=1: peers are accepted. Also ends a reload.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Sends RELOADING=1.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading"));
    }

    /// Sends STOPPING=1 and extends the stop timeout of the manager to this time.
    pub(crate) fn stopping(&self, within: Duration) {
        let micros = within.as_micros();
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\nSTATUS=stopping"));
    }

    /// Sends WATCHDOG=1.
    pub(crate) fn alive(&self, status: &str) {
        self.tell(&format!("WATCHDOG=1\nSTATUS={status}"));
    }

    fn tell(&self, state: &str) {
        let Some((socket, address)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, state, "cannot notify the service manager");
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
        assert!(notifier.is_active());
        notifier.ready("idle");
        assert_eq!(heard(manager), "READY=1\nSTATUS=idle");
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
    fn notifies_by_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        say_everything(&Notifier::to(Some(path.as_os_str())), &manager);
    }

    #[test]
    fn notifies_by_abstract_name() {
        let name = format!("ceased-test-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        say_everything(&Notifier::to(Some(OsStr::new(&format!("@{name}")))), &manager);
    }

    #[test]
    fn nothing_is_sent_without_a_socket() {
        for notifier in [Notifier::to(None), Notifier::to(Some(OsStr::new("relative")))] {
            assert!(!notifier.is_active());
            notifier.ready("");
        }
        // A vanished manager must not end the daemon.
        let dir = tempfile::tempdir().unwrap();
        Notifier::to(Some(dir.path().join("gone").as_os_str())).ready("");
    }
}
