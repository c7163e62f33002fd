//! The program that a child becomes, and how.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use libc::c_int;

/// The kernel's flag; the one in `libc` is an `int` and too short for it.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Encodes the announcement of a process id.
pub(crate) type Announcement = fn(c_int) -> [u8; 8];

/// Parameters of a child process.
#[derive(Debug)]
pub(crate) struct Exec<'a> {
    /// The program to execute.
    pub(crate) image: Image,
    /// Descriptors 0, 1, 2 and 3 of the child. It gets no others.
    pub(crate) descriptors: [BorrowedFd<'a>; 4],
    /// Control group to create it in, as an open directory.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Whether the kernel kills it when the calling thread ends.
    pub(crate) dies_with_caller: bool,
    /// Descriptor and encoder with which the child announces its process id before exec: its caller
    /// may be killed before it could. The encoder runs in the child, which may share memory.
    pub(crate) announced: Option<(BorrowedFd<'a>, Announcement)>,
}

/// A program with its arguments and attributes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Candidate paths of the program, tried in order until one can be executed.
    pub(crate) programs: Vec<CString>,
    /// The arguments, the program's name first.
    pub(crate) argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Candidate working directories, of which the first existing one is entered; the caller's if
    /// empty.
    pub(crate) cwds: Vec<CString>,
    /// A path below the first of them that is entered instead, and must not lead out of it.
    pub(crate) below: Option<CString>,
    /// User and groups; the caller's if `None`.
    pub(crate) credentials: Option<Credentials>,
    /// Resource limits that replace the caller's.
    pub(crate) limits: Vec<Limit>,
    /// Least niceness, 0 to 19.
    pub(crate) nice: u8,
}

/// A resource limit; `u64::MAX` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The kernel's number of the resource.
    pub(crate) resource: u32,
    /// Soft limit.
    pub(crate) soft: u64,
    /// Hard limit.
    pub(crate) hard: u64,
}

/// User and groups of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// User id: real, effective and saved.
    pub(crate) uid: u32,
    /// Primary group id: real, effective and saved.
    pub(crate) gid: u32,
    /// All supplementary groups.
    pub(crate) groups: Vec<u32>,
}
