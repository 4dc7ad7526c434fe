//! The allocator of the kernel. `try_reserve` fails as it should. An allocation of up to a page that has no way to
//! fail waits for memory (`__GFP_NOFAIL`).

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;

unsafe extern "C" {
    fn ob_alloc(size: usize, align: usize, zero: bool) -> *mut c_void;
    fn ob_realloc(at: *mut c_void, old: usize, new: usize, align: usize) -> *mut c_void;
    fn ob_free(at: *mut c_void);
}

struct KernelMemory;

// SAFETY: the hypercalls are the allocator of the kernel, and return memory of the requested alignment.
unsafe impl GlobalAlloc for KernelMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment are valid.
        unsafe { ob_alloc(layout.size(), layout.align(), false).cast() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment are valid.
        unsafe { ob_alloc(layout.size(), layout.align(), true).cast() }
    }
    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        // SAFETY: `ob_alloc` returned the pointer.
        unsafe { ob_free(at.cast()) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // SAFETY: `ob_alloc` returned the pointer, and the block has this size.
        unsafe { ob_realloc(at.cast(), layout.size(), new, layout.align()).cast() }
    }
}

#[global_allocator]
static MEMORY: KernelMemory = KernelMemory;
