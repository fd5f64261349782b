//! What naga 30 gets wrong, one snippet a fault. When an upgrade changes one of these tests, a rule of `subset.rs` can go.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

use hanzo_kernel::{Checks, Code, Composed, Result, Target, Valid, lower};

const HEAD: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> words: array<u32>;
";

fn valid(head: &str, body: &str) -> Result<Valid> {
    let text = format!(
        "{head}{HEAD}@compute @workgroup_size(32) fn main(@builtin(local_invocation_index) t: u32) {{ {body} }}"
    );
    Valid::new(&Composed::from_text("snippet", &text))
}

fn msl(valid: &Valid) -> String {
    match lower(valid, Target::Msl, Checks::Trusted).unwrap() {
        Code::Text(text) => text,
        Code::Words(_) => panic!("MSL is text"),
    }
}

/// A panic of a writer is an error that names the kernel and the target.
fn assert_panics(valid: &Valid, target: Target) {
    let error = lower(valid, target, Checks::Trusted).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("kernel snippet to {}: the writer panicked", target.name())),
        "{error}"
    );
}

#[test]
fn bitcasts_to_f16_are_bitcasts_to_f32() {
    let valid =
        valid("enable f16;", "let h = vec2<f32>(bitcast<vec2<f16>>(words[t])); out[t] = h.x + h.y;").unwrap();
    let text = msl(&valid);
    assert!(!text.contains("as_type<metal::half2>"), "{text}");
}

#[test]
fn pointers_to_elements_are_refused_by_a_panic_after_validation() {
    let head = "fn twice(x: ptr<function, f32>) { *x *= 2.0; }";
    let valid = valid(head, "var a = array<f32, 4>(); twice(&a[3]); out[t] = a[3];").unwrap();
    assert_panics(&valid, Target::SpirV);
}

#[test]
fn stores_of_matrix_elements_come_before_what_they_need() {
    let head = "enable wgpu_cooperative_matrix; alias M = coop_mat8x8<f32, C>;";
    let body = "var a: array<M, 2>; for (var j = 0u; j < 2u; j++) { coopStore(a[j], &out[j * 64u + words[0]], words[1]); }";
    let valid = valid(head, body).unwrap();
    assert_panics(&valid, Target::SpirV);
}

#[test]
fn products_of_one_operand_are_declared_twice() {
    let body = "let a = words[t]; out[t] = f32(dot4I8Packed(a, words[1]) + dot4I8Packed(a, words[2]));";
    let text = msl(&valid("", body).unwrap());
    let declarations = text.lines().filter(|l| l.contains("reinterpreted_") && l.contains("packed_char4"));
    let names: Vec<&str> = declarations.filter_map(|l| l.split_whitespace().nth(1)).collect();
    let repeated = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
    assert!(repeated, "{text}");
}

#[test]
fn matrices_of_16_reach_metal_which_has_none() {
    let head = "enable f16; enable wgpu_cooperative_matrix; alias M = coop_mat16x16<f16, C>;
        @group(0) @binding(2) var<storage, read_write> halves: array<f16>;";
    let body = "let m = coopLoad<M>(&halves[0], 16u); coopStore(m, &halves[256], 16u); out[t] = 0.0;";
    let valid = valid(head, body).unwrap();
    assert!(msl(&valid).contains("simdgroup_half16x16"));
}

#[test]
fn vectors_and_scalars_do_not_mix_in_bit_operations() {
    let error = valid("", "let v = vec4<u32>(words[t]) & 15u; out[t] = f32(v.x);").unwrap_err().to_string();
    assert!(error.contains("snippet"), "{error}");
}
