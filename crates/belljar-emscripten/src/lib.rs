//! Runs Emscripten programs in wasmtime, with no JavaScript engine.
//!
//! A [`Program`] is a compiled main module. An [`Instance`] of it has its own memory, files and descriptors, and
//! reaches the world through the system interface in [`mod@syscall`] alone. A [`Snapshot`] of an instance can be
//! restored any number of times: each copy shares the snapshot's memory until it writes to it.
//!
//! Nothing here knows which program it runs.

pub mod clock;
pub mod console;
pub mod dylink;
mod errno;
mod exports;
mod ffi;
pub mod fs;
pub mod guest;
pub mod host;
pub mod limits;
pub mod stop;
mod syscall;
pub mod translate;

pub use errno::Errno;
pub use limits::Limits;
