//! Python as Jupyter knows it.

pub mod environment;
pub mod frontend;
