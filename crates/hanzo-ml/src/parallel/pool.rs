//! Threads that wait for regions of work: awake for a moment, then asleep.
//!
//! A region is one closure that the caller runs and that helpers run too if they come in time: it must share out its
//! work by itself, so that it is done when the caller's call of it returns and those helpers that began have ended.
//! A helper that is late (asleep, or without a core) finds the region closed, and nobody waits for it.
//!
//! One word holds all that changes: how many helpers may still join, how many are inside, and the number of the
//! region. The caller opens a region by storing it; helpers join by compare and exchange; the caller closes by taking
//! the free seats away and waits until nobody is inside.
//!
//! Between regions a helper polls for [`AWAKE`], offering its core to others every few microseconds, and then sleeps
//! on a condition variable. So the threads cost nothing while there is nothing to do.

use std::{
    any::Any,
    cell::UnsafeCell,
    hint,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How long a thread polls before it sleeps: longer than the serial work between two regions of a step, shorter than
/// what a sleeping thread costs to wake.
const AWAKE: Duration = Duration::from_micros(50);

/// Polls before the core is offered to others: a few microseconds, within which the next region of a step opens.
const POLLS: usize = 256;

/// Helpers inside a region, in the lowest bits of the state.
const INSIDE: usize = 1;
const INSIDE_MASK: usize = 0x7ff;
/// Helpers that may still join; none: no region is open.
const SEAT: usize = INSIDE_MASK + 1;
const SEAT_MASK: usize = INSIDE_MASK << 11;
/// The pool ends.
const END: usize = 1 << 22;
/// The number of the region, in the remaining bits; it may wrap around.
const REGION: usize = 1 << 23;

/// Most helpers of a pool.
pub(super) const HELPERS_MAX: usize = INSIDE_MASK;

type Job<'a> = dyn Fn() + Sync + 'a;
type Panic = Box<dyn Any + Send>;

/// A fixed set of helpers.
pub(super) struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Whether a region is being run.
    busy: AtomicBool,
}

/// What caller and helpers share. Everything is where a spinning helper does not disturb the caller's own data.
#[repr(align(128))]
struct Shared {
    state: AtomicUsize,
    n_asleep: AtomicUsize,
    caller_sleeps: AtomicBool,
    /// The open region's closure.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// The first panic of a helper in the open region.
    panic: Mutex<Option<Panic>>,
    bed: Mutex<()>,
    opened: Condvar,
    left: Condvar,
}

// SAFETY: `job` alone is not `Sync` and `Send` by itself. The caller writes it while no region is open and nobody is
// inside; helpers read it only while they are inside, and what it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// Starts helpers named `compute-0`, `compute-1` and so on; at most [`HELPERS_MAX`].
    pub(super) fn new(n_helpers: usize) -> Result<Self> {
        assert!(n_helpers <= HELPERS_MAX, "the count does not fit its bits");
        let shared = Arc::new(Shared {
            state: AtomicUsize::new(0),
            n_asleep: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
            bed: Mutex::new(()),
            opened: Condvar::new(),
            left: Condvar::new(),
        });
        let mut pool = Self { shared, helpers: Vec::with_capacity(n_helpers), busy: AtomicBool::new(false) };
        for i in 0..n_helpers {
            let shared = Arc::clone(&pool.shared);
            let helper = thread::Builder::new().name(format!("compute-{i}")).spawn(move || shared.help());
            pool.helpers.push(helper.map_err(|e| Error::op("threads", format!("no thread {i}: {e}")))?);
        }
        Ok(pool)
    }

    /// Runs `job` on the caller's thread and on up to `n_helpers` others, and returns when all have ended. A region
    /// inside a region, or beside one of another thread, runs on the caller's thread alone.
    ///
    /// # Panics
    /// If `job` does on any thread, with its payload, after the others have ended.
    pub(super) fn run(&self, n_helpers: usize, job: &Job<'_>) {
        let seats = n_helpers.min(self.helpers.len());
        if seats == 0 || self.busy.swap(true, Ordering::Acquire) {
            return job();
        }
        // SAFETY: the lifetime is lengthened, but nobody uses the closure after `close`, which comes before this
        // function returns: between `open` and `close` nothing unwinds.
        let longer = unsafe { std::mem::transmute::<&Job<'_>, &'static Job<'static>>(job) };
        self.shared.open(seats, self.helpers.len(), longer);
        let mine = catch_unwind(AssertUnwindSafe(job));
        self.shared.close();
        let theirs = lock(&self.shared.panic).take();
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.fetch_or(END, Ordering::SeqCst);
        self.shared.wake(self.helpers.len());
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its work; there is nothing else to learn from it.
            drop(helper.join());
        }
    }
}

