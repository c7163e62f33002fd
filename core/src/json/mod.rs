//! JSON text: scanning, checking and writing it without a tree.

pub mod format;
pub(crate) mod meta;
pub mod raw;
pub(crate) mod scan;
pub(crate) mod whole;
pub(crate) mod writer;
