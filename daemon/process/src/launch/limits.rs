//! Resource limits of a command: those this process was started with, or those of an ordinary user
//! if it runs as another user.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit};

use crate::sys::Limit;

/// Limit of open files at the start of this process.
static FILES: OnceLock<Rlimit> = OnceLock::new();

const MIB: u64 = 1 << 20;

/// Records the limit of open files before this process changes it.
pub(crate) fn note_original() {
    let _ = original_files();
}

/// Limit of open files at the start of this process, for the programs it runs: many cannot handle
/// descriptors above 1,023.
pub(crate) fn original_files() -> Rlimit {
    *FILES.get_or_init(|| getrlimit(Resource::Nofile))
}

/// Upper bound of a resource for a process of another user, as in a default login session: root's
/// own limits may be higher, and must not be inherited.
#[derive(Debug, Clone, Copy)]
enum OfUser {
    /// Soft and hard limit; `None` is unlimited.
    Most(Option<u64>, Option<u64>),
    /// Half of the threads of the system, the kernel's default for the first process.
    HalfOfThreads,
}

use OfUser::{HalfOfThreads, Most};

const RESOURCES: [(Resource, OfUser); 9] = [
    (Resource::Core, Most(Some(0), None)),
    (Resource::Stack, Most(Some(8 * MIB), None)),
    (Resource::Nofile, Most(Some(1024), Some(524_288))),
    (Resource::Memlock, Most(Some(8 * MIB), Some(8 * MIB))),
    (Resource::Msgqueue, Most(Some(819_200), Some(819_200))),
    (Resource::Nice, Most(Some(0), Some(0))),
    (Resource::Rtprio, Most(Some(0), Some(0))),
    (Resource::Nproc, HalfOfThreads),
    (Resource::Sigpending, HalfOfThreads),
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

/// The limits that a command gets instead of the current ones of this process.
pub(crate) fn of_command(becomes_another: bool) -> Vec<Limit> {
    let changed = |(resource, of_user): &(Resource, OfUser)| {
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
        (wanted != now).then_some(Limit {
            // The kernel's number.
            resource: *resource as u32,
            soft: wanted.current.unwrap_or(u64::MAX),
            hard: wanted.maximum.unwrap_or(u64::MAX),
        })
    };
    RESOURCES.iter().filter_map(changed).collect()
}

/// The lower of two limits; `None` is unlimited.
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
                RESOURCES.iter().find(|(it, ..)| *it as u32 == limit.resource).unwrap();
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
