//! The interpreter of code that is run once: in this process, or in one of its own.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{InterruptHandle, KernelError};
use belljar_core::{Execution, Outcome, RunRequest};
use belljar_emscripten::fs::Filesystem;

use super::isolated_interpreter::IsolatedInterpreter;
use super::wait_clock::WaitEnd;
use crate::image::Image;
use crate::interpreter::{Interpreter, Renewal};
use crate::isolation::SavedPart;
use crate::network::NetworkClient;
use crate::steps::Step;

/// The largest memory of an interpreter in another process that is saved, in bytes: the process has it twice meanwhile.
const MAX_SAVED_MEMORY: u64 = 512 << 20;

/// The interpreter of code that waits, as it is saved.
pub(in crate::backend) struct SavedInterpreter {
    /// The difference from the image.
    pub(in crate::backend) data: Vec<u8>,
    pub(in crate::backend) renewal: Renewal,
    /// The time that the code has run.
    pub(in crate::backend) spent: Duration,
}

/// The interpreter of code that is run once.
pub(in crate::backend) enum RunInterpreter {
    /// An interpreter in this process.
    Local(Box<Interpreter>),
    /// An interpreter in a process of its own.
    Isolated(Box<IsolatedInterpreter>),
}

impl RunInterpreter {
    pub(in crate::backend) fn begin_run(&mut self, request: &RunRequest) -> Step<Execution> {
        match self {
            Self::Local(interpreter) => interpreter.begin_run(request),
            Self::Isolated(interpreter) => interpreter.begin_run(request, true),
        }
    }

    pub(in crate::backend) fn run(&mut self, request: &RunRequest) -> Step<Execution> {
        match self {
            Self::Local(interpreter) => Step::Completed(interpreter.run(request)),
            Self::Isolated(interpreter) => interpreter.begin_run(request, false),
        }
    }

    pub(in crate::backend) fn resume_run(&mut self, wait_end: WaitEnd) -> Step<Execution> {
        match self {
            Self::Local(interpreter) => {
                wait_end.apply(interpreter);
                interpreter.resume_run()
            }
            Self::Isolated(interpreter) => interpreter.resume_run(wait_end),
        }
    }

    /// Returns the outcome of the end of the program, or `None` if the interpreter has ended before.
    pub(in crate::backend) fn finish(&mut self) -> Option<Outcome> {
        match self {
            Self::Local(interpreter) if interpreter.is_dead() => None,
            Self::Local(interpreter) => Some(interpreter.finish().outcome),
            Self::Isolated(interpreter) => interpreter.finish(),
        }
    }

    pub(in crate::backend) fn has_used_streams(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_used_streams(),
            Self::Isolated(interpreter) => interpreter.has_used_streams,
        }
    }

    pub(in crate::backend) fn has_used_network(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_used_network(),
            Self::Isolated(interpreter) => interpreter.connections.as_ref().is_some_and(|these| these.any_opened()),
        }
    }

    pub(in crate::backend) fn has_connections(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_connections(),
            Self::Isolated(interpreter) => interpreter.host.network.has_connections(),
        }
    }

    pub(in crate::backend) fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        match self {
            Self::Local(interpreter) => Arc::new(interpreter.interrupt_handle()),
            Self::Isolated(interpreter) => interpreter.process.interrupt_handle(),
        }
    }

    /// Saves the interpreter of code that waits, which was started from `image`.
    ///
    /// # Errors
    /// Fails if the interpreter has ended, or the state is too large.
    pub(in crate::backend) fn save(&mut self, image: &Image) -> Result<SavedInterpreter, KernelError> {
        match self {
            Self::Local(interpreter) => {
                let delta = interpreter.delta(image).map_err(|error| KernelError::Failed(error.into()))?;
                let data = delta.to_bytes().map_err(|error| KernelError::Failed(error.into()))?;
                Ok(SavedInterpreter { data, renewal: interpreter.renewal(), spent: interpreter.spent })
            }
            Self::Isolated(interpreter) if interpreter.peak_memory > MAX_SAVED_MEMORY => {
                Err(KernelError::Unsupported("code in a worker process with much memory waits there only".into()))
            }
            Self::Isolated(interpreter) => {
                let data = interpreter.process.save(SavedPart::State)?;
                Ok(SavedInterpreter { data, renewal: interpreter.renewal, spent: interpreter.spent })
            }
        }
    }

    /// Returns the file system with the buffers of the value.
    pub(in crate::backend) fn value_files(&mut self) -> &mut Filesystem {
        match self {
            Self::Local(interpreter) => interpreter.files(),
            Self::Isolated(interpreter) => &mut interpreter.host.files,
        }
    }

    /// Returns the interpreter, to connect it to the network.
    pub(in crate::backend) fn network_client(&mut self) -> &mut dyn NetworkClient {
        match self {
            Self::Local(interpreter) => &mut **interpreter,
            Self::Isolated(interpreter) => &mut **interpreter,
        }
    }
}
