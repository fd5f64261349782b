//! A decoder that is about to be loaded: its devices are open, every part has its place, and what it takes is known to
//! fit.

use hanzo_ml::{
    DType, Device,
    backend::{Backend, Counting},
    cpu::{Activations, CpuOptions},
    gpu::GpuOptions,
};

use super::{
    Decoder, DecoderOptions, MemoryPlan, Placement, Split, check, check_cache_types,
    plan::{measure, refusal},
};
use crate::{Error, Result, model_file::ModelFile, spec::DecoderSpec};

/// Memory that is left on a GPU where layers are put there by themselves: compiled kernels and what operations need within
/// themselves are in no plan.
const SPARE_BYTES: usize = 256 << 20;

/// The least context that is worth advising.
const CONTEXT_MIN: usize = 256;

/// Where a decoder runs.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// The device.
    pub device: Device,
    /// How much of the model is there.
    pub split: Split,
    /// Threads and arithmetic of the CPU.
    pub cpu: CpuOptions,
    /// What a GPU may use.
    pub gpu: GpuOptions,
}

/// A decoder that is about to be loaded.
pub struct Prepared<'a> {
    file: &'a ModelFile,
    spec: DecoderSpec,
    backends: Vec<Box<dyn Backend>>,
    placement: Placement,
    options: DecoderOptions,
    plan: MemoryPlan,
}

impl<'a> Prepared<'a> {
    /// Opens the devices and says what is where. `n_logit_rows` are the rows of a step whose logits will be wanted, at
    /// most.
    ///
    /// # Errors
    /// If the model is not supported, a device is not available, or the model does not fit: with the numbers, and what to do
    /// next.
    pub fn new(
        file: &'a ModelFile,
        devices: &Devices,
        options: DecoderOptions,
        n_logit_rows: usize,
    ) -> Result<Self> {
        let open = |device: Device| Ok(device.open(devices.cpu, devices.gpu.clone())?);
        Self::open_with(file, devices, options, n_logit_rows, open)
    }

    /// As [`Self::new`], with devices that the caller opens.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn open_with(
        file: &'a ModelFile,
        devices: &Devices,
        options: DecoderOptions,
        n_logit_rows: usize,
        open: impl Fn(Device) -> Result<Box<dyn Backend>>,
    ) -> Result<Self> {
        let spec = check(file)?;
        check_cache_types(&spec, &options)?;
        let chooser = Chooser { file, spec: &spec, devices, options, n_logit_rows };
        let (backends, placement) = chooser.choose(open)?;
        let plan = chooser.plan(&backends, &placement)?;
        if let Some(full) = plan.devices.iter().find(|device| !device.fits(0)) {
            return Err(refusal(full, options.context, &chooser.advice(&backends, &placement)));
        }
        Ok(Self { file, spec, backends, placement, options, plan })
    }

    /// What it will take.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// What is where.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The model.
    pub fn file(&self) -> &'a ModelFile {
        self.file
    }

    /// What the model is made of.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// Loads it, telling how many bytes of the weights are there, and of how many.
    ///
    /// # Errors
    /// If a tensor does not fit, or a device lacks memory.
    pub fn load(self, progress: &mut dyn FnMut(usize, usize)) -> Result<Decoder> {
        let Self { file, spec, backends, placement, options, .. } = self;
        Decoder::load_placed(file, spec, backends, placement, options, progress)
    }
}

/// Decides what is where.
struct Chooser<'a> {
    file: &'a ModelFile,
    spec: &'a DecoderSpec,
    devices: &'a Devices,
    options: DecoderOptions,
    n_logit_rows: usize,
}

type Placed = (Vec<Box<dyn Backend>>, Placement);

