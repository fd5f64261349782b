//! Memory that is read soon, asked for while something else is done.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that only some processors have")
)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for what a reference points to. The processor's own prefetcher sees too little of a stretch before it is over.
#[inline(always)]
pub(super) fn prefetch<T: ?Sized>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of_val(of)).step_by(LINE_BYTES) {
        // SAFETY: every x86-64 processor has the instruction; it is a hint, and reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *of).cast::<i8>().wrapping_add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = of;
}
