//! Counts what a thread allocates, so that tests see an allocation that a hostile count caused.

#![expect(unsafe_code, reason = "a global allocator is unsafe by nature; this one only counts and passes on")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    // A thread that ends may still allocate; nobody asks for its count.
    let _ = BYTES.try_with(|b| b.set(b.get().saturating_add(bytes)));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `alloc` or `realloc` with this layout, that is from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as in `dealloc`, and the caller's promise about `size`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// What `f` gives, and all bytes that this thread asked for meanwhile (freed ones included).
pub fn allocated<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    let result = f();
    (result, BYTES.get() - before)
}

#[test]
fn allocations_are_counted() {
    let (kept, bytes) = allocated(|| std::hint::black_box(Vec::<u8>::with_capacity(12345)));
    assert_eq!(kept.capacity(), 12345);
    assert!(bytes >= 12345);
}