impl Chooser<'_> {
    fn plan(&self, backends: &[Box<dyn Backend>], placement: &Placement) -> Result<MemoryPlan> {
        self.plan_with(backends, placement, self.options)
    }

    fn plan_with(
        &self,
        backends: &[Box<dyn Backend>],
        placement: &Placement,
        options: DecoderOptions,
    ) -> Result<MemoryPlan> {
        let backends: Vec<&dyn Backend> = backends.iter().map(|backend| &**backend).collect();
        measure(self.file, self.spec, &backends, placement, options, self.n_logit_rows)
    }

    fn choose(&self, open: impl Fn(Device) -> Result<Box<dyn Backend>>) -> Result<Placed> {
        let (device, n_layers) = (self.devices.device, self.spec.layers.len());
        let single = || Placement::single(n_layers);
        let last = |n: usize| match n {
            0 => Ok((vec![open(Device::Cpu)?], single())),
            n => Ok((vec![open(device)?, open(Device::Cpu)?], Placement::last(n, n_layers))),
        };
        match &self.devices.split {
            Split::Map(map) => {
                let (devices, placement) = map.place(device, n_layers)?;
                Ok((devices.into_iter().map(&open).collect::<Result<_>>()?, placement))
            }
            Split::Last(n @ 1..) if device == Device::Cpu => Err(Error::request(format!(
                "n-gpu-layers {n}: the device is {device}; name a GPU with device"
            ))),
            Split::Last(n) if *n <= n_layers => last(*n),
            Split::Auto if device != Device::Cpu => {
                let alone = vec![open(device)?];
                let whole = self.plan(&alone, &single())?;
                if whole.devices.iter().all(|device| device.fits(SPARE_BYTES)) {
                    return Ok((alone, single()));
                }
                let cpu = open(Device::Cpu)?;
                match self.most_layers([&*alone[0], &*cpu], SPARE_BYTES)? {
                    Some(n) => Ok((alone.into_iter().chain([cpu]).collect(), Placement::last(n, n_layers))),
                    None => Ok((vec![cpu], single())),
                }
            }
            Split::Auto | Split::All | Split::Last(_) => Ok((vec![open(device)?], single())),
        }
    }

    /// The most layers that the first of two devices holds; `None` if it holds none.
    fn most_layers(&self, backends: [&dyn Backend; 2], spare_bytes: usize) -> Result<Option<usize>> {
        let n_layers = self.spec.layers.len();
        let (mut fitting, mut too_many) = (0, n_layers + 1);
        while fitting + 1 < too_many {
            let n = fitting.midpoint(too_many);
            let placement = Placement::last(n, n_layers);
            let plan = measure(self.file, self.spec, &backends, &placement, self.options, self.n_logit_rows)?;
            // The first device comes first wherever it has a layer.
            let fits = plan.devices.first().is_some_and(|device| device.fits(spare_bytes));
            *if fits { &mut fitting } else { &mut too_many } = n;
        }
        Ok(Some(fitting).filter(|&n| n > 0))
    }

    /// What would help where something does not fit.
    fn advice(&self, backends: &[Box<dyn Backend>], placement: &Placement) -> Vec<String> {
        let fits = |options: DecoderOptions| {
            let plan = self.plan_with(backends, placement, options);
            plan.is_ok_and(|plan| plan.devices.iter().all(|device| device.fits(0)))
        };
        let mut advice = Vec::new();
        let on_cpu = self.devices.device == Device::Cpu;
        if !on_cpu && !matches!(self.devices.split, Split::Map(_)) {
            // Of what is on the other device nothing need be known.
            let (other, _) = Counting::new();
            let n = backends.first().and_then(|gpu| self.most_layers([&**gpu, &other], 0).ok().flatten());
            advice.push(n.map_or("--device cpu".to_owned(), |n| format!("--n-gpu-layers {n}")));
        }
        let halves = std::iter::successors(Some(self.options.context / 2), |n| Some(n / 2));
        let mut shorter = halves.take_while(|&n| n >= CONTEXT_MIN);
        let shorter = shorter.find(|&context| fits(DecoderOptions { context, ..self.options }));
        advice.extend(shorter.map(|n| format!("a smaller context (--ctx-size {n})")));
        let small = DecoderOptions { cache_type_k: DType::Q8_0, cache_type_v: DType::Q8_0, ..self.options };
        if check_cache_types(self.spec, &small).is_ok() && fits(small) {
            advice.push("--cache-type-k q8_0 --cache-type-v q8_0".to_owned());
        }
        if on_cpu && self.devices.cpu.repack && self.devices.cpu.activations == Activations::Int8 {
            advice.push("--no-repack, which leaves the weights in the file".to_owned());
        }
        advice.push("a smaller quantisation of the model".to_owned());
        advice
    }
}
