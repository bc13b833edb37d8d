//! Ctrl-C: the first interrupts Python, the second ends the process.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

/// Exit status of a program that was interrupted, as shells show SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// What a Ctrl-C is meant for.
#[derive(Clone, Default)]
pub(crate) struct Interrupts(Arc<Mutex<Target>>);

#[derive(Default)]
struct Target {
    running: Option<Box<dyn Fn() + Send>>,
    pressed: bool,
}

impl Interrupts {
    /// Runs `work`, on which Ctrl-C has `interrupt` called.
    pub(crate) fn during<T>(&self, interrupt: impl Fn() + Send + 'static, work: impl FnOnce() -> T) -> T {
        *self.lock() = Target { running: Some(Box::new(interrupt)), pressed: false };
        let result = work();
        *self.lock() = Target::default();
        result
    }

    fn press(&self) {
        let mut target = self.lock();
        match &target.running {
            Some(interrupt) if !target.pressed => interrupt(),
            _ => std::process::exit(INTERRUPTED.into()),
        }
        target.pressed = true;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` on a guest thread and ends the process with its result; meanwhile watches for Ctrl-C.
pub(crate) fn guard(work: impl FnOnce(&Interrupts) -> ExitCode + Send) -> ExitCode {
    let interrupts = Interrupts::default();
    let watched = interrupts.clone();
    // The watch is set up beside the work, not before it: it would delay every start.
    std::thread::spawn(move || match Signals::new([SIGINT]) {
        Ok(mut signals) => signals.forever().for_each(|_| watched.press()),
        Err(error) => tracing::warn!(%error, "Ctrl-C will end the process at once"),
    });
    match belljar_python::on_guest_thread(|| work(&interrupts)) {
        Ok(code) => code,
        Err(error) => crate::outcome::fail(&format!("cannot start a thread: {error}")),
    }
}
