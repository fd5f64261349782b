//! A module that the validator accepted: the only thing that can be lowered.

use naga::{
    AddressSpace, Module, StorageAccess,
    compact::{KeepUnused, compact},
    front::wgsl,
    valid::{Capabilities, ModuleInfo, ValidationFlags, Validator},
};

use crate::{Composed, Error, Result};

/// What the kernels may ask of a device. A module that needs more is refused.
fn capabilities() -> Capabilities {
    Capabilities::IMMEDIATES
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::COOPERATIVE_MATRIX
}

/// A valid kernel: one entry point named `main`, unused declarations removed. Only the validator builds it.
#[derive(Debug)]
pub struct Valid {
    name: String,
    module: Module,
    info: ModuleInfo,
}

/// A storage buffer that a kernel is launched with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its name in the source.
    pub name: String,
    /// Whether the kernel writes to it.
    pub writes: bool,
}

/// What a launch must supply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Buffers by place: `@group(0) @binding(place)`, and their order among the arguments of a C kernel.
    pub bindings: Vec<Binding>,
    /// Bytes of the immediate data (a struct passed by value), 0 without one.
    pub immediate_bytes: u32,
    /// Threads of a workgroup.
    pub workgroup: [u32; 3],
    /// Workgroup memory, each variable rounded up to 16 bytes.
    pub workgroup_bytes: u32,
}

impl Valid {
    /// Parses and validates composed text.
    ///
    /// # Errors
    /// What the parser or the validator says, at the file and line of the original source.
    pub fn new(composed: &Composed) -> Result<Self> {
        let mut module = wgsl::parse_str(&composed.text).map_err(|e| {
            let at = e.labels().find_map(|(span, _)| span.to_range()).map_or(0, |r| r.start);
            let labels = e.labels().map(|(_, label)| label.to_string());
            let what = [e.message().to_string()].into_iter().chain(labels).chain(e.notes().map(String::from));
            invalid(composed, at, what)
        })?;
        if !matches!(&module.entry_points[..], [entry] if entry.name == "main") {
            return Err(Error::kernel(&composed.name, "a kernel has one entry point, `main`"));
        }
        // Before validation, since it trusts no handle; `compact` is for modules that are well formed, which the parser's are.
        compact(&mut module, KeepUnused::No);
        close_gaps(&mut module);
        let mut validator = Validator::new(ValidationFlags::all(), capabilities());
        let info = validator.validate(&module).map_err(|e| {
            // An error has the spans of what contains it too: the shortest says most.
            let spans = e.spans().filter_map(|(span, _)| span.to_range());
            let at = spans.min_by_key(|r| r.len()).map_or(0, |r| r.start);
            let mut what = Vec::new();
            let mut source: Option<&dyn std::error::Error> = Some(e.as_inner());
            while let Some(error) = source {
                what.push(error.to_string());
                source = error.source();
            }
            what.extend(e.spans().map(|(_, label)| label.clone()));
            invalid(composed, at, what.into_iter())
        })?;
        Ok(Self { name: composed.name.clone(), module, info })
    }

    /// The specialisation's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// What the validator found out about it: types of expressions, uses of globals.
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// What a launch must supply.
    pub fn interface(&self) -> Interface {
        let mut bindings = Vec::new();
        let (mut immediate_bytes, mut workgroup_bytes) = (0, 0);
        for (_, global) in self.module.global_variables.iter() {
            match (global.space, &global.binding) {
                (AddressSpace::Storage { access }, Some(binding)) => {
                    let name = global.name.clone().unwrap_or_default();
                    let writes = access.contains(StorageAccess::STORE);
                    bindings.push((binding.binding, Binding { name, writes }));
                }
                (AddressSpace::Immediate, _) => {
                    immediate_bytes = self.module.types[global.ty].inner.size(self.module.to_ctx());
                }
                (AddressSpace::WorkGroup, _) => {
                    let bytes = self.module.types[global.ty].inner.size(self.module.to_ctx());
                    workgroup_bytes += bytes.next_multiple_of(16);
                }
                _ => {}
            }
        }
        bindings.sort_by_key(|(place, _)| *place);
        let bindings = bindings.into_iter().map(|(_, binding)| binding).collect();
        Interface {
            bindings,
            immediate_bytes,
            workgroup: self.module.entry_points[0].workgroup_size,
            workgroup_bytes,
        }
    }
}

/// Numbers the bindings from 0 without gaps, in their order. Specialisations do without some buffers, and runtimes differ in
/// what they make of a gap.
fn close_gaps(module: &mut Module) {
    let mut taken: Vec<u32> =
        module.global_variables.iter().filter_map(|(_, g)| g.binding.as_ref().map(|b| b.binding)).collect();
    taken.sort_unstable();
    for (_, global) in module.global_variables.iter_mut() {
        if let Some(binding) = &mut global.binding {
            binding.binding = taken.iter().filter(|&&t| t < binding.binding).count() as u32;
        }
    }
}

fn invalid(composed: &Composed, at: usize, what: impl Iterator<Item = String>) -> Error {
    let origin = composed.origin(at);
    let what: Vec<String> = what.filter(|w| !w.is_empty()).collect();
    Error::invalid(&composed.name, &origin.file, origin.line, what.join(": "))
}
