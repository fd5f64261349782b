//! The C++ of small modules, each about one kind of node. What the compilers say about it is checked by
//! `tools/toolchains/compile_kernels.py`.

use naga::{
    compact::{KeepUnused, compact},
    front::wgsl,
    valid::{Capabilities, ValidationFlags, Validator},
};

use super::{CUDA, Dialect, HIP, Writer, unit};
use crate::Checks;

fn lower(source: &str, dialect: &Dialect) -> Result<String, String> {
    let mut module = wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    compact(&mut module, KeepUnused::No);
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let info = validator.validate(&module).map_err(|e| format!("{e:?}"))?;
    let text = Writer::new(&module, &info, dialect).module("k");
    text.map(|t| without_numbers(&t)).map_err(|e| format!("{} {}", e.kind, e.value))
}

/// `e` for the variables `e7`, `e12` …, whose numbers are naga's own business.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for (i, c) in text.char_indices() {
        let word = text[..i].rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let is_number =
            text[word..i].strip_prefix('e').is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()));
        if !(c.is_ascii_digit() && is_number) {
            out.push(c);
        }
    }
    out
}

/// A kernel with these statements over buffers `a` (read) and `y` (written) of f32 and `w`, `v` of u32.
fn body(statements: &str) -> String {
    format!(
        "enable f16;
         @group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read> w: array<u32>;
         @group(0) @binding(2) var<storage, read_write> y: array<f32>;
         @group(0) @binding(3) var<storage, read_write> v: array<u32>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) t: u32) {{ {statements} }}"
    )
}

/// Every expected line occurs, in this order.
fn expect(source: &str, lines: &[&str]) {
    let text = lower(source, &CUDA).unwrap();
    let mut rest = text.lines().map(str::trim);
    for line in lines {
        assert!(rest.any(|l| l == *line), "`{line}` is not (in its place) in\n{text}");
    }
}

