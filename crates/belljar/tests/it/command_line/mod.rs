//! `belljar run` and other commands from outside: statuses, streams, options, texts.

mod calls;
#[cfg(unix)]
mod escapes;
mod help;
mod interrupting;
mod json;
mod limits;
mod manuals;
mod mounts;
mod programs;
mod prompting;
mod siblings;
mod sleeping;
mod statuses;
mod streams;
#[cfg(unix)]
mod terminal;
pub(crate) mod tools;
mod variables;
