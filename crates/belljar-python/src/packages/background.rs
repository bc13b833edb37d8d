//! Compilation of modules to bytecode after a program has imported them from their sources: one thread of the lowest
//! priority does it in processes that run for long.

use belljar_core::NoProgress;
use belljar_emscripten::os::lower_thread_priority;
use parking_lot::Mutex;

use super::{PackageSet, reachable::ModulePaths};
use crate::python::Python;

/// The modules to compile, and the state of the thread that does it.
#[derive(Default)]
pub(crate) struct BytecodeQueue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<(PackageSet, ModulePaths)>,
    is_running: bool,
}

impl BytecodeQueue {
    /// Adds modules, and starts the thread if necessary.
    pub(crate) fn enqueue(&self, python: &Python, set: &PackageSet, modules: ModulePaths) {
        let mut state = self.0.lock();
        state.waiting.push((set.clone(), modules));
        if state.is_running {
            return;
        }
        let python = python.clone();
        let started = std::thread::Builder::new().name("bytecode".into()).spawn(move || {
            lower_thread_priority();
            let ran = crate::on_guest_thread(|| compile_until_empty(&python));
            if let Err(error) = ran {
                tracing::debug!(%error, "failed to start a guest thread for compiling modules");
            }
        });
        match started {
            Ok(_) => state.is_running = true,
            Err(error) => tracing::debug!(%error, "failed to start a thread for compiling modules"),
        }
    }

    /// Returns the next modules. Returns `None` and marks the thread as stopped if the queue is empty.
    fn next(&self) -> Option<(PackageSet, ModulePaths)> {
        let mut state = self.0.lock();
        let next = state.waiting.pop();
        state.is_running = next.is_some();
        next
    }
}

fn compile_until_empty(python: &Python) {
    while let Some((set, modules)) = python.bytecode_queue().next() {
        if let Err(error) = python.compile(&set, &modules, &NoProgress) {
            tracing::debug!(%error, "failed to compile modules that were imported");
        }
    }
}
