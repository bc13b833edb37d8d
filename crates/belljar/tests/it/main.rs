//! Tests of the whole program from outside, and of the library as a server uses it.
//!
//! One binary, so that it is linked once and CPython is compiled once: see [`harness`].
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cells;
mod command_line;
mod harness;
mod hostile;
mod kernel;
mod native_serving;
mod native_setup;
mod packages;
mod runtime_files;
mod serve;
mod sessions;
