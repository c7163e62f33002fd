//! Resource limits of a command: those this process was started with, or those of an ordinary user
//! where it becomes another user.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit};

use crate::sys::Limit;

/// The limit of open files that this process was started with.
static FILES: OnceLock<Rlimit> = OnceLock::new();

const MIB: u64 = 1 << 20;

/// Notes the limit of open files, before anything of this process changes it.
pub(super) fn note_original() {
    let _ = original_files();
}

/// The limit of open files that this process had at its start: for the programs it runs, many of
/// which cannot handle descriptors above 1,023.
pub(crate) fn original_files() -> Rlimit {
    FILES.get_or_init(|| getrlimit(Resource::Nofile)).clone()
}

/// What a process of another user may have at most, as a login without further configuration
/// gives: the soft and the hard limit. Root's own limits may be higher, and are not for others.
fn of_a_user(resource: Resource) -> Option<(Option<u64>, Option<u64>)> {
    match resource {
        Resource::Core => Some((Some(0), None)),
        Resource::Stack => Some((Some(8 * MIB), None)),
        Resource::Nofile => Some((Some(1024), Some(524_288))),
        Resource::Memlock => Some((Some(8 * MIB), Some(8 * MIB))),
        Resource::Msgqueue => Some((Some(819_200), Some(819_200))),
        Resource::Nice | Resource::Rtprio => Some((Some(0), Some(0))),
        // As many as the kernel gives to the first process.
        Resource::Nproc | Resource::Sigpending => {
            threads_max().map(|threads| (Some(threads / 2), Some(threads / 2)))
        }
        _ => None,
    }
}

fn threads_max() -> Option<u64> {
    static THREADS: OnceLock<Option<u64>> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/sys/kernel/threads-max").ok()?.trim().parse().ok();
    *THREADS.get_or_init(read)
}

const RESOURCES: [(Resource, libc::__rlimit_resource_t); 9] = [
    (Resource::Core, libc::RLIMIT_CORE),
    (Resource::Stack, libc::RLIMIT_STACK),
    (Resource::Nofile, libc::RLIMIT_NOFILE),
    (Resource::Memlock, libc::RLIMIT_MEMLOCK),
    (Resource::Msgqueue, libc::RLIMIT_MSGQUEUE),
    (Resource::Nice, libc::RLIMIT_NICE),
    (Resource::Rtprio, libc::RLIMIT_RTPRIO),
    (Resource::Nproc, libc::RLIMIT_NPROC),
    (Resource::Sigpending, libc::RLIMIT_SIGPENDING),
];

/// The limits that a command gets in the place of those this process has now.
pub(super) fn of_command(becomes_another: bool) -> Vec<Limit> {
    RESOURCES
        .iter()
        .filter_map(|(resource, number)| {
            let now = getrlimit(*resource);
            let ours = if *resource == Resource::Nofile {
                // The hard limit may have been lowered since.
                let original = original_files();
                Rlimit {
                    current: least(original.current, now.maximum),
                    maximum: least(original.maximum, now.maximum),
                }
            } else {
                now.clone()
            };
            let wanted = match of_a_user(*resource).filter(|_| becomes_another) {
                Some((soft, hard)) => {
                    let maximum = least(ours.maximum, hard);
                    Rlimit { current: least(least(ours.current, soft), maximum), maximum }
                }
                None => ours,
            };
            (wanted != now).then_some(Limit {
                resource: *number,
                soft: wanted.current.unwrap_or(u64::MAX),
                hard: wanted.maximum.unwrap_or(u64::MAX),
            })
        })
        .collect()
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
            let (resource, _) =
                RESOURCES.iter().find(|(_, number)| *number == limit.resource).unwrap();
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
