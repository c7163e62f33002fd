//! Accounts: users and groups of this machine, by name and by number.
//!
//! A lookup may read files or query a service, so it runs before the loop starts or on a thread of
//! its own, never on the loop's or the process supervisor's.

use std::collections::BTreeSet;
use std::fs;
#[cfg(feature = "cli")]
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User};

/// The uid that stands for every user without a mapping in a user namespace. A peer with it may be
/// any user and is always rejected.
pub(crate) const OVERFLOW_UID: u32 = 65_534;

/// The number of a user, given by name or number.
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

/// Home directory of a user, if the account database has it.
#[cfg(feature = "cli")]
pub(crate) fn home_of(uid: u32) -> Option<PathBuf> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.dir)
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
        assert_eq!(user("root"), Ok(0));
        assert_eq!(user("1234"), Ok(1234));
        assert_eq!(group("root"), Ok(0));
        assert!(members(0).contains(&0));
        assert!(user("no such user").unwrap_err().contains("no such user"));
        assert!(group("no such group").unwrap_err().contains("no such group"));
    }

    #[test]
    fn overflow_user_is_rejected() {
        assert!(user("65534").unwrap_err().contains("65534"));
        assert!((0..100).all(|gid| !members(gid).contains(&OVERFLOW_UID)));
    }
}
