//! Runs Emscripten programs in wasmtime, without a JavaScript engine.
//!
//! A [`Program`] is a compiled main module. An [`Instance`] of it has its own memory, files and descriptors; its only
//! access to the host is the system interface in [`mod@syscall`]. A [`Snapshot`] of an instance can be restored any
//! number of times: each copy shares the snapshot's memory until it writes to it.
//!
//! This crate does not depend on which program it runs.

mod architecture;
pub mod clock;
pub mod console;
mod delta;
pub mod dylink;
pub mod engine;
mod errno;
mod exports;
mod ffi;
pub mod fs;
pub mod guest_caller;
pub mod guest_memory;
pub mod guest_thread;
pub mod host;
pub mod instance;
pub mod limits;
mod memory;
pub mod network;
pub mod os;
pub mod program;
pub mod recording;
pub mod snapshot;
mod sources;
pub mod stop;
mod syscall;
pub mod termination;
pub mod translate;
mod versions;
pub mod watchdog;
mod working_set;

/// The underlying engine, for embedders that add their own host functions.
pub use wasmtime;

pub use delta::SnapshotDelta;
pub use engine::{CompileTier, Engine, InterruptMode, Processor, Target};
pub use errno::Errno;
pub use ffi::ForeignCalls;
pub use instance::{Instance, InstanceConfig, InstanceError};
pub use limits::{Limits, MemoryMeter};
pub use program::Program;
pub use snapshot::Snapshot;
pub use sources::Readings;
pub use working_set::WorkingSet;
