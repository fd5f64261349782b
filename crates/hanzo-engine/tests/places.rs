//! A model that is spread over devices gives what it gives on one; what it will take is known before.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{
    Case, TOLERANCE, case, cases, chunked, cpu, cpu_int8, gpu, gpu_names, max_difference, options, reference,
    whole,
};
use hanzo_engine::{
    ModelFile, Result,
    decoder::{
        Chunk, Decoder, DecoderOptions, Devices, MemoryPlan, Observer, Placement, Prepared, Product, Rows,
        Split,
    },
};

use hanzo_ml::{
    DType, Device,
    backend::Backend,
    gpu::{
        Gpu, GpuOptions, Target,
        null::{Null, Record, Records},
    },
};

/// Full, windowed and mixed attention, experts, sandwich norms; tied and not.
const CASES: &[&str] =
    &["llama", "llama-tied-bias", "mixtral-window", "qwen2-window", "qwen3moe-mixed", "gemma3"];

type Make = fn() -> Box<dyn Backend>;

fn load(file: &ModelFile, makes: &[Make], placement: Placement, context: usize) -> Decoder {
    let backends = makes.iter().map(|make| make()).collect();
    let spec = file.spec().unwrap();
    Decoder::load_placed(file, spec, backends, placement, options(context), &mut |_, _| ()).unwrap()
}

/// The last layers on the first device in every number, a layer on each in turn, and the embedding or the output matrix
/// alone on another device.
fn placements(n_layers: usize) -> Vec<Placement> {
    let mut all: Vec<Placement> = (0..=n_layers + 1).map(|n| Placement::last(n, n_layers)).collect();
    let turns = |first: usize| (0..n_layers).map(|l| (l + first) % 2).collect();
    all.push(Placement { embedding: 0, layers: turns(0), head: 0 });
    all.push(Placement { embedding: 1, layers: turns(0), head: 0 });
    all.push(Placement { embedding: 0, layers: turns(1), head: 1 });
    all
}

#[test]
fn two_cpus_give_the_same_bits_as_one() {
    let mut n_placed = 0;
    for case in cases() {
        let file = case.file();
        let n_layers = file.spec().unwrap().layers.len();
        for make in [(|| cpu(1)) as Make, || cpu_int8(1)] {
            let prompt = &case.prompts[0].tokens;
            let mut alone = load(&file, &[make], Placement::single(n_layers), prompt.len());
            let expected = [whole(&mut alone, prompt), chunked(&mut alone, prompt, 5)];
            for placement in placements(n_layers) {
                let mut spread = load(&file, &[make, make], placement.clone(), prompt.len());
                let got = [whole(&mut spread, prompt), chunked(&mut spread, prompt, 5)];
                assert!(got == expected, "{}, {placement:?}", case.name);
                n_placed += 1;
            }
        }
    }
    assert!(n_placed > 400, "{n_placed}");
}

/// The largest difference from `transformers`, as a share of the largest logit.
fn error_of(case: &Case, file: &ModelFile, makes: &[Make], placement: &Placement) -> f32 {
    let mut worst = 0f32;
    for prompt in &case.prompts {
        let mut decoder = load(file, makes, placement.clone(), prompt.tokens.len());
        let ours = whole(&mut decoder, &prompt.tokens);
        worst = worst.max(max_difference(&ours, &case.logits(prompt)) / case.max_abs_logit);
    }
    worst
}

#[test]
fn other_kinds_of_devices_share_a_model() {
    for name in CASES {
        let case = case(name);
        let file = case.file();
        for placement in placements(file.spec().unwrap().layers.len()) {
            for makes in [[reference as Make, || cpu(2)], [|| cpu(2), reference]] {
                let error = error_of(&case, &file, &makes, &placement);
                assert!(error <= TOLERANCE, "{name}, {placement:?}: {error:.2e}");
            }
        }
    }
}

