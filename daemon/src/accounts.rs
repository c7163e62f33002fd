//! Accounts: users and groups of this machine, by name and by number.
//!
//! A lookup may read files or query a service, so it runs before the loop starts or on a thread of
//! its own, never on the loop's or the process supervisor's.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// The uid that stands for every user without a mapping in a user namespace. A peer with it may be
/// any user and is always rejected.
pub(crate) const OVERFLOW_UID: u32 = 65_534;

/// A user and the properties that a process of that user needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All groups, including the primary one.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
    /// Its runtime directory (/run/user/UID), if it exists.
    pub(crate) runtime_dir: Option<PathBuf>,
}

impl Account {
    /// Looks up the account of a user.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub(crate) fn of(uid: u32) -> Result<Self, String> {
        let cannot = |why| format!("cannot look up the account of uid {uid}: {why}");
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

/// Parses a user id or looks up a user name.
///
/// # Errors
/// A hint that says why there is no such user.
pub(crate) fn user(written: &str) -> Result<u32, String> {
    let uid = match written.parse::<u32>() {
        Ok(uid) => uid,
        Err(_) => match User::from_name(written) {
            Ok(Some(user)) => user.uid.as_raw(),
            Ok(None) => return Err("there is no such user on this machine".into()),
            Err(why) => return Err(format!("cannot look up the user: {why}")),
        },
    };
    if uid == OVERFLOW_UID {
        return Err(format!(
            "every user without a mapping in the user namespace appears as uid {OVERFLOW_UID}; \
             allowing it would accept all of them"
        ));
    }
    Ok(uid)
}

/// Name of a user, if the account database has it.
pub(crate) fn name_of(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// Parses a group id or looks up a group name.
///
/// # Errors
/// A hint that says why there is no such group.
pub(crate) fn group(written: &str) -> Result<u32, String> {
    if let Ok(gid) = written.parse::<u32>() {
        return Ok(gid);
    }
    match Group::from_name(written) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err("there is no such group on this machine".into()),
        Err(why) => Err(format!("cannot look up the group: {why}")),
    }
}

/// Members of a group: the listed ones, and the users of `/etc/passwd` with it as primary group.
pub(crate) fn members(gid: u32) -> BTreeSet<u32> {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    let listed = group.into_iter().flat_map(|group| group.mem).filter_map(|name| user(&name).ok());
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let primary = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(2);
        let (uid, primary) = (fields.next()?.parse().ok()?, fields.next()?.parse::<u32>().ok()?);
        (primary == gid && uid != OVERFLOW_UID).then_some(uid)
    });
    listed.chain(primary).collect()
}

/// Whether a group is the private group of a user: primary, of the same name, and without other
/// members but root.
pub(crate) fn is_own_group(uid: u32, gid: u32) -> bool {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    let (Some(user), Some(group)) = (user, group) else { return false };
    user.gid == group.gid
        && user.name == group.name
        && members(gid).iter().all(|member| *member == uid || *member == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_looked_up_by_name_and_number() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        let root = Account::of(0).unwrap();
        assert_eq!((root.name.as_str(), root.uid, root.gid), ("root", 0, 0));
        assert!(root.groups.contains(&0) && root.home.is_absolute());
        assert_eq!(user("root"), Ok(0));
        assert_eq!(user("1234"), Ok(1234));
        assert_eq!(group("root"), Ok(0));
        assert!(members(0).contains(&0));
        assert!(user("no such user").unwrap_err().contains("no such user"));
        assert!(group("no such group").unwrap_err().contains("no such group"));
        assert!(Account::of(3_999_999_999).unwrap_err().contains("no account"));
    }

    #[test]
    fn overflow_user_is_rejected() {
        assert!(user("65534").unwrap_err().contains("65534"));
        assert!((0..100).all(|gid| !members(gid).contains(&OVERFLOW_UID)));
    }
}
