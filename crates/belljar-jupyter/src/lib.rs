//! Python as Jupyter knows it: native kernels in a Linux sandbox, and Belljar as a kernel of Jupyter's frontends.
//!
//! | room | subject |
//! | --- | --- |
//! | [`frontend`] | Belljar as a kernel: Jupyter's protocol, seen from the kernel |
//! | [`environment`] | the virtual environment of native kernels |
//! | [`sandbox`] | the Linux sandbox that native code runs in |
//! | `backend` | where native kernels come from: those started ahead, the nursery, cold starts |
//! | `kernel` | a session's kernel, as sessions know kernels |
//! | `cell` | running one cell |
//! | `question` | asking the shell something that is no cell |
//! | `client`, `wire` | the protocol between us and a kernel that may be hostile |
//! | `content` | what a kernel says, read from its messages |
//! | `home`, `folder`, `acting` | where a session lives, and its files seen from the host |
//! | `nursery` | the process that kernels are forked from, and kernels' processes |
//! | `switch` | what stops a kernel from another thread |
//! | `pip`, `requirement` | packages for a session, installed by the host |
//! | `guest` | the Python that runs in sessions' processes |

pub mod environment;
pub mod frontend;
pub mod sandbox;

#[cfg(target_os = "linux")]
mod acting;
#[cfg(target_os = "linux")]
mod backend;
#[cfg(target_os = "linux")]
mod cell;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod folder;
#[cfg(target_os = "linux")]
mod guest;
#[cfg(target_os = "linux")]
mod home;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod nursery;
#[cfg(target_os = "linux")]
mod pip;
#[cfg(target_os = "linux")]
mod question;
#[cfg(target_os = "linux")]
mod requirement;
#[cfg(target_os = "linux")]
mod switch;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub use backend::{Native, NativeOptions, NativePackages};
#[cfg(target_os = "linux")]
pub use pip::PackagePolicy;
