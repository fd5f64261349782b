//! Runs one generic job compiled twice: for the target's baseline, and on x86-64 also for AVX2, FMA and F16C,
//! chosen at run time by what the processor has.
//!
//! The only `unsafe` here is the call into the second instantiation; explicit vectors are in [`crate::lanes`]. A job must
//! be inlined all the way down (`#[inline(always)]`), else the wider instruction set does not reach it. Rust never
//! contracts a product and a sum, so both instantiations compute the same bits although one of them may use FMA.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls a function compiled for a found feature set")
)]

/// Work on whole rows, to be inlined into each instantiation.
pub(crate) trait Job {
    /// Does the work. Implementations carry `#[inline(always)]`.
    fn run(self);
}

/// Runs the job with the widest instructions of this processor.
pub(crate) fn run_widest(job: impl Job) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    {
        // SAFETY: the processor has all three features that `run_avx2` enables, as asked on the line above.
        return unsafe { run_avx2(job) };
    }
    job.run();
}

/// Runs the job with the target's baseline instructions.
pub(crate) fn run_baseline(job: impl Job) {
    job.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2(job: impl Job) {
    job.run();
}