/// Each GPU of this machine with the CPU, and with the next GPU (or, where it is the only one, a second backend on it).
#[test]
fn gpus_share_a_model() {
    let names = gpu_names();
    for (i, name) in names.iter().enumerate() {
        let next = &names[(i + 1) % names.len()];
        for case in CASES.iter().map(|name| case(name)) {
            let file = case.file();
            let spec = file.spec().unwrap();
            let placements =
                [Placement::last(1, spec.layers.len()), placements(spec.layers.len()).pop().unwrap()];
            for placement in placements {
                let prompt = &case.prompts[0];
                let decoder = |backends| {
                    let options = options(prompt.tokens.len());
                    Decoder::load_placed(
                        &file,
                        spec.clone(),
                        backends,
                        placement.clone(),
                        options,
                        &mut |_, _| (),
                    )
                };
                for other in [cpu(2), gpu(next)] {
                    let ours = whole(&mut decoder(vec![gpu(name), other]).unwrap(), &prompt.tokens);
                    let error = max_difference(&ours, &case.logits(prompt)) / case.max_abs_logit;
                    assert!(error <= TOLERANCE, "{name}, {}, {placement:?}: {error:.2e}", case.name);
                }
            }
        }
        println!("{name} shares {} models with the CPU and with {next}", CASES.len());
    }
}

/// Names, inputs and routing of all products.
#[derive(Default, PartialEq)]
struct Seen(Vec<(String, Vec<f32>)>);

impl Observer for Seen {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn product(&mut self, product: &Product<'_>) -> Result<()> {
        self.0.push((product.name.to_owned(), product.x.to_vec()));
        Ok(())
    }
}

#[test]
fn an_observer_sees_the_products_of_every_place() {
    for name in ["llama-tied-bias", "qwen3moe-mixed"] {
        let file = case(name).file();
        let n_layers = file.spec().unwrap().layers.len();
        let run = |placement: Placement| {
            let mut decoder = load(&file, &[|| cpu(1), || cpu(1)], placement, 64);
            let mut seen = Seen::default();
            let sequence = decoder.begin();
            let chunk = Chunk { logits: Rows::All, ..Chunk::tokens(sequence, &[1, 2, 3]) };
            decoder.forward_observed(&[chunk], &mut seen).unwrap();
            seen
        };
        let alone = run(Placement::single(n_layers));
        assert!(alone.0.iter().any(|(name, _)| name == "blk.0.attn_q.weight"));
        for placement in placements(n_layers) {
            assert!(run(placement.clone()) == alone, "{name}, {placement:?}");
        }
    }
}

#[test]
fn a_placement_that_does_not_fit_is_refused() {
    let file = case("llama").file();
    let spec = file.spec().unwrap();
    let n_layers = spec.layers.len();
    for (placement, why) in [
        (Placement::single(n_layers + 1), format!("places for {} layers", n_layers + 1)),
        (Placement { head: 1, ..Placement::single(n_layers) }, "place 1 of 1 devices".to_owned()),
    ] {
        let loaded =
            Decoder::load_placed(&file, spec.clone(), vec![cpu(1)], placement, options(64), &mut |_, _| ());
        let error = loaded.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&why), "{error}");
    }
}

#[test]
fn progress_ends_with_all_weights() {
    let file = case("llama").file();
    let (spec, placement) = (file.spec().unwrap(), Placement::single(file.spec().unwrap().layers.len()));
    let mut told = Vec::new();
    let mut progress = |done: usize, total: usize| told.push((done, total));
    Decoder::load_placed(&file, spec, vec![cpu(1)], placement, options(64), &mut progress).unwrap();
    assert!(told.len() > 5 && told.is_sorted());
    let (done, total) = *told.last().unwrap();
    // Norms are a few bytes that are not told.
    assert!(done <= total && done * 10 > total * 9, "{done} of {total}");
}

/// A GPU without arithmetic that has so many bytes.
fn null(bytes: usize) -> (Box<dyn Backend>, Records) {
    let (null, records) = Null::new(Target::SpirV, bytes);
    (Box::new(Gpu::new(Box::new(null), GpuOptions::default()).unwrap()), records)
}

/// The name of a GPU, for a map of devices that are others.
fn a_gpu() -> Device {
    "vulkan:0".parse().unwrap()
}

const LARGE: usize = 1 << 40;

fn plan_options() -> DecoderOptions {
    DecoderOptions { context: 512, cache_type_k: DType::F16, cache_type_v: DType::F16, ..options(0) }
}

