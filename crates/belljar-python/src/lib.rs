//! CPython as a value: its files, its images, interpreters, and how code run in them ends.
//!
//! ```no_run
//! use belljar_core::{Limits, NoProgress, Request};
//! use belljar_emscripten::console::Capture;
//! use belljar_python::{Options, Python, Streams, on_guest_thread};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let execution = on_guest_thread(|| -> Result<_, belljar_python::OpenError> {
//!     let python = Python::open(&Options::default(), &NoProgress)?;
//!     let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
//!     let mut interpreter = python.interpreter(Limits::default(), streams)?;
//!     Ok(interpreter.run(&Request::cell("6 * 7")))
//! })??;
//! println!("{:?}", execution.outcome);
//! # Ok(())
//! # }
//! ```

mod boot;
mod calls;
mod guest;
mod image;
pub mod install;
mod interop;
mod interpreter;
mod libraries;
pub mod packages;
mod python;
mod recent;
pub mod runtime;
mod session;
mod workshop;

pub use calls::{CallError, GaveUp, HostCall, Scene};
pub use guest::VALUES;
pub use image::{Image, LeftOut};
pub use interpreter::{Completeness, Interpreter, Interrupter, Streams};
pub use python::{Keep, OpenError, Options, PACKAGE_ENTRIES, Python};

pub use session::{Cell, CellRequest, SESSION_DIRECTORY, ShellQuestion};

/// Runs `work` on a thread with the stack that interpreters need, and waits for it.
///
/// # Errors
/// When the system refuses another thread.
pub fn on_guest_thread<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    belljar_emscripten::thread::run("python", work)
}
