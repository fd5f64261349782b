//! Fused operations in terms of plain ones: what they mean, and what a backend runs that has no faster form for some
//! operands.

use super::{Backend, Buffer, RmsNorm, RopeAppend};
use crate::{DType, Result};

/// [`Backend::rope_append`].
pub(crate) fn rope_append<B: Backend + ?Sized>(
    backend: &mut B,
    q: &Buffer,
    args: &RopeAppend<'_>,
) -> Result<()> {
    args.check(q)?;
    if let Some(norm) = &args.norm {
        for (x, weight) in [(q, norm.q_weight), (args.k, norm.k_weight)] {
            let normed = backend.alloc(DType::F32, x.len)?;
            let done = backend
                .rms_norm(&normed, &RmsNorm { x, weight, dim: args.head_dim, eps: norm.eps })
                .and_then(|()| backend.swap(x, &normed));
            backend.free(normed);
            done?;
        }
    }
    for (x, n_heads) in [(q, args.n_heads), (args.k, args.n_kv_heads)] {
        if let Some(rope) = args.rope(n_heads) {
            backend.rope(x, &rope)?;
        }
    }
    backend.kv_append(args.k_cache, &args.append(args.k))?;
    backend.kv_append(args.v_cache, &args.append(args.v))
}
