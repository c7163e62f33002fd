//! The lists that servers have, as data.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::upstream::manifest::Manifest;

/// A list that servers have.
pub(crate) struct List {
    pub(crate) method: &'static str,
    /// Capability whose servers have it.
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

/// Every list, in the order in which they are read.
pub(crate) const LISTS: [List; 4] = [
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
];
