//! Ctrl-C: the first one interrupts Python, the second one ends the process.

use std::process::ExitCode;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::command_error::CommandError;
use crate::exit_code::{INTERRUPTED, exit};
use crate::os::{self, Signal};
use crate::outcome::fail;

/// The handler of Ctrl-C. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Interrupts(Arc<Mutex<Handler>>);

#[derive(Default)]
struct Handler {
    interrupt: Option<Box<dyn Fn() + Send>>,
    was_called: bool,
}

impl Interrupts {
    /// Runs `work`. Meanwhile the first Ctrl-C calls `interrupt`.
    pub(crate) fn with_handler<T>(&self, interrupt: impl Fn() + Send + 'static, work: impl FnOnce() -> T) -> T {
        *self.0.lock() = Handler { interrupt: Some(Box::new(interrupt)), was_called: false };
        let result = work();
        *self.0.lock() = Handler::default();
        result
    }

    fn on_ctrl_c(&self) {
        let mut handler = self.0.lock();
        match &handler.interrupt {
            Some(interrupt) if !handler.was_called => interrupt(),
            _ => exit(INTERRUPTED),
        }
        handler.was_called = true;
    }
}

/// Runs `work` on a guest thread and returns its result. Another thread handles Ctrl-C meanwhile.
pub(crate) fn run_interruptible(work: impl FnOnce(&Interrupts) -> ExitCode + Send) -> ExitCode {
    run_interruptible_during(work, || ())
}

/// Does the same as [`run_interruptible`]. The calling thread does `meanwhile` before it waits.
pub(crate) fn run_interruptible_during(
    work: impl FnOnce(&Interrupts) -> ExitCode + Send,
    meanwhile: impl FnOnce(),
) -> ExitCode {
    let interrupts = Interrupts::default();
    let handler = interrupts.clone();
    // The handler is installed while the work starts: installing it first would delay every start.
    std::thread::spawn(move || {
        if let Err(error) = os::for_each_signal(&[Signal::Interrupt], |_| handler.on_ctrl_c()) {
            tracing::warn!(%error, "failed to handle Ctrl-C: it will end the process immediately");
        }
    });
    match belljar_python::on_guest_thread_during(|| work(&interrupts), meanwhile) {
        Ok(code) => code,
        Err(error) => fail(CommandError::new(format!("failed to start a thread: {error}"))),
    }
}
