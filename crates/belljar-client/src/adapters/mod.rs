//! The way to other libraries: agents that use servers' tools, models that servers use.

#[cfg(feature = "openai")]
pub mod openai;
#[cfg(feature = "rig")]
pub mod rig;
