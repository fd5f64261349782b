//! Every GGUF weight format as one row of one table: block layout, scalar decode, encoder, and how eight rows side by side
//! become what integer products read. [`MIXES`] says which formats a quantised model is made of.
//!
//! This is the leaf of the workspace. Loaders, kernels, the command line, the docs and the tests walk
//! [`FORMATS`]; nothing outside this crate matches over formats. The scalar decoders here are the definition
//! that every other implementation is measured against, bit for bit.
//!
//! The layouts follow ggml (<https://github.com/ggml-org/ggml>, `src/ggml-common.h`).

mod format;
pub mod grids;
mod lanes;
mod mix;

pub use format::{Decode, Encode, Field, Format, GROUP, Group, Number, TypeError, Unpack};
pub use lanes::{
    ActivationRow, Fill, LANES, PANEL_ELEMS, PANEL_GROUPS, Panel, PanelFill, Refinement, RowProduct, Stretch,
};
pub use mix::{MIXES, Mix, Part, Place, Traits, fit};

use format::{
    Bf16, F16, F32, F64, I8, I16, I32, I64, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Iq4Nl, Iq4Xs,
    Mxfp4, Nvfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Q8_1, Q8K, Tq1_0, Tq2_0,
    layout::{plain, quant},
};

/// Every format, in the order of the ggml type ids.
pub static FORMATS: &[Format] = &[
    plain::<F32>(),
    plain::<F16>(),
    quant::<Q4_0>(),
    quant::<Q4_1>(),
    quant::<Q5_0>(),
    quant::<Q5_1>(),
    quant::<Q8_0>(),
    quant::<Q8_1>(),
    quant::<Q2K>(),
    quant::<Q3K>(),
    quant::<Q4K>(),
    quant::<Q5K>(),
    quant::<Q6K>(),
    quant::<Q8K>(),
    quant::<Iq2Xxs>(),
    quant::<Iq2Xs>(),
    quant::<Iq3Xxs>(),
    quant::<Iq1S>(),
    quant::<Iq4Nl>(),
    quant::<Iq3S>(),
    quant::<Iq2S>(),
    quant::<Iq4Xs>(),
    plain::<I8>(),
    plain::<I16>(),
    plain::<I32>(),
    plain::<I64>(),
    plain::<F64>(),
    quant::<Iq1M>(),
    plain::<Bf16>(),
    quant::<Tq1_0>(),
    quant::<Tq2_0>(),
    quant::<Mxfp4>(),
    quant::<Nvfp4>(),
];
