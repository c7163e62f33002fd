//! Cursors: where a list of tasks goes on, tied to its owner and to one run (TSK-22).

use alloc::format;
use alloc::string::String;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::Tasks;
use crate::identity::Identity;

impl Tasks {
    pub(in crate::tasks) fn write_cursor(&self, viewer: &Identity, after: u64) -> String {
        format!("{after:016x}{:016x}", self.seal(viewer, after))
    }

    pub(in crate::tasks) fn read_cursor(&self, viewer: &Identity, cursor: &str) -> Option<u64> {
        if cursor.len() != 32 || !cursor.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let after = u64::from_str_radix(cursor.get(..16)?, 16).ok()?;
        (self.write_cursor(viewer, after) == cursor).then_some(after)
    }

    /// Ties a cursor to its owner and to this run of the engine.
    fn seal(&self, viewer: &Identity, after: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.cursor_key);
        hasher.write_u64(after);
        hasher.write(format!("{viewer}").as_bytes());
        hasher.finish()
    }
}
