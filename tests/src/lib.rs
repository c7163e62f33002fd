//! The test kit: what the suites of this workspace share.

pub mod binary;
