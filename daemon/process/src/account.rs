//! Accounts of users as whom commands run.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, User, getgrouplist};

/// A user with everything a process of theirs needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Every group, the primary one included.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
    /// Its directory for sockets and the like, where it has a session.
    pub(crate) runtime_dir: Option<PathBuf>,
}

impl Account {
    /// The account of a user.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub(crate) fn of(uid: u32) -> Result<Self, String> {
        let cannot = |why| format!("the account of uid {uid} cannot be looked up: {why}");
        let user = User::from_uid(Uid::from_raw(uid)).map_err(cannot)?.ok_or_else(|| {
            format!("uid {uid} has no account on this machine, so its groups are not known")
        })?;
        let name = std::ffi::CString::new(user.name.as_str())
            .map_err(|_| format!("the name of uid {uid} holds a NUL byte"))?;
        let groups = getgrouplist(&name, user.gid).map_err(cannot)?;
        Ok(Self {
            name: user.name,
            uid,
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            home: user.dir,
            shell: user.shell,
            runtime_dir: runtime_dir(uid),
        })
    }
}

fn runtime_dir(uid: u32) -> Option<PathBuf> {
    let dir = PathBuf::from(format!("/run/user/{uid}"));
    let found = fs::symlink_metadata(&dir).ok()?;
    (found.is_dir() && found.uid() == uid).then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_groups_and_a_home() {
        let root = Account::of(0).unwrap();
        assert_eq!((root.name.as_str(), root.uid, root.gid), ("root", 0, 0));
        assert!(root.groups.contains(&0) && root.home.is_absolute());
        assert!(Account::of(3_999_999_999).unwrap_err().contains("no account"));
    }
}
