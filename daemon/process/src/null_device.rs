//! The device that takes the place of a closed stream.

use std::fs::File;
use std::io;

const PATH: &str = "/dev/null";

/// Opens it for reading and writing.
///
/// # Errors
///
/// With its path, since a root directory without devices is the usual cause.
pub(crate) fn open() -> io::Result<File> {
    let opened = File::options().read(true).write(true).open(PATH);
    opened.map_err(|why| io::Error::new(why.kind(), format!("{PATH}: {why}")))
}
