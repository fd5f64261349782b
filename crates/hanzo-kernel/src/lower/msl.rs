//! Metal Shading Language by naga's writer, for a runtime that hands the text to Metal as it is.
//!
//! Buffers are where wgpu 30 binds those of foreign text (`wgpu-hal`, `metal/device.rs`, `create_pipeline_layout`):
//! immediate data first, if there are any, then the bindings in their order, then the lengths of buffers, which only
//! bounds checks read. wgpu gives foreign text no workgroup memory, so it is declared in the kernel ([`settle`]).

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

/// What naga makes of the name `main`, which C++ keeps for itself.
pub(super) const ENTRY: &str = "main_";

/// Metal multiplies, adds and compares as it likes unless told otherwise, and knows this way of telling since version 3.2.
const MATH: &str = "#if __METAL_VERSION__ >= 320\n#pragma METAL fp math_mode(safe)\n#endif\n";

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
        Some(Ok(name)) if name == ENTRY => {
            settle(&text, debug).ok_or_else(|| error("the entry point is not where it should be".into()))
        }
        Some(Ok(name)) => Err(error(format!("the entry point is called {name}"))),
        Some(Err(e)) => Err(error(e.to_string())),
        None => Err(error("no entry point was written".into())),
    }
}

/// The places of a kernel's buffers.
fn resources(valid: &Valid) -> EntryPointResourceMap {
    let interface = valid.interface();
    let n_immediates = u8::from(interface.immediate_bytes > 0);
    let mut resources = EntryPointResources {
        immediates_buffer: (n_immediates > 0).then_some(0),
        sizes_buffer: u8::try_from(interface.bindings.len()).ok().map(|n| n_immediates + n),
        ..EntryPointResources::default()
    };
    for (place, binding) in (0u8..).zip(interface.bindings) {
        let key = naga::ResourceBinding { group: 0, binding: place.into() };
        let buffer = Some(n_immediates + place);
        let target = BindTarget { buffer, mutable: binding.writes, ..BindTarget::default() };
        resources.resources.insert(key, target);
    }
    [("main".to_string(), resources)].into()
}

/// The text with workgroup memory declared in the kernel instead of among its parameters, and, where nothing reads them,
/// lengths of buffers that are a constant instead of a parameter that nobody gives. `None` if there is no kernel.
fn settle(text: &str, keeps_sizes: bool) -> Option<String> {
    let (before, rest) = text.split_once(&format!("kernel void {ENTRY}(\n"))?;
    let (params, body) = rest.split_once("\n) {\n")?;
    let (attributes_at, mut kept, mut memory, mut sizes) =
        (before.rfind('\n')? + 1, Vec::new(), String::new(), "");
    for param in params.lines().map(|line| line.trim_start_matches([' ', ','])) {
        match param.strip_prefix("threadgroup ").and_then(|variable| variable.split_once("& ")) {
            Some((ty, name)) => memory.push_str(&format!("    threadgroup {ty} {name};\n")),
            None if param.starts_with("constant _mslBufferSizes& ") && !keeps_sizes => {
                sizes = "constant _mslBufferSizes _buffer_sizes = {};\n";
            }
            None => kept.push(param),
        }
    }
    let (before, attributes) = before.split_at(attributes_at);
    let params = kept.join("\n, ");
    Some(format!("{MATH}{before}{sizes}{attributes}kernel void {ENTRY}(\n  {params}\n) {{\n{memory}{body}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Composed;

    fn lowered(body: &str, head: &str) -> String {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> x: array<f32>;
            @group(0) @binding(1) var<storage, read_write> out: array<f32>;
            var<workgroup> parts: array<f32, 32>; {head}
            @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) t: u32) {{ {body} }}"
        );
        write(&Valid::new(&Composed::from_text("snippet", &text)).unwrap(), Checks::Trusted).unwrap()
    }

    /// The parameters of the kernel, and the first lines of its body.
    fn entry(text: &str) -> (Vec<&str>, Vec<&str>) {
        let (params, body) =
            text.split_once("kernel void main_(\n").unwrap().1.split_once("\n) {\n").unwrap();
        (params.lines().map(|l| &l[2..]).collect(), body.lines().map(str::trim).take(3).collect())
    }

    #[test]
    fn buffers_are_where_wgpu_binds_them() {
        let body = "parts[t] = x[t]; workgroupBarrier(); out[t] = parts[31u - t] * p.y;";
        let text = lowered(body, "struct P { x: f32, y: f32 } var<immediate> p: P;");
        let (params, lines) = entry(&text);
        let with = |what: &str| params.iter().find(|p| p.contains(what)).copied().unwrap_or_default();
        assert!(with(" p ").starts_with("constant ") && with(" p ").ends_with("[[buffer(0)]]"), "{params:?}");
        assert!(with(" x ").ends_with("const& x [[buffer(1)]]"), "{params:?}");
        assert!(with(" out ").ends_with("& out [[buffer(2)]]"), "{params:?}");
        // Workgroup memory is a variable of the kernel, and nothing waits for lengths of buffers.
        assert!(params.iter().all(|p| !p.contains("threadgroup ") && !p.contains("Sizes")), "{params:?}");
        assert!(lines[0].starts_with("threadgroup ") && lines[0].ends_with(" parts;"), "{lines:?}");
        assert!(text.contains("\nconstant _mslBufferSizes _buffer_sizes = {};\n[[max_total"), "{text}");
        assert!(text.starts_with("#if __METAL_VERSION__ >= 320\n#pragma METAL fp math_mode(safe)\n#endif\n"));
    }

    #[test]
    fn without_immediates_the_bindings_are_first() {
        let text = lowered("parts[t] = x[t]; workgroupBarrier(); out[t] = parts[31u - t];", "");
        let (params, _) = entry(&text);
        let buffers: Vec<&str> =
            params.iter().filter_map(|p| p.split_once("[[buffer(")).map(|p| p.1).collect();
        assert_eq!(buffers, ["0)]]", "1)]]"]);
    }
}
