//! The path by which hosts start this program.

use std::path::{Path, PathBuf};

/// Path of this program as hosts are to start it: absolute, because hosts with a window often run
/// without the `PATH` of a shell.
#[derive(Debug, Clone)]
pub(crate) struct Binary(pub(super) String);

impl Binary {
    /// A program at this path.
    pub(crate) fn at(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// This program. A name in `PATH` that leads to it is preferred, because it outlives an update
    /// of the program.
    ///
    /// # Errors
    /// If the path is unknown or not UTF-8.
    pub(crate) fn of_process() -> Result<Self, String> {
        let unknown = |why: std::io::Error| format!("the path of this program is unknown: {why}");
        let program = std::env::current_exe().map_err(unknown)?;
        let is_same = |path: &Path| path.canonicalize().is_ok_and(|found| found == program);
        let listed = std::env::var_os("PATH").unwrap_or_default();
        let listed = std::env::split_paths(&listed).filter(|dir| dir.is_absolute());
        let named: Option<PathBuf> =
            listed.map(|dir| dir.join("ceased")).find(|path| is_same(path));
        match named.unwrap_or(program).into_os_string().into_string() {
            Ok(path) if path.ends_with("/ceased") => Ok(Self(path)),
            Ok(path) => Err(format!("the name of this program, {path}, is not ceased")),
            Err(path) => Err(format!("the path of this program is not UTF-8: {}", path.display())),
        }
    }
}
