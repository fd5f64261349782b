//! Weights on the device, field by field (see [`hanzo_kernel::Planes`]).

use hanzo_kernel::{Planes, is_supported};
use hanzo_quant::Format;

use super::runtime::{MemoryId, Runtime};
use crate::{
    Error, QTensor, Result,
    backend::{
        Weight,
        slab::{dims_of, unknown_weight},
    },
};

/// A weight's place and layout.
pub(super) struct DeviceWeight {
    pub memory: MemoryId,
    /// Blocks of all experts, the padding of plain rows included.
    pub n_blocks: u32,
    /// Groups of 32 of a row.
    pub row_groups: u32,
    format: &'static Format,
    dims: [usize; 3],
}

/// All weights of a device.
#[derive(Default)]
pub(super) struct Weights(Vec<DeviceWeight>);

impl Weights {
    /// Re-lays and uploads a tensor `[N, K]` or `[E, N, K]`.
    pub(super) fn load(&mut self, runtime: &mut dyn Runtime, tensor: &QTensor) -> Result<Weight> {
        let error = |what: String| Error::tensor(tensor.name(), what);
        let [n_experts, n, k] = dims_of(tensor)?;
        let format = tensor.format();
        if !is_supported(format) {
            return Err(error(format!("no kernel reads weights of format {}", format.name)));
        }
        let planes = Planes::new(format, n_experts * n, k).map_err(|e| error(e.to_string()))?;
        let narrow = |v: usize| u32::try_from(v).map_err(|_| error(format!("{v} blocks are too many")));
        let (n_blocks, row_groups) = (narrow(planes.n_blocks())?, narrow(planes.row_groups())?);
        if planes.bytes() > runtime.limits().buffer_bytes {
            let max = runtime.limits().buffer_bytes;
            return Err(error(format!("{} bytes are more than a buffer's {max}", planes.bytes())));
        }
        let memory = runtime.alloc(planes.bytes())?;
        if planes.is_identity() {
            runtime.upload(memory, 0, tensor.bytes())?;
        } else {
            let mut laid = vec![0; planes.bytes()];
            planes.lay(tensor.bytes(), &mut laid).map_err(|e| error(e.to_string()))?;
            runtime.upload(memory, 0, &laid)?;
        }
        self.0.push(DeviceWeight { memory, n_blocks, row_groups, format, dims: [n_experts, n, k] });
        Ok(Weight { id: self.0.len() - 1, format, n_experts, n, k })
    }

    /// The weight of a handle, in the shape that the handle claims.
    pub(super) fn get(&self, weight: &Weight) -> Result<&DeviceWeight> {
        let dims = [weight.n_experts, weight.n, weight.k];
        let found = self.0.get(weight.id).filter(|w| w.format == weight.format && w.dims == dims);
        found.ok_or_else(|| unknown_weight(weight))
    }
}
