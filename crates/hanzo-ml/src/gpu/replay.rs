//! Launches that repeat are recorded once and replayed as one.
//!
//! What lies between two waits of the host is a *run* of launches; a decoder's step for one token is one. A run that begins
//! as an earlier one did is held back while the two agree, kernel by kernel, with the same workgroups, memory and immediate
//! data. If they agree to the end, a recording takes its place, made the first time that this happens; if not, what was
//! held back is enqueued, and the rest of the run as it comes. So a recording is never anything but the launches that were
//! asked for, and nobody has to say what may be recorded.
//!
//! It pays where a step asks for the same memory each time, which the pool sees to (`memory`), and writes what it reads from
//! the host before its launches: an upload to memory that held launches use lets them go.

use hanzo_kernel::Target;

use super::runtime::{
    EventId, GraphId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime,
};
use crate::Result;

/// Launches from which a run is worth a recording, and up to which one is remembered.
const LAUNCHES_MIN: usize = 16;
const LAUNCHES_MAX: usize = 1 << 14;

/// Runs that are remembered.
const RUNS_MAX: usize = 4;

/// A launch that owns its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    program: ProgramId,
    grid: [u32; 3],
    buffers: Vec<MemoryId>,
    immediates: Vec<u8>,
}

impl Owned {
    fn new(launch: &Launch<'_>) -> Self {
        let (buffers, immediates) = (launch.buffers.to_vec(), launch.immediates.to_vec());
        Self { program: launch.program, grid: launch.grid, buffers, immediates }
    }

    fn is(&self, launch: &Launch<'_>) -> bool {
        self.program == launch.program
            && self.grid == launch.grid
            && self.buffers == launch.buffers
            && self.immediates == launch.immediates
    }

    fn borrowed(&self) -> Launch<'_> {
        let (buffers, immediates) = (&self.buffers[..], &self.immediates[..]);
        Launch { program: self.program, grid: self.grid, buffers, immediates }
    }
}

/// A run that was seen.
struct Run {
    launches: Vec<Owned>,
    /// Its recording, once it was seen again.
    graph: Option<GraphId>,
}

/// What becomes of the launches of the current run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There are none yet.
    Empty,
    /// All are held back: they are the first ones of this remembered run.
    Held(usize),
    /// They are enqueued as they come.
    Enqueued,
}

/// A runtime that records what repeats.
pub(super) struct Replaying {
    runtime: Box<dyn Runtime>,
    /// The launches of this run, to be remembered; of a held run only how many there are.
    current: Vec<Owned>,
    n_held: usize,
    state: State,
    /// The last one used comes last.
    runs: Vec<Run>,
    /// Whether recording failed once: then all is enqueued.
    is_off: bool,
}

impl Replaying {
    pub(super) fn new(runtime: Box<dyn Runtime>) -> Self {
        let (current, runs) = (Vec::new(), Vec::new());
        Self { runtime, current, n_held: 0, state: State::Empty, runs, is_off: false }
    }

    /// The remembered run that goes on like this one with one more launch.
    fn goes_on(&self, launch: &Launch<'_>) -> Option<usize> {
        let next = |run: &Run| run.launches.get(self.n_held).is_some_and(|next| next.is(launch));
        match self.state {
            State::Empty => self.runs.iter().rposition(next),
            State::Held(run) if next(&self.runs[run]) => Some(run),
            State::Held(run) => {
                let held = &self.runs[run].launches[..self.n_held];
                self.runs.iter().rposition(|other| next(other) && other.launches.starts_with(held))
            }
            State::Enqueued => None,
        }
    }

    /// Enqueues what is held back, and what comes after.
    fn let_go(&mut self) -> Result<()> {
        if let State::Held(run) = self.state {
            self.state = State::Enqueued;
            self.current.extend_from_slice(&self.runs[run].launches[..self.n_held]);
            self.n_held = 0;
            for launch in &self.current {
                self.runtime.launch(&launch.borrowed())?;
            }
        }
        Ok(())
    }

