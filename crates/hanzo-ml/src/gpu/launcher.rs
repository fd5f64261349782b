//! From a kernel's name, axes and operands by name to a launch.

use std::collections::HashMap;

use hanzo_kernel::{Checks, Interface, Number, Spec, Value, lower};
use hanzo_quant::Format;

use super::runtime::{Launch, MemoryId, ProgramId, ProgramSource, Runtime};
use crate::{DType, Error, Result};

/// Which specialisation of which kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which<'a> {
    pub kernel: &'static str,
    pub format: Option<&'static Format>,
    pub number: Option<Number>,
    pub constants: &'a [(&'static str, Value)],
}

impl<'a> Which<'a> {
    /// A kernel without weights and number types.
    pub(super) fn plain(kernel: &'static str, constants: &'a [(&'static str, Value)]) -> Self {
        Self { kernel, format: None, number: None, constants }
    }
}

/// A compiled specialisation.
struct Program {
    id: ProgramId,
    interface: Interface,
}

/// Compiled specialisations by their axes.
#[derive(Default)]
pub(super) struct Launcher {
    programs: HashMap<Key, Program>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    kernel: &'static str,
    format: Option<&'static str>,
    number: Option<Number>,
    /// Names with values; booleans as 0 and 1, words by themselves.
    constants: Vec<(&'static str, u32, &'static str)>,
}

impl Key {
    fn new(which: &Which<'_>) -> Self {
        let flat = |&(name, value): &(&'static str, Value)| match value {
            Value::Bool(v) => (name, u32::from(v), ""),
            Value::U32(v) => (name, v, ""),
            Value::Word(word) => (name, 0, word),
        };
        Self {
            kernel: which.kernel,
            format: which.format.map(|f| f.name),
            number: which.number,
            constants: which.constants.iter().map(flat).collect(),
        }
    }
}

impl Launcher {
    /// Launches; buffers that this specialisation does without are ignored. Compiles at the first use. Gives whether the
    /// kernel writes to `watched`.
    pub(super) fn launch(
        &mut self,
        runtime: &mut dyn Runtime,
        which: &Which<'_>,
        buffers: &[(&str, MemoryId)],
        params: &[u32],
        grid: [u32; 3],
        watched: Option<MemoryId>,
    ) -> Result<bool> {
        let key = Key::new(which);
        if !self.programs.contains_key(&key) {
            let program = compile(runtime, which)?;
            self.programs.insert(Key::new(which), program);
        }
        let program = &self.programs[&key];
        let find = |name: &str| {
            let found = buffers.iter().find(|(n, _)| *n == name).map(|(_, memory)| *memory);
            found.ok_or_else(|| Error::op(which.kernel, format!("the kernel's buffer {name} is not given")))
        };
        let buffers = program.interface.bindings.iter().map(|b| find(&b.name)).collect::<Result<Vec<_>>>()?;
        let immediates: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        if immediates.len() != program.interface.immediate_bytes as usize {
            let want = program.interface.immediate_bytes;
            return Err(Error::op(which.kernel, format!("{} bytes of {want}", immediates.len())));
        }
        runtime.launch(&Launch { program: program.id, grid, buffers: &buffers, immediates: &immediates })?;
        let mut written =
            program.interface.bindings.iter().zip(&buffers).filter(|(binding, _)| binding.writes);
        Ok(written.any(|(_, memory)| Some(*memory) == watched))
    }
}

fn compile(runtime: &mut dyn Runtime, which: &Which<'_>) -> Result<Program> {
    let error = |e: hanzo_kernel::Error| Error::op(which.kernel, e.to_string());
    let spec = Spec::find(which.kernel, which.format, which.number, which.constants).map_err(error)?;
    let valid = spec.valid().map_err(error)?;
    let code = lower(&valid, runtime.target(), Checks::Trusted).map_err(error)?;
    let interface = valid.interface();
    let source = ProgramSource { name: valid.name(), code: &code, interface: &interface };
    let id = runtime.compile(&[source])?.first().copied();
    let id = id.ok_or_else(|| Error::op(which.kernel, "the runtime compiled nothing"))?;
    Ok(Program { id, interface })
}

/// The kernels' number type of activations.
pub(super) fn number(op: &'static str, dtype: DType) -> Result<Number> {
    match dtype {
        DType::F32 => Ok(Number::F32),
        DType::F16 => Ok(Number::F16),
        DType::BF16 => Ok(Number::Bf16),
        DType::Q8_0 | DType::U32 => {
            Err(Error::op(op, format!("a buffer of {dtype:?} where numbers are wanted")))
        }
    }
}

/// The kernels' number type of a cache.
pub(super) fn cache_number(op: &'static str, dtype: DType) -> Result<Number> {
    if dtype == DType::Q8_0 { Ok(Number::Q8_0) } else { number(op, dtype) }
}
