//! Collections whose order never depends on a hash seed (DET-01).

pub(crate) mod det_map;
pub(crate) mod lazy_box;
pub(crate) mod slab;
pub(crate) mod slot_map;
pub(crate) mod small_set;
pub(crate) mod tally;
pub mod timer_queue;
