//! The thread of a worker for the work of calls that give way to those of other owners.
//!
//! The server's thread that makes such a call is marked (`belljar_core::note_giving_way`), and keeps its priority. The
//! worker runs the code on a thread with the lowest one, which is started before the worker is sealed: a process
//! without privileges cannot raise a priority again, and a sealed one cannot change any.

use std::io;
use std::sync::mpsc::{Sender, channel};

use belljar_core::give_way;
use belljar_python::{on_guest_thread, on_guest_thread_during};

/// Work for the thread. It sends its result itself.
type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// The thread, as the one sees it that serves the broker.
pub(crate) struct Background<'a> {
    jobs: Sender<Job<'a>>,
}

impl<'a> Background<'a> {
    /// Does `work` on the thread, and returns its result.
    ///
    /// # Errors
    /// Fails if the thread has ended.
    pub(crate) fn run<T: Send + 'a>(&self, work: impl FnOnce() -> T + Send + 'a) -> io::Result<T> {
        let ended = || io::Error::other("a thread of the worker has ended");
        let (send_result, result) = channel();
        let job: Job<'a> = Box::new(move || {
            // Not received if the other thread has failed.
            let _ = send_result.send(work());
        });
        self.jobs.send(job).map_err(|_| ended())?;
        result.recv().map_err(|_| ended())
    }
}

/// Runs `serve` on a guest thread, beside the thread for calls that give way.
///
/// # Errors
/// Fails if the system refuses a thread, and with the error of `serve`.
pub(crate) fn with_background<'a>(serve: impl FnOnce(Background<'a>) -> io::Result<()> + Send) -> io::Result<()> {
    let (jobs, received) = channel::<Job<'a>>();
    let (send_ready, ready) = channel();
    let run_jobs = move || {
        give_way();
        // Not received if the other thread has failed.
        let _ = send_ready.send(());
        for job in received {
            job();
        }
    };
    let mut served = Ok(());
    on_guest_thread_during(run_jobs, || {
        served = on_guest_thread(move || {
            ready.recv().map_err(io::Error::other)?;
            serve(Background { jobs })
        })
        .and_then(|served| served);
    })?;
    served
}
