//! User of a command. Root's rights are never granted implicitly (TSK-39).

use ceased_core::identity::Identity;

use crate::config::RunAs;

/// The user to switch to; `None` to keep the daemon's user.
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
        Some(Identity::Token(_) | Identity::Subject(_) | Identity::Anonymous) | None => None,
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
            "not run: the tool runs as its caller, and this caller is not a user of this \
             machine",
        )?,
    };
    if wanted == us {
        Ok(None)
    } else if us == 0 {
        Ok(Some(wanted))
    } else {
        Err(format!(
            "not run: the tool runs as uid {wanted}, and only a daemon running as root can \
             become that user; this one runs as uid {us}"
        ))
    }
}

/// The user for a command of the caller's own (`ceased run`), which is the caller's; `None` to keep
/// the daemon's user.
///
/// # Errors
/// A sentence that says why the command must not run.
pub(super) fn caller(owner: Option<&Identity>, us: u32) -> Result<Option<u32>, String> {
    match owner {
        Some(Identity::User(uid)) if *uid == us => Ok(None),
        Some(Identity::User(uid)) if us == 0 => Ok(Some(*uid)),
        Some(Identity::User(uid)) => Err(format!(
            "not run: the command runs as its caller, uid {uid}, and only a daemon running as root \
             can become that user; this one runs as uid {us}: start a daemon of your own, such as \
             with `ceased serve`"
        )),
        Some(Identity::Token(_) | Identity::Subject(_) | Identity::Anonymous) | None => {
            Err("not run: the command runs as its caller, and this caller is not a user of this \
                 machine"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::runs_for::runs_for;

    /// TSK-39: the whole table. No row grants root's rights to another user unless the tool says
    /// "daemon" or names root.
    #[test]
    fn user_of_a_command_is_chosen_by_the_table() {
        let (root, ann) = (Identity::User(0), Identity::User(7));
        let (token, anonymous) = (Identity::Token("ci".into()), Identity::Anonymous);
        let (daemon, peer, bob) = (RunAs::Daemon, RunAs::Peer, RunAs::User(8));
        let run = |wanted, owner, us| user(wanted, Some(owner), us).map_err(|_| ());
        for other in [&ann, &token, &anonymous] {
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
            assert_eq!(run(Some(peer), &anonymous, us), Err(()));
        }
        assert_eq!(user(None, None, 0).map_err(|_| ()), Err(()));
    }

    /// AUTH-03: a tool is listed for exactly the callers that it runs for.
    #[test]
    fn tool_runs_for_the_callers_that_see_it() {
        let callers = [
            Identity::User(0),
            Identity::User(7),
            Identity::User(8),
            Identity::Token("ci".into()),
            Identity::Subject("https://issuer#ann".into()),
            Identity::Anonymous,
        ];
        let wanted = [
            None,
            Some(RunAs::Daemon),
            Some(RunAs::Peer),
            Some(RunAs::User(7)),
            Some(RunAs::User(0)),
        ];
        for (wanted, us) in wanted.into_iter().flat_map(|wanted| [(wanted, 0), (wanted, 7)]) {
            for caller in &callers {
                let runs = user(wanted, Some(caller), us).is_ok();
                assert_eq!(runs_for(wanted, us).includes(caller), runs, "{wanted:?} {caller} {us}");
            }
        }
    }

    /// TSK-39: no caller gets another user's rights, root's least of all.
    #[test]
    fn command_of_a_caller_runs_as_the_caller_alone() {
        let (root, ann) = (Identity::User(0), Identity::User(7));
        let run = |owner: Option<&Identity>, us| caller(owner, us).map_err(|_| ());
        assert_eq!(run(Some(&ann), 7), Ok(None));
        assert_eq!(run(Some(&ann), 0), Ok(Some(7)));
        assert_eq!(run(Some(&root), 0), Ok(None));
        for (owner, us) in [(Some(&ann), 8), (Some(&root), 7), (None, 0), (None, 7)] {
            assert_eq!(run(owner, us), Err(()), "{owner:?} {us}");
        }
        for other in [Identity::Token("ci".into()), Identity::Anonymous] {
            assert_eq!(run(Some(&other), 0), Err(()));
            assert_eq!(run(Some(&other), 7), Err(()));
        }
    }
}
