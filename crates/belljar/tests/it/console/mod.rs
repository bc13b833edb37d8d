//! The console's files, and the admin API: access, sessions, cells, questions, events, code that runs once, and feeds.

mod access;
mod cells;
mod commands;
mod document;
mod events;
mod feeds;
mod questions;
mod runs;
mod sessions;
