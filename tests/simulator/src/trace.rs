//! Traces: the inputs of an engine, as data for a replay (DET-01).

use std::sync::Arc;

use ceased_core::engine::Engine;
use ceased_core::settings::Settings;
use ceased_core::time::Now;
use ceased_core::trace::{Line, Step};

use crate::world::Rigged;

pub use ceased_core::trace::Input;

/// Inputs of an engine with their times.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The inputs in order.
    pub inputs: Vec<(Now, Input)>,
}

impl Trace {
    /// The same trace, written as lines of JSON and read again.
    ///
    /// # Panics
    /// When an input cannot be written or read.
    #[must_use]
    pub fn through_json(&self) -> Self {
        let inputs = self.inputs.iter().map(|(now, input)| {
            let step = Line::Step(Box::new(Step::new(*now, input.clone())));
            let line = serde_json::to_vec(&step).expect("an input can be written");
            match serde_json::from_slice(&line).expect("a written input can be read") {
                Line::Step(step) => (step.now, step.input),
                Line::Engine { .. } => panic!("a step was written"),
            }
        });
        Self { inputs: inputs.collect() }
    }

    /// Feeds all inputs to a fresh engine and returns, line by line, its actions and the bytes of
    /// every send queue after every event.
    #[must_use]
    pub fn replay(&self, settings: &Arc<Settings>, id_source: Rigged) -> Vec<String> {
        let mut engine = Engine::new(Arc::clone(settings), Box::new(id_source));
        let mut conns = Vec::new();
        let mut said = Vec::new();
        for (now, input) in &self.inputs {
            if let Input::Opened(conn, ..) | Input::OpenedAcp(conn, ..) = input {
                conns.push(*conn);
            }
            let mut actions = Vec::new();
            input.apply(&mut engine, *now, &mut actions);
            said.push(format!("{input:?} -> {actions:?}"));
            for conn in &conns {
                if let Some(queue) = engine.send_queue(*conn) {
                    let unsent: Vec<u8> = queue.runs().flatten().copied().collect();
                    said.push(format!("{conn} {}", String::from_utf8_lossy(&unsent)));
                }
            }
            said.push(format!("{:?} {:?}", engine.counters(), engine.deadline()));
        }
        said
    }
}

/// FNV-1a over lines: one number to print and compare.
#[must_use]
pub fn hash(lines: &[String]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in lines.iter().flat_map(|line| line.bytes().chain([b'\n'])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
