//! Accounts: users and groups of this machine, by name and by number.
//!
//! Looking one up may read files or ask a service, so it is done before the loop runs or on a thread
//! of its own, never on the loop's nor on the one that ends processes.

use std::collections::BTreeSet;
use std::fs;

use nix::unistd::{Gid, Group, Uid, User};

/// The uid of every user that the kernel cannot map into a user namespace. A peer with it
/// may be any user, so it is never let in.
pub(crate) const OVERFLOW_UID: u32 = 65_534;

/// The number of a user, given by name or number.
///
/// # Errors
/// A hint that says why there is none.
pub(crate) fn user(written: &str) -> Result<u32, String> {
    let uid = match written.parse::<u32>() {
        Ok(uid) => uid,
        Err(_) => match User::from_name(written) {
            Ok(Some(user)) => user.uid.as_raw(),
            Ok(None) => return Err("there is no such user on this machine".into()),
            Err(why) => return Err(format!("the user cannot be looked up: {why}")),
        },
    };
    if uid == OVERFLOW_UID {
        return Err(format!(
            "every user that a namespace does not map reads as uid {OVERFLOW_UID}, so it would let \
             in all of them"
        ));
    }
    Ok(uid)
}

/// What a user is called, if this machine knows.
pub(crate) fn name_of(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// The number of a group, given by name or number.
///
/// # Errors
/// A hint that says why there is none.
pub(crate) fn group(written: &str) -> Result<u32, String> {
    if let Ok(gid) = written.parse::<u32>() {
        return Ok(gid);
    }
    match Group::from_name(written) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err("there is no such group on this machine".into()),
        Err(why) => Err(format!("the group cannot be looked up: {why}")),
    }
}

/// The users of a group: who is listed in it, and who of `/etc/passwd` has it as the primary one.
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

/// Whether a group is a user's own: its primary one, of the same name, and with no other member
/// but root.
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
    fn accounts_of_this_machine() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(user("root"), Ok(0));
        assert_eq!(user("1234"), Ok(1234));
        assert_eq!(group("root"), Ok(0));
        assert!(members(0).contains(&0));
        assert!(user("no such user").unwrap_err().contains("no such user"));
        assert!(group("no such group").unwrap_err().contains("no such group"));
    }

    #[test]
    fn the_overflow_user_is_nobody() {
        assert!(user("65534").unwrap_err().contains("65534"));
        assert!((0..100).all(|gid| !members(gid).contains(&OVERFLOW_UID)));
    }
}
