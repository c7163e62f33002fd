//! The ledger of rules, the official SDKs, the packages and the tidiness of the tree.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod book;
mod completion;
mod dependencies;
mod example_hello;
mod fuzz;
mod layers;
mod ledger;
mod living_systemd;
mod packaging;
mod real;
mod sdk;
mod structure;
mod tidy;
mod walks;
