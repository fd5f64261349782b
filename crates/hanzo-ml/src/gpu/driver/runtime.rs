//! A device behind a driver.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::{null, null_mut},
};

use hanzo_kernel::{Checks, Code, Target, static_workgroup_bytes_max, unit};
use libloading::Library;

use super::{
    DriverOptions, Kind,
    api::{Driver as Api, Opaque, Status},
    cache::Cache,
    compiler::Compiler,
    library, unavailable,
};
use crate::{
    Error, Result,
    gpu::{
        GpuInfo,
        runtime::{
            EventId, GraphId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime,
            expect_inside, unknown,
        },
        table::Table,
    },
};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, the same in HIP.
const MAX_DYNAMIC_BYTES: c_int = 8;

/// `CU_STREAM_NON_BLOCKING`, the same in HIP: independent of the default stream.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`, the same in HIP.
const CAPTURE_THREAD_LOCAL: c_int = 1;

/// A device of CUDA or ROCm.
pub struct Driver {
    kind: Kind,
    api: Api,
    device: c_int,
    context: Opaque,
    stream: Opaque,
    name: String,
    /// The compute capability that code is made for, `90`; `None` where the compiler finds out.
    capability: Option<c_int>,
    driver_version: c_int,
    limits: Limits,
    options: DriverOptions,
    cache: Cache,
    compiler: Option<Compiler>,
    programs: Vec<Program>,
    graphs: Table<Opaque>,
    events: Table<Opaque>,
    /// Memory in use: several devices of a program share a context, so it does not go with ours.
    memory: Table<Memory>,
    _library: Library,
}

/// A piece of memory.
struct Memory {
    address: u64,
    bytes: usize,
}

/// A loaded kernel.
struct Program {
    name: String,
    module: Opaque,
    function: Opaque,
    workgroup: [u32; 3],
    dynamic_bytes: u32,
    n_buffers: usize,
    immediate_bytes: usize,
}

// SAFETY: the pointers are handles of the driver, which may be used from any thread that has the context current; every
// call of ours makes it so first.
unsafe impl Send for Driver {}

impl Driver {
    /// Opens device `index`.
    ///
    /// # Errors
    /// A missing library, device or permission, with the reason.
    pub fn open(kind: Kind, index: usize, options: &DriverOptions) -> Result<Self> {
        let (library, api) = load(kind, options)?;
        let error = |what: String| unavailable(kind, what);
        let n_devices = count(&api).map_err(error)?;
        let ordinal = c_int::try_from(index).ok().filter(|&i| i < n_devices);
        let ordinal = ordinal
            .ok_or_else(|| error(format!("there is no device {index}; the driver sees {n_devices}")))?;
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the pointers are to variables of ours; the ordinal is below the count.
        unsafe {
            said(&api, (api.device)(&raw mut device, ordinal)).map_err(error)?;
            said(&api, (api.retain_context)(&raw mut context, device)).map_err(error)?;
            said(&api, (api.set_context)(context)).map_err(error)?;
        }
        let (mut stream, mut driver_version) = (null_mut(), 0);
        // SAFETY: as above; a context is current.
        unsafe {
            said(&api, (api.create_stream)(&raw mut stream, NON_BLOCKING)).map_err(error)?;
            said(&api, (api.version)(&raw mut driver_version)).map_err(error)?;
        }
        let (limits, capability) = describe(kind, &api, device).map_err(error)?;
        let name = format!("{}:{index} {}", kind.name(), device_name(&api, device));
        Ok(Self {
            kind,
            api,
            device,
            context,
            stream,
            name,
            capability,
            driver_version,
            limits,
            options: options.clone(),
            cache: Cache::new(options.kernel_cache.as_deref()),
            compiler: None,
            programs: Vec::new(),
            graphs: Table::new(),
            events: Table::new(),
            memory: Table::new(),
            _library: library,
        })
    }

