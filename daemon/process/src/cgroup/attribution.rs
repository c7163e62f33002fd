//! Attribution of an orphan to a job, for the end of that job.
//!
//! A process can choose its environment and its pipes. It cannot choose its parents, the session of
//! other processes, or its control group, unless it may write to groups. So only parents, session
//! and group attribute it to a job (SEC-06). Environment and pipes make it end together with the
//! job that they name, which harms it alone: they hide it from no other job, and hold up no other
//! job.
//!
//! This is evidence for cleaning up, and never of an identity (SEC-05).

use std::collections::BTreeSet;

use crate::ids::JobId;

/// Evidence about an orphan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// Job that knew it as a descendant while its parents lived.
    pub(crate) descent: Option<JobId>,
    /// Job whose process leads its session: a session can only be inherited.
    pub(crate) session: Option<JobId>,
    /// Job in whose group it is, if no process was ever moved into that group.
    pub(crate) group: Option<JobId>,
    /// Running jobs that are not younger than it.
    pub(crate) possible: BTreeSet<JobId>,
    /// Whether there are other processes whose job is unknown: it may be a child of one.
    pub(crate) has_strangers: bool,
    /// Job that its environment or its pipes name.
    pub(crate) claimed: Option<JobId>,
}

/// The job of an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    Job(JobId),
    /// One of these, or one that has ended.
    OneOf {
        jobs: BTreeSet<JobId>,
        /// The one of them that it names.
        claimed: Option<JobId>,
    },
}

impl Traces {
    /// The job of the orphan, as far as it can be known.
    pub(crate) fn owner(self) -> Owner {
        // SEC-06: evidence that the process chooses attributes it to no job.
        if let Some(job) = self.descent.or(self.session).or(self.group) {
            return Owner::Job(job);
        }
        let mut possible = self.possible.iter();
        match (possible.next(), possible.next()) {
            (Some(only), None) if !self.has_strangers => Owner::Job(*only),
            (_, _) => {
                let claimed = self.claimed.filter(|job| self.possible.contains(job));
                Owner::OneOf { jobs: self.possible, claimed }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: JobId = JobId::new(1);
    const FOREIGN: JobId = JobId::new(2);

    fn both() -> BTreeSet<JobId> {
        BTreeSet::from([MINE, FOREIGN])
    }

    /// SEC-06: every combination of evidence. The choice of a process never decides, and never
    /// outweighs evidence of the kernel.
    #[test]
    fn orphan_belongs_to_the_job_that_the_kernel_names() {
        let any = [None, Some(MINE), Some(FOREIGN)];
        for (descent, session, group) in
            any.iter().flat_map(|d| any.iter().flat_map(|s| any.map(|g| (*d, *s, g))))
        {
            for claimed in any {
                for has_strangers in [false, true] {
                    let possible = both();
                    let traces =
                        Traces { descent, session, group, possible, has_strangers, claimed };
                    let owner = traces.clone().owner();
                    match (descent, session, group) {
                        (Some(job), _, _) | (None, Some(job), _) | (None, None, Some(job)) => {
                            assert_eq!(owner, Owner::Job(job), "{traces:?}");
                        }
                        (None, None, None) => {
                            assert_eq!(owner, Owner::OneOf { jobs: both(), claimed }, "{traces:?}");
                        }
                    }
                }
            }
        }
    }

    /// SEC-06: the only possible job is known without further evidence, unless there are processes
    /// of others; a job that has ended, or begun after the process, cannot be named.
    #[test]
    fn only_possible_job_needs_no_further_evidence() {
        let of = |jobs: &[JobId], has_strangers, claimed| {
            let possible = jobs.iter().copied().collect();
            Traces { possible, has_strangers, claimed, ..Traces::default() }.owner()
        };
        let one_of = |jobs: &[JobId], claimed| Owner::OneOf {
            jobs: jobs.iter().copied().collect(),
            claimed,
        };
        assert_eq!(of(&[MINE], false, None), Owner::Job(MINE));
        assert_eq!(of(&[MINE], false, Some(FOREIGN)), Owner::Job(MINE));
        assert_eq!(of(&[MINE], true, None), one_of(&[MINE], None));
        assert_eq!(of(&[MINE], true, Some(MINE)), one_of(&[MINE], Some(MINE)));
        assert_eq!(of(&[MINE], true, Some(FOREIGN)), one_of(&[MINE], None));
        assert_eq!(of(&[], false, Some(FOREIGN)), one_of(&[], None));
    }
}
