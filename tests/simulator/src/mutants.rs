//! Deliberate faults: their list, and their application to a copy of the core.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::workspace;

/// One deliberate fault.
#[derive(Debug, Clone, Deserialize)]
pub struct Fault {
    /// Name of the fault.
    pub name: String,
    /// Rule or property that the fault breaks.
    pub breaks: String,
    /// Suite to try first; by default the simulator.
    pub suite: Option<String>,
    /// Path of the changed file below the root of the workspace.
    pub file: String,
    /// Text to replace, which occurs exactly once.
    pub find: String,
    /// Replacement.
    pub replace: String,
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// Every fault of the list.
///
/// # Panics
/// When the list cannot be read.
#[must_use]
pub fn faults() -> Vec<Fault> {
    let path = workspace::root().join("tests/simulator/mutants/faults.toml");
    let text = fs::read_to_string(path).expect("the list of faults can be read");
    toml::from_str::<Faults>(&text).expect("the list of faults is TOML").fault
}

impl Fault {
    /// Content of the file below `root` with the fault applied.
    ///
    /// # Errors
    /// When the file cannot be read, or the text to replace does not occur exactly once.
    pub fn applied(&self, root: &Path) -> Result<String, String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", self.file))?;
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!(
                "{}: the text to replace occurs {count} times in {}; update its `find`",
                self.name, self.file
            )),
        }
    }
}