/// A whole kernel, as it is read by a person.
#[test]
fn a_kernel_reads_like_its_source() {
    let source = "
        struct Params { n: u32, scale: f32 }
        var<immediate> p: Params;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        @group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
        var<workgroup> sums: array<f32, 4>;
        fn scaled(v: f32) -> f32 { return v * p.scale; }
        @compute @workgroup_size(128)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32,
                @builtin(subgroup_id) sg: u32) {
            var sum = 0.0;
            for (var i = t; i < p.n; i += 128u) { let v = x[i]; sum += dot(v, v); }
            let total = subgroupAdd(sum);
            sums[sg] = total;
            workgroupBarrier();
            if (t < 4u) { y[group.x] = scaled(sums[t]); }
        }";
    let want = "\
struct Params {
    u32 n;
    f32 scale;
};
static_assert(sizeof(Params) == 8 && OFFSET(Params, n) == 0 && OFFSET(Params, scale) == 4, \"layout of Params\");

DEV f32 scaled(f32 v, const Params& p) {
    const f32 e = p.scale;
    return v * e;
}

KERNEL(128) k(const vec4<f32>* RESTRICT x, f32* RESTRICT y, BY_VALUE Params p) {
    static_assert(128 % WAVE == 0, \"whole subgroups\");
    SHARED array<f32, 4> sums;
    const vec3<u32> group = vec3<u32>{group_x(), group_y(), group_z()};
    const u32 t = thread_x();
    const u32 sg = thread_x() / WAVE;
    f32 sum = 0.0f;
    u32 i = {};
    i = t;
    for (; i < p.n; i += 128u) {
        const u32 e = i;
        const vec4<f32> v_1 = x[e];
        const f32 e = sum;
        sum = e + w_dot(v_1, v_1);
    }
    const f32 e = sum;
    const f32 total = sg_add(e);
    sums[sg] = total;
    barrier();
    if (t < 4u) {
        const f32 e = sums[t];
        const f32 e = scaled(e, p);
        y[group.x] = e;
    }
}
";
    assert_eq!(lower(source, &CUDA).unwrap(), want);
}

#[test]
fn loops_become_for_and_while() {
    // A counted loop unrolls when its bound is small; the body may continue it.
    expect(
        &body(
            "var s = 0.0; for (var i = 0u; i < 8u; i++) { if (i == t) { continue; } s += a[i]; } y[t] = s;",
        ),
        &["UNROLL", "for (; i < 8u; i += 1u) {", "continue;"],
    );
    let long = lower(&body("var s = 0.0; for (var i = 0u; i < 100u; i++) { s += a[i]; } y[t] = s;"), &CUDA);
    assert!(!long.unwrap().contains("UNROLL"));
    expect(&body("var n = t; while (n < 9u) { n *= 3u; } v[t] = n;"), &["while (n < 9u) {"]);
    // A condition that reads memory reads it in every round.
    expect(&body("for (var i = 0u; i < w[i]; i += w[t]) { v[i] = t; }"), &["for (; i < w[i]; i += w[t]) {"]);
    // A continuing part that is no single step: `continue` jumps to it.
    expect(
        &body(
            "var n = t; loop { if (n == 5u) { continue; } v[n] = t; continuing { n += 1u; v[0] = n; break if n > 9u; } }",
        ),
        &["for (;;) {", "goto continue_1;", "continue_1:;", "if (e > 9u) break;"],
    );
    expect(&body("var n = t; loop { if (n > 5u) { break; } n += 1u; v[t] = n; }"), &["while (!(n > 5u)) {"]);
}

#[test]
fn statements() {
    expect(
        &body("switch (t) { case 0u: { v[0] = 1u; } case 1u, 2u: { v[1] = 2u; } default: { v[2] = 3u; } }"),
        &["switch (t) {", "case 0u: {", "v[0] = 1u;", "break;", "case 1u:", "case 2u: {", "default: {"],
    );
    expect(&body("if (t > 3u) { v[0] = t; } else { v[1] = t; }"), &["if (t > 3u) {", "} else {"]);
    expect(
        &body("storageBarrier(); subgroupBarrier(); workgroupBarrier();"),
        &["barrier();", "wave_barrier();", "barrier();"],
    );
    expect(
        "var<workgroup> n: u32;
         @group(0) @binding(0) var<storage, read_write> v: array<u32>;
         @compute @workgroup_size(8, 2) fn main(@builtin(local_invocation_index) t: u32) {
             if (t == 0u) { n = v[0]; } v[t] = workgroupUniformLoad(&n); }",
        &[
            "SHARED u32 n;",
            "const u32 t = (thread_x() + 8u * (thread_y() + 2u * thread_z()));",
            "barrier();",
            "const u32 e = n;",
            "barrier();",
        ],
    );
}

#[test]
fn expressions() {
    let cases: &[(&str, &str)] = &[
        ("v[t] = select(1u, 2u, a[t] > 0.0);", "v[t] = (e > 0.0f) ? 2u : 1u;"),
        ("v[t] = u32(-i32(w[t])) % 7u;", "v[t] = u32(-i32(e)) % 7u;"),
        ("v[t] = bitcast<u32>(a[t]);", "v[t] = bits<u32>(e);"),
        ("y[t] = f32(f16(a[t]) * 0.5h);", "y[t] = f32(f16(e) * f16(0.5f));"),
        ("y[t] = a[t] % 3.0;", "y[t] = w_mod(e, 3.0f);"),
        ("v[t] = vec4<u32>(vec2<u32>(w[t]), 1u, t).z;", "v[t] = join4(splat2(e), 1u, t).z;"),
        (
            "let d = vec3<f32>(a[t], 2.0, 3.0); y[t] = dot(d.zx, d.yy);",
            "y[t] = w_dot(vec2<f32>{d.z, d.x}, vec2<f32>{d.y, d.y});",
        ),
        ("v[t] = extractBits(w[t], 4u, 3u);", "v[t] = w_extract_bits(e, 4u, 3u);"),
        ("y[t] = unpack2x16float(w[t]).y;", "y[t] = w_unpack_2x16_float(e).y;"),
        ("y[t] = 1e-30 + a[t];", "y[t] = 1e-30f + e;"),
        ("let q = a[t] + 1.0; y[t] = q * q;", "const f32 q = e + 1.0f;"),
    ];
    for (statement, line) in cases {
        expect(&body(statement), &[line]);
    }
}

#[test]
fn structs_arrays_and_tables() {
    let source = "
        struct Inner { q: vec4<u32>, d: vec2<f32> }
        struct Pair { one: Inner, two: array<f32, 4> }
        const TABLE = array<f32, 3>(1.0, 2.5, -4.0);
        @group(0) @binding(0) var<storage, read> pairs: array<Pair>;
        @group(0) @binding(1) var<storage, read_write> total: Inner;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        var<private> memo: array<f32, 2>;
        fn put(p: ptr<function, f32>, i: u32) { *p = memo[i] + TABLE[i]; }
        @compute @workgroup_size(32)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            memo[id.x] = pairs[id.x].two[id.y] + pairs[id.x].one.d.y;
            var sum: f32;
            put(&sum, id.z);
            total.q[id.x] = 1u;
            var made = Inner(vec4<u32>(1u), vec2<f32>(sum, 2.0));
            made.d.x += 1.0;
            y[id.x] = made.d.x;
        }";
    expect(
        source,
        &[
            "static_assert(sizeof(Inner) == 32 && OFFSET(Inner, q) == 0 && OFFSET(Inner, d) == 16, \"layout of Inner\");",
            "array<f32, 4> two;",
            "static_assert(sizeof(Pair) == 48 && OFFSET(Pair, one) == 0 && OFFSET(Pair, two) == 32, \"layout of Pair\");",
            "TABLE array<f32, 3> TABLE_ = array<f32, 3>{1.0f, 2.5f, -4.0f};",
            "DEV void put(f32& p, u32 i, array<f32, 2>& memo) {",
            "KERNEL(32) k(const Pair* RESTRICT pairs, Inner* RESTRICT total, f32* RESTRICT y) {",
            "array<f32, 2> memo = {};",
            "put(sum, id.z, memo);",
            "(*total).q[id.x] = 1u;",
            "made = Inner{splat4(1u), vec2<f32>{e, 2.0f}};",
        ],
    );
}

