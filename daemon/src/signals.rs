//! Signals as events of the loop.

use std::io::{self, Read as _};
use std::sync::Arc;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::low_level::{pipe, unregister};
use signal_hook::{SigId, flag};

/// The signals a daemon listens to. Each writes a byte to a socket of its kind, so that two of
/// them are told from one.
#[derive(Debug)]
pub(crate) struct Signals {
    reload: UnixStream,
    terminate: UnixStream,
    installed: Vec<SigId>,
}

/// Signals that have arrived since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// SIGHUP.
    pub(crate) reload: bool,
    /// How many SIGTERM and SIGINT.
    pub(crate) terminate: usize,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP.
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

    /// Takes what has arrived.
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

/// Makes a write past the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) an error of that write,
/// as on a full disk, instead of the end of the process. With a handler rather than by ignoring the
/// signal: that, tools would inherit.
pub(crate) fn survive_size_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// A socket that gets a byte for each of `signals`.
fn socket(signals: &[i32], installed: &mut Vec<SigId>) -> io::Result<UnixStream> {
    let (reading, writing) = std::os::unix::net::UnixStream::pair()?;
    reading.set_nonblocking(true)?;
    for signal in signals {
        installed.push(pipe::register(*signal, writing.try_clone()?)?);
    }
    Ok(UnixStream::from_std(reading))
}

/// How many bytes have arrived.
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
