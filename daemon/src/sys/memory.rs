//! Memory that is not needed at rest.

use std::io;

use libc::{c_int, c_void};

/// Takes what is not used out of this process's memory: what was freed goes back to the system, and
/// the pages of the program's and the libraries' files are let go. Those that are used again come
/// back from the page cache when they are.
///
/// Reading the configuration runs through most of the program, once; without this, a daemon at rest
/// holds three times the memory it lives on. And what very many peers have left behind is given
/// back by the allocator only where nothing is in use above it.
pub(crate) fn give_back_memory() {
    // SAFETY: the callback is called while this call lasts, and uses no data.
    unsafe {
        libc::dl_iterate_phdr(Some(let_go_of_file), std::ptr::null_mut());
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches nothing but what was freed, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the pages of one loaded object that can only hold what is in its file.
///
/// # Safety
///
/// Only as the callback of `dl_iterate_phdr`.
unsafe extern "C" fn let_go_of_file(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives a live object with `dlpi_phnum` headers. What a segment that may not
    // be written maps is the file and nothing else, so that dropping its pages loses nothing: the
    // next access reads the same bytes. Relocated pages are in segments that may be written.
    unsafe {
        let object = &*object;
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        for header in headers {
            let is_file_only = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
            if !is_file_only {
                continue;
            }
            let first = (object.dlpi_addr + header.p_vaddr) as usize;
            let from = first / page * page;
            let bytes = first + header.p_memsz as usize - from;
            let pages = std::ptr::with_exposed_provenance_mut(from);
            if libc::madvise(pages, bytes, libc::MADV_DONTNEED) < 0 {
                // It only costs memory. The kernel's own object, for one, cannot be let go.
                tracing::debug!(error = %io::Error::last_os_error(), "memory is kept");
            }
        }
    }
    0
}
