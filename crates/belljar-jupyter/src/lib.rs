//! Python as Jupyter knows it.

pub mod sandbox;
