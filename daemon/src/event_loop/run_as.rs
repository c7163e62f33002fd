//! As which user a command runs. Root's rights are given to nobody by an oversight (TSK-39).

use ceased_core::identity::Identity;

use crate::config::RunAs;

/// The user to become; `None` to stay the one the daemon runs as.
///
/// # Errors
/// A sentence that says why the command must not run.
pub(super) fn user(
    wanted: Option<RunAs>,
    owner: Option<&Identity>,
    us: u32,
) -> Result<Option<u32>, String> {
    let peer = match owner {
        Some(Identity::User(uid)) => Some(*uid),
        Some(Identity::Token(_) | Identity::Anonymous) | None => None,
    };
    let wanted = match wanted {
        None if us == 0 && peer != Some(0) => {
            return Err(
                "not run: the daemon runs as root, the caller does not, and the tool does \
                        not say `run_as`"
                    .into(),
            );
        }
        None | Some(RunAs::Daemon) => us,
        Some(RunAs::User(uid)) => uid,
        Some(RunAs::Peer) => peer.ok_or(
            "not run: the tool runs as the user who calls it, and this caller is no user of this \
             machine",
        )?,
    };
    if wanted == us {
        Ok(None)
    } else if us == 0 {
        Ok(Some(wanted))
    } else {
        Err(format!(
            "not run: the tool runs as uid {wanted}, and only a daemon that runs as root could \
             become that user; this one runs as uid {us}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-39: the whole table. No line gives root's rights to somebody else unless the tool says
    /// "daemon" or names root.
    #[test]
    fn whose_rights() {
        let (root, ann) = (Identity::User(0), Identity::User(7));
        let (token, nobody) = (Identity::Token("ci".into()), Identity::Anonymous);
        let (daemon, peer, bob) = (RunAs::Daemon, RunAs::Peer, RunAs::User(8));
        let run = |wanted, owner, us| user(wanted, Some(owner), us).map_err(|_| ());
        for other in [&ann, &token, &nobody] {
            assert_eq!(run(None, other, 0), Err(()));
            assert_eq!(run(Some(daemon), other, 0), Ok(None));
            assert_eq!(run(Some(bob), other, 0), Ok(Some(8)));
            assert_eq!(run(None, other, 7), Ok(None));
            assert_eq!(run(Some(daemon), other, 7), Ok(None));
            assert_eq!(run(Some(bob), other, 7), Err(()));
        }
        assert_eq!(run(None, &root, 0), Ok(None));
        assert_eq!(run(Some(peer), &root, 0), Ok(None));
        assert_eq!(run(Some(peer), &ann, 0), Ok(Some(7)));
        assert_eq!(run(Some(peer), &ann, 7), Ok(None));
        assert_eq!(run(Some(peer), &ann, 9), Err(()));
        for us in [0, 7] {
            assert_eq!(run(Some(peer), &token, us), Err(()));
            assert_eq!(run(Some(peer), &nobody, us), Err(()));
        }
        assert_eq!(user(None, None, 0).map_err(|_| ()), Err(()));
    }
}
