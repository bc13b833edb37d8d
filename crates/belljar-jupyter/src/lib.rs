//! Python as Jupyter knows it.
//!
//! | room | subject |
//! | --- | --- |
//! | `wire` | the protocol between us and a kernel that may be hostile |
//! | `content` | what a kernel says, read from its messages |

#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod wire;
