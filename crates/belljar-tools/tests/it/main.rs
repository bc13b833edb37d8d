//! Tests of tool calls with real servers: of Python's standard library, and of the package index.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod approvals;
mod calls;
mod harness;
mod hostile;
mod limits;
mod stubs;
