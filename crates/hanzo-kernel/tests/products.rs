//! Every product of every format against f64, on a device: dense and with experts, from floats and from signed bytes.
//!
//! Weights are random blocks whose values are of moderate size; the reference multiplies what the CPU decodes. Products from
//! signed bytes are compared with the device's own quantised activations, read back, so that what is left is the rounding of
//! the sums.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{Gpu, Random, bytes_f32, bytes_u32, cache_bytes, floats, round_to, words};
use hanzo_kernel::{Number, Planes, Spec, Value, is_supported, table_words};
use hanzo_quant::{FORMATS, Format, Unpack};

/// Weight rows of one expert, experts, and elements of a row (the odd length is for plain numbers).
const N: usize = 70;
const N_EXPERTS: usize = 3;
const K: usize = 512;
const K_PLAIN: usize = 77;

/// A few roundings of f32 sums; and both factors rounded to f16.
const OF_F32: f64 = 2e-6;
const OF_F16: f64 = 1e-3;

struct Weight {
    format: &'static Format,
    k: usize,
    /// `[N_EXPERTS · N, k]`.
    values: Vec<f32>,
    planes: Planes,
    device: Vec<u8>,
}

impl Weight {
    fn random(format: &'static Format, random: &mut Random) -> Self {
        let k = if format.block_elems == 1 { K_PLAIN } else { K };
        let n_rows = N_EXPERTS * N;
        let mut bytes = Vec::new();
        let mut values = Vec::new();
        let mut block_values = vec![0.0f32; format.block_elems];
        while values.len() < n_rows * k {
            let block = random.bytes(format.block_bytes);
            (format.decode)(&block, &mut block_values);
            // NaN fails too.
            let largest = block_values.iter().fold(0.0f32, |m, v| if v.abs() <= m { m } else { v.abs() });
            if (1e-3..8.0).contains(&largest) {
                bytes.extend(block);
                values.extend(&block_values);
            }
        }
        let planes = Planes::new(format, n_rows, k).unwrap();
        let mut device = vec![0; planes.bytes()];
        planes.lay(&bytes, &mut device).unwrap();
        Self { format, k, values, planes, device }
    }

    fn is_plain(&self) -> bool {
        matches!(self.format.unpack, Unpack::Scalar(_))
    }
}

/// Activations as a device has them, and their exact values.
struct Activations {
    values: Vec<f32>,
    bytes: Vec<u8>,
}

impl Activations {
    fn random(number: Number, n: usize, random: &mut Random) -> Self {
        let mut values = random.units(n);
        let bytes = cache_bytes(number, &values);
        round_to(number, &mut values);
        Self { values, bytes }
    }
}

/// A product: which rows of x meet which experts.
struct Case {
    /// `(row of x, expert)` of each column.
    columns: Vec<(usize, usize)>,
    bias: Option<Vec<f32>>,
}

impl Case {
    fn dense(n_cols: usize) -> Self {
        Self { columns: (0..n_cols).map(|c| (c, 0)).collect(), bias: None }
    }

    /// The largest error over the magnitude of what was added up.
    fn worst(&self, weight: &Weight, x: &[f32], got: &[f32]) -> f64 {
        assert_eq!(got.len(), self.columns.len() * N);
        let mut worst = 0.0f64;
        for (c, &(x_row, expert)) in self.columns.iter().enumerate() {
            let x = &x[x_row * weight.k..][..weight.k];
            for n in 0..N {
                let w = &weight.values[(expert * N + n) * weight.k..][..weight.k];
                let largest = w.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let mut sum = f64::from(self.bias.as_ref().map_or(0.0, |b| b[n]));
                let mut magnitude = sum.abs();
                for (x, w) in x.iter().zip(w) {
                    sum += f64::from(*x) * f64::from(*w);
                    // A format with minima adds up what cancels in the values.
                    magnitude += f64::from(x.abs() * largest);
                }
                let error = (f64::from(got[c * N + n]) - sum).abs() / magnitude;
                // NaN is the worst of all.
                worst = if error <= worst { worst } else { error };
            }
        }
        worst
    }
}

