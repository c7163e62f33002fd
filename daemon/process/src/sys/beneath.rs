//! Entering a directory below another one without leaving it through symbolic links.
//!
//! Runs in the child before exec: nothing here allocates or panics.

use std::ffi::CStr;
use std::os::fd::RawFd;

use libc::c_int;

use super::raw;

/// Flags for directories that are only traversed.
const DIRECTORY: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
/// Maximum length of a directory name with its NUL.
const NAME_BYTES: usize = 256;
/// Maximum number of attempts at a path that changes meanwhile, before it is walked.
const TRIES: u32 = 8;

/// Argument structure of `openat2`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Enters `below`, resolved beneath `base`.
///
/// # Errors
/// `EXDEV` if it leads out of `base`; `ELOOP` at a symbolic link if the kernel has no `openat2`;
/// other errors of the kernel.
///
/// # Safety
///
/// Only in a child: the working directory belongs to the whole process.
pub(super) unsafe fn enter(base: &CStr, below: &CStr) -> Result<(), c_int> {
    // SAFETY: the descriptor is open and has no other owner.
    unsafe {
        let found = open(base, below, open_beneath)?;
        let entered = raw::call(libc::SYS_fchdir, [of(found), 0, 0, 0, 0]);
        close(found);
        entered.map(drop)
    }
}

type Resolve = fn(RawFd, &CStr) -> Result<RawFd, c_int>;

/// Opens `below` beneath `base` with `resolve`, or by walking if the kernel or a sandbox lacks
/// that.
fn open(base: &CStr, below: &CStr, resolve: Resolve) -> Result<RawFd, c_int> {
    let base = open_at(libc::AT_FDCWD, base, DIRECTORY)?;
    let found = match resolve(base, below) {
        Err(libc::ENOSYS | libc::EPERM | libc::EAGAIN) => walk(base, below),
        other => other,
    };
    close(base);
    found
}

/// Resolution by the kernel, without a race on symbolic links.
fn open_beneath(base: RawFd, below: &CStr) -> Result<RawFd, c_int> {
    let how = OpenHow {
        flags: u64::from(DIRECTORY.cast_unsigned()),
        mode: 0,
        resolve: libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS,
    };
    let mut result = Err(libc::EAGAIN);
    for _ in 0..TRIES {
        let (path, start) =
            (below.as_ptr().expose_provenance(), (&raw const how).expose_provenance());
        let arguments = [of(base), path, start, size_of::<OpenHow>(), 0];
        // SAFETY: the string and the structure live, and the size is the structure's.
        result = unsafe { raw::call(libc::SYS_openat2, arguments) };
        if !matches!(result, Err(libc::EAGAIN)) {
            break;
        }
    }
    result.and_then(descriptor)
}

/// Opens one directory after the other; none may be a symbolic link.
fn walk(base: RawFd, below: &CStr) -> Result<RawFd, c_int> {
    let mut at = open_at(base, c".", DIRECTORY)?;
    for part in below.to_bytes().split(|byte| *byte == b'/') {
        let next = match part {
            b"" | b"." => continue,
            b".." => Err(libc::EXDEV),
            name => named(at, name),
        };
        close(at);
        at = next?;
    }
    Ok(at)
}

/// Opens the directory of this name in another one.
fn named(at: RawFd, name: &[u8]) -> Result<RawFd, c_int> {
    let mut bytes = [0; NAME_BYTES];
    for (to, from) in bytes.iter_mut().zip(name) {
        *to = *from;
    }
    // The last byte is the NUL.
    let Ok(name) = CStr::from_bytes_until_nul(&bytes) else { return Err(libc::ENAMETOOLONG) };
    match open_at(at, name, DIRECTORY | libc::O_NOFOLLOW) {
        Err(libc::ENOTDIR) if is_link(at, name) => Err(libc::ELOOP),
        other => other,
    }
}

