//! Files that `ceased adopt` has written, and that get their old contents again where a later one
//! cannot be written.

use std::fs;
use std::path::PathBuf;

use super::Failure;

/// A file that was written, and the copy of its old content; none of a new file.
pub(super) struct Written {
    pub(super) path: PathBuf,
    pub(super) copy: Option<PathBuf>,
}

impl Written {
    /// Gives the file its old content again; removes a new one.
    fn take_back(&self) -> std::io::Result<()> {
        match &self.copy {
            Some(copy) => fs::rename(copy, &self.path),
            None => fs::remove_file(&self.path),
        }
    }
}

/// Gives files their old contents again because another one cannot be written.
pub(super) fn take_back(written: &[Written], failure: Failure) -> Failure {
    let mut message = failure.message;
    for one in written.iter().rev() {
        let path = one.path.display();
        message.push_str(&match one.take_back() {
            Ok(()) => format!("\n{path} is as it was"),
            Err(why) => format!("\n{path} is changed, and cannot be taken back: {why}"),
        });
    }
    Failure::new(failure.exit, message)
}
