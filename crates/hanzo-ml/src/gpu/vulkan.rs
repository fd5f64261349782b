//! Vulkan through wgpu, with SPIR-V of our own.
//!
//! A launch is a pass of an encoder; wgpu orders passes by the buffers that they use. Encoders are submitted after a few
//! launches and before anything that the host looks at. A device without immediates or with subgroups of less than 8 is
//! refused: the kernels need both.
#![expect(
    unsafe_code,
    reason = "wgpu takes foreign SPIR-V and experimental features through unsafe functions"
)]

use std::{
    collections::HashMap,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Instant,
};

use hanzo_kernel::{Code, Interface, Target};

use super::runtime::{EventId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime};
use crate::{Error, Result};

/// Launches of one submission.
const LAUNCHES_MAX: usize = 64;

/// Copies are of whole words, and buffers of whole vectors.
const ALIGN: u64 = 16;

/// A device of Vulkan.
pub struct Vulkan {
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    limits: Limits,
    buffers: HashMap<u64, wgpu::Buffer>,
    next_id: u64,
    programs: Vec<Program>,
    encoder: Option<wgpu::CommandEncoder>,
    n_launches: usize,
    events: HashMap<u64, Instant>,
}

/// A compiled kernel.
struct Program {
    name: String,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroupLayout,
    n_buffers: usize,
    immediate_bytes: usize,
}

/// Native futures of wgpu are ready at once, or after the device was polled.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

fn adapters() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN;
    wait(wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::VULKAN))
}

fn unavailable(reason: impl std::fmt::Display) -> Error {
    Error::op("device", format!("vulkan is not available: {reason}"))
}

const NO_DEVICE: &str = "the loader finds no device (is a driver for Vulkan installed?)";

/// The largest side of cooperative matrices, f16 to f32 in subgroups of 32.
fn matrix_side(adapter: &wgpu::Adapter, subgroup: (u32, u32)) -> Option<u32> {
    let (half, single) = (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32);
    let fits = |p: &&wgpu::CooperativeMatrixProperties| {
        subgroup == (32, 32) && p.ab_type == half && p.cr_type == single && matches!(p.m_size, 8 | 16)
    };
    adapter.cooperative_matrix_properties().iter().filter(fits).map(|p| p.m_size).max()
}

impl Vulkan {
    /// Names of all devices.
    ///
    /// # Errors
    /// Why there is none.
    pub fn list() -> Result<Vec<String>> {
        let names: Vec<String> =
            adapters().iter().zip(0..).map(|(a, i)| format!("vulkan:{i} {}", a.get_info().name)).collect();
        if names.is_empty() { Err(unavailable(NO_DEVICE)) } else { Ok(names) }
    }

    /// Opens device `index`.
    ///
    /// # Errors
    /// No such device, or one that lacks what the kernels need.
    pub fn open(index: usize) -> Result<Self> {
        let adapters = adapters();
        let adapter = adapters.get(index).ok_or_else(|| match adapters.len() {
            0 => unavailable(NO_DEVICE),
            n => unavailable(format!("there is no device {index}; the loader finds {n}")),
        })?;
        let needed = wgpu::Features::IMMEDIATES
            | wgpu::Features::SUBGROUP
            | wgpu::Features::SUBGROUP_BARRIER
            | wgpu::Features::PASSTHROUGH_SHADERS;
        let wanted = needed | wgpu::Features::SHADER_F16 | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let info = adapter.get_info();
        let missing = needed - adapter.features();
        if !missing.is_empty() || info.subgroup_min_size < 8 {
            let size = info.subgroup_min_size;
            return Err(unavailable(format!("{} lacks {missing:?} or has subgroups of {size}", info.name)));
        }
        let (device, queue) = wait(adapter.request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            // SAFETY: the kernels are ours and are tested on devices with these features.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..wgpu::DeviceDescriptor::default()
        }))
        .map_err(unavailable)?;
        let subgroup = (info.subgroup_min_size, info.subgroup_max_size);
        let max = device.limits();
        let axis = max.max_compute_workgroups_per_dimension;
        let limits = Limits {
            subgroup,
            workgroup_bytes: max.max_compute_workgroup_storage_size,
            grid: [axis; 3],
            // Vulkan does not tell.
            n_processors: if info.device_type == wgpu::DeviceType::Cpu { 4 } else { 32 },
            buffer_bytes: usize::try_from(max.max_buffer_size.min(max.max_storage_buffer_binding_size))
                .unwrap_or(usize::MAX),
            matrix_side: matrix_side(adapter, subgroup),
        };
        Ok(Self {
            device,
            queue,
            name: format!("vulkan:{index} {}", info.name),
            limits,
            buffers: HashMap::new(),
            next_id: 0,
            programs: Vec::new(),
            encoder: None,
            n_launches: 0,
            events: HashMap::new(),
        })
    }

    fn buffer(&self, op: &'static str, memory: MemoryId) -> Result<&wgpu::Buffer> {
        self.buffers.get(&memory.0).ok_or_else(|| Error::op(op, format!("{memory:?} is no memory")))
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Hands what was recorded to the device.
    fn submit(&mut self) {
        self.n_launches = 0;
        if let Some(encoder) = self.encoder.take() {
            self.queue.submit([encoder.finish()]);
        }
    }

    fn encode(&mut self) -> wgpu::CommandEncoder {
        let new = || self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.encoder.take().unwrap_or_else(new)
    }

    fn poll(&self, op: &'static str) -> Result<()> {
        let done = self.device.poll(wgpu::PollType::wait_indefinitely());
        done.map(|_| ()).map_err(|e| Error::op(op, format!("{}: {e}", self.name)))
    }

    fn program(&self, source: &ProgramSource<'_>, words: &[u32]) -> Program {
        let interface = source.interface;
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
        let group = self.group_layout(interface);
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: interface.immediate_bytes,
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(source.name),
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        Program {
            name: source.name.into(),
            pipeline,
            group,
            n_buffers: interface.bindings.len(),
            immediate_bytes: interface.immediate_bytes as usize,
        }
    }

    fn group_layout(&self, interface: &Interface) -> wgpu::BindGroupLayout {
        let entry = |(binding, place): (&hanzo_kernel::Binding, u32)| wgpu::BindGroupLayoutEntry {
            binding: place,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: !binding.writes },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = interface.bindings.iter().zip(0..).map(entry).collect();
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        self.device.create_bind_group_layout(&descriptor)
    }
}

