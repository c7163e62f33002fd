//! The simulator on its seeds, and the list of deliberate faults.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod mutants;
mod seeds;