impl Shared {
    fn open(&self, seats: usize, n_helpers: usize, job: &'static Job<'static>) {
        // SAFETY: the last region is closed and nobody is inside, and `busy` keeps other callers out.
        unsafe { *self.job.get() = Some(job) };
        let state = self.state.load(Ordering::Relaxed);
        debug_assert_eq!(state & (INSIDE_MASK | SEAT_MASK), 0, "a region is open");
        // Sequentially consistent against a helper that lies down: see `sleep`.
        self.state.store(state.wrapping_add(REGION) + seats * SEAT, Ordering::SeqCst);
        let n_asleep = self.n_asleep.load(Ordering::SeqCst);
        if n_asleep > 0 {
            self.wake((seats + n_asleep).saturating_sub(n_helpers));
        }
    }

    /// Wakes `n` of those that sleep.
    fn wake(&self, n: usize) {
        // Whoever holds the lock has looked at the state before it waits.
        drop(lock(&self.bed));
        (0..n).for_each(|_| self.opened.notify_one());
    }

    /// Lets nobody else in and waits until nobody is inside.
    fn close(&self) {
        let state = self.state.fetch_and(!SEAT_MASK, Ordering::Acquire);
        let empty = || self.state.load(Ordering::Acquire) & INSIDE_MASK == 0;
        if state & INSIDE_MASK == 0 || poll(empty) {
            return;
        }
        let mut bed = lock(&self.bed);
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) & INSIDE_MASK != 0 {
            bed = self.left.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::Relaxed);
    }

    /// A helper's life.
    fn help(&self) {
        let mut region = 0;
        loop {
            let news = || is_news(self.state.load(Ordering::Acquire), region);
            if !poll(news) {
                self.sleep(region);
            }
            match self.join() {
                Joined::End => return,
                Joined::No(now) => region = now,
                Joined::Yes(now) => {
                    region = now;
                    self.work();
                }
            }
        }
    }

    /// Waits until there is a region other than `region`.
    fn sleep(&self, region: usize) {
        let mut bed = lock(&self.bed);
        // Either the caller sees this count after it has stored the state, or the state is seen here.
        self.n_asleep.fetch_add(1, Ordering::SeqCst);
        while !is_news(self.state.load(Ordering::SeqCst), region) {
            bed = self.opened.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.n_asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes a seat of the open region, if there is one.
    fn join(&self) -> Joined {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & END != 0 {
                return Joined::End;
            }
            if state & SEAT_MASK == 0 {
                return Joined::No(state / REGION);
            }
            let next = state - SEAT + INSIDE;
            match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Joined::Yes(state / REGION),
                Err(now) => state = now,
            }
        }
    }

    /// Runs the job of the region that this helper is inside of, and leaves it.
    fn work(&self) {
        // SAFETY: the helper is inside, so the caller, who wrote the pointer before it opened the region, is still
        // in `Pool::run` with the closure borrowed.
        let job = unsafe { (*self.job.get()).map(|job| &*job) };
        if let Some(job) = job
            && let Err(panic) = catch_unwind(AssertUnwindSafe(job))
        {
            let mut first = lock(&self.panic);
            match *first {
                None => *first = Some(panic),
                // To drop a payload may panic.
                Some(_) => std::mem::forget(panic),
            }
        }
        let before = self.state.fetch_sub(INSIDE, Ordering::SeqCst);
        let last = before & (INSIDE_MASK | SEAT_MASK) == INSIDE;
        if last && self.caller_sleeps.load(Ordering::SeqCst) {
            drop(lock(&self.bed));
            self.left.notify_one();
        }
    }
}

/// What came of taking a seat, with the number of the region.
enum Joined {
    Yes(usize),
    No(usize),
    End,
}

/// Whether a helper that has seen `region` has something to do.
fn is_news(state: usize, region: usize) -> bool {
    state & END != 0 || (state & SEAT_MASK != 0 && state / REGION != region)
}

/// Polls for [`AWAKE`]; says whether it was worth it.
fn poll(ready: impl Fn() -> bool) -> bool {
    let mut begin: Option<Instant> = None;
    loop {
        for _ in 0..POLLS {
            if ready() {
                return true;
            }
            hint::spin_loop();
        }
        match begin {
            None => begin = Some(Instant::now()),
            Some(begin) if begin.elapsed() > AWAKE => return false,
            Some(_) => {}
        }
        thread::yield_now();
    }
}