    /// All devices of an API.
    ///
    /// # Errors
    /// Why there is none.
    pub fn list(kind: Kind, options: &DriverOptions) -> Result<Vec<GpuInfo>> {
        let (_library, api) = load(kind, options)?;
        let n_devices = count(&api).map_err(|what| unavailable(kind, what))?;
        Ok((0..n_devices).map(|ordinal| info(kind, &api, ordinal)).collect())
    }

    /// An error of an operation, from a status that is none.
    fn check(&self, op: &'static str, status: Status) -> Result<()> {
        said(&self.api, status).map_err(|what| Error::op(op, format!("{}: {what}", self.name)))
    }

    /// Makes the context current in this thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is ours and lives until `drop`.
        self.check("device", unsafe { (self.api.set_context)(self.context) })
    }

    /// Destroys an event, if it is one.
    fn give_back_event(&mut self, event: EventId) {
        if let Some(event) = self.events.remove(event.0) {
            // SAFETY: the event came from `record` and is not used again.
            unsafe { (self.api.destroy_event)(event) };
        }
    }

    /// The address of a byte of memory that has `len` bytes from there.
    fn address(&self, op: &'static str, memory: MemoryId, offset: usize, len: usize) -> Result<u64> {
        let found = self.memory.get(memory.0).ok_or_else(|| unknown(op, memory))?;
        expect_inside(op, offset, len, found.bytes)?;
        Ok(found.address + offset as u64)
    }

    /// Code of a kernel, from the cache or the compiler.
    fn code(&mut self, source: &ProgramSource<'_>) -> Result<Vec<u8>> {
        let Code::Text(text) = source.code else {
            return Err(Error::op("compile", format!("kernel {} is no text", source.name)));
        };
        let target = self.target();
        let text = unit(target, &[text], Checks::Trusted)
            .ok_or_else(|| Error::op("compile", format!("kernel {} is of another language", source.name)))?;
        let version = self.driver_version.to_le_bytes();
        let options: &[&str] = match self.kind {
            Kind::Cuda => &["--std=c++17"],
            Kind::Rocm => &["-O3", "-std=c++17"],
        };
        let made_for = format!("{:?} {}", self.capability, options.join(" "));
        // Not the compiler's version: what is kept is used without opening a compiler. The device's name stands for what
        // hipRTC finds out for itself.
        let parts: [&[u8]; 4] = [text.as_bytes(), made_for.as_bytes(), self.name.as_bytes(), &version];
        if let Some(code) = self.cache.get(&parts) {
            return Ok(code);
        }
        let compiler = match &self.compiler {
            Some(compiler) => compiler,
            None => self.compiler.insert(Compiler::open(self.kind, &self.options)?),
        };
        let code = compiler.compile(source.name, &text, self.capability, options)?;
        self.cache.put(&parts, &code);
        Ok(code)
    }

    fn load_program(&mut self, source: &ProgramSource<'_>) -> Result<Program> {
        let op = "compile";
        source.check(&self.limits)?;
        let code = self.code(source)?;
        let entry = CString::new(source.name).map_err(|_| Error::op(op, "a zero byte in a kernel's name"))?;
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: code as the compiler gave it, which the driver checks.
        self.check(op, unsafe { (self.api.load_module)(&raw mut module, code.as_ptr().cast()) })?;
        let interface = source.interface;
        let bytes = interface.workgroup_bytes;
        let dynamic_bytes = if bytes > static_workgroup_bytes_max(self.target()) { bytes } else { 0 };
        // SAFETY: the module is loaded, the name is a C string, and the attribute is of the function that was found.
        let found = unsafe {
            let found = self.check(op, (self.api.function)(&raw mut function, module, entry.as_ptr()));
            found.and_then(|()| match dynamic_bytes {
                0 => Ok(()),
                n => self.check(op, (self.api.set_attribute)(function, MAX_DYNAMIC_BYTES, n as c_int)),
            })
        };
        if let Err(e) = found {
            // SAFETY: the module is loaded and not used again.
            unsafe { (self.api.unload_module)(module) };
            return Err(e);
        }
        Ok(Program {
            name: source.name.into(),
            module,
            function,
            workgroup: interface.workgroup,
            dynamic_bytes,
            n_buffers: interface.bindings.len(),
            immediate_bytes: interface.immediate_bytes as usize,
        })
    }
}

