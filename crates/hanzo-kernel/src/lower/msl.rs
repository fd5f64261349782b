//! Metal Shading Language by naga's writer.

use naga::{
    ShaderStage,
    back::msl::{
        BindTarget, EntryPointResourceMap, EntryPointResources, Options, PipelineOptions, write_string,
    },
};

use super::Checks;
use crate::{Error, Result, Valid};

/// MSL 3.1 (macOS 14): subgroup operations, matrices of bfloat too.
const VERSION: (u8, u8) = (3, 1);

/// The buffer index of the immediate data: the last that Metal has, clear of the bindings.
const IMMEDIATE_SLOT: u8 = 30;

/// The buffer index of the lengths of the bindings, which bounds checks read.
const SIZES_SLOT: u8 = 29;

pub(super) fn write(valid: &Valid, checks: Checks) -> Result<String> {
    let debug = checks == Checks::Debug;
    let options = Options {
        lang_version: VERSION,
        per_entry_point_map: resources(valid),
        fake_missing_bindings: false,
        bounds_check_policies: checks.bounds(),
        zero_initialize_workgroup_memory: debug,
        force_loop_bounding: debug,
        emit_int_div_checks: debug,
        ..Options::default()
    };
    let pipeline = PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".into())),
        ..PipelineOptions::default()
    };
    let error = |what: String| Error::lower(valid.name(), "msl", what);
    let (text, info) =
        write_string(valid.module(), valid.info(), &options, &pipeline).map_err(|e| error(e.to_string()))?;
    match info.entry_point_names.first() {
        Some(Ok(_)) => Ok(text),
        Some(Err(e)) => Err(error(e.to_string())),
        None => Err(error("no entry point was written".into())),
    }
}

/// Bindings keep their places.
fn resources(valid: &Valid) -> EntryPointResourceMap {
    let mut resources = EntryPointResources {
        immediates_buffer: Some(IMMEDIATE_SLOT),
        sizes_buffer: Some(SIZES_SLOT),
        ..EntryPointResources::default()
    };
    for (place, binding) in (0u8..).zip(valid.interface().bindings) {
        let key = naga::ResourceBinding { group: 0, binding: place.into() };
        let target = BindTarget { buffer: Some(place), mutable: binding.writes, ..BindTarget::default() };
        resources.resources.insert(key, target);
    }
    [("main".to_string(), resources)].into()
}