#[test]
fn atomics() {
    expect(
        "@group(0) @binding(0) var<storage, read_write> c: array<atomic<u32>>;
         @group(0) @binding(1) var<storage, read_write> v: array<u32>;
         @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) t: u32) {
             v[t] = atomicAdd(&c[0], t); atomicMax(&c[1], t); atomicStore(&c[2], atomicLoad(&c[3]));
             let r = atomicCompareExchangeWeak(&c[4], 1u, t); if (r.exchanged) { v[t] = r.old_value; } }",
        &[
            "const u32 e = atomic_add(&c[0], t);",
            "const u32 e = atomic_max(&c[1], t);",
            "const u32 e = atomic_load(&c[3]);",
            "atomic_store(&c[2], e);",
            "if (r.exchanged) {",
        ],
    );
}

#[test]
fn subgroups() {
    expect(
        "@group(0) @binding(0) var<storage, read_write> v: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) t: u32,
             @builtin(subgroup_invocation_id) lane: u32, @builtin(num_subgroups) n: u32,
             @builtin(subgroup_size) size: u32) {
             v[t] = subgroupMax(t) + subgroupShuffleXor(t, 1u) + subgroupShuffle(t, 3u) + subgroupBroadcast(t, 2u)
                 + subgroupBroadcastFirst(t) + subgroupExclusiveAdd(t) + subgroupBallot(t > 3u).x + lane + n + size;
             if (subgroupAny(t == 5u)) { v[0] = t; } }",
        &[
            "const u32 lane = thread_x() % WAVE;",
            "const u32 n = 64u / WAVE;",
            "const u32 size = WAVE;",
            "const u32 e = sg_max(t);",
            "const u32 e = sg_shuffle_xor(t, 1u);",
            "const u32 e = sg_shuffle(t, 3u);",
            "const u32 e = sg_shuffle(t, 2u);",
            "const u32 e = sg_shuffle(t, 0u);",
            "const u32 e = sg_exclusive_add(t);",
            "const vec4<u32> e = sg_ballot(t > 3u);",
        ],
    );
}

#[test]
fn matrices_are_values_of_a_subgroup() {
    expect(
        "enable f16; enable wgpu_cooperative_matrix;
         @group(0) @binding(0) var<storage, read> a: array<f16>;
         @group(0) @binding(1) var<storage, read_write> c: array<f32>;
         @compute @workgroup_size(32) fn main() {
             var sum: coop_mat16x16<f32, C>;
             let x = coopLoadT<coop_mat16x16<f16, A>>(&a[0], 16u);
             let z = coopLoad<coop_mat16x16<f16, B>>(&a[256], 32u);
             sum = coopMultiplyAdd(x, z, sum);
             let r = sum; let n = 16u;
             coopStoreT(r, &c[0], n); }",
        &[
            "coop_c sum = {};",
            "const coop_a x = coop_load_a<true>(&a[0], 16u);",
            "const coop_b z = coop_load_b<false>(&a[256], 32u);",
            "sum = e;",
            "coop_store<true>(r, &c[0], 16u);",
        ],
    );
}

