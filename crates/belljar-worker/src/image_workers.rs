//! The workers of one image: forked from its template, given to one owner each, used again, and ended.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use belljar_sandbox::worker::{WorkerProcess, WorkerTemplate};
use parking_lot::{Condvar, Mutex};

use crate::pool::{PoolError, WorkerOptions};
use crate::usage::WorkerUsage;

/// The time in which an idle worker frees the memory of the interpreter that has ended.
const FREEING_TIME: Duration = Duration::from_secs(2);

/// The template of one image, and its workers.
pub(crate) struct ImageWorkers {
    options: WorkerOptions,
    pub(crate) template: WorkerTemplate,
    /// The most memory of a worker, in bytes.
    memory: u64,
    /// The memory of a worker in which no code has run, in bytes, once it is known: what workers have of the template.
    initial_memory: OnceLock<u64>,
    known: Mutex<KnownWorkers>,
    /// Notified when a worker that has had no owner is taken.
    taken: Condvar,
}

#[derive(Default)]
struct KnownWorkers {
    /// A worker without an owner, started before it is needed.
    fresh: Option<Worker>,
    /// Workers that are not used, by the time since when.
    idle: Vec<IdleWorker>,
    /// The workers that have had an owner, whose memory is measured.
    owned: Vec<Weak<WorkerControl>>,
}

struct IdleWorker {
    owner: Arc<str>,
    worker: Worker,
    since: Instant,
}

/// A worker, and the broker's ends of its sockets. Dropping it ends the process.
pub(crate) struct Worker {
    pub(crate) channel: UnixStream,
    pub(crate) control: Arc<WorkerControl>,
    /// True once the worker has reported that it is sealed.
    pub(crate) is_ready: bool,
    /// The number of runs so far.
    pub(crate) runs: u32,
}

/// The means of stopping the code in a worker.
pub(crate) struct WorkerControl {
    pub(crate) process: WorkerProcess,
    /// The socket that receives the numbers of interpreters to interrupt.
    pub(crate) interrupts: UnixStream,
    /// The use of the worker, as that of its owner.
    pub(crate) usage: WorkerUsage,
    /// True if the worker was killed because it used too much memory.
    exceeded_memory: AtomicBool,
}

impl WorkerControl {
    /// Returns whether the worker was killed because it used too much memory.
    pub(crate) fn has_exceeded_memory(&self) -> bool {
        self.exceeded_memory.load(Ordering::Relaxed)
    }

    /// Reads the processor time of the worker for the quota of its owner.
    pub(crate) fn count_processor_time(&self) {
        self.usage.count_processor_time(|| self.process.processor_time());
    }

    /// Kills the worker if it uses more than `limit` bytes, or more than the quota of its owner has. `initial` is the
    /// memory of a worker in which no code has run. Returns whether the memory can be read.
    ///
    /// The worker's own limit has gaps for code that makes system calls of its choice: see
    /// [`SealLimits`](belljar_sandbox::worker::SealLimits).
    fn check_memory(&self, limit: u64, initial: Option<u64>) -> bool {
        let Some(bytes) = self.process.memory_bytes() else { return self.process.has_ended() };
        let has_room = initial.is_none_or(|initial| self.usage.measure(bytes.saturating_sub(initial)));
        // The number of a process that has ended may be that of another one.
        if (bytes > limit || !has_room) && !self.process.has_ended() {
            self.exceeded_memory.store(true, Ordering::Relaxed);
            self.process.kill();
        }
        true
    }
}

impl ImageWorkers {
    /// Creates the workers of a template, none of which is started yet. Each has at most `memory` bytes.
    pub(crate) fn new(options: WorkerOptions, template: WorkerTemplate, memory: u64) -> Self {
        let (initial_memory, known, taken) = (OnceLock::new(), Mutex::default(), Condvar::new());
        Self { options, template, memory, initial_memory, known, taken }
    }

    /// Takes a worker of `owner`, or one that has had no owner.
    pub(crate) fn take(&self, owner: Option<&Arc<str>>) -> Result<Worker, PoolError> {
        let fresh = {
            let mut known = self.known.lock();
            while let Some(owner) = owner
                && let Some(at) = known.idle.iter().rposition(|idle| idle.owner == *owner)
            {
                let IdleWorker { worker, .. } = known.idle.remove(at);
                if !worker.control.process.has_ended() {
                    return Ok(worker);
                }
            }
            known.fresh.take()
        };
        let worker = match fresh {
            Some(fresh) if !fresh.control.process.has_ended() => fresh,
            _ => self.fork()?,
        };
        self.known.lock().owned.push(Arc::downgrade(&worker.control));
        self.taken.notify_one();
        Ok(worker)
    }