struct Bench {
    gpu: Gpu,
    tables: Vec<u8>,
    random: Random,
    n_products: usize,
    failures: Vec<String>,
    /// What sums of products may differ by, over the sum of their magnitudes.
    tolerance: f64,
}

const NOTHING: [Value; 2] = [Value::Bool(false), Value::Bool(true)];

impl Bench {
    fn new(gpu: Gpu, tolerance: f64) -> Self {
        let tables = bytes_u32(&table_words());
        Self { gpu, tables, random: Random(7), n_products: 0, failures: Vec::new(), tolerance }
    }

    fn check(&mut self, spec: &Spec, worst: f64) {
        self.n_products += 1;
        if worst.is_nan() || worst > self.tolerance {
            self.failures.push(format!("{}: an error of {worst:.1e}", spec.name()));
        }
    }

    /// Five columns, `cols` at once.
    fn float_matvec(&mut self, weight: &Weight, number: Number, bias: bool, cols: u32) {
        let constants =
            [("BIAS", NOTHING[usize::from(bias)]), ("COLS", Value::U32(cols)), ("MOE", NOTHING[0])];
        let spec = Spec::find("qmatvec", Some(weight.format), Some(number), &constants).unwrap();
        let mut case = Case::dense(5);
        case.bias = bias.then(|| self.random.units(N));
        self.float_product(&spec, weight, number, &case, &[], [N.div_ceil(8) as u32, 5u32.div_ceil(cols), 1]);
    }

    fn byte_matvec(&mut self, weight: &Weight, bias: bool, cols: u32) {
        let constants = [
            ("INT8", NOTHING[1]),
            ("BIAS", Value::Bool(bias)),
            ("COLS", Value::U32(cols)),
            ("MOE", NOTHING[0]),
        ];
        let spec = Spec::find("qmatvec", Some(weight.format), None, &constants).unwrap();
        let mut case = Case::dense(5);
        case.bias = bias.then(|| self.random.units(N));
        self.byte_product(&spec, weight, &case, &[], [N.div_ceil(8) as u32, 5u32.div_ceil(cols), 1]);
    }

    fn float_product(
        &mut self,
        spec: &Spec,
        weight: &Weight,
        number: Number,
        case: &Case,
        extra: &[(&str, &[u8])],
        grid: [u32; 3],
    ) {
        let n_rows = case.columns.iter().map(|c| c.0 + 1).max().unwrap();
        let x = Activations::random(number, n_rows * weight.k, &mut self.random);
        let got = self.launch(spec, weight, case, &[("x", &x.bytes)], extra, grid, n_rows);
        self.check(spec, case.worst(weight, &x.values, &got));
    }

    fn byte_product(
        &mut self,
        spec: &Spec,
        weight: &Weight,
        case: &Case,
        extra: &[(&str, &[u8])],
        grid: [u32; 3],
    ) {
        let n_rows = case.columns.iter().map(|c| c.0 + 1).max().unwrap();
        let x = bytes_f32(&self.random.units(n_rows * weight.k));
        let quantize = Spec::find("quantize", None, Some(Number::F32), &[]).unwrap();
        let n_groups = n_rows * weight.k / 32;
        let (q, meta) = (vec![0; n_groups * 32], vec![0; n_groups * 8]);
        let buffers: [(&str, &[u8]); 3] = [("x", &x), ("x_q", &q), ("x_meta", &meta)];
        let result = self.gpu.run(&quantize, &buffers, &[n_groups as u32], [2, 1, 1]);
        let (q, meta) = (&result["x_q"], &result["x_meta"]);
        let scale = |i: usize| f32::from_bits(words(meta)[i / 32 * 2]);
        let values: Vec<f32> = q.iter().enumerate().map(|(i, &q)| scale(i) * f32::from(q as i8)).collect();
        let got = self.launch(spec, weight, case, &[("x_q", q), ("x_meta", meta)], extra, grid, n_rows);
        self.check(spec, case.worst(weight, &values, &got));
    }

