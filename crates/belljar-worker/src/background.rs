//! The thread of a worker for calls that give way to those of other owners.
//!
//! The server's thread that makes such a call is marked (`belljar_core::note_giving_way`), and keeps its priority. The
//! worker runs the code on a thread with the lowest one, which is started before the worker is sealed: a process
//! without privileges cannot raise a priority again, and a sealed one cannot change any.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use belljar_core::give_way;
use belljar_python::{Interpreter, on_guest_thread, on_guest_thread_during};

use crate::messages::Event;
use crate::serve::GuestCall;

/// A call, with the interpreter that it is made to.
type Job = (Interpreter, GuestCall);

/// The thread, as the one sees it that serves the broker.
pub(crate) struct Background {
    jobs: Sender<Job>,
    results: Receiver<(Interpreter, Event)>,
}

impl Background {
    /// Makes a call. Returns the interpreter and the event of the call's end.
    ///
    /// # Errors
    /// Fails if the thread has ended.
    pub(crate) fn call(&self, interpreter: Interpreter, call: GuestCall) -> io::Result<(Interpreter, Event)> {
        let ended = || io::Error::other("a thread of the worker has ended");
        self.jobs.send((interpreter, call)).map_err(|_| ended())?;
        self.results.recv().map_err(|_| ended())
    }
}

/// Runs `serve` on a guest thread, beside the thread for calls that give way.
///
/// # Errors
/// Fails if the system refuses a thread, and with the error of `serve`.
pub(crate) fn with_background(serve: impl FnOnce(Background) -> io::Result<()> + Send) -> io::Result<()> {
    let (jobs, received) = channel::<Job>();
    let (send_result, results) = channel();
    let (send_ready, ready) = channel();
    let run_jobs = move || {
        give_way();
        // Not received if the other thread has failed.
        let _ = send_ready.send(());
        for (mut interpreter, call) in received {
            let event = call.run(&mut interpreter);
            if send_result.send((interpreter, event)).is_err() {
                return;
            }
        }
    };
    let mut served = Ok(());
    on_guest_thread_during(run_jobs, || {
        served = on_guest_thread(move || {
            ready.recv().map_err(io::Error::other)?;
            serve(Background { jobs, results })
        })
        .and_then(|served| served);
    })?;
    served
}
