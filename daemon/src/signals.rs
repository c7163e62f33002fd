//! Signals as events of the loop.

use std::io::{self, Read as _};
use std::sync::Arc;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::low_level::{pipe, unregister};
use signal_hook::{SigId, flag};

/// The signals the daemon handles. Each kind writes to a socket of its own, so that they can be
/// counted separately.
#[derive(Debug)]
pub(crate) struct Signals {
    reload: UnixStream,
    terminate: UnixStream,
    installed: Vec<SigId>,
}

/// Signals received since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// SIGHUP.
    pub(crate) reload: bool,
    /// Number of SIGTERM and SIGINT received.
    pub(crate) terminate: usize,
}

impl Signals {
    /// Installs handlers for SIGTERM, SIGINT and SIGHUP.
    pub(crate) fn install() -> io::Result<Self> {
        let mut installed = Vec::new();
        let reload = socket(&[SIGHUP], &mut installed)?;
        let terminate = socket(&[SIGTERM, SIGINT], &mut installed)?;
        Ok(Self { reload, terminate, installed })
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.reload, token, Interest::READABLE)?;
        registry.register(&mut self.terminate, token, Interest::READABLE)
    }

    /// Takes the received signals.
    pub(crate) fn take(&mut self) -> Taken {
        Taken { reload: count(&mut self.reload) > 0, terminate: count(&mut self.terminate) }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.installed.drain(..) {
            unregister(id);
        }
    }
}

/// Turns a write past the file size limit (`ulimit -f`, `LimitFSIZE=`) into an error of that write,
/// as on a full disk, instead of the end of the process. Installs a handler instead of ignoring the
/// signal, since tools would inherit an ignored signal.
pub(crate) fn survive_size_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// A socket that receives a byte for each of `signals`.
fn socket(signals: &[i32], installed: &mut Vec<SigId>) -> io::Result<UnixStream> {
    let (reading, writing) = std::os::unix::net::UnixStream::pair()?;
    reading.set_nonblocking(true)?;
    for signal in signals {
        installed.push(pipe::register(*signal, writing.try_clone()?)?);
    }
    Ok(UnixStream::from_std(reading))
}

/// Number of bytes received.
fn count(socket: &mut UnixStream) -> usize {
    let mut bytes = [0; 64];
    let mut total = 0_usize;
    loop {
        match socket.read(&mut bytes) {
            Ok(count @ 1..) => total = total.saturating_add(count),
            Ok(0) | Err(_) => return total,
        }
    }
}