/// The driver's library, initialised.
fn load(kind: Kind, options: &DriverOptions) -> Result<(Library, Api)> {
    let error = |what: String| unavailable(kind, format!("the driver: {what}"));
    let files = kind.driver_files();
    let library = library::open(kind, &files, &options.library_folders).map_err(error)?;
    let api = Api::load(&library, kind).map_err(error)?;
    // SAFETY: flags must be 0.
    said(&api, unsafe { (api.init)(0) }).map_err(error)?;
    Ok((library, api))
}

fn count(api: &Api) -> std::result::Result<c_int, String> {
    let mut n = 0;
    // SAFETY: the pointer is to a variable of ours.
    said(api, unsafe { (api.device_count)(&raw mut n) })?;
    if n < 1 { Err("the driver sees no device".into()) } else { Ok(n) }
}

/// What the driver says about a status; nothing about success.
fn said(api: &Api, status: Status) -> std::result::Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    let mut text: *const c_char = null();
    // SAFETY: the pointer is to a variable of ours; the driver sets it to a string of its own or to null.
    let known = unsafe { (api.error_text)(status, &raw mut text) } == 0 && !text.is_null();
    // SAFETY: a C string of the driver, which is never freed.
    let text = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    Err(format!("error {status}: {}", text.as_deref().unwrap_or("unknown")))
}

