//! A look at the store of a daemon that does not run: whether all of it is what was written. It
//! changes nothing and replaces nothing.

use std::path::Path;

use super::contract::StoreError;
use super::directory;
use super::directory::StateDirError;
use crate::start_error::StartError;

/// The findings.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// What there is, in words.
    pub(crate) verdict: String,
    /// The problem, in words; none when all is well.
    pub(crate) problems: Vec<String>,
}

/// Reads all of the store in a state directory. No daemon can use it meanwhile.
pub(crate) fn inspect(state_dir: &Path) -> Result<Inspected, StartError> {
    let store = state_dir.join("tasks");
    let is_there = store.try_exists().map_err(|error| {
        // A user without permission cannot know that there is nothing.
        StateDirError::Io { path: store.clone(), error }
    })?;
    if !is_there {
        let verdict = format!("{}: no task was ever kept here", store.display());
        return Ok(Inspected { verdict, problems: Vec::new() });
    }
    let _lock = directory::hold(state_dir, directory::HELD_FOR, directory::Phase::Starting)?;
    match look(&store) {
        Err(StoreError::Unusable(what)) => {
            Ok(Inspected { verdict: String::new(), problems: vec![what.to_string()] })
        }
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
    Ok(Inspected { verdict, problems: found.problems })
}

#[cfg(not(feature = "sqlite"))]
fn look(_: &Path) -> Result<Inspected, StoreError> {
    let what = "this build knows nothing of stores: it was made without the feature `sqlite`";
    Err(StoreError::Refused(what.into()))
}
