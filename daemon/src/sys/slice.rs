//! How long a thread runs at a time when others want its processor.
//!
//! Since Linux 6.12 a thread may say so. What it gets of the processor in all stays the same; but
//! one with short slices gets them sooner, and need not wait for the end of a longer one. Earlier
//! kernels take the wish and ignore it.

use std::io;

/// How long a thread runs at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slice {
    /// For who does little at a time, and is waited for.
    Short,
    /// What the system gives to everybody: 0.7 to 3 ms.
    Ordinary,
    /// For who is not waited for, and may be interrupted by whoever is.
    Long,
}

impl Slice {
    /// In ns; the kernel takes 100 us to 100 ms, and 0 for what everybody gets.
    const fn nanos(self) -> u64 {
        match self {
            Self::Short => 100_000,
            Self::Ordinary => 0,
            Self::Long => 6_000_000,
        }
    }
}

/// Has the calling thread, and whatever it starts from now on, run for so long at a time. Where
/// that cannot be had nothing is different; neither is it for a thread that its user has given
/// another policy than the ordinary one.
pub(crate) fn run_in(slice: Slice) {
    if let Err(error) = Attributes::of_this_thread().and_then(|own| own.with(slice.nanos())) {
        tracing::debug!(%error, ?slice, "the system leaves the thread's slices as they are");
    }
}

/// As [`run_in`] while something is done, and what that starts; then as it was before.
pub(crate) fn while_in<T>(slice: Slice, act: impl FnOnce() -> T) -> T {
    let own = Attributes::of_this_thread().ok();
    run_in(slice);
    let done = act();
    if let Some(own) = own {
        // As above: at worst it stays like this.
        let _ = own.with(own.runtime);
    }
    done
}

/// How a thread is scheduled; the kernel's `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The length of a slice in ns, for the ordinary policy. Kernels that know of none say 0.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The ordinary policy.
const SCHED_OTHER: u32 = libc::SCHED_OTHER.cast_unsigned();

impl Attributes {
    const BYTES: u32 = 48;

    fn of_this_thread() -> io::Result<Self> {
        let mut own = Self::default();
        // SAFETY: the kernel writes at most so many bytes to a block that has them.
        let result =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, Self::BYTES, 0u32) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(own) }
    }

    /// Gives the calling thread slices of so many ns; everything else stays what it is.
    fn with(self, runtime: u64) -> io::Result<()> {
        if self.policy != SCHED_OTHER {
            return Ok(());
        }
        let wanted = Self { size: Self::BYTES, runtime, ..self };
        // SAFETY: the kernel reads as many bytes as the block says it has.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0u32) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

const _: () = assert!(size_of::<Attributes>() == Attributes::BYTES as usize);

#[cfg(test)]
mod tests {
    use super::*;

    /// The slice of the calling thread, where the kernel has one.
    fn slice() -> u64 {
        Attributes::of_this_thread().expect("it can be asked for").runtime
    }

    /// In a thread of its own, since others are not to run in what it asks for.
    fn apart(test: fn()) {
        if slice() == 0 {
            return eprintln!("skipped: this kernel lets no thread choose its slice");
        }
        std::thread::spawn(test).join().expect("it passes");
    }

    #[test]
    fn a_thread_runs_in_the_slices_it_asks_for() {
        apart(|| {
            let ordinary = slice();
            run_in(Slice::Short);
            assert_eq!(slice(), Slice::Short.nanos());
            run_in(Slice::Long);
            assert_eq!(slice(), Slice::Long.nanos());
            run_in(Slice::Ordinary);
            assert_eq!(slice(), ordinary);
        });
    }

    #[test]
    fn what_is_started_gets_the_slice_and_who_starts_it_keeps_its_own() {
        apart(|| {
            run_in(Slice::Short);
            let started = while_in(Slice::Long, || std::thread::spawn(slice));
            assert_eq!(started.join().expect("it says"), Slice::Long.nanos());
            assert_eq!(slice(), Slice::Short.nanos());
        });
    }
}