fn is_link(at: RawFd, name: &CStr) -> bool {
    let mut byte = [0_u8; 1];
    let start = byte.as_mut_ptr().expose_provenance();
    let arguments = [of(at), name.as_ptr().expose_provenance(), start, byte.len(), 0];
    // SAFETY: the string lives, and as much is written as there is room for.
    unsafe { raw::call(libc::SYS_readlinkat, arguments).is_ok() }
}

fn open_at(at: RawFd, name: &CStr, flags: c_int) -> Result<RawFd, c_int> {
    let flags = flags.cast_unsigned() as usize;
    let arguments = [of(at), name.as_ptr().expose_provenance(), flags, 0, 0];
    // SAFETY: the string lives.
    unsafe { raw::call(libc::SYS_openat, arguments) }.and_then(descriptor)
}

fn close(fd: RawFd) {
    // SAFETY: every descriptor here was opened here, and is closed once.
    let _ = unsafe { raw::call(libc::SYS_close, [of(fd), 0, 0, 0, 0]) };
}

/// A descriptor as a system call argument.
const fn of(fd: RawFd) -> usize {
    fd.cast_unsigned() as usize
}

fn descriptor(result: usize) -> Result<RawFd, c_int> {
    RawFd::try_from(result).map_err(|_| libc::EBADF)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::Path;

    use super::*;

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn inode(base: &Path, below: &str, resolve: Resolve) -> Result<u64, c_int> {
        let fd = open(&c(base), &c(Path::new(below)), resolve)?;
        // SAFETY: it was just opened and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(rustix::fs::fstat(&fd).unwrap().st_ino)
    }

    const BY_WALKING: Resolve = |_, _| Err(libc::ENOSYS);

    /// SEC-03: the kernel's resolution and the fallback both reject every path that leads out.
    #[test]
    fn path_out_of_the_base_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, base) = (dir.path().join("outside"), dir.path().join("base"));
        for made in [outside.join("x"), base.join("a/b"), base.join(&*"n".repeat(255))] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(base.join("file"), "").unwrap();
        symlink("/etc", base.join("etc")).unwrap();
        symlink("../outside", base.join("out")).unwrap();
        symlink("a/../..", base.join("up")).unwrap();
        symlink("a", base.join("inside")).unwrap();
        let base_link = dir.path().join("link");
        symlink("base", &base_link).unwrap();
        let known = |path: &str| Ok(fs::metadata(base.join(path)).unwrap().ino());
        // Without the fallback of `open()`.
        let at = open_at(libc::AT_FDCWD, &c(&base), DIRECTORY).unwrap();
        let by_kernel = open_beneath(at, c"a");
        by_kernel.iter().for_each(|found| close(*found));
        close(at);
        let has_openat2 = !matches!(by_kernel, Err(libc::ENOSYS | libc::EPERM));
        for resolve in [open_beneath as Resolve, BY_WALKING] {
            // Links above the base are trusted: the author of the base wrote them.
            for base in [&base, &base_link] {
                for good in ["a", "a/b", "./a//b/", ".", &"n".repeat(255)] {
                    assert_eq!(inode(base, good, resolve), known(good), "{good}");
                }
                for bad in ["etc", "etc/ssl", "out", "out/x", "up", "a/../../outside"] {
                    let said = inode(base, bad, resolve).unwrap_err();
                    assert!(matches!(said, libc::EXDEV | libc::ELOOP), "{bad}: {said}");
                }
                for (bad, why) in [
                    ("none", libc::ENOENT),
                    ("file", libc::ENOTDIR),
                    ("file/x", libc::ENOTDIR),
                    (&*"n".repeat(256), libc::ENAMETOOLONG),
                    (&*"n".repeat(5000), libc::ENAMETOOLONG),
                ] {
                    assert_eq!(inode(base, bad, resolve), Err(why), "{bad:.9}");
                }
            }
        }
        assert_eq!(inode(&base, "inside/b", BY_WALKING), Err(libc::ELOOP));
        if has_openat2 {
            assert_eq!(inode(&base, "inside/b", open_beneath), known("a/b"));
        }
    }
}
