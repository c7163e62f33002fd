//! `/proc`: the table of processes, and descent in it.

pub(crate) mod boot_clock;
pub(crate) mod descent;
pub(crate) mod lineage;
pub(crate) mod processes;
pub(crate) mod sweep;
pub(crate) mod table;
