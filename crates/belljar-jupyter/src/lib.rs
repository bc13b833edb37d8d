//! Python as Jupyter knows it: native kernels in a Linux sandbox, and Belljar as a kernel of Jupyter's frontends.
//!
//! | room | subject |
//! | --- | --- |
//! | [`frontend`] | Belljar as a kernel: Jupyter's protocol, seen from the kernel |
//! | [`environment`] | the virtual environment of native kernels |
//! | `native` | native kernels, on Linux alone: its first lines say what stands in it |
//!
//! What has a name of its own outside, [`sandbox`] and [`Native`], is `native`'s.

pub mod environment;
pub mod frontend;

// The one gate: what is behind it needs namespaces, Landlock and seccomp.
#[cfg(target_os = "linux")]
mod native;
#[cfg(target_os = "linux")]
pub use native::{Native, NativeOptions, NativePackages, PACKAGE_BYTES, PackagePolicy, sandbox};
