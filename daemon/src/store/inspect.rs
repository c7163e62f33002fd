//! Read-only check of the store of a stopped daemon, for `store check`.

use std::path::Path;

use super::contract::StoreError;
use super::directory;
use super::directory::StateDirError;
use crate::start_error::StartError;

/// Result of the check.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// Summary for people.
    pub(crate) verdict: String,
    /// Descriptions of the problems; empty if there are none.
    pub(crate) problems: Vec<String>,
    /// Content of the store; `None` if there is no store, or it cannot be read.
    pub(crate) content: Option<Content>,
}

/// Content of a store.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Content {
    pub(crate) tasks: usize,
    pub(crate) ended: usize,
    pub(crate) bytes: u64,
}

/// Reads the whole store in a state directory. Holds its lock meanwhile, which keeps daemons out.
pub(crate) fn inspect(state_dir: &Path) -> Result<Inspected, StartError> {
    let store = state_dir.join("tasks");
    let is_there = store.try_exists().map_err(|error| {
        // Without permission the absence of the store cannot be established.
        StateDirError::Io { path: store.clone(), error }
    })?;
    if !is_there {
        let verdict = format!("{}: no store found; no task was stored here", store.display());
        return Ok(Inspected { verdict, problems: Vec::new(), content: None });
    }
    let _lock = directory::hold(state_dir, directory::HELD_FOR, directory::Phase::Starting)?;
    match look(&store) {
        Err(StoreError::Unusable(what)) => Ok(Inspected {
            verdict: String::new(),
            problems: vec![what.to_string()],
            content: None,
        }),
        other => Ok(other?),
    }
}

#[cfg(feature = "sqlite")]
fn look(store: &Path) -> Result<Inspected, StoreError> {
    let found = super::sqlite::inspect(store)?;
    let verdict = format!(
        "{}: ok\n  tasks  {}, {} of them ended\n  bytes  {}",
        store.display(),
        found.tasks,
        found.ended,
        found.bytes
    );
    let content = Content { tasks: found.tasks, ended: found.ended, bytes: found.bytes };
    Ok(Inspected { verdict, problems: found.problems, content: Some(content) })
}

#[cfg(not(feature = "sqlite"))]
fn look(_: &Path) -> Result<Inspected, StoreError> {
    let what = "this build cannot read stores: it was compiled without the feature `sqlite`";
    Err(StoreError::Refused(what.into()))
}
