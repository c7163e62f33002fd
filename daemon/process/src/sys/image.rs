//! The program that a child becomes, and how.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use libc::c_int;

/// The kernel's flag; the one in `libc` is an `int` and too short for it.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a process with this number says of itself.
pub(crate) type Words = fn(c_int) -> [u8; 8];

/// What a child process is to become, and how.
#[derive(Debug)]
pub(crate) struct Exec<'a> {
    /// What it becomes.
    pub(crate) image: Image,
    /// What the child has as descriptors 0, 1, 2 and 3. It gets no others.
    pub(crate) descriptors: [BorrowedFd<'a>; 4],
    /// The control group it is born in, as an open directory.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Whether the kernel kills it when the calling thread ends.
    pub(crate) dies_with_caller: bool,
    /// Where the child itself says its number, and in what words, before it is the program: its
    /// caller may be killed before it could. The words are made in the child, which may share our
    /// memory.
    pub(crate) announced: Option<(BorrowedFd<'a>, Words)>,
}

/// A program as a process has it: its file, its arguments and what it runs as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Paths of the program, tried in this order until one can be executed.
    pub(crate) programs: Vec<CString>,
    /// The arguments, the program's name first.
    pub(crate) argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Working directories, the first that is there is entered; the caller's when there are none.
    pub(crate) cwds: Vec<CString>,
    /// A path below the first of them that is entered instead, and must not lead out of it.
    pub(crate) below: Option<CString>,
    /// Whose process it becomes; the caller's when `None`.
    pub(crate) credentials: Option<Credentials>,
    /// Resource limits in the place of the caller's.
    pub(crate) limits: Vec<Limit>,
}

/// A resource limit; `u64::MAX` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The kernel's number of the resource.
    pub(crate) resource: u32,
    /// What counts.
    pub(crate) soft: u64,
    /// What the process may raise that to.
    pub(crate) hard: u64,
}

/// The user and the groups a process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The user, real, effective and saved.
    pub(crate) uid: u32,
    /// The primary group, real, effective and saved.
    pub(crate) gid: u32,
    /// All supplementary groups.
    pub(crate) groups: Vec<u32>,
}
