//! Tests with small guests written in WAT, each for one behaviour of the host.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod damaged_deltas;
mod foreign_calls;
mod guest;
mod linking;
mod linking_lazy;
mod linking_scopes;
mod linking_snapshots;
mod side_module;
mod system_calls;