impl Runtime for Vulkan {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn target(&self) -> Target {
        Target::SpirV
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Result<MemoryInfo> {
        Err(Error::op("memory", "wgpu does not tell how much memory a device has"))
    }

    fn alloc(&mut self, bytes: usize) -> Result<MemoryId> {
        if bytes == 0 || bytes > self.limits.buffer_bytes {
            let max = self.limits.buffer_bytes;
            return Err(Error::op("alloc", format!("{bytes} bytes for a buffer of at most {max}")));
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: (bytes as u64).next_multiple_of(ALIGN),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        if let Some(e) = wait(scope.pop()) {
            return Err(Error::op("alloc", format!("{}: {bytes} bytes: {e}", self.name)));
        }
        let id = self.id();
        self.buffers.insert(id, buffer);
        Ok(MemoryId(id))
    }

    fn free(&mut self, memory: MemoryId) {
        self.buffers.remove(&memory.0);
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        // Writes of the queue come before what is submitted after them, so what was recorded goes first.
        self.submit();
        let buffer = self.buffer("upload", dst)?;
        let whole = data.len() / 4 * 4;
        let (words, rest) = data.split_at(whole);
        self.queue.write_buffer(buffer, offset as u64, words);
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            self.queue.write_buffer(buffer, (offset + whole) as u64, &last);
        }
        // The queue keeps what was written until something is submitted.
        if data.len() > 1 << 20 {
            self.queue.submit([]);
        }
        Ok(())
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        let op = "download";
        let size = (out.len() as u64).next_multiple_of(4);
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.encode();
        encoder.copy_buffer_to_buffer(self.buffer(op, src)?, offset as u64, &staging, 0, size);
        self.encoder = Some(encoder);
        self.submit();
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.poll(op)?;
        let mapped =
            staging.get_mapped_range(..).map_err(|e| Error::op(op, format!("{}: {e}", self.name)))?;
        out.copy_from_slice(&mapped[..out.len()]);
        Ok(())
    }

    fn copy(&mut self, dst: MemoryId, src: MemoryId, bytes: usize) -> Result<()> {
        let mut encoder = self.encode();
        let (from, to) = (self.buffer("copy", src)?, self.buffer("copy", dst)?);
        encoder.copy_buffer_to_buffer(from, 0, to, 0, (bytes as u64).next_multiple_of(4));
        self.encoder = Some(encoder);
        Ok(())
    }

    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()> {
        self.upload(dst, 0, &vec![value; bytes])
    }

    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>> {
        let mut ids = Vec::with_capacity(sources.len());
        for source in sources {
            let Code::Words(words) = source.code else {
                return Err(Error::op("compile", format!("kernel {} is no SPIR-V", source.name)));
            };
            let (bytes, max) = (source.interface.workgroup_bytes, self.limits.workgroup_bytes);
            if bytes > max {
                let what = format!("{} wants {bytes} bytes a workgroup of {max}", source.name);
                return Err(Error::op("compile", what));
            }
            let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
            let program = self.program(source, words);
            if let Some(e) = wait(scope.pop()) {
                return Err(Error::op("compile", format!("kernel {} on {}: {e}", source.name, self.name)));
            }
            self.programs.push(program);
            ids.push(ProgramId(self.programs.len() - 1));
        }
        Ok(ids)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        let op = "launch";
        let mut encoder = self.encode();
        let program =
            self.programs.get(launch.program.0).ok_or_else(|| Error::op(op, "an unknown kernel"))?;
        launch.check(&program.name, program.n_buffers, program.immediate_bytes, &self.limits)?;
        let buffers = launch.buffers.iter().map(|b| self.buffer(op, *b)).collect::<Result<Vec<_>>>()?;
        let bound = buffers.iter().zip(0..);
        let entries: Vec<_> = bound
            .map(|(buffer, binding)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &program.group,
            entries: &entries,
        });
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&program.pipeline);
            pass.set_bind_group(0, &group, &[]);
            if !launch.immediates.is_empty() {
                pass.set_immediates(0, launch.immediates);
            }
            let [x, y, z] = launch.grid;
            pass.dispatch_workgroups(x, y, z);
        }
        self.encoder = Some(encoder);
        self.n_launches += 1;
        if self.n_launches >= LAUNCHES_MAX {
            self.submit();
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.submit();
        self.poll("synchronize")
    }

    fn record(&mut self) -> Result<EventId> {
        self.synchronize()?;
        let id = self.id();
        self.events.insert(id, Instant::now());
        Ok(EventId(id))
    }

    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32> {
        match (self.events.remove(&from.0), self.events.remove(&to.0)) {
            (Some(from), Some(to)) => Ok(to.duration_since(from).as_secs_f32() * 1e3),
            _ => Err(Error::op("elapsed", "an unknown event")),
        }
    }
}