/// The portable body of an intrinsic gives way to the dialect's own function.
#[test]
fn intrinsics_are_replaced_by_name() {
    let text = lower(
        &format!(
            "{}\nfn x_dp4(p: u32, q: u32, acc: i32) -> i32 {{ return acc + dot4I8Packed(p, q); }}",
            body("v[t] = u32(x_dp4(w[t], 7u, 3));")
        ),
        &CUDA,
    )
    .unwrap();
    assert!(text.contains("= w_dp4(e, 7u, 3);") && !text.contains("x_dp4"), "{text}");
}

/// More workgroup memory than may be declared becomes one array of the launch's size.
#[test]
fn large_workgroup_memory_is_the_launch_s() {
    let source = |n: usize| {
        format!(
            "var<workgroup> one: array<f32, {n}>; var<workgroup> two: u32;
             @group(0) @binding(0) var<storage, read_write> y: array<f32>;
             @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) t: u32) {{
                 one[t] = 1.0; two = t; workgroupBarrier(); y[t] = one[two]; }}"
        )
    };
    expect(&source(12_284), &["SHARED array<f32, 12284> one;", "SHARED u32 two;"]);
    expect(
        &source(12_285),
        &[
            "extern SHARED alignas(16) u8 shared_bytes[];",
            "array<f32, 12285>& one = *(array<f32, 12285>*)(shared_bytes + 0);",
            "u32& two = *(u32*)(shared_bytes + 49152);",
        ],
    );
    assert!(!lower(&source(12_285), &HIP).unwrap().contains("extern"));
}

#[test]
fn a_kernel_for_one_size_of_subgroups_does_not_compile_for_another() {
    let source = |n: u32| {
        format!(
            "const SUBGROUP: u32 = {n}u;
             @group(0) @binding(0) var<storage, read_write> y: array<u32>;
             @compute @workgroup_size(128) fn main(@builtin(subgroup_id) s: u32) {{ y[s * SUBGROUP] = s; }}"
        )
    };
    expect(&source(64), &["static_assert(WAVE == 64u, \"this kernel is for subgroups of 64\");"]);
    expect(&source(32), &["static_assert(WAVE == 32u, \"this kernel is for subgroups of 32\");"]);
    assert!(!lower(&body("y[t] = 1.0;"), &HIP).unwrap().contains("WAVE"));
}

/// Names that mean something to C++ or to the prelude give way.
#[test]
fn names_keep_clear_of_the_prelude() {
    expect(
        &body(
            "var float = a[t]; let half_1 = float; var w_min = half_1 + 1.0; float = w_min; y[t] = float * half_1;",
        ),
        &["f32 float_ = {};", "f32 gen_w_min = {};"],
    );
}

#[test]
fn what_has_no_form_is_named() {
    let error = |source: &str| lower(source, &CUDA).unwrap_err();
    assert_eq!(
        error(&body("v[t] = arrayLength(&a);")),
        "expression \"arrayLength (give lengths as immediates)\""
    );
    assert_eq!(error(&body("y[t] = sinh(a[t]);")), "function Sinh");
    assert_eq!(
        error(&body("v[t] = subgroupInclusiveAdd(t); v[t] = quadSwapX(t);")),
        "subgroup operation QuadSwap(X)"
    );
    assert!(
        error(
            "enable f16; enable wgpu_cooperative_matrix;
             @group(0) @binding(0) var<storage, read_write> c: array<f32>;
             @compute @workgroup_size(32) fn main() {
                 var sum: coop_mat8x8<f32, C>; let r = sum; coopStore(r, &c[0], 8u); }"
        )
        .starts_with("cooperative matrix (Eight, Eight")
    );
    assert!(
        error("@compute @workgroup_size(1) fn main(@builtin(position) p: vec4<f32>) {}").contains("Position")
    );
}

#[test]
fn a_unit_has_one_prelude_and_a_namespace_for_each_kernel() {
    let kernel = lower(&body("v[t] = t;"), &HIP).unwrap();
    let text = unit(&HIP, &[&kernel, &kernel], Checks::Debug);
    assert!(text.starts_with("#define CHECKS 1\n"));
    assert_eq!(text.matches("struct alignas(4 * sizeof(T)) vec4").count(), 1);
    assert!(text.contains("namespace k0 {") && text.contains("namespace k1 {"));
    assert!(!text.contains("coop_load_a") && !text.contains("#include"));
    let matrices = unit(&CUDA, &["coop_c sum;"], Checks::Trusted);
    assert!(matrices.contains("coop_load_a") && !matrices.contains("#include"));
}
