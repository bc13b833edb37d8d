//! The console's files, and the admin API: access, sessions, cells, questions, events, and code that runs once.

mod access;
mod cells;
mod commands;
mod events;
mod questions;
mod runs;
mod sessions;
