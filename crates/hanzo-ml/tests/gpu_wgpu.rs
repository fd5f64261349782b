//! The runtime of Vulkan by itself: what is refused leaves no trace, and handles are its own.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say which devices they found")]

use hanzo_kernel::{Checks, Spec, Target, lower};
use hanzo_ml::gpu::{
    Launch, MemoryId, ProgramId, ProgramSource, Runtime,
    wgpu::{Api, Wgpu},
};

fn open() -> Option<Wgpu> {
    Wgpu::open(Api::Vulkan, 0).inspect_err(|e| println!("{e}")).ok()
}

/// The kernel `add`: acc, x, and one word of immediate data.
fn add(device: &mut Wgpu) -> ProgramId {
    let valid = Spec::find("add", None, None, &[]).unwrap().valid().unwrap();
    let code = lower(&valid, Target::SpirV, Checks::Trusted).unwrap();
    let interface = valid.interface();
    let source = ProgramSource { name: valid.name(), code: &code, interface: &interface };
    device.compile(&[source]).unwrap()[0]
}

fn floats(device: &mut Wgpu, values: &[f32]) -> MemoryId {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let memory = device.alloc(bytes.len()).unwrap();
    device.upload(memory, 0, &bytes).unwrap();
    memory
}

fn first(device: &mut Wgpu, memory: MemoryId) -> f32 {
    let mut bytes = [0; 4];
    device.download(memory, 0, &mut bytes).unwrap();
    f32::from_le_bytes(bytes)
}

/// Launches wait in an encoder until something looks at them; a call that is refused in between must not lose them.
#[test]
fn a_refused_call_keeps_the_launches_before_it() {
    let Some(mut device) = open() else { return };
    let program = add(&mut device);
    let (acc, x, other) =
        (floats(&mut device, &[1.0; 8]), floats(&mut device, &[2.0; 8]), floats(&mut device, &[0.0; 8]));
    let n = 8u32.to_le_bytes();
    let (pair, one, twice) = ([acc, x], [acc], [acc, acc]);
    let good = Launch { program, grid: [1, 1, 1], buffers: &pair, immediates: &n };
    device.launch(&good).unwrap();
    let refused = [
        device.launch(&Launch { buffers: &one, ..good }),
        device.launch(&Launch { buffers: &twice, ..good }),
        device.launch(&Launch { immediates: &[], ..good }),
        device.launch(&Launch { grid: [0, 1, 1], ..good }),
        device.launch(&Launch { program: ProgramId(99), ..good }),
        device.copy((other, 16), (acc, 0), 20),
        device.copy((acc, 0), (acc, 16), 16),
        device.upload(other, 2, &[0; 4]),
        device.upload(other, 28, &[0; 8]),
        device.download(acc, 4, &mut [0; 32]),
    ];
    assert!(refused.iter().all(|r| r.is_err()), "{refused:?}");
    device.copy((other, 4), (acc, 0), 4).unwrap();
    assert_eq!(first(&mut device, acc), 3.0);
    let mut bytes = [0; 8];
    device.download(other, 0, &mut bytes).unwrap();
    assert_eq!(bytes[4..], 3f32.to_le_bytes());
    assert_eq!(bytes[..4], [0; 4]);
}

#[test]
fn handles_are_of_their_own_device() {
    let (Some(mut device), Some(mut other)) = (open(), open()) else { return };
    let (mine, foreign) = (floats(&mut device, &[1.0; 4]), floats(&mut other, &[2.0; 4]));
    device.upload(foreign, 0, &[0; 4]).unwrap_err();
    device.copy((mine, 0), (foreign, 0), 4).unwrap_err();
    device.free(foreign);
    assert_eq!((first(&mut device, mine), first(&mut other, foreign)), (1.0, 2.0));
    device.free(mine);
    let error = device.upload(mine, 0, &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("is no memory of this device"), "{error}");
    let (from, to) = (device.record().unwrap(), device.record().unwrap());
    assert!(device.elapsed_ms(from, to).unwrap() >= 0.0);
    device.elapsed_ms(from, to).unwrap_err();
}

#[test]
fn memory_is_told_where_the_driver_tells_it() {
    let Some(device) = open() else { return };
    let listed = &Api::Vulkan.list().unwrap()[0];
    match device.memory() {
        Ok(memory) => {
            assert!(0 < memory.free && memory.free <= memory.total, "{memory:?}");
            assert_eq!(listed.memory_bytes, Some(memory.total));
        }
        Err(e) => {
            assert!(e.to_string().contains("does not tell") && listed.memory_free_bytes.is_none(), "{e}")
        }
    }
}
