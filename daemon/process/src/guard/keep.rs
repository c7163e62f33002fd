//! The keeper: a process that ends a daemon's control groups when the daemon is dead.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::cgroup;
use crate::cgroup::roll;
use crate::guard::protocol::{Lease, ToGuard, ToSupervisorSocket};
use crate::ready::ready;

/// Time limit for ending processes that cannot be killed at once, such as one in a hung system
/// call.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Pause before groups are killed again, while processes of them are left.
const KILL_EVERY: Duration = Duration::from_millis(10);

/// Waits for the daemon's death, then ends every process in the tree of control groups at `path`
/// and those on the roll, and removes the tree. An orderly shutdown removes it before.
pub(crate) fn keep(
    control: &ToSupervisorSocket,
    path: &Path,
    on_roll: Option<OwnedFd>,
) -> io::Result<()> {
    let mut lease = Lease::default();
    loop {
        if lease.is_over() {
            // FLT-04: also while the daemon is stopped.
            let is_left = cgroup::kill_groups(path, &lease.groups);
            if !is_left {
                lease = Lease::default();
            } else if !ready(control.as_fd(), KILL_EVERY)? {
                continue;
            }
        } else if let Some(pause) = lease.look_in()
            && !ready(control.as_fd(), pause)?
        {
            continue;
        }
        match control.receive() {
            Ok(None) => break,
            Ok(Some(ToGuard::Lease(changed))) => lease = changed,
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let kin = on_roll.map_or_else(Default::default, |file| roll::read(&file.into()));
    cgroup::end(path, kin, ENDS_WITHIN)
}
