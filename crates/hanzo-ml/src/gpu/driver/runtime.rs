//! A device behind a driver.

use std::{
    collections::{BTreeSet, HashMap},
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
    gpu::runtime::{
        EventId, GraphId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime,
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
    /// What machine code is compiled for, `sm_90`; empty where the compiler finds out.
    arch: String,
    driver_version: c_int,
    limits: Limits,
    options: DriverOptions,
    cache: Cache,
    compiler: Option<Compiler>,
    programs: Vec<Program>,
    graphs: HashMap<u64, Opaque>,
    /// Memory in use: several devices of a program share a context, so it does not go with ours.
    allocated: BTreeSet<u64>,
    _library: Library,
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
        let (limits, arch) = describe(kind, &api, device).map_err(error)?;
        let name = format!("{}:{index} {}", kind.name(), device_name(&api, device));
        Ok(Self {
            kind,
            api,
            device,
            context,
            stream,
            name,
            arch,
            driver_version,
            limits,
            options: options.clone(),
            cache: Cache::new(options.kernel_cache.as_deref()),
            compiler: None,
            programs: Vec::new(),
            graphs: HashMap::new(),
            allocated: BTreeSet::new(),
            _library: library,
        })
    }

    /// Names of all devices of an API.
    ///
    /// # Errors
    /// Why there is none.
    pub fn list(kind: Kind, options: &DriverOptions) -> Result<Vec<String>> {
        let (_library, api) = load(kind, options)?;
        let n_devices = count(&api).map_err(|what| unavailable(kind, what))?;
        let name = |i: c_int| {
            let mut device = 0;
            // SAFETY: the pointer is to a variable of ours; the ordinal is below the count.
            let status = unsafe { (api.device)(&raw mut device, i) };
            let name = if status == 0 { device_name(&api, device) } else { "unknown".into() };
            format!("{}:{i} {name}", kind.name())
        };
        Ok((0..n_devices).map(name).collect())
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

    /// Machine code of a kernel, from the cache or the compiler.
    fn code(&mut self, source: &ProgramSource<'_>) -> Result<Vec<u8>> {
        let Code::Text(text) = source.code else {
            return Err(Error::op("compile", format!("kernel {} is no text", source.name)));
        };
        let target = self.target();
        let text = unit(target, &[text], Checks::Trusted)
            .ok_or_else(|| Error::op("compile", format!("kernel {} is of another language", source.name)))?;
        let version = self.driver_version.to_le_bytes();
        let options = match self.kind {
            Kind::Cuda => vec![format!("--gpu-architecture={}", self.arch), "--std=c++17".into()],
            Kind::Rocm => vec!["-O3".into(), "-std=c++17".into()],
        };
        let joined = options.join(" ");
        // Not the compiler's version: what is kept is used without opening a compiler. The device's name stands for what
        // hipRTC finds out for itself.
        let parts: [&[u8]; 4] = [text.as_bytes(), joined.as_bytes(), self.name.as_bytes(), &version];
        if let Some(code) = self.cache.get(&parts) {
            return Ok(code);
        }
        let compiler = match &self.compiler {
            Some(compiler) => compiler,
            None => self.compiler.insert(Compiler::open(self.kind, &self.options)?),
        };
        tracing::debug!("compiling {} with version {}", source.name, compiler.version);
        let code = compiler.compile(source.name, &text, &options)?;
        self.cache.put(&parts, &code);
        Ok(code)
    }

    fn load_program(&mut self, source: &ProgramSource<'_>) -> Result<Program> {
        let op = "compile";
        let code = self.code(source)?;
        let entry = CString::new(source.name).map_err(|_| Error::op(op, "a zero byte in a kernel's name"))?;
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: machine code as the compiler gave it, which the driver checks; the name is a C string.
        unsafe {
            self.check(op, (self.api.load_module)(&raw mut module, code.as_ptr().cast()))?;
            self.check(op, (self.api.function)(&raw mut function, module, entry.as_ptr()))?;
        }
        let interface = source.interface;
        let bytes = interface.workgroup_bytes;
        let dynamic_bytes = if bytes > static_workgroup_bytes_max(self.target()) { bytes } else { 0 };
        if bytes > self.limits.workgroup_bytes {
            let max = self.limits.workgroup_bytes;
            return Err(Error::op(op, format!("{} wants {bytes} bytes a workgroup of {max}", source.name)));
        }
        if dynamic_bytes > 0 {
            // SAFETY: the function is loaded.
            let status =
                unsafe { (self.api.set_attribute)(function, MAX_DYNAMIC_BYTES, dynamic_bytes as c_int) };
            self.check(op, status)?;
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
fn describe(kind: Kind, api: &Api, device: c_int) -> std::result::Result<(Limits, String), String> {
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
    let arch = if kind == Kind::Cuda { format!("sm_{major}{minor}") } else { String::new() };
    Ok((limits, arch))
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
        self.allocated.insert(address);
        Ok(MemoryId(address))
    }

    fn free(&mut self, memory: MemoryId) {
        self.allocated.remove(&memory.0);
        // SAFETY: the address came from `alloc` and is not used again.
        if self.enter().is_err() || unsafe { (self.api.free)(memory.0) } != 0 {
            tracing::warn!("{}: memory could not be given back", self.name);
        }
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's memory has room; the driver copies from pageable memory before it returns.
        let status = unsafe {
            (self.api.upload)(dst.0 + offset as u64, data.as_ptr().cast(), data.len(), self.stream)
        };
        self.check("upload", status)
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's memory has the bytes; the copy is done when the stream is.
        let status = unsafe {
            (self.api.download)(out.as_mut_ptr().cast(), src.0 + offset as u64, out.len(), self.stream)
        };
        self.check("download", status)?;
        self.synchronize()
    }

    fn copy(&mut self, dst: MemoryId, src: MemoryId, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's memory has the bytes on both sides.
        self.check("copy", unsafe { (self.api.copy)(dst.0, src.0, bytes, self.stream) })
    }

    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's memory has the bytes.
        self.check("fill", unsafe { (self.api.fill)(dst.0, value, bytes, self.stream) })
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
        let mut addresses: Vec<u64> = launch.buffers.iter().map(|b| b.0).collect();
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
        // SAFETY: the pointer is to a variable of ours; the event is new.
        unsafe {
            self.check("record", (self.api.create_event)(&raw mut event, 0))?;
            self.check("record", (self.api.record_event)(event, self.stream))?;
        }
        Ok(EventId(event as u64))
    }

    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32> {
        self.enter()?;
        let (from, to) = (from.0 as Opaque, to.0 as Opaque);
        let mut ms = 0.0;
        // SAFETY: both events came from `record` and are not used again.
        unsafe {
            let waited = self.check("elapsed", (self.api.wait_event)(to));
            let read = waited.and_then(|()| self.check("elapsed", (self.api.elapsed)(&raw mut ms, from, to)));
            (self.api.destroy_event)(from);
            (self.api.destroy_event)(to);
            read.map(|()| ms)
        }
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
        let id = exec as u64;
        self.graphs.insert(id, exec);
        Ok(GraphId(id))
    }

    fn replay(&mut self, graph: GraphId) -> Result<()> {
        self.enter()?;
        let exec = self.graphs.get(&graph.0).ok_or_else(|| Error::op("replay", "an unknown graph"))?;
        // SAFETY: an instantiated graph of ours.
        self.check("replay", unsafe { (self.api.launch_graph)(*exec, self.stream) })
    }

    fn free_graph(&mut self, graph: GraphId) {
        if let Some(exec) = self.graphs.remove(&graph.0) {
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
        // SAFETY: all work is done; memory, modules, graphs, stream and context are ours and not used again.
        unsafe {
            for address in &self.allocated {
                (self.api.free)(*address);
            }
            for exec in self.graphs.values() {
                (self.api.destroy_graph_exec)(*exec);
            }
            for program in &self.programs {
                (self.api.unload_module)(program.module);
            }
            (self.api.destroy_stream)(self.stream);
            (self.api.release_context)(self.device);
        }
    }
}
