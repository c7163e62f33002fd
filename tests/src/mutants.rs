//! Deliberate faults: the list of them, and applying one to a copy of the core.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::workspace;

/// One deliberate fault.
#[derive(Debug, Clone, Deserialize)]
pub struct Fault {
    /// A name for it.
    pub name: String,
    /// What it breaks.
    pub breaks: String,
    /// The suite that is to be tried first; the simulator if not said.
    pub suite: Option<String>,
    /// The file it is in, below the root of the workspace.
    pub file: String,
    /// What stands there, exactly once.
    pub find: String,
    /// What stands there instead.
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
    let path = workspace::root().join("tests/mutants/faults.toml");
    let text = fs::read_to_string(path).expect("the list of faults can be read");
    toml::from_str::<Faults>(&text).expect("the list of faults is TOML").fault
}

impl Fault {
    /// The file below `root` with the fault in it.
    ///
    /// # Errors
    /// When the file cannot be read or what is to be replaced does not stand in it exactly once.
    pub fn applied(&self, root: &Path) -> Result<String, String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", self.file))?;
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!(
                "{}: what it replaces stands {count} times in {}; write its `find` anew",
                self.name, self.file
            )),
        }
    }
}
