//! `belljar run` and its neighbours as people and programs meet them: statuses, streams, options, texts.

mod calls;
mod help;
mod interrupting;
mod json;
mod limits;
mod mounts;
mod programs;
mod prompting;
mod statuses;
mod streams;
mod terminal;
mod variables;
