//! Embeds CPython compiled to WebAssembly: its runtime files, memory images, interpreters and execution outcomes.
//!
//! ```no_run
//! use belljar_core::{Limits, NoProgress, RunRequest};
//! use belljar_emscripten::console::Capture;
//! use belljar_python::{Options, Python, Streams, on_guest_thread};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let execution = on_guest_thread(|| -> Result<_, belljar_python::OpenError> {
//!     let python = Python::open(&Options::default(), &NoProgress)?;
//!     let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
//!     let mut interpreter = python.interpreter(Limits::default(), streams)?;
//!     Ok(interpreter.run(&RunRequest::for_cell("6 * 7")))
//! })??;
//! println!("{:?}", execution.outcome);
//! # Ok(())
//! # }
//! ```

mod backend;
mod boot;
mod bootstrap;
mod c_api;
mod error;
mod foreign_calls;
mod guest;
mod guest_call;
mod guest_protocol;
mod heap;
mod host_calls;
mod image;
pub mod install;
mod interpreter;
pub mod isolation;
mod kept_image;
mod layer_archive;
mod libraries;
mod lru;
mod network;
mod owner_memory;
pub mod packages;
mod python;
pub mod runtime;
mod scrubbing;
mod session;
mod session_files;
mod session_in_process;
mod steps;

pub use backend::{BackendOptions, CallEffects, GuestMount, PythonRuntime, RuntimeLoader, WasmBackend, register_calls};
pub use error::OpenError;
pub use guest::VALUE_JSON;
pub use guest_call::{GuestFunction, GuestReturn};
pub use host_calls::{CallError, HostCall, HostCallContext, WaitError};
pub use image::{Image, ImageParts, PreloadFailure};
pub use interpreter::{Completeness, Completions, Interpreter, InterpreterInterruptHandle, Streams};
pub use kept_image::KeptImage;
pub use libraries::{is_optimizing_libraries, optimize_libraries, optimize_libraries_in_background};
pub use network::attach_network;
pub use python::{CacheLimits, Options, PACKAGE_ENTRIES, Python};

pub use session::SESSION_DIRECTORY;

/// Runs `work` on a thread with the stack size that interpreters need, and waits for it.
///
/// # Errors
/// Returns an error if the system fails to start a thread.
pub fn on_guest_thread<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    on_guest_thread_during(work, || ())
}

/// Does the same as [`on_guest_thread`]. The calling thread does `meanwhile` before it waits.
///
/// # Errors
/// Returns an error if the system fails to start a thread; `meanwhile` is not called then.
pub fn on_guest_thread_during<T: Send>(
    work: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> std::io::Result<T> {
    belljar_emscripten::guest_thread::run_during("python", work, meanwhile)
}
