//! Cells of sessions that may pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellRequest, Kernel, KernelError};
use belljar_core::{CallCancellation, CellStep, WakingInterruptHandle};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::client::Client;
use crate::dump::SavedCode;
use crate::error::{Error, ErrorKind};
use crate::job::{Job, JobEnd};
use crate::paused::{Answer, PausedCode, Pauses, describe, describe_saved, duration, restored_client, saved_code};
use crate::results;
use crate::session::{Queue, State, complete, fail};
use crate::steps::{Waits, WakeSignal};

/// The numbers of pauses in this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A cell that is paused: the part of it that is not in its kernel.
pub(crate) struct PausedCell {
    /// The number of this pause.
    number: u64,
    code: CellCode,
}

/// The receiver of what a paused cell does.
#[derive(Clone)]
enum CellCode {
    /// A cell of this process.
    Running(RunningCell),
    /// A cell that was paused in another process.
    Saved(Box<SavedCode>),
}

#[derive(Clone)]
struct RunningCell {
    client: Arc<Client>,
    signal: Arc<WakeSignal>,
    cancellation: CallCancellation,
    timeout: Option<f64>,
    pauses: Pauses,
    /// The time that the cell has run.
    spent: Duration,
}

impl PausedCell {
    /// Creates the cell of a dump.
    pub(crate) fn saved(code: SavedCode) -> Self {
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), code: CellCode::Saved(Box::new(code)) }
    }

    fn running(cell: RunningCell) -> Self {
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), code: CellCode::Running(cell) }
    }

    /// Returns the library's half of the cell, for a dump.
    pub(crate) fn save(&self) -> SavedCode {
        match &self.code {
            CellCode::Running(cell) => saved_code(&cell.client, cell.timeout, cell.pauses.clone()),
            CellCode::Saved(code) => (**code).clone(),
        }
    }

    /// Returns what continues this cell.
    pub(crate) fn token(&self, queue: &Arc<Queue>) -> CellToken {
        CellToken { queue: queue.clone(), number: self.number, code: self.code.clone() }
    }
}

/// Continues a cell that is paused, once.
pub(crate) struct CellToken {
    queue: Arc<Queue>,
    number: u64,
    code: CellCode,
}

impl CellToken {
    /// Returns the cancellation of the cell, which is a new one for a cell of another process.
    pub(crate) fn cancellation(&self) -> CallCancellation {
        match &self.code {
            CellCode::Running(cell) => cell.cancellation.clone(),
            CellCode::Saved(_) => CallCancellation::default(),
        }
    }

    pub(crate) fn describe(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.code {
            CellCode::Running(cell) => describe(py, cell.client.output(), cell.client.deferred()),
            CellCode::Saved(code) => describe_saved(py, (**code).clone()),
        }
    }

    /// Returns the session with the cell as bytes.
    pub(crate) fn dump(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let (job, end) = Job::new(on_end, None);
        let number = self.number;
        self.queue.submit(Box::new(move |state| {
            let is_paused = state.paused.as_ref().is_some_and(|paused| paused.number == number);
            let bytes = if is_paused { state.dump() } else { Err(went_on()) };
            end.finish(Box::new(move |py| Ok(PyBytes::new(py, &bytes?).into_any().unbind())));
        }))?;
        Ok(job)
    }

    /// Answers calls and continues the cell.
    #[expect(clippy::too_many_arguments, reason = "they are those of the call from Python")]
    pub(crate) fn resume(
        self,
        py: Python<'_>,
        callbacks: Option<Py<PyAny>>,
        deferred: Vec<String>,
        streams: bool,
        answers: Vec<Answer>,
        cancellation: CallCancellation,
        end: JobEnd,
    ) -> PyResult<()> {
        let Self { queue, number, code } = self;
        let saved = match code {
            CellCode::Running(cell) => {
                cell.client.set_streams(streams);
                let resumed = queue.clone();
                queue.submit(Box::new(move |state| resume_running(state, &resumed, number, cell, answers, end)))?;
                return Ok(());
            }
            CellCode::Saved(code) => code,
        };
        let tools = queue.tools();
        let client = restored_client(py, (*saved).clone(), tools.as_ref(), callbacks, deferred, streams)?;
        let resumed = queue.clone();
        queue.submit(Box::new(move |state| {
            let (timeout, pauses, spent) = (saved.timeout, saved.pauses(), Duration::ZERO);
            let signal = client.deferred().signal().clone();
            let cell = RunningCell { client, signal, cancellation, timeout, pauses, spent };
            resume_saved(state, &resumed, number, cell, answers, end);
        }))?;
        Ok(())
    }
}

