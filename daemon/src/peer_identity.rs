//! Identity and rights of a peer on a Unix socket, by the evidence of the kernel (SEC-05).
//!
//! A process of the daemon's own user may be one that the daemon has started for another user. So
//! it is checked to which job it belongs, and acts as the requestor of that job. The kernel alone
//! is a witness: a process chooses its environment, its session and its pipes.

use ceased_core::identity::{Identity, Rights};
use ceased_process::{JobId, Located, Membership};

/// A peer whose process was inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InspectedPeer {
    /// Identity for the engine.
    pub(crate) identity: Identity,
    /// Rights under that identity.
    pub(crate) rights: Rights,
    /// Job that the process is inside of, if that is known.
    pub(crate) job: Option<JobId>,
}

/// Reason for which a peer of the daemon's user is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It cannot be determined whether, or of which job, the process is.
    Untold,
    /// The process is of a job, or of a server, that no known identity has requested.
    NoRequestor,
}

impl Refused {
    /// Text for the peer.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Untold => {
                "jobs are running, and it cannot be determined whether the connecting process \
                 belongs to one, because it has ended, is an orphan, or was moved between control \
                 groups: connect from a process that stays alive, outside of jobs"
            }
            Self::NoRequestor => {
                "the connecting process belongs to a job or a server that serves no single \
                 identity, so that it has no identity here: connect from outside of it"
            }
        }
    }
}

/// Whether the process of a peer is inside a job.
enum Place {
    Outside,
    Inside(JobId),
    /// It may be inside one.
    Untold,
}

impl Place {
    /// The place that the evidence shows: evidence that contradicts itself shows none.
    fn of(located: &Located) -> Self {
        let Located::Alive(membership) = located else { return Self::Untold };
        let Membership { group, descent, is_doubtful } = *membership;
        match (group, descent, is_doubtful) {
            (_, _, true) => Self::Untold,
            (Some(group), Some(descent), false) if group != descent => Self::Untold,
            (Some(job), _, false) | (None, Some(job), false) => Self::Inside(job),
            (None, None, false) => Self::Outside,
        }
    }
}

/// The identity and rights of a peer whose user the kernel names as `uid`, on a daemon of the user
/// `us`. `requestor` is the identity that has requested a job.
///
/// | process | of the daemon's user | of another user |
/// | --- | --- | --- |
/// | outside of jobs | its user | its user |
/// | inside a job | the requestor, no operator; without one refused | its user, no operator |
/// | unknown | refused | its user, no operator |
///
/// # Errors
/// Why the peer is refused.
pub(crate) fn peer_identity(
    uid: u32,
    us: u32,
    located: &Located,
    requestor: impl FnOnce(JobId) -> Option<Identity>,
) -> Result<InspectedPeer, Refused> {
    // SEC-05: a process inside a job has at most the rights of its user and of the requestor.
    let (rights, of_user) = (Rights::InsideJob, Identity::User(uid));
    match Place::of(located) {
        Place::Outside => Ok(InspectedPeer { identity: of_user, rights: Rights::Full, job: None }),
        Place::Inside(job) if uid == us => match requestor(job) {
            Some(identity) => Ok(InspectedPeer { identity, rights, job: Some(job) }),
            None => Err(Refused::NoRequestor),
        },
        Place::Untold if uid == us => Err(Refused::Untold),
        Place::Inside(job) => Ok(InspectedPeer { identity: of_user, rights, job: Some(job) }),
        Place::Untold => Ok(InspectedPeer { identity: of_user, rights, job: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u32 = 0;
    const ANN: u32 = 7;
    const BOB: u32 = 8;

    /// Kinds of work that processes belong to: their numbers, as the supervisor has them.
    const TOOL: JobId = JobId::new(3);
    const SERVER: JobId = JobId::new((1 << 62) + 3);
    const AGENT: JobId = JobId::new((1 << 62) + 4);
    const OTHER: JobId = JobId::new(4);

    fn alive(group: Option<JobId>, descent: Option<JobId>, is_doubtful: bool) -> Located {
        Located::Alive(Membership { group, descent, is_doubtful })
    }

    /// Every kind of evidence about a process, and the place that it shows.
    fn evidence(job: JobId) -> Vec<(Located, &'static str)> {
        let (own, other) = (Some(job), Some(OTHER));
        vec![
            (alive(None, None, false), "outside"),
            (alive(own, None, false), "inside"),
            (alive(None, own, false), "inside"),
            (alive(own, own, false), "inside"),
            (alive(own, other, false), "untold"),
            (alive(other, own, false), "untold"),
            (alive(None, None, true), "untold"),
            (alive(own, None, true), "untold"),
            (alive(None, own, true), "untold"),
            (alive(own, own, true), "untold"),
            (alive(own, other, true), "untold"),
            (Located::Gone, "untold"),
        ]
    }

    /// SEC-05: the whole table: user of the peer, user of the daemon, requestor, kind of work and
    /// evidence.
    #[test]
    fn identity_of_a_peer_is_chosen_by_the_table() {
        let users = [ROOT, ANN, BOB];
        let requestors = [
            Some(Identity::User(ROOT)),
            Some(Identity::User(ANN)),
            Some(Identity::User(BOB)),
            Some(Identity::Token("ci".into())),
            Some(Identity::Anonymous),
            None,
        ];
        let mut rows = 0;
        for (uid, us) in users.iter().flat_map(|uid| users.map(|us| (*uid, us))) {
            for requestor in &requestors {
                for job in [TOOL, SERVER, AGENT] {
                    for (located, place) in evidence(job) {
                        let of = |asked: JobId| {
                            assert_eq!(asked, job, "another job is asked for");
                            requestor.clone()
                        };
                        let found = peer_identity(uid, us, &located, of);
                        let row = format!("uid {uid}, daemon {us}, {requestor:?}, {located:?}");
                        check(uid, us, requestor.as_ref(), job, place, found, &row);
                        rows += 1;
                    }
                }
            }
        }
        assert_eq!(rows, 9 * 6 * 3 * 12);
    }

    fn check(
        uid: u32,
        us: u32,
        requestor: Option<&Identity>,
        job: JobId,
        place: &str,
        found: Result<InspectedPeer, Refused>,
        row: &str,
    ) {
        let own = |rights, job| Ok(InspectedPeer { identity: Identity::User(uid), rights, job });
        let wanted = match (place, uid == us, requestor) {
            ("outside", _, _) => own(Rights::Full, None),
            ("inside", true, Some(identity)) => Ok(InspectedPeer {
                identity: identity.clone(),
                rights: Rights::InsideJob,
                job: Some(job),
            }),
            ("inside", true, None) => Err(Refused::NoRequestor),
            ("inside", false, _) => own(Rights::InsideJob, Some(job)),
            ("untold", true, _) => Err(Refused::Untold),
            ("untold", false, _) => own(Rights::InsideJob, None),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, wanted, "{row}");
        // However the table is read: no other user's identity without the daemon's own user, and
        // no operator's rights without proof of being outside.
        if let Ok(peer) = found {
            assert!(peer.identity == Identity::User(uid) || uid == us, "{row}");
            assert!(peer.rights == Rights::InsideJob || place == "outside", "{row}");
        }
    }
}
