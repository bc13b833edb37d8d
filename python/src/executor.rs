//! The thread of connections to servers, and calls that run there.

use std::sync::{Arc, OnceLock};

use belljar_core::kernel::InterruptHandle;
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind};
use crate::job::{Job, check_process};

/// Returns the executor of all connections, which has a thread of its own.
pub(crate) fn executor() -> Result<&'static tokio::runtime::Handle, Error> {
    static EXECUTOR: OnceLock<Result<tokio::runtime::Handle, String>> = OnceLock::new();
    let started = EXECUTOR.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(std::future::pending::<()>());
        std::thread::Builder::new().name("belljar-remote".into()).spawn(run).map_err(|error| error.to_string())?;
        Ok(handle)
    });
    let failed = |error: &String| Error::new(ErrorKind::Failed, format!("failed to start a thread: {error}"));
    started.as_ref().map_err(failed)
}

/// Stops a call when its job is cancelled.
struct StopCall(Arc<Notify>);

impl InterruptHandle for StopCall {
    fn interrupt(&self) {
        self.0.notify_one();
    }

    fn kill(&self) {
        self.0.notify_one();
    }
}

/// Starts a call. If its job is cancelled, the future is dropped.
pub(crate) fn start<T: Send + 'static>(
    on_end: Option<Py<PyAny>>,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
    to_python: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Job> {
    check_process()?;
    let executor = executor()?;
    let (job, end) = Job::new(on_end, None);
    let cancellation = job.cancellation();
    executor.spawn(async move {
        let stopped = Arc::new(Notify::new());
        let result = if cancellation.begin_running(Arc::new(StopCall(stopped.clone()))) {
            tokio::select! {
                result = call => result,
                () = stopped.notified() => Err(cancelled()),
            }
        } else {
            Err(cancelled())
        };
        cancellation.finish();
        end.finish(Box::new(move |py| to_python(py, result?)));
    });
    Ok(job)
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the call was cancelled")
}
