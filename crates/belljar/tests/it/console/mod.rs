//! The console's files, and the admin API: access, sessions, cells, questions and events.

mod access;
mod cells;
mod commands;
mod events;
mod questions;
mod sessions;
