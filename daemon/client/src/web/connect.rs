//! Connections to subjects, until a moment.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::private_address::{is_private, may_stand_for};

/// Pause between two attempts.
const AGAIN: Duration = Duration::from_millis(20);

/// Connects to a port of a host, which may have several addresses, one of a private network only
/// where that is permitted.
pub fn tcp((host, port): (&str, u16), private: bool, until: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let ip = address.ip().to_canonical();
        let why = match (may_stand_for(host, ip, private), !private && is_private(ip)) {
            (_, true) => Some(format!("{ip} is a private address, which is refused")),
            (false, false) => Some(format!("{host} stands for {ip}, which is not this machine")),
            (true, false) => None,
        };
        if let Some(why) = why {
            failed = io::Error::other(why);
            continue;
        }
        let within = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, within) {
            Ok(stream) => return Ok(stream),
            Err(why) => failed = why,
        }
    }
    Err(failed)
}

/// Connects to a Unix socket, until then: a listener with a full backlog has a blocking connect wait
/// without a limit.
pub fn unix(path: &Path, until: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {
                let socket = UnixStream::from(socket);
                socket.set_nonblocking(false)?;
                return Ok(socket);
            }
            Err(Errno::AGAIN) if Instant::now() < until => thread::sleep(AGAIN),
            Err(Errno::AGAIN) => {
                return Err(io::Error::other("the socket accepts no connection"));
            }
            Err(why) => return Err(why.into()),
        }
    }
}
