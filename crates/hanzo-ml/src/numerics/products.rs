//! Every product of a format with every kind of activations: few rows and many, dense and with chosen experts.

use hanzo_quant::{Format, GROUP, Unpack};

use super::{
    Depth,
    bench::{Bench, Desk},
    random::Random,
    report::Verdict,
    subject::{Arithmetic, Subject},
    weight::Matrix,
};
use crate::{
    Result,
    backend::{Buffer, MatMul, MoeMatMul, Weight},
    gpu::{Products, Seen},
};

/// Output features of dense weights, and of an expert's.
const N: usize = 75;
const N_EXPERT: usize = 40;

/// Experts.
const N_EXPERTS: usize = 5;

/// Rows of products that read each weight once, and of those that are cut into tiles.
const FEW: &[usize] = &[1, 2, 3, 7, 16];
const MANY: &[usize] = &[17, 70];

/// Pairs of tokens and experts: `(tokens, experts of each, whether these share a row)`, few and many.
const FEW_PAIRS: &[(usize, usize, bool)] = &[(1, 2, true), (9, 3, false)];
const MANY_PAIRS: &[(usize, usize, bool)] = &[(50, 2, true), (33, 3, false)];

/// All shapes, or another one for each format and kind of arithmetic.
fn chosen<T>(shapes: &'static [T], depth: Depth, turn: usize) -> &'static [T] {
    match depth {
        Depth::Thorough => shapes,
        Depth::Brief => &shapes[turn % shapes.len()..][..1],
    }
}

pub(super) fn check(bench: &mut Bench<'_>, format: &'static Format, idx: usize) -> Result<()> {
    let is_int = matches!(format.unpack, Unpack::Int(_));
    let mut random = Random::new(idx as u64);
    let scale = if bench.depth == Depth::Brief { 1 } else { 2 };
    let k = if format.block_elems == 1 { 305 * scale + 1 } else { 512 * scale };
    let dense = Matrix::random(&mut random, format, vec![N, k])?;
    let k = if format.block_elems == 1 { 300 } else { 512 };
    let experts = Matrix::random(&mut random, format, vec![N_EXPERTS, N_EXPERT, k])?;
    for (turn, arithmetic) in bench.subject.arithmetics().into_iter().enumerate() {
        if arithmetic.products == Products::Int8 && !is_int {
            continue;
        }
        bench.subject.choose(arithmetic)?;
        let turn = idx + turn;
        // Few rows are no matter for matrix units.
        if arithmetic.products != Products::Matrix {
            let verdict = multiply(bench, &dense, arithmetic, chosen(FEW, bench.depth, turn), &mut random);
            bench.add("matvec", Some(arithmetic), format.name, verdict);
            let pairs = chosen(FEW_PAIRS, bench.depth, turn);
            let verdict = multiply_chosen(bench, &experts, arithmetic, pairs, &mut random);
            bench.add("MoE matvec", Some(arithmetic), format.name, verdict);
        }
        let verdict = multiply(bench, &dense, arithmetic, chosen(MANY, bench.depth, turn), &mut random);
        bench.add("matmul", Some(arithmetic), format.name, verdict);
        let pairs = chosen(MANY_PAIRS, bench.depth, turn);
        let verdict = multiply_chosen(bench, &experts, arithmetic, pairs, &mut random);
        bench.add("MoE matmul", Some(arithmetic), format.name, verdict);
    }
    let first = bench.subject.arithmetics().into_iter().next();
    first.map_or(Ok(()), |first| bench.subject.choose(first))
}

/// What a device multiplies with, and how exactly that is known.
enum Factors {
    Seen(Seen),
    Near(Vec<f32>),
}

impl Factors {
    fn of(subject: &mut dyn Subject, matrix: &Matrix, x: &Buffer, values: &[f32]) -> Result<Self> {
        let seen = subject.seen(matrix.tensor.format(), x)?;
        Ok(seen.map_or_else(|| Self::Near(values.to_vec()), Self::Seen))
    }

    /// A row of activations with a row of the weight.
    fn dot(&self, matrix: &Matrix, x_row: usize, w_row: usize, products: Products) -> (f32, f32) {
        let k = matrix.k;
        match self {
            Self::Seen(Seen::Floats(x)) => matrix.dot(w_row, &x[x_row * k..][..k], products),
            Self::Seen(Seen::Bytes { quants, scales, .. }) => {
                let n_groups = k / GROUP;
                matrix.dot_bytes(w_row, &quants[x_row * k..][..k], &scales[x_row * n_groups..][..n_groups])
            }
            Self::Near(x) => matrix.dot_near(w_row, &x[x_row * k..][..k]),
        }
    }
}

fn multiply(
    bench: &mut Bench<'_>,
    matrix: &Matrix,
    arithmetic: Arithmetic,
    shapes: &[usize],
    random: &mut Random,
) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let weight = bench.subject.backend().load(&matrix.tensor)?;
    for &rows in shapes {
        let (x, bias) = (random.floats(rows * matrix.k), random.floats(N));
        let bias = (rows % 2 == 1).then_some(&bias[..]);
        let got = product(&mut Desk::new(bench.subject.backend()), &weight, &x, bias)?;
        let factors = see(bench.subject, matrix, &x)?;
        let mut want = Vec::with_capacity(rows * N);
        for row in 0..rows {
            for n in 0..N {
                let (sum, bound) = factors.dot(matrix, row, n, arithmetic.products);
                want.push((sum + bias.map_or(0.0, |bias| bias[n]), bound));
            }
        }
        verdict.compare(&format!("{rows} rows"), &got, &want);
    }
    Ok(verdict)
}

