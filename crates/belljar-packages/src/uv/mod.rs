//! All that is done with uv's crates: resolving and downloading. The rest of the crate sees types of its own.

mod build_context;
mod download;
mod engine;
mod explain;
mod indexes;
mod python_only;
mod resolve;
mod worker;

pub(crate) use engine::Engine;
pub(crate) use resolve::Demand;
pub(crate) use worker::Worker;
