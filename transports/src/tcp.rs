//! TCP: binding and the options of a connection.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily};

use crate::BACKLOG;
use crate::error::ListenError;
use crate::system;

/// A peer that says nothing for this long is asked whether it is still there,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// this often again,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// and this many times before it counts as gone.
const KEEPALIVE_PROBES: u32 = 4;

/// Listens on `addr`; the address it got, which differs for port 0.
pub(crate) fn listen(addr: SocketAddr) -> Result<(OwnedFd, SocketAddr), ListenError> {
    let failed = |doing| {
        move |errno: Errno| match errno {
            Errno::ADDRINUSE => ListenError::PortTaken { addr },
            errno => ListenError::Os { doing, subject: format!("tcp {addr}"), error: errno.into() },
        }
    };
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = system::stream_socket(family).map_err(failed("make a socket for"))?;
    // Connections of a former daemon that linger in TIME_WAIT must not keep the next from starting.
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("prepare"))?;
    net::bind(&fd, &addr).map_err(failed("bind"))?;
    net::listen(&fd, BACKLOG).map_err(failed("listen on"))?;
    let addr = net::getsockname(&fd)
        .and_then(SocketAddr::try_from)
        .map_err(failed("ask for the address of"))?;
    Ok((fd, addr))
}

/// Sets the options of a connection: no delay, or small answers wait for an acknowledgement;
/// keepalive, or the jobs of a peer whose machine vanished would run on for ever, and a client that
/// waits for a daemon whose machine did would wait as long.
///
/// # Errors
/// When it is no TCP socket.
pub fn tune(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(fd, true)?;
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn connection_is_tuned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tune(stream.as_fd()).unwrap();
        assert!(sockopt::tcp_nodelay(&stream).unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_PROBES);
    }
}
