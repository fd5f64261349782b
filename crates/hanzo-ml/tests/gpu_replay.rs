//! Steps that repeat are recorded and replayed: on the recording runtime, whose records say what a device would do.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use hanzo_ml::{
    DType,
    backend::{Backend, Buffer},
    gpu::{
        Gpu, GpuOptions, Target,
        null::{Null, Record, Records},
    },
};

fn gpu() -> (Gpu, Records) {
    let (null, records) = Null::new(Target::Cuda, 64 << 20);
    let gpu = Gpu::new(Box::new(null), GpuOptions::default()).unwrap();
    records.take();
    (gpu, records)
}

/// What a device runs, in order: recordings are what was recorded, replays what they replay.
#[derive(Default)]
struct Device {
    graphs: Vec<Vec<Record>>,
    recording: Option<Vec<Record>>,
    n_replays: usize,
}

impl Device {
    fn run(&mut self, records: Vec<Record>) -> Vec<Record> {
        let mut done = Vec::new();
        for record in records {
            match record {
                Record::BeginCapture => self.recording = Some(Vec::new()),
                Record::EndCapture(graph) => {
                    assert_eq!(graph.0 as usize, self.graphs.len());
                    self.graphs.push(self.recording.take().unwrap());
                }
                Record::Replay(graph) => {
                    self.n_replays += 1;
                    done.extend(self.graphs[graph.0 as usize].clone());
                }
                record => match &mut self.recording {
                    Some(recording) => {
                        assert!(matches!(record, Record::Launch(..)), "{record:?} in a recording");
                        recording.push(record);
                    }
                    None => done.push(record),
                },
            }
        }
        done
    }
}

fn launches(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|r| matches!(r, Record::Launch(..))).collect()
}

/// A step: numbers from the host, twenty additions, and the sum to the host.
fn step(gpu: &mut Gpu, len: usize, n: usize) {
    let (acc, x) = (up(gpu, &vec![1.0; len]), up(gpu, &vec![2.0; len]));
    for _ in 0..n {
        gpu.add(&acc, &x).unwrap();
    }
    down(gpu, &acc);
    gpu.free(acc);
    gpu.free(x);
}

#[test]
fn a_step_is_recorded_when_it_comes_again_and_replayed_from_then_on() {
    let (mut gpu, records) = gpu();
    let mut device = Device::default();
    step(&mut gpu, 100, 20);
    let first = device.run(records.take());
    assert_eq!((launches(&first).len(), device.n_replays), (20, 0));
    for n in 1..4 {
        step(&mut gpu, 100, 20);
        let taken = records.take();
        let recorded = taken.iter().filter(|r| **r == Record::BeginCapture).count();
        assert_eq!(recorded, usize::from(n == 1), "recorded once");
        let again = device.run(taken);
        assert_eq!(launches(&again), launches(&first));
        assert_eq!(device.n_replays, n);
        assert!(matches!(again.last(), Some(Record::Download(..))), "the host waits after the launches");
    }
    // A few launches are not worth it.
    step(&mut gpu, 100, 5);
    step(&mut gpu, 100, 5);
    device.run(records.take());
    assert_eq!((device.n_replays, device.graphs.len()), (3, 1));
}

#[test]
fn a_step_that_differs_at_its_end_runs_as_it_is() {
    let (mut gpu, records) = gpu();
    let mut device = Device::default();
    step(&mut gpu, 100, 20);
    step(&mut gpu, 100, 20);
    device.run(records.take());
    for n in [19, 21, 30] {
        step(&mut gpu, 100, n);
        let done = device.run(records.take());
        assert_eq!((launches(&done).len(), device.n_replays), (n, 1), "nothing is replayed for {n} launches");
    }
    step(&mut gpu, 101, 20);
    let done = device.run(records.take());
    assert_eq!((launches(&done).len(), device.n_replays), (20, 1), "another length is another step");
    // Both are known now, and the one that was known before still is.
    step(&mut gpu, 101, 20);
    step(&mut gpu, 100, 30);
    device.run(records.take());
    assert_eq!(device.n_replays, 3);
}

/// A buffer is written between launches that read it.
#[test]
fn what_the_host_writes_keeps_its_place() {
    let (mut gpu, records) = gpu();
    let mut device = Device::default();
    let buffers: Vec<Buffer> = (0..2).map(|_| up(&mut gpu, &[1.0; 64])).collect();
    let mut run = |device: &mut Device| {
        for i in 0..30 {
            if i == 17 {
                gpu.upload_f32(&buffers[1], &[i as f32; 64]).unwrap();
            }
            gpu.add(&buffers[0], &buffers[1]).unwrap();
        }
        down(&mut gpu, &buffers[0]);
        device.run(records.take())
    };
    let uploads = |done: &[Record]| {
        let kinds = done.iter().filter(|r| matches!(r, Record::Launch(..) | Record::Upload { .. }));
        kinds
            .enumerate()
            .filter(|(_, r)| matches!(r, Record::Upload { .. }))
            .map(|(i, _)| i)
            .collect::<Vec<_>>()
    };
    run(&mut device);
    for _ in 0..4 {
        let done = run(&mut device);
        assert_eq!((launches(&done).len(), uploads(&done)), (30, vec![17]));
    }
}

/// Random steps, most of which repeat: the launches that were asked for, in their order.
#[test]
fn random_steps_run_as_asked() {
    let mut rng = Rng::new(9);
    let (mut gpu, records) = gpu();
    let mut device = Device::default();
    let (mut n_asked, mut n_done) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let (len, n) = ([64, 500][rng.below(2)], [3, 18, 18, 18, 25, 40][rng.below(6)]);
        let change = if rng.below(5) == 0 { rng.below(n) } else { n };
        let (acc, x) = (up(&mut gpu, &vec![1.0; len]), up(&mut gpu, &vec![2.0; len]));
        for i in 0..n {
            if i == change {
                gpu.softcap(&acc, 1.0).unwrap();
                n_asked.push("softcap");
            } else {
                gpu.add(&acc, &x).unwrap();
                n_asked.push("add");
            }
        }
        let wait = rng.below(4) > 0;
        if wait {
            down(&mut gpu, &acc);
        }
        gpu.free(acc);
        gpu.free(x);
        n_done.extend(device.run(records.take()).into_iter().filter_map(|r| match r {
            Record::Launch(name, ..) => Some(name),
            _ => None,
        }));
        if wait {
            assert_eq!(n_done, n_asked);
        }
    }
    assert!(device.n_replays > 20, "{} replays", device.n_replays);
}

/// The same requests get the same memory, whatever the order in which it was given back.
#[test]
fn the_pool_gives_the_same_memory_for_the_same_requests() {
    let (mut gpu, records) = gpu();
    let mut seen = Vec::new();
    for turn in 0..4 {
        let mut buffers: Vec<Buffer> = (0..5).map(|_| gpu.alloc(DType::F32, 100).unwrap()).collect();
        for buffer in &buffers {
            gpu.upload_f32(buffer, &[0.0; 100]).unwrap();
        }
        let places: Vec<_> =
            records.take().into_iter().filter(|r| matches!(r, Record::Upload { .. })).collect();
        if turn == 0 {
            seen = places
        } else {
            assert_eq!(places, seen)
        }
        buffers.rotate_left(turn);
        buffers.into_iter().for_each(|b| gpu.free(b));
    }
}
