//! Memory that is read soon, asked for while something else is done.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that only some processors have")
)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// Asks for the cache line of an address; any address will do.
#[inline(always)]
pub(super) fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it is a hint, reads nothing and fails at no address.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for what a reference points to. The processor's own prefetcher sees too little of a stretch before it is over.
#[inline(always)]
pub(super) fn prefetch<T: ?Sized>(of: &T) {
    for at in (0..size_of_val(of)).step_by(LINE_BYTES) {
        prefetch_line((&raw const *of).cast::<u8>().wrapping_add(at));
    }
}
