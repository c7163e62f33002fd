//! Orphans: processes that lost their parent and come to this process, since it is a child
//! subreaper or the first process of a container.

use std::io::{self, Read as _};

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use rustix::io::retry_on_intr;
use rustix::process::{WaitId, WaitIdOptions, getpid, waitid};
use signal_hook::SigId;
use signal_hook::consts::SIGCHLD;
use signal_hook::low_level::{pipe, unregister};

use crate::proc::table;
use crate::supervisor::orphans::Orphans;
use crate::supervisor::shared::Shared;

/// What becomes readable when a child of this process has exited, whichever it is.
#[derive(Debug)]
pub(crate) struct ChildExits {
    socket: UnixStream,
    handler: SigId,
}

impl ChildExits {
    /// Has the exits of children announced as events of `token`.
    ///
    /// # Errors
    ///
    /// When there is no descriptor left for it.
    pub(crate) fn announce(registry: &Registry, token: Token) -> io::Result<Self> {
        let (reading, writing) = std::os::unix::net::UnixStream::pair()?;
        reading.set_nonblocking(true)?;
        let mut socket = UnixStream::from_std(reading);
        registry.register(&mut socket, token, Interest::READABLE)?;
        let handler = pipe::register(SIGCHLD, writing)?;
        Ok(Self { socket, handler })
    }

    /// Forgets what was announced.
    pub(crate) fn take(&mut self) {
        let mut bytes = [0; 1024];
        while self.socket.read(&mut bytes).is_ok_and(|n| n > 0) {}
    }
}

impl Drop for ChildExits {
    fn drop(&mut self) {
        unregister(self.handler);
    }
}

impl Shared {
    /// Reaps orphans that have exited, if orphans are ours to reap.
    ///
    /// Those that cannot be seen now are reaped at the next exit of a child.
    pub(crate) fn reap_exited_orphans(&mut self) {
        if self.orphans == Orphans::Leave || !has_exited_child() {
            return;
        }
        if self.families.adopts() {
            self.families.take_in(&self.own_children);
        } else {
            reap_orphans(self);
        }
    }
}

/// Whether a child of this process has exited that was not reaped yet; mostly there is none, and one
/// look says so.
fn has_exited_child() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(retry_on_intr(|| waitid(WaitId::All, look)), Ok(None) | Err(_))
}

/// Reaps the children that came to us as orphans and have exited, as far as they can be seen.
fn reap_orphans(world: &Shared) {
    for pid in table::children(getpid()).unwrap_or_default() {
        if !world.own_children.contains(&pid.as_raw_nonzero()) {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = retry_on_intr(|| waitid(WaitId::Pid(pid), options));
        }
    }
}
