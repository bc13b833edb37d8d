//! Belljar as a kernel of Jupyter, as Jupyter's own programs use it.

mod clients;
mod installing;
