//! Python as Jupyter knows it.
