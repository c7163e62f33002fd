//! Manifests: description and lists of a server, kept to answer clients while it starts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Identity and lists of a server, as JSON text that it wrote itself (UPS-09).
///
/// The host keeps it across restarts. Lists hold every page, one JSON object an element.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Revision that the server speaks, such as `2025-11-25`.
    pub revision: Box<str>,
    /// Result of `initialize` or of `server/discover`: the JSON text of an object.
    pub identity: Box<str>,
    /// Elements of `tools/list`.
    #[serde(default)]
    pub tools: Vec<Box<str>>,
    /// Elements of `prompts/list`.
    #[serde(default)]
    pub prompts: Vec<Box<str>>,
    /// Elements of `resources/list`.
    #[serde(default)]
    pub resources: Vec<Box<str>>,
    /// Elements of `resources/templates/list`.
    #[serde(default)]
    pub templates: Vec<Box<str>>,
}
