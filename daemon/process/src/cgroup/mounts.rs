//! Where control groups of version 2 are mounted.

use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::path::PathBuf;

/// Our own group of version 2, at every place it can be reached.
pub(crate) fn own_groups(mountinfo: &[u8], cgroup: &[u8]) -> Vec<PathBuf> {
    let Some(own) = cgroup.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"0::")) else {
        return Vec::new();
    };
    let own = path(own.to_vec());
    mountinfo.split(|b| *b == b'\n').filter_map(|line| group_in(line, &own)).collect()
}

/// Where a mount has the group `own`, if it is a mount of version 2 and shows it.
fn group_in(mount: &[u8], own: &Path) -> Option<PathBuf> {
    let mut fields = mount.split(|b| *b == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    // Optional fields follow, up to a dash.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    if kind != b"cgroup2" {
        return None;
    }
    // A group above the root of our namespace is written with `..` and cannot be reached.
    let below = own.strip_prefix(path(unescape(root))).ok()?;
    let is_reachable = !below.components().any(|part| part == std::path::Component::ParentDir);
    is_reachable.then(|| path(unescape(point)).join(below))
}

fn path(bytes: Vec<u8>) -> PathBuf {
    std::ffi::OsString::from_vec(bytes).into()
}

/// Undoes the octal escapes of white space and backslashes in mount tables.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            Some(_) | None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(mountinfo: &str, cgroup: &str) -> Vec<PathBuf> {
        own_groups(mountinfo.as_bytes(), cgroup.as_bytes())
    }

    #[test]
    fn the_own_group_is_found_in_every_layout() {
        let pure = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let systemd = "0::/system.slice/ceased.service\n";
        assert_eq!(own(pure, systemd), [Path::new("/sys/fs/cgroup/system.slice/ceased.service")]);
        assert_eq!(own(pure, "0::/\n"), [Path::new("/sys/fs/cgroup")]);

        let hybrid = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let lines = "9:name=systemd:/\n8:pids:/x\n0::/\n";
        assert_eq!(own(hybrid, lines), [Path::new("/sys/fs/cgroup/unified")]);

        // A container that sees only its own part of the tree.
        let part = "9 8 0:1 /docker/ab /sys/fs/cgroup ro shared:1 master:2 - cgroup2 cgroup rw\n";
        assert_eq!(own(part, "0::/docker/ab/c\n"), [Path::new("/sys/fs/cgroup/c")]);
        assert_eq!(own(part, "0::/docker/abc\n"), [] as [&Path; 0]);
        assert_eq!(own(pure, "0::/../outside\n"), [] as [&Path; 0]);
        assert_eq!(own(pure, "3:pids:/\n"), [] as [&Path; 0]);
        assert_eq!(own("", "0::/\n"), [] as [&Path; 0]);
    }

    #[test]
    fn mount_tables_are_unescaped() {
        assert_eq!(unescape(br"/a\040b\134\x"), br"/a b\\x");
        let odd = r"1 2 0:1 / /mnt/a\040b rw - cgroup2 none rw";
        assert_eq!(own(odd, "0::/g"), [Path::new("/mnt/a b/g")]);
    }
}
