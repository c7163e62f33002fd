//! Parts that the daemon needs besides: hidden, and outside the promise of a stable interface.

pub use crate::cgroup::end_left_behind;
pub use crate::containment::predict_unenforced;
pub use crate::guard::roster::Roster;
pub use crate::launch::environment::{is_private, variables_of_the_service_manager};
pub use crate::launch::unrunnable;
pub use crate::proc::boot_clock::boot_time;
pub use crate::sys::{
    block_signals, close_inherited, forbid_tracing, inherited_descriptors, keep_heap, trim_heap,
};