fn device_name(api: &Api, device: c_int) -> String {
    let mut name = [0u8; 256];
    // SAFETY: there is room for the length that is said.
    let status = unsafe { (api.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
    let text = CStr::from_bytes_until_nul(&name).ok().filter(|_| status == 0);
    text.map_or("unknown".into(), |t| t.to_string_lossy().into_owned())
}

/// Limits, and what to compile for.
fn describe(kind: Kind, api: &Api, device: c_int) -> std::result::Result<(Limits, Option<c_int>), String> {
    let attribute = |number: c_int| {
        let mut value = 0;
        // SAFETY: the pointer is to a variable of ours.
        said(api, unsafe { (api.device_attribute)(&raw mut value, number, device) })?;
        u32::try_from(value).map_err(|_| format!("attribute {number} is {value}"))
    };
    let numbers = kind.attributes();
    let [major, minor] = numbers.capability.map(&attribute);
    let (major, minor) = (major?, minor?);
    let warp = attribute(numbers.warp_size)?;
    let [x, y, z] = numbers.grid.map(&attribute);
    let workgroup_bytes = attribute(numbers.workgroup_bytes_max.unwrap_or(numbers.workgroup_bytes))?;
    let limits = Limits {
        subgroup: (warp, warp),
        workgroup_bytes,
        grid: [x?, y?, z?],
        n_processors: attribute(numbers.n_processors)?,
        buffer_bytes: usize::MAX,
        // The prelude's mma.m16n8k16 is of sm_80; what AMD devices have is for their compiler to say.
        matrix_side: (kind == Kind::Cuda && major >= 8).then_some(16),
    };
    let capability = c_int::try_from(10 * major + minor).ok().filter(|_| kind == Kind::Cuda);
    Ok((limits, capability))
}

/// What there is to say about a device without opening it.
fn info(kind: Kind, api: &Api, ordinal: c_int) -> GpuInfo {
    let (mut device, mut total) = (0, 0usize);
    // SAFETY: the pointers are to variables of ours; the ordinal is below the count.
    let found = said(api, unsafe { (api.device)(&raw mut device, ordinal) });
    let described = found.and_then(|()| describe(kind, api, device));
    // SAFETY: as above; a device that was not found is refused.
    let has_total = described.is_ok() && unsafe { (api.total_memory)(&raw mut total, device) } == 0;
    let (mut features, mut unusable) = (Vec::new(), None);
    match &described {
        Ok((limits, capability)) => {
            features.extend(capability.map(|n| format!("sm_{n}")));
            features.push(format!("{} processors", limits.n_processors));
            features.extend(limits.features());
        }
        Err(what) => unusable = Some(what.clone()),
    }
    GpuInfo {
        device: format!("{}:{ordinal}", kind.name()),
        name: if described.is_ok() { device_name(api, device) } else { "unknown".into() },
        memory_bytes: has_total.then_some(total),
        memory_free_bytes: None,
        features,
        unusable,
    }
}

impl Runtime for Driver {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn target(&self) -> Target {
        match self.kind {
            Kind::Cuda => Target::Cuda,
            Kind::Rocm => Target::Hip,
        }
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to variables of ours.
        self.check("memory", unsafe { (self.api.memory_info)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free, total })
    }

    fn alloc(&mut self, bytes: usize) -> Result<MemoryId> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a variable of ours.
        let status = unsafe { (self.api.alloc)(&raw mut address, bytes) };
        said(&self.api, status).map_err(|what| {
            let free = self.memory().map_or(0, |m| m.free);
            Error::op("alloc", format!("{}: {bytes} bytes with {free} free: {what}", self.name))
        })?;
        Ok(MemoryId(self.memory.insert(Memory { address, bytes })))
    }

    fn free(&mut self, memory: MemoryId) {
        let entered = self.enter();
        let given_back = self.memory.remove(memory.0).is_some_and(|memory| {
            // SAFETY: the address came from `alloc` and is not used again.
            entered.is_ok() && unsafe { (self.api.free)(memory.address) } == 0
        });
        if !given_back {
            tracing::warn!("{}: {memory:?} could not be given back", self.name);
        }
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        let address = self.address("upload", dst, offset, data.len())?;
        self.enter()?;
        // SAFETY: the memory has room; the driver copies from pageable memory before it returns.
        let status = unsafe { (self.api.upload)(address, data.as_ptr().cast(), data.len(), self.stream) };
        self.check("upload", status)
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        let address = self.address("download", src, offset, out.len())?;
        self.enter()?;
        // SAFETY: the memory has the bytes; the copy is done when the stream is.
        let status = unsafe { (self.api.download)(out.as_mut_ptr().cast(), address, out.len(), self.stream) };
        self.check("download", status)?;
        self.synchronize()
    }

    fn copy(&mut self, dst: (MemoryId, usize), src: (MemoryId, usize), bytes: usize) -> Result<()> {
        let op = "copy";
        if dst.0 == src.0 {
            return Err(Error::op(op, format!("{:?} to itself", dst.0)));
        }
        let (to, from) = (self.address(op, dst.0, dst.1, bytes)?, self.address(op, src.0, src.1, bytes)?);
        self.enter()?;
        // SAFETY: both have the bytes.
        self.check(op, unsafe { (self.api.copy)(to, from, bytes, self.stream) })
    }

    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()> {
        let address = self.address("fill", dst, 0, bytes)?;
        self.enter()?;
        // SAFETY: the memory has the bytes.
        self.check("fill", unsafe { (self.api.fill)(address, value, bytes, self.stream) })
    }

    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>> {
        self.enter()?;
        let mut ids = Vec::with_capacity(sources.len());
        for source in sources {
            let program = self.load_program(source)?;
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
        self.enter()?;
        let addresses = launch.buffers.iter().map(|b| self.address(op, *b, 0, 1));
        let mut addresses = addresses.collect::<Result<Vec<u64>>>()?;
        // The driver reads the immediate struct through a pointer to its first word.
        let mut immediates: Vec<u32> =
            launch.immediates.as_chunks::<4>().0.iter().map(|w| u32::from_ne_bytes(*w)).collect();
        let mut params: Vec<*mut c_void> =
            addresses.iter_mut().map(|a| std::ptr::from_mut(a).cast()).collect();
        if !immediates.is_empty() {
            params.push(immediates.as_mut_ptr().cast());
        }
        let ([gx, gy, gz], [x, y, z]) = (launch.grid, program.workgroup);
        // SAFETY: one pointer for each parameter of the kernel, in its order and of its size; the driver copies the
        // values before it returns.
        let status = unsafe {
            (self.api.launch)(
                program.function,
                gx,
                gy,
                gz,
                x,
                y,
                z,
                program.dynamic_bytes,
                self.stream,
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        said(&self.api, status).map_err(|what| Error::op(op, format!("{}: {what}", program.name)))
    }

    fn synchronize(&mut self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is ours.
        self.check("synchronize", unsafe { (self.api.synchronize)(self.stream) })
    }

    fn record(&mut self) -> Result<EventId> {
        self.enter()?;
        let mut event = null_mut();
        // SAFETY: the pointer is to a variable of ours.
        self.check("record", unsafe { (self.api.create_event)(&raw mut event, 0) })?;
        let id = EventId(self.events.insert(event));
        // SAFETY: the event is new.
        let recorded = self.check("record", unsafe { (self.api.record_event)(event, self.stream) });
        if recorded.is_err() {
            self.give_back_event(id);
        }
        recorded.map(|()| id)
    }

    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32> {
        let op = "elapsed";
        self.enter()?;
        let mut ms = 0.0;
        let read = match (self.events.get(from.0), self.events.get(to.0)) {
            // SAFETY: both events came from `record`.
            (Some(&first), Some(&last)) => unsafe {
                let waited = self.check(op, (self.api.wait_event)(last));
                waited.and_then(|()| self.check(op, (self.api.elapsed)(&raw mut ms, first, last)))
            },
            _ => Err(Error::op(op, "an unknown event")),
        };
        self.give_back_event(from);
        self.give_back_event(to);
        read.map(|()| ms)
    }

    fn can_capture(&self) -> bool {
        true
    }

    fn begin_capture(&mut self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is ours.
        self.check("capture", unsafe { (self.api.begin_capture)(self.stream, CAPTURE_THREAD_LOCAL) })
    }

    fn end_capture(&mut self) -> Result<GraphId> {
        self.enter()?;
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: the stream is being captured; the graph is used by nobody once it is instantiated.
        unsafe {
            self.check("capture", (self.api.end_capture)(self.stream, &raw mut graph))?;
            let made = self.check("capture", (self.api.instantiate)(&raw mut exec, graph, 0));
            (self.api.destroy_graph)(graph);
            made?;
        }
        Ok(GraphId(self.graphs.insert(exec)))
    }

    fn replay(&mut self, graph: GraphId) -> Result<()> {
        self.enter()?;
        let exec = self.graphs.get(graph.0).ok_or_else(|| Error::op("replay", "an unknown graph"))?;
        // SAFETY: an instantiated graph of ours.
        self.check("replay", unsafe { (self.api.launch_graph)(*exec, self.stream) })
    }

    fn free_graph(&mut self, graph: GraphId) {
        if let Some(exec) = self.graphs.remove(graph.0) {
            // SAFETY: an instantiated graph of ours, not used again.
            unsafe { (self.api.destroy_graph_exec)(exec) };
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.synchronize().is_err() {
            return;
        }
        // SAFETY: all work is done; memory, modules, graphs, events, stream and context are ours and not used again.
        unsafe {
            for memory in self.memory.values() {
                (self.api.free)(memory.address);
            }
            for exec in self.graphs.values() {
                (self.api.destroy_graph_exec)(*exec);
            }
            for event in self.events.values() {
                (self.api.destroy_event)(*event);
            }
            for program in &self.programs {
                (self.api.unload_module)(program.module);
            }
            (self.api.destroy_stream)(self.stream);
            (self.api.release_context)(self.device);
        }
    }
}
