//! Memory that is not needed at rest.

/// Returns freed heap memory of this process to the system.
///
/// The allocator does so by itself only where nothing is in use above it: after the start, and after
/// very many peers have gone, much would stay.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches nothing but what was freed, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
