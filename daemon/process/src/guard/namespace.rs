//! Namespaces for a job: a pid namespace whose first process is its guard, a mount namespace with a
//! `/proc` that shows it, and a user namespace where making them takes one.
//!
//! No process of the job can see, signal or trace a process outside, and signals from within do not
//! reach the first process of a pid namespace. When that one ends, for whatever reason, the kernel
//! kills all others and waits for them.

use std::fs;
use std::io;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{getegid, geteuid};

use crate::sys::{self, Fault, Step, Twin};

/// Why there is no copy of this process in namespaces of its own.
pub(crate) enum Failed {
    /// None could be made.
    Here(Fault),
    /// This is the copy, and cannot set its namespaces up.
    InCopy(Fault),
}

/// Copies this process into namespaces of its own. In the copy, its number as our parent knows it;
/// `None` in the original.
///
/// # Errors
///
/// [`Failed`].
pub(crate) fn fork() -> Result<Option<i32>, Failed> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let mut has_users = false;
    let mut forked = sys::fork_sibling(namespaces);
    if forked.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
        // Only root may do that. Anybody may in a user namespace of their own, where those are
        // allowed.
        has_users = true;
        forked = sys::fork_sibling(namespaces | libc::CLONE_NEWUSER);
    }
    match forked {
        Ok(Twin::Original) => Ok(None),
        Ok(Twin::Copy) => set_up(has_users.then_some((uid, gid))).map(Some).map_err(Failed::InCopy),
        Err(error) => Err(Failed::Here(fault(Step::Namespace, &error))),
    }
}

/// Sets up the namespaces that this process was born in; its number outside.
fn set_up(user: Option<(u32, u32)>) -> Result<i32, Fault> {
    // As long as `/proc` is the one of the namespace that we come from.
    let outside = fs::read_link("/proc/self").map_err(|error| fault(Step::Mounts, &error))?;
    let outside = outside.to_str().and_then(|pid| pid.parse().ok());
    let outside = outside.ok_or(Fault { step: Step::Mounts, errno: libc::ESRCH })?;
    if let Some((uid, gid)) = user {
        map_ids(uid, gid).map_err(|error| fault(Step::Ids, &error))?;
    }
    mount_proc().map_err(|error| fault(Step::Mounts, &error))?;
    Ok(outside)
}

/// Has the own user and group be the same inside as outside; there are no others inside.
fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    // The files in /proc of a process that cannot be traced belong to root.
    sys::allow_tracing();
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")));
    sys::forbid_tracing();
    mapped
}

/// Mounts a `/proc` of this pid namespace, in this mount namespace alone. Mounts that are made
/// outside later still appear inside.
fn mount_proc() -> io::Result<()> {
    let (down, all) = (MountPropagationFlags::DOWNSTREAM, MountPropagationFlags::REC);
    mount_change("/", down | all)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None::<&std::ffi::CStr>)?;
    Ok(())
}

fn fault(step: Step, error: &io::Error) -> Fault {
    Fault { step, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}
