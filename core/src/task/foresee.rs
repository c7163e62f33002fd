//! A look at what is asked for next: a task among a million is in no cache, and who asks for a
//! hundred of them would wait for each.

use memchr::memmem;
use uuid::Uuid;

use super::Tasks;
use crate::id::TaskId;

/// So many tasks are in the cache anyway.
const CACHED: usize = 8 * 1024;
/// Tasks the memory is asked for at once.
const AT_ONCE: usize = 16;
/// Tasks fetched for one piece of bytes; more would drive one another out of the cache.
const FETCHED_MAX: usize = 256;
/// What stands before the id of a task as nearly every peer writes it.
const MEMBER: &[u8] = b"\"taskId\":\"";
/// Bytes of an id.
const ID: usize = 36;

impl Tasks {
    /// Fetches the tasks that are named in these bytes. Nobody sees anything of it but the time.
    pub(crate) fn foresee(&self, bytes: &[u8]) {
        if self.len() <= CACHED {
            return;
        }
        let mut ids = [TaskId::new(Uuid::nil()); AT_ONCE];
        let named = memmem::find_iter(bytes, MEMBER).filter_map(|at| {
            let id = bytes.get(at + MEMBER.len()..)?.get(..ID)?;
            TaskId::parse(str::from_utf8(id).ok()?)
        });
        let mut count = 0;
        for id in named.take(FETCHED_MAX) {
            ids[count] = id;
            count += 1;
            if count == AT_ONCE {
                self.by_id.fetch(&ids);
                count = 0;
            }
        }
        // A single one is not worth it: its look-up follows at once.
        if count > 1 {
            self.by_id.fetch(&ids[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Identity;
    use crate::id::JobId;
    use crate::table::Seed;
    use crate::time::Now;
    use alloc::format;
    use alloc::string::String;
    use alloc::sync::Arc;
    use core::time::Duration;

    /// Whatever the bytes are, cut anywhere, they are only looked at.
    #[test]
    fn any_bytes_may_come() {
        let mut tasks = Tasks::new(Uuid::from_u128(7), Seed::default());
        let owner = Identity::Anonymous;
        let tool: Arc<str> = Arc::from("tool");
        for number in 0..=CACHED as u64 {
            let id = TaskId::new(Uuid::from_u128(number.into()));
            let job = (JobId::new(number), Arc::clone(&tool));
            tasks.insert(id, &owner, Now::default(), Duration::from_secs(1), job, None);
        }
        let named = |number: u128| format!("{{\"taskId\":\"{}\"}}\n", Uuid::from_u128(number));
        let many: String = (0..2 * FETCHED_MAX as u128).map(|n| named(n * 5_000)).collect();
        tasks.foresee(many.as_bytes());
        let some = format!("{}{}\"taskId\":\"\u{e4}", named(1), &named(2)[..30]);
        for end in 0..=some.len() {
            tasks.foresee(&some.as_bytes()[..end]);
        }
        tasks.check_counts();
        assert_eq!(tasks.len(), CACHED + 1);
    }
}
