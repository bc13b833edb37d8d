//! Small guests written as WAT, each made for one behaviour of the machine.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect by panicking")]

mod foreign_calls;
mod guest;
mod linking;
mod linking_scopes;
mod linking_snapshots;
mod side_module;
mod system_calls;
