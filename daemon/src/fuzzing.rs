//! Readers of this crate for its fuzz targets, which are in another package. No part of the interface.

use std::path::Path;

use crate::host_files::{Binary, Change, Format, Outcome, adopt, undo};

/// A host's file with this name whose servers were adopted, adopted again, and undone; `None` if the
/// text is no file of a host, cannot be edited, or has a server that runs behind ceased already.
#[must_use]
pub fn host_file_round_trip(name: &str, text: &str) -> Option<[String; 3]> {
    let (format, binary) = (Format::of(Path::new(name)), Binary::at("/usr/bin/ceased"));
    let is_changed = |(_, change): &(_, Change)| matches!(change, Change::Changed);
    if undo(text, format).ok()?.entries.iter().any(is_changed) {
        return None;
    }
    let once = adopt(text, format, &binary).ok()?.apply(text);
    // An edit writes only files that can be read.
    let applied = |it: Outcome| it.apply(&once);
    let twice = adopt(&once, format, &binary).map(applied).unwrap_or_default();
    let undone = undo(&once, format).map(applied).unwrap_or_default();
    Some([once, twice, undone])
}
