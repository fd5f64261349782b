//! The host code of CUDA and ROCm against a driver of our own (`fake/driver.c`): which calls, in which order, with which
//! arguments, and what is given back. It says nothing about real silicon.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]
#![cfg(unix)]

mod common;

use std::{fs, path::Path, process::Command};

use common::{down, up};
use hanzo_kernel::{Code, Interface};
use hanzo_ml::{
    DType,
    backend::Backend,
    gpu::{
        Gpu, GpuOptions, Launch, ProgramId, ProgramSource, Runtime,
        driver::{Driver, DriverOptions, Kind},
    },
};

/// A folder with the fake under every name, and its log.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        Self::knowing(90)
    }

    /// With a compiler of CUDA that knows devices up to a compute capability; the fake's own has 9.0.
    fn knowing(arch: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/driver.c");
        let library = folder.path().join("fake.so");
        let log = format!("-DFAKE_LOG=\"{}\"", folder.path().join("log").display());
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &log, &format!("-DFAKE_ARCH={arch}"), "-o"])
            .args([&library, &source])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        for name in ["libcuda.so.1", "libnvrtc.so.13", "libamdhip64.so.7", "libhiprtc.so.7"] {
            fs::copy(&library, folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn options(&self) -> DriverOptions {
        DriverOptions {
            library_folders: vec![self.folder.path().into()],
            kernel_cache: Some(self.folder.path().join("kernels")),
        }
    }

    fn open(&self, kind: Kind) -> Gpu {
        let driver = Driver::open(kind, 1, &self.options()).unwrap();
        Gpu::new(Box::new(driver), GpuOptions { driver: self.options(), ..GpuOptions::default() }).unwrap()
    }

    /// The calls since the last time.
    fn log(&self) -> Vec<String> {
        let path = self.folder.path().join("log");
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn add(gpu: &mut Gpu) -> Vec<f32> {
    let (acc, x) = (up(gpu, &[1.0, 2.0, 3.0]), up(gpu, &[10.0, 20.0, 30.0]));
    gpu.add(&acc, &x).unwrap();
    let sum = down(gpu, &acc);
    gpu.free(acc);
    gpu.free(x);
    sum
}

#[test]
fn a_launch_from_start_to_end() {
    let options = [
        (Kind::Cuda, vec!["option --gpu-architecture=sm_90", "option --std=c++17"]),
        (Kind::Rocm, vec!["option -O3", "option -std=c++17"]),
    ];
    for (kind, options) in options {
        let fake = Fake::new();
        let mut gpu = fake.open(kind);
        assert_eq!(gpu.name(), format!("{}:1 Fake 11", kind.name()));
        let opened = fake.log();
        assert_eq!(opened[..3], ["init 0", "retain 11", "stream 1"]);
        assert_eq!(add(&mut gpu), [11.0, 22.0, 33.0]);
        let mut want = vec!["alloc 512", "alloc 512", "compile add"];
        want.extend(options);
        want.extend(["code", "load", "function add", "launch add 1,1,1 256,1,1 shared 0 n 3"]);
        assert_eq!(fake.log(), want);
        // Neither memory nor kernel is asked for again.
        add(&mut gpu);
        assert_eq!(fake.log(), ["launch add 1,1,1 256,1,1 shared 0 n 3"]);
        drop(gpu);
        let closed = fake.log();
        assert_eq!(closed.iter().filter(|l| l.starts_with("free ")).count(), 3, "tables and two buffers");
        let end = "release 11 with 0 pieces of memory and 0 things left";
        assert_eq!(closed[3..], ["unload", "destroy stream", end]);
        // The next program finds the kernel on disk.
        let mut gpu = fake.open(kind);
        fake.log();
        add(&mut gpu);
        assert!(!fake.log().iter().any(|l| l.starts_with("compile")));
    }
}

#[test]
fn a_device_moves_to_another_thread() {
    let fake = Fake::new();
    let mut gpu = fake.open(Kind::Cuda);
    let sum = std::thread::spawn(move || add(&mut gpu)).join().unwrap();
    assert_eq!(sum, [11.0, 22.0, 33.0]);
}

#[test]
fn copies_events_and_recordings() {
    let fake = Fake::new();
    let mut driver = Driver::open(Kind::Rocm, 0, &fake.options()).unwrap();
    let memory = driver.memory().unwrap();
    assert_eq!((memory.free, memory.total), (1 << 20, 1 << 21));
    assert_eq!((driver.limits().subgroup, driver.limits().n_processors), ((32, 32), 7));
    let (a, b) = (driver.alloc(64).unwrap(), driver.alloc(64).unwrap());
    driver.upload(a, 8, &[1, 2, 3]).unwrap();
    driver.copy((b, 0), (a, 0), 64).unwrap();
    driver.fill(a, 9, 64).unwrap();
    let mut bytes = [0; 4];
    driver.download(b, 8, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 0]);
    driver.download(a, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4]);
    driver.download(a, 62, &mut bytes).unwrap_err();
    fake.log();
    let (from, to) = (driver.record().unwrap(), driver.record().unwrap());
    assert_eq!(driver.elapsed_ms(from, to).unwrap(), 1.5);
    // Both are given back.
    driver.elapsed_ms(from, to).unwrap_err();
    driver.begin_capture().unwrap();
    let graph = driver.end_capture().unwrap();
    driver.replay(graph).unwrap();
    driver.free_graph(graph);
    driver.replay(graph).unwrap_err();
    driver.free(a);
    let want = [
        "wait for event",
        "destroy event",
        "destroy event",
        "begin capture 1",
        "destroy graph",
        "replay",
        "destroy exec",
        "free 64",
    ];
    assert_eq!(fake.log(), want);
}

/// What was not given out, or was given back, is refused before the driver sees it; what is left at the end goes back.
#[test]
fn handles_are_checked_and_nothing_is_left_behind() {
    for kind in Kind::ALL {
        let fake = Fake::new();
        let (mut driver, mut other) = (
            Driver::open(kind, 1, &fake.options()).unwrap(),
            Driver::open(kind, 0, &fake.options()).unwrap(),
        );
        let (a, foreign) = (driver.alloc(64).unwrap(), other.alloc(64).unwrap());
        fake.log();
        driver.upload(foreign, 0, &[1]).unwrap_err();
        driver.copy((a, 0), (foreign, 0), 4).unwrap_err();
        driver.upload(a, 60, &[0; 8]).unwrap_err();
        driver.upload(a, usize::MAX, &[0; 8]).unwrap_err();
        driver.fill(a, 0, 65).unwrap_err();
        let launch = |buffers| Launch { program: ProgramId(0), grid: [1, 1, 1], buffers, immediates: &[] };
        driver.launch(&launch(&[])).unwrap_err();
        driver.free(foreign);
        assert_eq!(fake.log(), [""; 0], "the driver was asked");
        let b = driver.alloc(32).unwrap();
        driver.free(b);
        driver.fill(b, 0, 4).unwrap_err();
        driver.free(b);
        driver.record().unwrap();
        driver.begin_capture().unwrap();
        driver.end_capture().unwrap();
        fake.log();
        drop(driver);
        let end = "release 11 with 1 pieces of memory and 0 things left";
        let want = ["free 64", "destroy exec", "destroy event", "destroy stream", end];
        assert_eq!(fake.log(), want, "the other device's piece is not this one's");
        drop(other);
        assert_eq!(
            fake.log(),
            ["free 64", "destroy stream", "release 10 with 0 pieces of memory and 0 things left"]
        );
    }
}

/// A compiler that is older than the device makes code that the driver translates; AMD's finds the device by itself.
#[test]
fn a_compiler_older_than_the_device_makes_portable_code() {
    let fake = Fake::knowing(86);
    assert_eq!(add(&mut fake.open(Kind::Cuda)), [11.0, 22.0, 33.0]);
    let log = fake.log();
    assert!(log.contains(&"option --gpu-architecture=compute_86".to_owned()), "{log:?}");
    assert!(log.contains(&"portable".to_owned()), "{log:?}");
    let fake = Fake::knowing(120);
    let log = |kind| {
        add(&mut fake.open(kind));
        fake.log()
    };
    // Of 7.5 and 12.0, the earlier is portable to 9.0.
    assert!(log(Kind::Cuda).contains(&"option --gpu-architecture=compute_75".to_owned()));
    assert!(!log(Kind::Rocm).iter().any(|l| l.contains("architecture") || l == "portable"));
}

/// A kernel that the device has no room for is refused before anything is compiled.
#[test]
fn workgroup_memory_is_asked_for_and_bounded() {
    let interface = |workgroup_bytes| Interface {
        bindings: Vec::new(),
        immediate_bytes: 0,
        workgroup: [64, 1, 1],
        workgroup_bytes,
    };
    let fake = Fake::new();
    let mut driver = Driver::open(Kind::Cuda, 0, &fake.options()).unwrap();
    let code = Code::Text("big".into());
    let compile = |driver: &mut Driver, bytes| {
        fake.log();
        let source = ProgramSource { name: "big", code: &code, interface: &interface(bytes) };
        driver.compile(&[source]).map(|ids| ids[0]).map_err(|e| e.to_string())
    };
    let error = compile(&mut driver, 232_449).unwrap_err();
    assert_eq!(error, "compile: kernel big wants 232449 bytes a workgroup, the device has 232448");
    assert_eq!(fake.log(), [""; 0]);
    let id = compile(&mut driver, 50_000).unwrap();
    driver.launch(&Launch { program: id, grid: [2, 3, 4], buffers: &[], immediates: &[] }).unwrap();
    let log = fake.log();
    assert_eq!(log[log.len() - 2..], ["attribute big 8 50000", "launch big 2,3,4 64,1,1 shared 50000"]);
    // A module whose kernel is not there is not kept.
    let missing = ProgramSource { name: "other", code: &code, interface: &interface(0) };
    driver.compile(&[missing]).unwrap_err();
    assert_eq!(fake.log().last().unwrap(), "unload");
}

#[test]
fn devices_are_listed_without_being_opened() {
    for kind in Kind::ALL {
        let fake = Fake::new();
        let found = Driver::list(kind, &fake.options()).unwrap();
        let names: Vec<_> = found.iter().map(|gpu| (gpu.device.as_str(), gpu.name.as_str())).collect();
        let name = kind.name();
        assert_eq!(names, [(&*format!("{name}:0"), "Fake 10"), (&*format!("{name}:1"), "Fake 11")]);
        assert_eq!(found[1].memory_bytes, Some(11 << 30));
        let features = found[0].features.join(", ");
        assert!(features.contains("7 processors, subgroups of 32"), "{features}");
        assert_eq!(features.starts_with("sm_90"), kind == Kind::Cuda, "{features}");
        assert_eq!(fake.log(), ["init 0"]);
    }
}

#[test]
fn what_goes_wrong_is_told() {
    let fake = Fake::new();
    let mut gpu = fake.open(Kind::Cuda);
    let error = gpu.alloc(DType::F32, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("4194304 bytes with 1048576 free: error 2: out of memory"), "{error}");
    let x = up(&mut gpu, &[1.0]);
    let error = gpu.softcap(&x, 1.0).unwrap_err().to_string();
    assert!(error.contains("kernel softcap for cuda: it is not there"), "{error}");
    let error = Driver::open(Kind::Cuda, 2, &fake.options()).err().unwrap().to_string();
    assert_eq!(error, "device: cuda is not available: there is no device 2; the driver sees 2");
}

/// Without a driver, the reason says what was looked for and where.
#[test]
fn a_missing_library_is_a_reason() {
    for kind in Kind::ALL {
        let folder = tempfile::tempdir().unwrap();
        let options = DriverOptions { library_folders: vec![folder.path().into()], kernel_cache: None };
        // This machine may have the real one.
        let Err(e) = Driver::list(kind, &options) else { continue };
        let error = e.to_string();
        assert!(
            error.starts_with(&format!("device: {} is not available: the driver: ", kind.name())),
            "{error}"
        );
    }
    let fake = Fake::new();
    fs::remove_file(fake.folder.path().join("libhiprtc.so.7")).unwrap();
    fs::remove_file(fake.folder.path().join("libamdhip64.so.7")).unwrap();
    fs::write(fake.folder.path().join("libamdhip64.so.7"), "no library").unwrap();
    let error = Driver::list(Kind::Rocm, &fake.options());
    if let Err(e) = error {
        assert!(e.to_string().contains(&fake.folder.path().display().to_string()), "{e}");
    }
}