    #[expect(clippy::too_many_arguments, reason = "a launch of any product")]
    fn launch(
        &self,
        spec: &Spec,
        weight: &Weight,
        case: &Case,
        x: &[(&str, &[u8])],
        extra: &[(&str, &[u8])],
        grid: [u32; 3],
        n_rows: usize,
    ) -> Vec<f32> {
        let out = vec![0xff; case.columns.len() * N * 4];
        let bias = bytes_f32(case.bias.as_deref().unwrap_or_default());
        let mut buffers: Vec<(&str, &[u8])> =
            vec![("w", &weight.device), ("tables", &self.tables), ("bias", &bias), ("out", &out)];
        buffers.extend(x);
        buffers.extend(extra);
        let share = case.columns.len() / n_rows;
        let planes = &weight.planes;
        let mut params = vec![planes.n_blocks(), planes.row_groups(), weight.k, N, case.columns.len(), share];
        if spec.constants.contains(&MOE) {
            params.extend([0, N_EXPERTS]);
        }
        let params: Vec<u32> = params.into_iter().map(|v| v as u32).collect();
        let result = self.gpu.run(spec, &buffers, &params, grid);
        floats(&result["out"])
    }
}

/// Two tokens, three experts each; a row of x for each token, or one for each pair.
fn pairs(shared: bool, experts: &[usize]) -> Case {
    let row = |i: usize| if shared { i / 3 } else { i };
    Case { columns: experts.iter().enumerate().map(|(i, &e)| (row(i), e)).collect(), bias: None }
}

const MOE: (&str, Value) = ("MOE", Value::Bool(true));
const COLUMN_TILES: u32 = 2;

