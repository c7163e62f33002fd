//! The two ways to create a process, alone, for the benchmark `spawn`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::null_device;
use crate::sys::{self, Exec, Image};

/// A way to create a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It shares the memory of its parent until exec.
    Shared,
    /// It gets a copy of the memory.
    Forked,
}

/// Starts a program without arguments and environment; returns its pidfd. Its output is dropped.
///
/// # Errors
///
/// If no process can be created.
pub fn start(program: &str, way: Way) -> io::Result<OwnedFd> {
    let program = CString::new(program)?;
    let null = null_device::open()?;
    let image = Image {
        programs: vec![program.clone()],
        argv: vec![program],
        env: Vec::new(),
        cwds: Vec::new(),
        below: None,
        credentials: None,
        limits: Vec::new(),
        nice: 0,
    };
    let exec = Exec {
        image,
        descriptors: [null.as_fd(); 4],
        cgroup: None,
        dies_with_caller: false,
        announced: None,
    };
    let spawned = match way {
        Way::Shared => sys::spawn(exec),
        Way::Forked => sys::spawn_forked(exec),
    };
    spawned.map(|spawned| spawned.pidfd)
}