fn went_on() -> Error {
    Error::new(ErrorKind::Failed, "the cell has gone on already, or its session was restarted or closed")
}

/// Continues a cell whose kernel runs in this process.
fn resume_running(
    state: &mut State,
    queue: &Arc<Queue>,
    number: u64,
    cell: RunningCell,
    answers: Vec<Answer>,
    end: JobEnd,
) {
    if state.paused.take_if(|paused| paused.number == number).is_none() {
        return end.finish(Box::new(|_| Err(went_on().into())));
    }
    let resume = |kernel: &mut dyn Kernel| {
        kernel.exclude_wait();
        cell.client.answer(answers);
        Ok(kernel.resume())
    };
    cell.clone().go_on(state, queue, resume, end);
}

/// Continues a cell of a dump.
fn resume_saved(
    state: &mut State,
    queue: &Arc<Queue>,
    number: u64,
    cell: RunningCell,
    answers: Vec<Answer>,
    end: JobEnd,
) {
    let Some(paused) = state.paused.take_if(|paused| paused.number == number) else {
        return fail(end, cell.client, went_on());
    };
    let waker = cell.signal.waker();
    let attached = state.any_kernel().and_then(|kernel| {
        let inner = kernel.interrupt_handle();
        let handle = Arc::new(WakingInterruptHandle { inner, waker: waker.clone() });
        if !cell.cancellation.begin_running(handle) {
            return Err(KernelError::Cancelled.into());
        }
        Ok(kernel.reattach(cell.client.clone(), waker)?)
    });
    let replies = match attached {
        Ok(replies) => replies,
        Err(error) => {
            state.paused = Some(paused);
            return fail(end, cell.client, error);
        }
    };
    let resume = |kernel: &mut dyn Kernel| {
        kernel.exclude_wait();
        cell.client.resume_calls(replies, answers);
        Ok(kernel.resume())
    };
    cell.clone().go_on(state, queue, resume, end);
}

impl RunningCell {
    /// Runs the cell until it ends or pauses, and ends its job.
    fn go_on(
        mut self,
        state: &mut State,
        queue: &Arc<Queue>,
        begin: impl FnOnce(&mut dyn Kernel) -> Result<CellStep, Error> + Send,
        end: JobEnd,
    ) {
        let start = Instant::now();
        let result = {
            let (client, signal) = (&self.client, &self.signal);
            state.any_kernel().and_then(|kernel| {
                client.attached(move || {
                    let step = begin(&mut *kernel)?;
                    Ok(Waits::new(client, signal).run_cell(kernel, step))
                })
            })
        };
        self.spent += start.elapsed();
        match result {
            Ok(Some(result)) => {
                self.cancellation.finish();
                complete(state, end, self.client, result, duration(self.timeout), self.spent);
            }
            Ok(None) => {
                let described = self.client.clone();
                let paused = PausedCell::running(self);
                let token = paused.token(queue);
                state.paused = Some(paused);
                let code = PausedCode::of_cell(token);
                end.finish(Box::new(move |py| results::paused_to_python(py, &described, code)));
            }
            Err(error) => fail(end, self.client, error),
        }
    }
}

/// A call of `Session.run` whose cell may pause.
pub(crate) struct CellCall {
    pub(crate) queue: Arc<Queue>,
    pub(crate) client: Arc<Client>,
    pub(crate) cancellation: CallCancellation,
    pub(crate) timeout: Option<f64>,
}

impl CellCall {
    /// Runs the cell until it ends or pauses.
    pub(crate) fn begin(self, state: &mut State, request: &CellRequest, pauses: Pauses, end: JobEnd) {
        let Self { queue, client, cancellation, timeout } = self;
        if let Err(error) = state.kernel() {
            return fail(end, client, error);
        }
        let signal = client.deferred().signal().clone();
        let cell = RunningCell { client, signal, cancellation, timeout, pauses, spent: Duration::ZERO };
        let (client, cancellation, waker) = (cell.client.clone(), cell.cancellation.clone(), cell.signal.waker());
        let begin = move |kernel: &mut dyn Kernel| {
            let inner = kernel.interrupt_handle();
            let handle = Arc::new(WakingInterruptHandle { inner, waker: waker.clone() });
            if !cancellation.begin_running(handle) {
                return Err(KernelError::Cancelled.into());
            }
            Ok(kernel.begin(request, client, waker))
        };
        cell.go_on(state, &queue, begin, end);
    }
}
