//! Jobs: work on guest threads that Python code waits for, without the GIL, or is notified of.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_core::CallCancellation;
use belljar_sessions::{GuestThreadPool, PoolLimits};
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::error::{Error, ErrorKind};

/// The interval at which a wait looks for signals, such as that of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// The time that the end of the process waits for code that was killed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of pieces of code that run at the same time. A piece that waits for a function of the host has a thread.
const MAX_RUNNING: usize = 512;

/// Makes the result of a job, with the GIL.
pub(crate) type MakeResult = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The jobs whose threads may still use Python, by their numbers, and other threads that do.
static ACTIVE: Mutex<Option<HashMap<u64, Option<Arc<Shared>>>>> = Mutex::new(None);
/// Notified when there is one job less.
static LEFT: Condvar = Condvar::new();
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The process that started threads, or 0. They do not exist in its forks.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns an error in a fork of the process that has used the library: its threads do not exist here, and locks that
/// they held stay locked.
pub(crate) fn check_process() -> Result<(), Error> {
    let own = std::process::id();
    match OWNER.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != own => Err(Error::new(
            ErrorKind::Fork,
            "belljar was used before this process was forked, and its threads do not exist here: use the start method \
             \"spawn\" or \"forkserver\" of multiprocessing, or create the first sandbox after the fork",
        )),
        _ => Ok(()),
    }
}

/// Returns the threads on which all code of this process runs.
pub(crate) fn pool() -> &'static GuestThreadPool {
    static POOL: OnceLock<GuestThreadPool> = OnceLock::new();
    POOL.get_or_init(|| {
        let limits = PoolLimits { max_running: MAX_RUNNING, max_queued: usize::MAX - MAX_RUNNING };
        GuestThreadPool::new(limits, belljar_python::on_guest_thread)
    })
}

/// Work on a guest thread.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct Job {
    shared: Arc<Shared>,
    /// The time between interrupt and kill when the job is cancelled; `None` kills at once.
    grace: Option<Duration>,
}

struct Shared {
    number: u64,
    state: Mutex<State>,
    ended: Condvar,
    cancellation: CallCancellation,
}

#[derive(Default)]
struct State {
    result: Option<MakeResult>,
    has_ended: bool,
    on_end: Option<Py<PyAny>>,
}

/// The part of a job that does the work. Dropping it without a result reports an internal error.
pub(crate) struct JobEnd(Option<Arc<Shared>>);

impl Job {
    /// Creates a job. `on_end` is called, without arguments, on the guest thread when the job has ended.
    pub(crate) fn new(on_end: Option<Py<PyAny>>, grace: Option<Duration>) -> (Self, JobEnd) {
        Self::with_cancellation(on_end, grace, CallCancellation::default())
    }

    /// Creates a job that goes on with code of an earlier one, which has this cancellation.
    pub(crate) fn with_cancellation(
        on_end: Option<Py<PyAny>>,
        grace: Option<Duration>,
        cancellation: CallCancellation,
    ) -> (Self, JobEnd) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(State { on_end, ..State::default() });
        let shared = Arc::new(Shared { number, state, ended: Condvar::new(), cancellation });
        ACTIVE.lock().get_or_insert_default().insert(number, Some(shared.clone()));
        (Self { shared: shared.clone(), grace }, JobEnd(Some(shared)))
    }

    /// Returns the state of the job's cancellation.
    pub(crate) fn cancellation(&self) -> CallCancellation {
        self.shared.cancellation.clone()
    }
}

impl JobEnd {
    /// Ends the job.
    pub(crate) fn finish(mut self, result: MakeResult) {
        self.end(result);
    }

    fn end(&mut self, result: MakeResult) {
        let Some(shared) = self.0.take() else { return };
        let on_end = {
            let mut state = shared.state.lock();
            state.result = Some(result);
            state.has_ended = true;
            state.on_end.take()
        };
        shared.ended.notify_all();
        if let Some(on_end) = on_end {
            Python::attach(|py| {
                if let Err(error) = on_end.call0(py) {
                    // The event loop that waited was closed.
                    tracing::debug!(%error, "nothing waits for the result of a call");
                }
                drop(on_end);
            });
        }
        remove(shared.number);
    }
}

fn remove(number: u64) {
    if let Some(active) = ACTIVE.lock().as_mut() {
        active.remove(&number);
    }
    LEFT.notify_all();
}

/// A thread that uses Python and belongs to no job. The interpreter does not end before this is dropped.
pub(crate) struct PythonUser(u64);

impl PythonUser {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ACTIVE.lock().get_or_insert_default().insert(number, None);
        Self(number)
    }
}

impl Drop for PythonUser {
    fn drop(&mut self) {
        remove(self.0);
    }
}

impl Drop for JobEnd {
    fn drop(&mut self) {
        self.end(Box::new(|_| {
            Err(Error::new(ErrorKind::Failed, "internal error: the call ended without a result").into())
        }));
    }
}

#[pymethods]
impl Job {
    /// Waits for the result and returns it. Other threads run meanwhile. If a signal handler raises, such as that of
    /// Ctrl-C, the code is stopped.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        while !py.detach(|| self.shared.wait_for_end(SIGNAL_INTERVAL)) {
            if let Err(error) = py.check_signals() {
                self.cancel();
                py.detach(|| self.shared.wait_for_end(SHUTDOWN_TIMEOUT));
                return Err(error);
            }
        }
        self.result(py)
    }

    /// Returns the result of a job that has ended. Can be called once.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let result = self.shared.state.lock().result.take();
        let missing = || Error::new(ErrorKind::Failed, "internal error: the call has no result");
        result.ok_or_else(missing)?(py)
    }

    /// Stops the code. The job ends soon afterwards.
    fn cancel(&self) {
        let cancellation = &self.shared.cancellation;
        drop(match self.grace {
            None => cancellation.kill_on_drop(),
            Some(grace) => cancellation.interrupt_on_drop(grace),
        });
    }
}

impl Shared {
    /// Waits for the end of the job, at most for `timeout`. Returns whether it has ended.
    fn wait_for_end(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.has_ended {
            self.ended.wait_for(&mut state, timeout);
        }
        state.has_ended
    }
}

/// Stops all code and waits for its end: called when the interpreter shuts down.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    if check_process().is_err() {
        return;
    }
    let active: Vec<Arc<Shared>> = ACTIVE.lock().iter().flat_map(HashMap::values).flatten().cloned().collect();
    for job in &active {
        drop(job.cancellation.kill_on_drop());
    }
    let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
    // A job has ended before it notifies the loop that waits for it, which needs an interpreter that is not finalizing.
    py.detach(|| {
        let mut left = ACTIVE.lock();
        while left.as_ref().is_some_and(|left| !left.is_empty()) {
            if LEFT.wait_until(&mut left, deadline).timed_out() {
                break;
            }
        }
        drop(left);
        crate::tools::close_all();
    });
}
