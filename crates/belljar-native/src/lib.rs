//! Native kernels: processes of a Python of this machine, each in a Linux sandbox (crate `belljar-sandbox`).
//!
//! They are for Linux only: on other systems the crate has [`environment`] alone, the virtual environment that kernels
//! run in. The kernels are in `linux`, whose first lines list its files.

pub mod environment;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::*;