    /// The host is about to wait: this run is over.
    fn end(&mut self) -> Result<()> {
        let done = match self.state {
            State::Held(run) if self.runs[run].launches.len() == self.n_held => self.replay_run(run),
            State::Held(_) => self.let_go(),
            State::Empty | State::Enqueued => Ok(()),
        };
        let launches = std::mem::take(&mut self.current);
        (self.state, self.n_held) = (State::Empty, 0);
        done?;
        if !self.is_off && (LAUNCHES_MIN..=LAUNCHES_MAX).contains(&launches.len()) {
            if self.runs.len() == RUNS_MAX {
                let oldest = self.runs.remove(0);
                oldest.graph.into_iter().for_each(|graph| self.runtime.free_graph(graph));
            }
            self.runs.push(Run { launches, graph: None });
        }
        Ok(())
    }

    /// Replays a remembered run, which was all held back.
    fn replay_run(&mut self, run: usize) -> Result<()> {
        let mut run = self.runs.remove(run);
        if run.graph.is_none() {
            run.graph = self.record_run(&run.launches);
        }
        let done = match run.graph {
            Some(graph) => self.runtime.replay(graph),
            None => run.launches.iter().try_for_each(|launch| self.runtime.launch(&launch.borrowed())),
        };
        self.runs.push(run);
        done
    }

    /// A recording, or nothing and no more attempts if the device refuses.
    fn record_run(&mut self, launches: &[Owned]) -> Option<GraphId> {
        if self.is_off {
            return None;
        }
        let recorded = self.runtime.begin_capture().and_then(|()| {
            let launched = launches.iter().try_for_each(|launch| self.runtime.launch(&launch.borrowed()));
            let graph = self.runtime.end_capture();
            launched.and(graph)
        });
        if let Err(error) = &recorded {
            tracing::warn!("{}: launches are not recorded: {error}", self.runtime.name());
            self.is_off = true;
        }
        recorded.ok()
    }

    /// Lets launches go that use memory which is about to change.
    fn touch(&mut self, memory: MemoryId) -> Result<()> {
        let State::Held(run) = self.state else { return Ok(()) };
        let held = &self.runs[run].launches[..self.n_held];
        if held.iter().any(|launch| launch.buffers.contains(&memory)) { self.let_go() } else { Ok(()) }
    }
}

impl Runtime for Replaying {
    fn name(&self) -> String {
        self.runtime.name()
    }

    fn target(&self) -> Target {
        self.runtime.target()
    }

    fn limits(&self) -> &Limits {
        self.runtime.limits()
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.runtime.memory()
    }

    fn alloc(&mut self, bytes: usize) -> Result<MemoryId> {
        self.runtime.alloc(bytes)
    }

    fn free(&mut self, memory: MemoryId) {
        self.runtime.free(memory);
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        self.touch(dst)?;
        self.runtime.upload(dst, offset, data)
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        self.end()?;
        self.runtime.download(src, offset, out)
    }

    fn copy(&mut self, dst: (MemoryId, usize), src: (MemoryId, usize), bytes: usize) -> Result<()> {
        self.end()?;
        self.runtime.copy(dst, src, bytes)
    }

    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()> {
        self.end()?;
        self.runtime.fill(dst, value, bytes)
    }

    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>> {
        self.runtime.compile(sources)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        if let Some(run) = self.goes_on(launch) {
            self.state = State::Held(run);
            self.n_held += 1;
            return Ok(());
        }
        self.let_go()?;
        self.state = State::Enqueued;
        if self.current.len() <= LAUNCHES_MAX {
            self.current.push(Owned::new(launch));
        }
        self.runtime.launch(launch)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.end()?;
        self.runtime.synchronize()
    }

    fn record(&mut self) -> Result<EventId> {
        self.end()?;
        self.runtime.record()
    }

    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32> {
        self.end()?;
        self.runtime.elapsed_ms(from, to)
    }

    fn can_capture(&self) -> bool {
        self.runtime.can_capture()
    }

    fn begin_capture(&mut self) -> Result<()> {
        // What the caller records is no run of ours: it is enqueued as it comes, since no remembered run begins empty.
        self.end()?;
        self.state = State::Enqueued;
        self.runtime.begin_capture()
    }

    fn end_capture(&mut self) -> Result<GraphId> {
        self.current.clear();
        self.end()?;
        self.runtime.end_capture()
    }

    fn replay(&mut self, graph: GraphId) -> Result<()> {
        self.end()?;
        self.runtime.replay(graph)
    }

    fn free_graph(&mut self, graph: GraphId) {
        self.runtime.free_graph(graph);
    }
}
