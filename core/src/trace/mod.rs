//! Traces: the inputs of an engine and everything that it did, as data (DET-01).
//!
//! A trace is one [`Line`] of JSON for each input. A recorder and the simulator write the same
//! format, so that either can be replayed with a fresh engine and compared, byte for byte. It
//! contains everything that peers and tools said.

mod bits;
mod bytes;
mod input;
pub(crate) mod settings;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::ConnId;
use crate::settings::Settings;
use crate::time::Now;

pub use self::input::{Input, UpstreamInput};
pub use self::settings::{CheckFactory, restore_checks};

/// One line of a trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line: a new engine.
    Engine {
        /// Settings of the engine.
        settings: Arc<Settings>,
        /// Ids that it took from its source.
        ids: Vec<Uuid>,
    },
    /// An input and its consequences.
    Step(Box<Step>),
}

/// An input and its consequences.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// Time of the input.
    pub now: Now,
    /// The input.
    pub input: Input,
    /// Ids that the engine took from its source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<Uuid>,
    /// Actions of the engine, as texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// Frames that the engine wrote, by connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<Written>,
}

impl Step {
    /// A step without consequences.
    #[must_use]
    pub const fn new(now: Now, input: Input) -> Self {
        Self { now, input, ids: Vec::new(), actions: Vec::new(), written: Vec::new() }
    }
}

/// Frames that an engine wrote to one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The connection.
    pub conn: ConnId,
    /// The frames with their line ends.
    #[serde(with = "bytes")]
    pub bytes: Vec<u8>,
}
