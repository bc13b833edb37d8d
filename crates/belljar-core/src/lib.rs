//! The words that Belljar's parts share: what a piece of code may use, what it is run with, and how it ended.
//!
//! No code that runs Python stands here, so that every backend and every front can speak of the same things.

pub mod bounded_json;
mod collector;
mod execution;
pub mod files;
pub mod kernel;
mod limits;
pub mod progress;
mod request;

pub use collector::Collector;
pub use execution::{Execution, LimitKind, Outcome, PythonError, Statistics, Value};
pub use limits::{Limits, ParseSizeError, parse_size};
pub use progress::{NoProgress, Progress};
pub use request::{Mode, Request};
