//! Resource limits of a command: those this process was started with, or those of an ordinary user
//! where it becomes another user.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit};

use crate::sys::Limit;

/// The limit of open files that this process was started with.
static FILES: OnceLock<Rlimit> = OnceLock::new();

const MIB: u64 = 1 << 20;

/// Notes the limit of open files, before anything of this process changes it.
pub(crate) fn note_original() {
    let _ = original_files();
}

/// The limit of open files that this process had at its start: for the programs it runs, many of
/// which cannot handle descriptors above 1,023.
pub(crate) fn original_files() -> Rlimit {
    *FILES.get_or_init(|| getrlimit(Resource::Nofile))
}

/// What a process of another user may have of a resource at most, as a login without further
/// configuration gives: root's own limits may be higher, and are not for others.
#[derive(Debug, Clone, Copy)]
enum OfUser {
    /// This soft limit and this hard one; `None` is no limit.
    Most(Option<u64>, Option<u64>),
    /// Half of the threads of the system, as the kernel gives to the first process.
    HalfOfThreads,
}

use OfUser::{HalfOfThreads, Most};

const RESOURCES: [(Resource, libc::__rlimit_resource_t, OfUser); 9] = [
    (Resource::Core, libc::RLIMIT_CORE, Most(Some(0), None)),
    (Resource::Stack, libc::RLIMIT_STACK, Most(Some(8 * MIB), None)),
    (Resource::Nofile, libc::RLIMIT_NOFILE, Most(Some(1024), Some(524_288))),
    (Resource::Memlock, libc::RLIMIT_MEMLOCK, Most(Some(8 * MIB), Some(8 * MIB))),
    (Resource::Msgqueue, libc::RLIMIT_MSGQUEUE, Most(Some(819_200), Some(819_200))),
    (Resource::Nice, libc::RLIMIT_NICE, Most(Some(0), Some(0))),
    (Resource::Rtprio, libc::RLIMIT_RTPRIO, Most(Some(0), Some(0))),
    (Resource::Nproc, libc::RLIMIT_NPROC, HalfOfThreads),
    (Resource::Sigpending, libc::RLIMIT_SIGPENDING, HalfOfThreads),
];

impl OfUser {
    /// The soft and the hard limit.
    fn limits(self) -> (Option<u64>, Option<u64>) {
        match self {
            Most(soft, hard) => (soft, hard),
            HalfOfThreads => {
                let half = threads_max().map(|threads| threads / 2);
                (half, half)
            }
        }
    }
}

fn threads_max() -> Option<u64> {
    static THREADS: OnceLock<Option<u64>> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/sys/kernel/threads-max").ok()?.trim().parse().ok();
    *THREADS.get_or_init(read)
}

/// The limits that a command gets in the place of those this process has now.
pub(crate) fn of_command(becomes_another: bool) -> Vec<Limit> {
    let changed = |(resource, number, of_user): &(Resource, _, OfUser)| {
        let now = getrlimit(*resource);
        let mut wanted = now;
        if *resource == Resource::Nofile {
            // The hard limit may have been lowered since.
            let original = original_files();
            wanted.current = least(original.current, now.maximum);
            wanted.maximum = least(original.maximum, now.maximum);
        }
        if becomes_another {
            let (soft, hard) = of_user.limits();
            wanted.maximum = least(wanted.maximum, hard);
            wanted.current = least(least(wanted.current, soft), wanted.maximum);
        }
        let number: libc::__rlimit_resource_t = *number;
        (wanted != now).then_some(Limit {
            resource: number,
            soft: wanted.current.unwrap_or(u64::MAX),
            hard: wanted.maximum.unwrap_or(u64::MAX),
        })
    };
    RESOURCES.iter().filter_map(changed).collect()
}

/// The lower of two limits, of which `None` is none at all.
fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lowered_and_never_raised() {
        for limit in of_command(true) {
            let (resource, ..) =
                RESOURCES.iter().find(|(_, number, _)| *number == limit.resource).unwrap();
            let now = getrlimit(*resource);
            assert!(limit.soft <= now.current.unwrap_or(u64::MAX), "{limit:?}");
            assert!(limit.hard <= now.maximum.unwrap_or(u64::MAX), "{limit:?}");
            assert!(limit.soft <= limit.hard, "{limit:?}");
        }
        assert_eq!(least(None, None), None);
        assert_eq!(least(Some(3), None), Some(3));
        assert_eq!(least(Some(3), Some(2)), Some(2));
    }
}
