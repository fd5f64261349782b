//! A Vulkan device for the tests, through wgpu with our own SPIR-V. Mesa's lavapipe is one on any machine.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics where something is missing, and says what it ran on"
)]
#![expect(
    unsafe_code,
    reason = "wgpu takes foreign SPIR-V and experimental features through unsafe functions"
)]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use half::{bf16, f16};
use hanzo_kernel::{Binding, Checks, Code, Interface, Number, Planes, Spec, Target, Value, lower};
use hanzo_quant::Format;

/// A device.
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pub name: String,
    pub subgroups: (u32, u32),
    /// The side of the square matrices of f16 that the device multiplies and adds up in f32, with subgroups of one size.
    pub matrix_side: Option<u32>,
    /// By the name of the specialisation.
    pipelines: RefCell<BTreeMap<String, (wgpu::ComputePipeline, Interface)>>,
}

/// Native futures of wgpu are ready at once.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

impl Gpu {
    /// The first Vulkan device; says SKIPPED if there is none.
    pub fn open(test: &str) -> Option<Self> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let Ok(adapter) = wait(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) else {
            println!(
                "SKIPPED {test}: no Vulkan device: apt-get install mesa-vulkan-drivers, XDG_RUNTIME_DIR=/tmp"
            );
            return None;
        };
        let wanted = wgpu::Features::IMMEDIATES
            | wgpu::Features::SUBGROUP
            | wgpu::Features::SUBGROUP_BARRIER
            | wgpu::Features::SHADER_F16
            | wgpu::Features::PASSTHROUGH_SHADERS
            | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let (device, queue) = wait(adapter.request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            // SAFETY: the kernels under test are ours.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..wgpu::DeviceDescriptor::default()
        }))
        .unwrap();
        let info = adapter.get_info();
        let subgroups = (info.subgroup_min_size, info.subgroup_max_size);
        let (half, single) = (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32);
        let matrix_side = (adapter.cooperative_matrix_properties().iter())
            .filter(|p| subgroups.0 == subgroups.1 && p.ab_type == half && p.cr_type == single)
            .map(|p| p.m_size)
            .filter(|&side| side == 8 || side == 16)
            .max();
        Some(Self { device, queue, name: info.name, subgroups, matrix_side, pipelines: RefCell::default() })
    }

    /// Launches a kernel on buffers by name (their bytes padded to 16; those it does without are ignored) and gives back
    /// those it writes to.
    pub fn run(
        &self,
        spec: &Spec,
        buffers: &[(&str, &[u8])],
        params: &[u32],
        grid: [u32; 3],
    ) -> BTreeMap<String, Vec<u8>> {
        let mut pipelines = self.pipelines.borrow_mut();
        let (pipeline, interface) = pipelines.entry(spec.name()).or_insert_with(|| self.compile(spec));
        let name = spec.name();
        let find = |b: &Binding| buffers.iter().find(|(n, _)| *n == b.name).map(|(_, bytes)| *bytes);
        let buffers: Vec<&[u8]> = (interface.bindings.iter())
            .map(|b| find(b).unwrap_or_else(|| panic!("{name} wants the buffer {}", b.name)))
            .collect();
        assert_eq!(interface.immediate_bytes as usize, 4 * params.len(), "parameters of {name}");
        let gpu_buffers: Vec<wgpu::Buffer> = buffers.iter().map(|bytes| self.upload(bytes)).collect();
        let entries: Vec<_> = gpu_buffers
            .iter()
            .zip(0..)
            .map(|(b, place)| wgpu::BindGroupEntry { binding: place, resource: b.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
            if !bytes.is_empty() {
                pass.set_immediates(0, &bytes);
            }
            pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
        }
        let written = || interface.bindings.iter().enumerate().filter(|(_, b)| b.writes);
        let staging: Vec<wgpu::Buffer> = written()
            .map(|(i, _)| {
                let staging = self.buffer(
                    gpu_buffers[i].size(),
                    wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                );
                encoder.copy_buffer_to_buffer(&gpu_buffers[i], 0, &staging, 0, gpu_buffers[i].size());
                staging
            })
            .collect();
        self.queue.submit([encoder.finish()]);
        for staging in &staging {
            staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        }
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let read = |(staging, (i, binding)): (&wgpu::Buffer, (usize, &Binding))| {
            let bytes = staging.get_mapped_range(..).unwrap()[..buffers[i].len()].to_vec();
            (binding.name.clone(), bytes)
        };
        staging.iter().zip(written()).map(read).collect()
    }

    fn compile(&self, spec: &Spec) -> (wgpu::ComputePipeline, Interface) {
        let valid = spec.valid().unwrap_or_else(|e| panic!("{e}"));
        let interface = valid.interface();
        let code = lower(&valid, Target::SpirV, Checks::Trusted).unwrap_or_else(|e| panic!("{e}"));
        let Code::Words(words) = code else { panic!("SPIR-V is words") };
        (self.pipeline(&words, &interface), interface)
    }

    fn buffer(&self, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        })
    }

    fn upload(&self, bytes: &[u8]) -> wgpu::Buffer {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().max(1).next_multiple_of(16), 0);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = self.buffer(padded.len() as u64, usage);
        self.queue.write_buffer(&buffer, 0, &padded);
        buffer
    }

    fn pipeline(&self, words: &[u32], interface: &Interface) -> wgpu::ComputePipeline {
        let [x, y, z] = interface.workgroup;
        let entry = wgpu::PassthroughShaderEntryPoint { name: "main".into(), workgroup_size: (x, y, z) };
        // SAFETY: the words come from naga's writer, of a module that its validator accepted.
        let module = unsafe {
            self.device.create_shader_module_passthrough(wgpu::ShaderModuleDescriptorPassthrough {
                entry_points: vec![entry].into(),
                spirv: Some(words.into()),
                ..Default::default()
            })
        };
        let entries: Vec<_> = interface
            .bindings
            .iter()
            .zip(0..)
            .map(|(b, place)| wgpu::BindGroupLayoutEntry {
                binding: place,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: !b.writes },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let group = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: interface.immediate_bytes,
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        })
    }
}

