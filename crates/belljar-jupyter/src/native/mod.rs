//! Native kernels: processes of a Python of this machine, each in a sandbox that Linux holds.
//!
//! | room | subject |
//! | --- | --- |
//! | [`sandbox`] | the Linux sandbox that native code runs in |
//! | `backend` | where native kernels come from: those started ahead, the nursery, cold starts |
//! | `kernel` | a session's kernel, as sessions know kernels |
//! | `cell` | running one cell |
//! | `question` | asking the shell something that is no cell |
//! | `client`, `wire` | the protocol between us and a kernel that may be hostile |
//! | `content`, `shown` | what a kernel says, read from its messages; what of it a cell shows |
//! | `home`, `folder`, `acting` | where a session lives, and its files seen from the host |
//! | `nursery` | the process that kernels are forked from, and kernels' processes |
//! | `processor` | how much processor time a kernel takes |
//! | `switch` | what stops a kernel from another thread |
//! | `pip`, `installer`, `requirement`, `site` | packages for a session, installed by the host |
//! | `guest` | the Python that runs in sessions' processes |

pub mod sandbox;

mod acting;
mod backend;
mod cell;
mod client;
mod content;
mod folder;
mod guest;
mod home;
mod installer;
mod kernel;
mod nursery;
mod pip;
mod processor;
mod question;
mod requirement;
mod shown;
mod site;
mod switch;
mod wire;

pub use backend::{Native, NativeOptions, NativePackages, PACKAGE_BYTES};
pub use installer::PackagePolicy;
