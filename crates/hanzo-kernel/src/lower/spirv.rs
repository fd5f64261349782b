//! SPIR-V by naga's writer.

use naga::{
    ShaderStage,
    back::spv::{Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec},
};

use super::Checks;
use crate::{Error, Result, Valid};

/// SPIR-V 1.3, that of Vulkan 1.1: the first with subgroup operations.
const VERSION: (u8, u8) = (1, 3);

pub(super) fn write(valid: &Valid, checks: Checks) -> Result<Vec<u32>> {
    let debug = checks == Checks::Debug;
    let options = Options {
        lang_version: VERSION,
        // The same words in debug and release builds.
        flags: if debug { WriterFlags::DEBUG } else { WriterFlags::empty() },
        bounds_check_policies: checks.bounds(),
        zero_initialize_workgroup_memory: if debug {
            ZeroInitializeWorkgroupMemoryMode::Polyfill
        } else {
            ZeroInitializeWorkgroupMemoryMode::None
        },
        force_loop_bounding: debug,
        emit_int_div_checks: debug,
        ..Options::default()
    };
    let pipeline = PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
    write_vec(valid.module(), valid.info(), &options, Some(&pipeline))
        .map_err(|e| Error::lower(valid.name(), "spirv", e.to_string()))
}
