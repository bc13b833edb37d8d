//! Resolving and downloading with uv's crates. The rest of this crate uses none of uv's resolver types.

mod build_context;
mod download;
mod engine;
mod explain;
mod indexes;
mod provider;
mod python_only;
mod release_age;
mod resolve;
mod worker;

pub(crate) use engine::Engine;
pub(crate) use resolve::ResolveRequest;
pub(crate) use worker::Worker;
