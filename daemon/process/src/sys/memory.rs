//! Size of the heap.

/// Bytes of freed heap that are kept for the next use: a frame of 1 MiB in each of its buffers.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 8 << 20;
/// Size from which an allocation gets pages of its own: the largest that the allocator allows.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 32 << 20;

/// Lets the heap of this process keep some freed memory instead of returning it at once. A relay of
/// long messages otherwise faults in each page of its buffers anew for each message, which takes
/// longer than to copy them. For programs that own their process, at its start.
pub fn keep_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets two numbers of the allocator, under its own locks.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Returns freed heap memory of this process to the system.
///
/// The allocator does so by itself only at the top of the heap, above some megabytes: after the start, or after many
/// peers have disconnected, much would stay.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches only freed memory, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