/// Locks; what the locks guard cannot be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::atomic::AtomicU64};

    use super::*;

    /// After this a wait is a deadlock, not a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Waits until `ready`; a thread that never comes is a failure.
    fn wait(ready: impl Fn() -> bool) {
        let begin = Instant::now();
        while !ready() {
            assert!(begin.elapsed() < PATIENCE, "nobody came");
            thread::yield_now();
        }
    }

    /// Runs `each` on the caller and on all helpers, each inside while the others are.
    fn all_together(pool: &Pool, each: impl Fn(usize) + Sync) {
        let n = pool.helpers.len() + 1;
        let here = AtomicUsize::new(0);
        pool.run(n - 1, &|| {
            let i = here.fetch_add(1, Ordering::SeqCst);
            wait(|| here.load(Ordering::SeqCst) >= n);
            each(i);
        });
        assert_eq!(here.load(Ordering::SeqCst), n);
    }

    fn all_asleep(pool: &Pool) {
        wait(|| pool.shared.n_asleep.load(Ordering::SeqCst) == pool.helpers.len());
    }

    #[test]
    fn everybody_is_inside_at_once_awake_or_asleep() {
        for n_helpers in [1, 2, 5] {
            let pool = Pool::new(n_helpers).unwrap();
            for round in 0..40 {
                if round % 4 == 0 {
                    all_asleep(&pool);
                }
                let names = Mutex::new(HashSet::new());
                all_together(&pool, |_| {
                    let name = thread::current().name().unwrap_or_default().to_owned();
                    lock(&names).insert(name);
                });
                let names = names.into_inner().unwrap();
                assert_eq!(names.len(), n_helpers + 1);
                assert!((0..n_helpers).all(|i| names.contains(&format!("compute-{i}"))), "{names:?}");
            }
        }
    }

    #[test]
    fn a_region_ends_after_everything_in_it() {
        let pool = Pool::new(3).unwrap();
        let total = AtomicU64::new(0);
        for round in 0..20_000u64 {
            // Lives on this stack frame: a helper that came too late would write to it after its end.
            let (next, sum) = (AtomicU64::new(0), AtomicU64::new(0));
            pool.run(3, &|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= 8 {
                        return;
                    }
                    sum.fetch_add(i + round, Ordering::Relaxed);
                }
            });
            assert_eq!(sum.load(Ordering::Relaxed), 28 + 8 * round);
            total.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(total.into_inner(), 20_000);
    }

    fn message(run: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it should panic");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn a_panic_of_any_thread_reaches_the_caller_after_the_others() {
        let pool = Pool::new(2).unwrap();
        for round in 0..30 {
            for culprit in ["compute-0", "compute-1", ""] {
                let survivors = AtomicUsize::new(0);
                let text = message(|| {
                    all_together(&pool, |_| {
                        let name = thread::current().name().unwrap_or_default().to_owned();
                        let guilty =
                            if culprit.is_empty() { !name.starts_with("compute") } else { name == culprit };
                        assert!(!guilty, "round {round}");
                        // The others are still at work when the panic unwinds.
                        thread::sleep(Duration::from_micros(200));
                        survivors.fetch_add(1, Ordering::SeqCst);
                    });
                });
                assert_eq!(text, format!("round {round}"));
                assert_eq!(survivors.into_inner(), 2);
            }
            let text = message(|| all_together(&pool, |_| panic!("all of round {round}")));
            assert_eq!(text, format!("all of round {round}"));
            all_together(&pool, |_| ());
        }
    }

    #[test]
    fn a_region_inside_a_region_is_serial() {
        let pool = Pool::new(2).unwrap();
        let count = AtomicUsize::new(0);
        all_together(&pool, |_| {
            let outer = thread::current().id();
            pool.run(2, &|| {
                assert_eq!(thread::current().id(), outer);
                count.fetch_add(1, Ordering::SeqCst);
            });
        });
        assert_eq!(count.into_inner(), 3);
    }

    #[test]
    fn callers_of_one_pool_and_pools_beside_each_other() {
        let shared = Pool::new(2).unwrap();
        let count = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let own = Pool::new(1).unwrap();
                    for _ in 0..500 {
                        let mine = AtomicUsize::new(0);
                        let once = || mine.fetch_add(1, Ordering::SeqCst) == 0;
                        let job = || {
                            if once() {
                                count.fetch_add(1, Ordering::SeqCst);
                            }
                        };
                        shared.run(2, &job);
                        own.run(1, &|| own.run(1, &|| shared.run(2, &job)));
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 1500);
    }

    #[test]
    fn pools_end_in_any_state() {
        for round in 0..200 {
            let pool = Pool::new(round % 4).unwrap();
            match round % 3 {
                0 => all_asleep(&pool),
                1 => all_together(&pool, |_| ()),
                _ => {}
            }
            let shared = Arc::downgrade(&pool.shared);
            drop(pool);
            assert!(shared.upgrade().is_none(), "a helper lives on");
        }
    }

    /// Seats limit the helpers, and a count of none is the caller alone.
    #[test]
    fn no_more_helpers_than_seats() {
        let pool = Pool::new(4).unwrap();
        for seats in [0, 1, 2] {
            for _ in 0..200 {
                let ids = Mutex::new(HashSet::new());
                pool.run(seats, &|| {
                    lock(&ids).insert(thread::current().id());
                    thread::yield_now();
                });
                let ids = ids.into_inner().unwrap();
                assert!(ids.contains(&thread::current().id()) && ids.len() <= seats + 1, "{}", ids.len());
            }
        }
    }
}