#[test]
fn every_product_of_every_format_equals_f64() {
    let Some(gpu) = Gpu::open("every_product_of_every_format_equals_f64") else { return };
    let mut bench = Bench::new(gpu, OF_F32);
    // What the kernels branch on; the rest of a format is behind `unpack`.
    let mut seen = Vec::new();
    for (i, format) in FORMATS.iter().filter(|f| is_supported(f)).enumerate() {
        let weight = Weight::random(format, &mut bench.random);
        bench.float_matvec(&weight, Number::F32, i % 2 == 0, 4);
        matmul(&mut bench, &weight, Some(Number::F32), &FMA, i % 2 == 1);
        if !weight.is_plain() {
            bench.byte_matvec(&weight, i % 2 == 1, 2);
            matmul(&mut bench, &weight, None, &INT8, i % 2 == 0);
        }
        let traits = (weight.is_plain(), format.symmetric, format.scale_group < 32);
        if !seen.contains(&traits) {
            seen.push(traits);
            every_way(&mut bench, &weight);
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    println!("{} products on {}", bench.n_products, bench.gpu.name);
    assert!(bench.failures.is_empty(), "{}", bench.failures.join("\n"));
}

#[test]
fn products_by_matrices_equal_f64_where_a_device_has_them() {
    let Some(gpu) = Gpu::open("products_by_matrices_equal_f64_where_a_device_has_them") else { return };
    let Some(side) = gpu.matrix_side else {
        println!("{} has no matrices of f16 that add up in f32", gpu.name);
        return;
    };
    let mut bench = Bench::new(gpu, OF_F16);
    let core = [("CORE", Value::Word("matrix")), ("TILE", Value::U32(side))];
    for (i, format) in FORMATS.iter().filter(|f| is_supported(f)).enumerate() {
        let weight = Weight::random(format, &mut bench.random);
        matmul(&mut bench, &weight, Some(Number::ALL[i % 3]), &core, i % 2 == 0);
        moe_tiles(&mut bench, &weight, Some(Number::ALL[i % 3]), &core);
    }
    println!("{} products by matrices of {side} on {}", bench.n_products, bench.gpu.name);
    assert!(bench.failures.is_empty(), "{}", bench.failures.join("\n"));
}

/// The ways that a product of a format can go, besides those that all formats are tried in.
fn every_way(bench: &mut Bench, weight: &Weight) {
    for number in [Number::F16, Number::Bf16] {
        bench.float_matvec(weight, number, false, 4);
        matmul(bench, weight, Some(number), &FMA, false);
    }
    bench.float_matvec(weight, Number::F32, true, 1);
    moe_vectors(bench, weight, Some(Number::F32));
    moe_tiles(bench, weight, Some(Number::F32), &FMA);
    if !weight.is_plain() {
        for cols in [1, 4, 8] {
            bench.byte_matvec(weight, false, cols);
        }
        moe_vectors(bench, weight, None);
        moe_tiles(bench, weight, None, &INT8);
    }
}

/// Constants that choose the inner part of a tile.
type Core = [(&'static str, Value)];

const FMA: [(&str, Value); 1] = [("CORE", Value::Word("fma"))];
const INT8: [(&str, Value); 1] = [("CORE", Value::Word("int8"))];

/// A tile and a bit, from floats or (without a number type) from bytes.
/// A product by tiles. A software device has matrices but smaller subgroups than any GPU: it is given the same text for them,
/// a specialisation that is not listed.
fn tile_spec(bench: &Bench, weight: &Weight, number: Option<Number>, constants: &Core) -> Spec {
    let mut spec = Spec::find("qmatmul", Some(weight.format), number, constants).unwrap();
    for (_, value) in spec.constants.iter_mut().filter(|(name, _)| *name == "SUBGROUP") {
        *value = Value::U32(bench.gpu.subgroups.0);
    }
    spec
}

fn matmul(bench: &mut Bench, weight: &Weight, number: Option<Number>, core: &Core, bias: bool) {
    let constants = [core, &[("MOE", NOTHING[0]), ("BIAS", Value::Bool(bias))]].concat();
    let spec = tile_spec(bench, weight, number, &constants);
    let mut case = Case::dense(67);
    case.bias = bias.then(|| bench.random.units(N));
    let grid = [N.div_ceil(64) as u32, COLUMN_TILES, 1];
    match number {
        Some(number) => bench.float_product(&spec, weight, number, &case, &[], grid),
        None => bench.byte_product(&spec, weight, &case, &[], grid),
    }
}

/// Products with experts, two tokens.
fn moe_vectors(bench: &mut Bench, weight: &Weight, number: Option<Number>) {
    let experts = [2, 0, 1, 0, 2, 1];
    for shared in [true, false] {
        let case = pairs(shared, &experts);
        let int8 = Value::Bool(number.is_none());
        let spec = Spec::find("qmatvec", Some(weight.format), number, &[MOE, ("INT8", int8)]).unwrap();
        let ids = bytes_u32(&experts.map(|e| e as u32));
        let grid = [N.div_ceil(8) as u32, experts.len() as u32, 1];
        match number {
            Some(number) => bench.float_product(&spec, weight, number, &case, &[("ids", &ids)], grid),
            None => bench.byte_product(&spec, weight, &case, &[("ids", &ids)], grid),
        }
    }
}

/// Products with experts in tiles: expert 1 has more than one, expert 0 none.
fn moe_tiles(bench: &mut Bench, weight: &Weight, number: Option<Number>, core: &Core) {
    let experts: Vec<usize> = (0..75).map(|i| if i % 9 == 4 { 2 } else { 1 }).collect();
    let case = pairs(true, &experts);
    let n_tiles = experts.len() / 64 + N_EXPERTS;
    let ids = bytes_u32(&experts.iter().map(|&e| e as u32).collect::<Vec<_>>());
    let (order, tile_expert) = (vec![0; n_tiles * 64 * 4], vec![0; n_tiles * 4]);
    let plan = Spec::find("moe_plan", None, None, &[]).unwrap();
    let buffers: [(&str, &[u8]); 3] = [("ids", &ids), ("order", &order), ("tile_expert", &tile_expert)];
    let params = [experts.len() as u32, N_EXPERTS as u32, n_tiles as u32];
    let result = bench.gpu.run(&plan, &buffers, &params, [1, 1, 1]);
    let (order, tile_expert) = (&result["order"], &result["tile_expert"]);
    assert_eq!(words(tile_expert), [1, 1, 2, u32::MAX]);
    let constants = [core, &[MOE]].concat();
    let spec = tile_spec(bench, weight, number, &constants);
    let extra: [(&str, &[u8]); 2] = [("order", order), ("tile_expert", tile_expert)];
    let grid = [N.div_ceil(64) as u32, n_tiles as u32, 1];
    match number {
        Some(number) => bench.float_product(&spec, weight, number, &case, &extra, grid),
        None => bench.byte_product(&spec, weight, &case, &extra, grid),
    }
}
