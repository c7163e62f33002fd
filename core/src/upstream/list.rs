//! The lists that servers have, as data.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::upstream::manifest::Manifest;
use crate::upstream::rewrite::member;

/// A list that servers have.
pub(crate) struct List {
    pub(crate) method: &'static str,
    /// Capability, or extension, whose servers have it.
    pub(crate) capability: &'static str,
    /// Member of the result.
    pub(crate) member: &'static str,
    /// Member that tells its elements apart.
    pub(crate) key: &'static str,
    /// Its elements, to be filled.
    pub(crate) elements: fn(&mut Manifest) -> &mut Vec<Box<str>>,
    /// Its elements.
    pub(crate) read: fn(&Manifest) -> &[Box<str>],
}

/// Positions in [`LISTS`].
pub(crate) const TOOLS: usize = 0;
pub(crate) const PROMPTS: usize = 1;
pub(crate) const RESOURCES: usize = 2;
pub(crate) const TEMPLATES: usize = 3;
pub(crate) const SKILLS: usize = 4;

/// Extension whose servers have skills (SEP-2640).
pub(crate) const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";
/// Extension of resources that hosts show (MCP Apps).
pub(crate) const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";

impl List {
    /// Whether a server with these capabilities says that it has the list.
    pub(crate) fn is_declared(&self, capabilities: &str) -> bool {
        declares(capabilities, self.capability)
    }
}

/// Whether capabilities have this one, or this extension.
pub(crate) fn declares(capabilities: &str, name: &'static str) -> bool {
    let extensions = || member(capabilities, "extensions");
    let is_extension = || extensions().is_some_and(|all| member(all, name).is_some());
    member(capabilities, name).is_some() || is_extension()
}

/// Every list, in the order in which they are read.
pub(crate) const LISTS: [List; 5] = [
    List {
        method: "tools/list",
        capability: "tools",
        member: "tools",
        key: "name",
        elements: |manifest| &mut manifest.tools,
        read: |manifest| &manifest.tools,
    },
    List {
        method: "prompts/list",
        capability: "prompts",
        member: "prompts",
        key: "name",
        elements: |manifest| &mut manifest.prompts,
        read: |manifest| &manifest.prompts,
    },
    List {
        method: "resources/list",
        capability: "resources",
        member: "resources",
        key: "uri",
        elements: |manifest| &mut manifest.resources,
        read: |manifest| &manifest.resources,
    },
    List {
        method: "resources/templates/list",
        capability: "resources",
        member: "resourceTemplates",
        key: "uriTemplate",
        elements: |manifest| &mut manifest.templates,
        read: |manifest| &manifest.templates,
    },
    List {
        method: "skills/list",
        capability: SKILLS_EXTENSION,
        member: "skills",
        key: "uri",
        elements: |manifest| &mut manifest.skills,
        read: |manifest| &manifest.skills,
    },
];
