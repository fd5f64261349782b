//! A device of wgpu.
//!
//! A launch is a pass of an encoder; wgpu orders passes by the buffers that they use. Encoders are submitted after a few
//! launches and before anything that the host looks at. What wgpu finds wrong later than the call that caused it is told
//! by the next wait.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use hanzo_kernel::{Code, Interface, Target};

use super::{Api, NEEDED, memory, wait};
use crate::{
    Error, Result,
    gpu::{
        runtime::{
            EventId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime, expect_inside,
            unknown,
        },
        table::Table,
    },
};

/// Launches of one submission.
const LAUNCHES_MAX: usize = 64;

/// Copies are of whole words, and buffers of whole vectors.
const ALIGN: u64 = 16;

/// Bytes of uploads that wgpu keeps copies of until the device has taken them.
const UPLOADS_MAX: usize = 64 << 20;

/// A device of Vulkan or Metal.
pub struct Wgpu {
    api: Api,
    adapter: wgpu::Adapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    limits: Limits,
    buffers: Table<wgpu::Buffer>,
    programs: Vec<Program>,
    encoder: Option<wgpu::CommandEncoder>,
    n_launches: usize,
    /// Bytes uploaded since the last wait.
    uploaded_bytes: usize,
    events: Table<Instant>,
    /// What went wrong outside of any call that could tell.
    trouble: Arc<Mutex<Option<String>>>,
}

/// A compiled kernel.
struct Program {
    name: String,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroupLayout,
    n_buffers: usize,
    immediate_bytes: usize,
}

