//! Tests against real servers: npm's reference servers, the Python SDK's of both eras, servers that misbehave, and
//! pydantic-ai as the measure of what a result is.
//!
//! One binary, so that it is linked once and the servers are installed once: see [`harness`].
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod adapters;
mod apps;
mod configuration;
mod conformance;
mod documentation;
mod everything;
mod faults;
mod harness;
mod life;
mod modern;
mod oauth;
mod oracle;
mod servers;
mod tasks;
mod toolsets;