    /// Takes a worker back whose interpreter has been discarded.
    pub(crate) fn put_back(&self, worker: Worker, owner: Option<Arc<str>>) {
        let Some(owner) = owner.filter(|_| worker.runs < self.options.runs) else { return };
        let mut known = self.known.lock();
        let oldest = (known.idle.len() >= self.options.max_idle).then(|| known.idle.remove(0));
        known.idle.push(IdleWorker { owner, worker, since: Instant::now() });
        drop(known);
        drop(oldest);
    }

    fn fork(&self) -> Result<Worker, PoolError> {
        let (channel, its_channel) = UnixStream::pair()?;
        let (interrupts, its_interrupts) = UnixStream::pair()?;
        interrupts.set_nonblocking(true)?;
        let process = self.template.fork(&[its_channel.as_fd(), its_interrupts.as_fd()])?;
        if self.initial_memory.get().is_none()
            && let Some(bytes) = process.memory_bytes()
        {
            let _ = self.initial_memory.set(bytes);
        }
        let (usage, exceeded_memory) = (WorkerUsage::default(), AtomicBool::new(false));
        let control = Arc::new(WorkerControl { process, interrupts, usage, exceeded_memory });
        Ok(Worker { channel, control, is_ready: false, runs: 0 })
    }

    /// Returns whether a worker without an interpreter holds memory that its owner would not be charged with.
    fn holds_uncharged(&self, control: &WorkerControl) -> bool {
        control
            .usage
            .holds_uncharged(|| Some(control.process.memory_bytes()?.saturating_sub(*self.initial_memory.get()?)))
    }

    /// Returns the workers that have been idle for too long or hold memory, and whether all workers have an owner.
    fn expire(&self) -> (Vec<IdleWorker>, bool) {
        let mut known = self.known.lock();
        let limit = self.options.idle;
        let expired = known.idle.extract_if(.., |idle| {
            let time = idle.since.elapsed();
            time > limit || (time > FREEING_TIME && self.holds_uncharged(&idle.worker.control))
        });
        let expired = expired.collect();
        (expired, known.fresh.is_none())
    }

    /// Kills the workers that use more memory than they may, and counts processor time. Returns whether the memory of
    /// all can be read.
    fn check_memory(&self) -> bool {
        let owned: Vec<Arc<WorkerControl>> = {
            let mut known = self.known.lock();
            known.owned.retain(|control| control.strong_count() > 0);
            known.owned.iter().filter_map(Weak::upgrade).collect()
        };
        let mut can_read = true;
        for control in owned {
            can_read &= control.check_memory(self.memory, self.initial_memory.get().copied());
            control.count_processor_time();
        }
        can_read
    }
}

/// Keeps a worker without an owner ready, and ends those that were idle for too long or use too much memory, as long as
/// the workers and their template exist.
pub(crate) fn maintain(workers: &Weak<ImageWorkers>) {
    /// The interval at which the time of idle workers is checked.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// The interval at which the memory of workers is measured.
    const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
    let mut can_read_memory = true;
    while let Some(workers) = workers.upgrade() {
        if workers.template.has_ended() {
            // All its workers end with it. The next call starts another template.
            let ended = std::mem::take(&mut *workers.known.lock());
            drop(ended);
            return;
        }
        let (expired, needs_fresh) = workers.expire();
        drop(expired);
        if needs_fresh {
            match workers.fork() {
                Ok(worker) => workers.known.lock().fresh = Some(worker),
                Err(error) => tracing::warn!(%error, "failed to start a worker process ahead of time"),
            }
        }
        if !workers.check_memory() && std::mem::replace(&mut can_read_memory, false) {
            tracing::warn!(
                "failed to read the memory of worker processes in /proc: only the limit of the kernel holds"
            );
        }
        let mut known = workers.known.lock();
        let interval = if known.owned.is_empty() { INTERVAL } else { MEMORY_INTERVAL };
        workers.taken.wait_for(&mut known, interval);
    }
}
