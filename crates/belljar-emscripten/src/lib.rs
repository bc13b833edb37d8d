//! Runs Emscripten programs in wasmtime, with no JavaScript engine.
//!
//! A [`Program`] is a compiled main module. An [`Instance`] of it has its own memory, files and descriptors, and
//! reaches the world through the system interface in [`mod@syscall`] alone. A [`Snapshot`] of an instance can be
//! restored any number of times: each copy shares the snapshot's memory until it writes to it.
//!
//! Nothing here knows which program it runs.

pub mod clock;
pub mod console;
mod difference;
pub mod dylink;
pub mod engine;
mod errno;
mod exports;
mod ffi;
pub mod fs;
pub mod guest;
pub mod host;
pub mod instance;
pub mod limits;
mod memory;
mod pagemap;
pub mod program;
pub mod reentry;
pub mod snapshot;
pub mod stop;
mod syscall;
pub mod thread;
pub mod translate;
pub mod watchdog;
mod working_set;

/// The engine underneath, for embedders that add host functions of their own.
pub use wasmtime;

pub use difference::Difference;
pub use engine::{Effort, Engine, HardStop};
pub use errno::Errno;
pub use instance::{Instance, InstanceError, Setup};
pub use limits::Limits;
pub use program::Program;
pub use snapshot::Snapshot;
pub use working_set::WorkingSet;