impl Wgpu {
    /// Opens device `index` of an API.
    ///
    /// # Errors
    /// No such device, or one that lacks what the kernels need.
    pub fn open(api: Api, index: usize) -> Result<Self> {
        let mut adapters = api.adapters();
        let adapter = match adapters.len() {
            0 => return Err(api.unavailable(api.no_device())),
            n if index >= n => {
                return Err(api.unavailable(format!("there is no device {index}; the system has {n}")));
            }
            _ => adapters.swap_remove(index),
        };
        let info = adapter.get_info();
        if let Some(reason) = api.missing(&adapter) {
            return Err(api.unavailable(format!("{}: {reason}", info.name)));
        }
        let wanted = NEEDED | wgpu::Features::SHADER_F16 | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let (device, queue) = wait(adapter.request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            // SAFETY: the kernels are ours and are tested on devices with these features.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..wgpu::DeviceDescriptor::default()
        }))
        .map_err(|e| api.unavailable(e))?;
        let trouble = Arc::new(Mutex::new(None));
        let told = trouble.clone();
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
            told.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e.to_string());
        }));
        let limits = api.limits(&adapter);
        Ok(Self {
            api,
            adapter,
            device,
            queue,
            name: format!("{}:{index} {}", api.name(), info.name),
            limits,
            buffers: Table::new(),
            programs: Vec::new(),
            encoder: None,
            n_launches: 0,
            uploaded_bytes: 0,
            events: Table::new(),
            trouble,
        })
    }

    /// A buffer, and proof that it has room.
    fn buffer(&self, op: &'static str, memory: MemoryId, offset: usize, len: usize) -> Result<&wgpu::Buffer> {
        let buffer = self.buffers.get(memory.0).ok_or_else(|| unknown(op, memory))?;
        expect_inside(op, offset, len, usize::try_from(buffer.size()).unwrap_or(usize::MAX))?;
        if offset.is_multiple_of(4) {
            Ok(buffer)
        } else {
            Err(Error::op(op, format!("byte {offset} is not at the start of a word")))
        }
    }

    /// Hands what was recorded to the device.
    fn submit(&mut self) {
        self.n_launches = 0;
        if let Some(encoder) = self.encoder.take() {
            self.queue.submit([encoder.finish()]);
        }
    }

    /// What launches and copies are recorded with.
    fn encoder<'a>(
        encoder: &'a mut Option<wgpu::CommandEncoder>,
        device: &wgpu::Device,
    ) -> &'a mut wgpu::CommandEncoder {
        encoder
            .get_or_insert_with(|| device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()))
    }

    fn poll(&mut self, op: &'static str) -> Result<()> {
        let done = self.device.poll(wgpu::PollType::wait_indefinitely());
        self.uploaded_bytes = 0;
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (done, trouble) {
            (Ok(_), None) => Ok(()),
            (Err(e), None) => Err(Error::op(op, format!("{}: {e}", self.name))),
            (_, Some(what)) => Err(Error::op(op, format!("{}: {what}", self.name))),
        }
    }

    fn program(&self, source: &ProgramSource<'_>, entry: &str) -> Program {
        let interface = source.interface;
        let [x, y, z] = interface.workgroup;
        let point = wgpu::PassthroughShaderEntryPoint { name: entry.into(), workgroup_size: (x, y, z) };
        let (spirv, msl) = match source.code {
            Code::Words(words) => (Some(Cow::from(words)), None),
            Code::Text(text) => (None, Some(Cow::from(text))),
        };
        // SAFETY: words and text come from naga's writers, of a module that its validator accepted.
        let module = unsafe {
            self.device.create_shader_module_passthrough(wgpu::ShaderModuleDescriptorPassthrough {
                entry_points: vec![point].into(),
                spirv,
                msl,
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
            entry_point: Some(entry),
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

impl Runtime for Wgpu {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn target(&self) -> Target {
        self.api.target()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Result<MemoryInfo> {
        match memory::of_adapter(&self.adapter) {
            Some((Some(free), total)) => Ok(MemoryInfo { free, total }),
            _ => Err(Error::op("memory", format!("{} does not tell how much memory is free", self.name))),
        }
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
        Ok(MemoryId(self.buffers.insert(buffer)))
    }

    fn free(&mut self, memory: MemoryId) {
        if self.buffers.remove(memory.0).is_none() {
            tracing::warn!("{}: {memory:?} is not there to be given back", self.name);
        }
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        let op = "upload";
        self.buffer(op, dst, offset, data.len())?;
        // Writes of the queue come before what is submitted after them, so what was recorded goes first.
        self.submit();
        let buffer = self.buffer(op, dst, offset, data.len())?;
        let whole = data.len() / 4 * 4;
        let (words, rest) = data.split_at(whole);
        self.queue.write_buffer(buffer, offset as u64, words);
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            self.queue.write_buffer(buffer, (offset + whole) as u64, &last);
        }
        // The queue keeps what was written until something is submitted and done.
        self.uploaded_bytes += data.len();
        if data.len() > 1 << 20 {
            self.queue.submit([]);
        }
        if self.uploaded_bytes > UPLOADS_MAX { self.poll(op) } else { Ok(()) }
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        let op = "download";
        let buffer = self.buffer(op, src, offset, out.len())?.clone();
        let size = (out.len() as u64).next_multiple_of(4);
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let encoder = Self::encoder(&mut self.encoder, &self.device);
        encoder.copy_buffer_to_buffer(&buffer, offset as u64, &staging, 0, size);
        self.submit();
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.poll(op)?;
        let mapped =
            staging.get_mapped_range(..).map_err(|e| Error::op(op, format!("{}: {e}", self.name)))?;
        out.copy_from_slice(&mapped[..out.len()]);
        Ok(())
    }

    fn copy(&mut self, dst: (MemoryId, usize), src: (MemoryId, usize), bytes: usize) -> Result<()> {
        let op = "copy";
        if dst.0 == src.0 {
            return Err(Error::op(op, format!("{:?} to itself", dst.0)));
        }
        // The last word of a buffer is there whole.
        let whole = bytes.next_multiple_of(4);
        let from = self.buffer(op, src.0, src.1, whole)?.clone();
        let to = self.buffer(op, dst.0, dst.1, whole)?.clone();
        let encoder = Self::encoder(&mut self.encoder, &self.device);
        encoder.copy_buffer_to_buffer(&from, src.1 as u64, &to, dst.1 as u64, whole as u64);
        Ok(())
    }

    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()> {
        self.upload(dst, 0, &vec![value; bytes])
    }

    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>> {
        let mut ids = Vec::with_capacity(sources.len());
        for source in sources {
            source.check(&self.limits)?;
            let entry = match (self.api.target(), source.code) {
                (Target::SpirV, Code::Words(_)) => Target::SpirV.entry(),
                (Target::Msl, Code::Text(_)) => Target::Msl.entry(),
                _ => None,
            };
            let entry = entry.ok_or_else(|| {
                Error::op(
                    "compile",
                    format!("kernel {} is not in the language of {}", source.name, self.name),
                )
            })?;
            let outer = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
            let inner = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
            let program = self.program(source, entry);
            let invalid = wait(inner.pop());
            if let Some(e) = wait(outer.pop()).or(invalid) {
                return Err(Error::op("compile", format!("kernel {} on {}: {e}", source.name, self.name)));
            }
            self.programs.push(program);
            ids.push(ProgramId(self.programs.len() - 1));
        }
        Ok(ids)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        let op = "launch";
        let program =
            self.programs.get(launch.program.0).ok_or_else(|| Error::op(op, "an unknown kernel"))?;
        launch.check(&program.name, program.n_buffers, program.immediate_bytes, &self.limits)?;
        // Everything that can be refused is refused before the encoder is touched: it holds earlier launches.
        let buffers = launch.buffers.iter().map(|b| self.buffer(op, *b, 0, 1)).collect::<Result<Vec<_>>>()?;
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
            let encoder = Self::encoder(&mut self.encoder, &self.device);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&program.pipeline);
            pass.set_bind_group(0, &group, &[]);
            if !launch.immediates.is_empty() {
                pass.set_immediates(0, launch.immediates);
            }
            let [x, y, z] = launch.grid;
            pass.dispatch_workgroups(x, y, z);
        }
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
        Ok(EventId(self.events.insert(Instant::now())))
    }

    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32> {
        match (self.events.remove(from.0), self.events.remove(to.0)) {
            (Some(from), Some(to)) => Ok(to.duration_since(from).as_secs_f32() * 1e3),
            _ => Err(Error::op("elapsed", "an unknown event")),
        }
    }
}
