//! Heap trimming.

/// Returns freed heap memory of this process to the system.
///
/// The allocator does so by itself only at the top of the heap: after the start, or after many
/// peers have disconnected, much would stay.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches only freed memory, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