/// Bytes of numbers.
pub fn bytes_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Bytes of words.
pub fn bytes_u32(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Numbers of bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Words of bytes.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// A specialisation of a kernel without weights.
pub fn find(kernel: &str, number: Option<Number>, constants: &[(&str, Value)]) -> Spec {
    Spec::find(kernel, None, number, constants).unwrap()
}

/// A constant that is on or off.
pub fn flag(name: &str, on: bool) -> (&str, Value) {
    (name, Value::Bool(on))
}

/// Every result within `tolerance` of its value, relative to the larger of the value and 1.
pub fn assert_near(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= tolerance * want.abs().max(1.0), "{what}[{i}] is {got} instead of {want}");
    }
}

/// Rounds values to a cache's type; those of q8_0 are whole blocks.
pub fn round_to(number: Number, values: &mut [f32]) {
    if number == Number::Q8_0 {
        (q8_0().decode)(&q8_0_blocks(values), values);
    } else {
        values.copy_from_slice(&cache_values(number, &cache_bytes(number, values)));
    }
}

fn q8_0() -> &'static Format {
    Format::from_name("Q8_0").unwrap()
}

/// Values as a file has them; a block with a NaN is NaN.
fn q8_0_blocks(values: &[f32]) -> Vec<u8> {
    let mut blocks = vec![0; q8_0().bytes_of(values.len()).unwrap()];
    for (values, block) in values.as_chunks::<32>().0.iter().zip(blocks.as_chunks_mut::<34>().0) {
        q8_0().encode.unwrap()(values, None, block);
        if values.iter().any(|v| v.is_nan()) {
            block[..2].copy_from_slice(&f16::NAN.to_le_bytes());
        }
    }
    blocks
}

/// Values as a cache of a type has them.
pub fn cache_bytes(number: Number, values: &[f32]) -> Vec<u8> {
    match number {
        Number::F32 => bytes_f32(values),
        Number::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        Number::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        Number::Q8_0 => {
            let planes = Planes::new(q8_0(), 1, values.len()).unwrap();
            let mut device = vec![0; planes.bytes()];
            planes.lay(&q8_0_blocks(values), &mut device).unwrap();
            device
        }
    }
}

/// The values of a cache.
pub fn cache_values(number: Number, bytes: &[u8]) -> Vec<f32> {
    let halves = || bytes.as_chunks::<2>().0.iter();
    match number {
        Number::F32 => floats(bytes),
        Number::F16 => halves().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        Number::Bf16 => halves().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        Number::Q8_0 => {
            // Scales of all blocks, then their quants; blocks are many, so that nothing is padded.
            let (scales, quants) = bytes.split_at(bytes.len() / 17);
            let scales: Vec<f32> =
                scales.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect();
            quants.iter().enumerate().map(|(i, q)| scales[i / 32] * f32::from(*q as i8)).collect()
        }
    }
}

/// The last parameter of kernels on a cache of `n` elements: where the quants of q8_0 begin.
pub fn cache_params(number: Number, n: usize) -> Vec<u32> {
    if number == Number::Q8_0 { vec![(n / 32 * 2 / 4) as u32] } else { Vec::new() }
}

/// A small generator (splitmix64), so that every run has the same data.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A number in −1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }
}