/// What is prepared on a GPU of so many bytes and a CPU of others.
fn prepare(file: &ModelFile, split: Split, gpu_bytes: usize, cpu_bytes: usize) -> Result<Prepared<'_>> {
    let devices = Devices { device: a_gpu(), split, ..Devices::default() };
    let open = |device| Ok(null(if device == Device::Cpu { cpu_bytes } else { gpu_bytes }).0);
    Prepared::open_with(file, &devices, plan_options(), 4, open)
}

fn plan_of(file: &ModelFile, split: Split) -> MemoryPlan {
    prepare(file, split, LARGE, LARGE).unwrap().plan().clone()
}

/// An observer of nothing.
struct Blind;

impl Observer for Blind {
    fn wants(&self, _: &str) -> bool {
        false
    }

    fn product(&mut self, _: &Product<'_>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_plan_is_what_a_device_is_asked_for() {
    for name in CASES {
        let case = case(name);
        let file = case.file();
        let plan = plan_of(&file, Split::All);
        let (backend, records) = null(LARGE);
        records.take();
        let allocated = || {
            let alloc = |record: Record| if let Record::Alloc(_, bytes) = record { bytes } else { 0 };
            records.take().into_iter().map(alloc).sum::<usize>()
        };
        let mut decoder = Decoder::load(&file, backend, plan_options()).unwrap();
        let of = &plan.devices[0];
        assert_eq!((plan.devices.len(), plan.context, of.weights.mapped), (1, 512, 0), "{name}");
        assert_eq!(of.weights.own + of.cache_bytes, allocated(), "{name}");
        let sequence = decoder.begin();
        // Without an observer some rows end in the last layer, and where that is the largest a step takes less.
        decoder.forward_observed(&[Chunk::tokens(sequence, &vec![0; 256])], &mut Blind).unwrap();
        // Within an operation more is taken; one that is fused takes less.
        let (step, planned) = (allocated(), of.workspace_bytes);
        assert!(planned <= step + step / 4 && step < planned * 2, "{name}: {planned} planned, {step} taken");
    }
}

#[test]
fn a_cpu_reads_weights_where_they_lie_or_has_its_own() {
    let file = ModelFile::open(&common::folder().join("with-vocab.gguf")).unwrap();
    let bytes: usize = file.tensors().tensors().iter().map(|t| t.bytes()).sum();
    let plan = |make: Make| {
        let open = |_| Ok(make());
        Prepared::open_with(&file, &Devices::default(), plan_options_of(&file), 1, open)
            .unwrap()
            .plan()
            .clone()
    };
    let mapped = &plan(|| cpu(1)).devices[0];
    let re_laid = &plan(|| cpu_int8(1)).devices[0];
    // Norms are copied: they are all that is not mapped.
    assert!(mapped.weights.mapped < bytes && mapped.weights.mapped * 10 > bytes * 9);
    assert!(re_laid.weights.own >= mapped.weights.own && re_laid.weights.total() >= mapped.weights.total());
    assert_eq!((mapped.cache_bytes, mapped.workspace_bytes), (re_laid.cache_bytes, re_laid.workspace_bytes));
    // 2 layers of 2 heads of 16 elements, keys and values of 2 bytes; 4 sequences of 256 positions.
    assert_eq!(mapped.cache_bytes, 2 * 2 * 16 * 2 * 2 * 4 * 256);
    assert!(mapped.memory.is_none_or(|memory| memory.free <= memory.total));
}

fn plan_options_of(file: &ModelFile) -> DecoderOptions {
    DecoderOptions { context: file.spec().unwrap().context_length, ..plan_options() }
}

#[test]
fn a_split_plan_has_all_layers_and_the_same_cache() {
    for name in CASES {
        let file = case(name).file();
        let n_layers = file.spec().unwrap().layers.len();
        let whole = plan_of(&file, Split::All).devices[0].clone();
        for n in 1..=n_layers {
            let plan = plan_of(&file, Split::Last(n));
            let layers: Vec<usize> = plan.devices.iter().map(|device| device.n_layers).collect();
            assert_eq!(layers, [n, n_layers - n], "{name}");
            let cache: usize = plan.devices.iter().map(|device| device.cache_bytes).sum();
            assert_eq!(cache, whole.cache_bytes, "{name}");
            assert!(plan.devices.iter().all(|device| device.own_bytes() < whole.own_bytes()), "{name}, {n}");
        }
        let everything = plan_of(&file, Split::Last(n_layers + 1));
        assert_eq!(everything.devices, [whole]);
        let nothing = prepare(&file, Split::Last(0), 1 << 20, LARGE).unwrap();
        assert_eq!((nothing.plan().devices.len(), nothing.placement().head), (1, 0));
    }
}

/// Memory that is left free where layers are put on a GPU by themselves, and the lattices that every GPU has.
fn spare() -> usize {
    let (backend, _) = null(LARGE);
    (256 << 20) + LARGE - backend.memory().unwrap().free
}

#[test]
fn by_itself_a_gpu_gets_as_many_layers_as_it_holds() {
    let file = case("llama").file();
    let n_layers = file.spec().unwrap().layers.len();
    let layers = |gpu_bytes: usize| {
        let prepared = prepare(&file, Split::Auto, gpu_bytes, LARGE).unwrap();
        prepared.plan().devices.iter().map(|device| device.n_layers).collect::<Vec<_>>()
    };
    let whole = plan_of(&file, Split::All).devices[0].own_bytes() + spare();
    assert_eq!(layers(whole), [n_layers]);
    for n in 1..=n_layers {
        let needed = plan_of(&file, Split::Last(n)).devices[0].own_bytes() + spare();
        assert_eq!(layers(needed), [n, n_layers - n]);
        let fewer = layers(needed - 1);
        assert_eq!(fewer, if n == 1 { vec![n_layers] } else { vec![n - 1, n_layers - n + 1] });
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_numbers() {
    let file = case("llama").file();
    let n_layers = file.spec().unwrap().layers.len();
    let tables = spare() - (256 << 20);
    let two = plan_of(&file, Split::Last(n_layers - 1)).devices[0].own_bytes() + tables;
    let error = |split, gpu, cpu| prepare(&file, split, gpu, cpu).map(|_| ()).unwrap_err().to_string();
    let refused = error(Split::All, two, LARGE);
    for wanted in [
        "null: the model does not fit in memory: weights ",
        " of 4 layers, cache ",
        " for 512 tokens, workspace ",
        " are free; next: --n-gpu-layers 3, or ",
        "a smaller quantisation",
    ] {
        assert!(
            refused.contains(
                &wanted.replace("4", &n_layers.to_string()).replace("3,", &format!("{},", n_layers - 1))
            ),
            "{wanted}: {refused}"
        );
    }
    assert!(error(Split::Last(n_layers), two, LARGE).contains(&format!("--n-gpu-layers {}", n_layers - 1)));
    assert!(error(Split::All, tables + 4096, LARGE).contains("--device cpu"));
    // Where the context is what is too large, a smaller one is told.
    let small = {
        let devices = Devices { device: a_gpu(), split: Split::All, ..Devices::default() };
        let options = DecoderOptions { context: 256, ..plan_options() };
        let plan = Prepared::open_with(&file, &devices, options, 4, |_| Ok(null(LARGE).0)).unwrap();
        plan.plan().devices[0].own_bytes()
    };
    assert!(error(Split::All, small + tables, LARGE).contains("--ctx-size 256"));
    // The CPU is asked too.
    assert!(error(Split::Auto, tables + 4096, tables + 4096).contains("does not fit"));
}

#[test]
fn layers_on_a_gpu_need_a_gpu() {
    let file = case("llama").file();
    let prepare = |split: Split| {
        let devices = Devices { split, ..Devices::default() };
        Prepared::open_with(&file, &devices, plan_options(), 1, |_| Ok(cpu(1))).map(|_| ())
    };
    assert!(prepare(Split::Last(1)).unwrap_err().to_string().contains("n-gpu-layers 1: the device is cpu"));
    for split in [Split::Last(0), Split::All, Split::Auto] {
        prepare(split).unwrap();
    }
}
