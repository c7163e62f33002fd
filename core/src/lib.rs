//! Cancellation and task rules of MCP as a pure state machine: events in, actions out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod frame;
pub mod id;
pub mod limits;
pub mod time;
