//! Environment variables of a table, and headers: names with values that may be secret.

use std::ffi::OsString;
use std::fmt;

use super::EnvFile;

/// Environment variables or headers, whose values are never displayed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Variables(pub Vec<(String, String)>);

impl Variables {
    /// The names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The variables of a file, then these, later ones first in effect.
    pub(super) fn after(
        &self,
        file: Option<&EnvFile>,
    ) -> Result<Vec<(OsString, OsString)>, String> {
        let of_file = file.map(EnvFile::variables).transpose()?;
        let all = of_file.unwrap_or_default().iter().chain(&self.0);
        Ok(all.map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
