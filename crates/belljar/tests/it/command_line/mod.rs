//! `belljar run` and other commands from outside: statuses, streams, options, texts.

mod calls;
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
mod terminal;
pub(crate) mod tools;
mod variables;
