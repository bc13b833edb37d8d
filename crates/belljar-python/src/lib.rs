//! CPython as a value: runtime files, images, interpreters, outcomes.

pub mod cache;
pub mod runtime;