fn product(desk: &mut Desk<'_>, weight: &Weight, x: &[f32], bias: Option<&[f32]>) -> Result<Vec<f32>> {
    let (out, x) = (desk.empty(x.len() / weight.k * weight.n)?, desk.floats(x)?);
    let bias = bias.map(|bias| desk.floats(bias)).transpose()?;
    desk.backend.matmul(&out, &MatMul { x: &x, weight, bias: bias.as_deref() })?;
    desk.read(&out)
}

/// What the device makes of activations.
fn see(subject: &mut dyn Subject, matrix: &Matrix, values: &[f32]) -> Result<Factors> {
    let x = subject.backend().alloc(crate::DType::F32, values.len())?;
    let seen =
        subject.backend().upload_f32(&x, values).and_then(|()| Factors::of(subject, matrix, &x, values));
    subject.backend().free(x);
    seen
}

fn multiply_chosen(
    bench: &mut Bench<'_>,
    matrix: &Matrix,
    arithmetic: Arithmetic,
    shapes: &[(usize, usize, bool)],
    random: &mut Random,
) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let weight = bench.subject.backend().load(&matrix.tensor)?;
    for &(tokens, n_used, shared) in shapes {
        let ids: Vec<u32> = (0..tokens).flat_map(|_| random.distinct(n_used, N_EXPERTS)).collect();
        let x = random.floats(tokens * matrix.k * if shared { 1 } else { n_used });
        let got = product_chosen(&mut Desk::new(bench.subject.backend()), &weight, &x, &ids, n_used)?;
        let factors = see(bench.subject, matrix, &x)?;
        let mut want = Vec::with_capacity(ids.len() * N_EXPERT);
        for (pair, &expert) in ids.iter().enumerate() {
            let row = if shared { pair / n_used } else { pair };
            for n in 0..N_EXPERT {
                want.push(factors.dot(matrix, row, expert as usize * N_EXPERT + n, arithmetic.products));
            }
        }
        verdict.compare(&format!("{} pairs", ids.len()), &got, &want);
    }
    Ok(verdict)
}

fn product_chosen(
    desk: &mut Desk<'_>,
    weight: &Weight,
    x: &[f32],
    ids: &[u32],
    n_used: usize,
) -> Result<Vec<f32>> {
    let (x, out) = (desk.floats(x)?, desk.empty(ids.len() * weight.n)?);
    let ids = desk.ids(ids)?;
    desk.backend.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids, n_used, weight })?;
    desk.read(&out)
}
