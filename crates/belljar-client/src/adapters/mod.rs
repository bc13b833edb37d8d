//! Adapters to other libraries: agents that use servers' tools, and models that servers use.

#[cfg(feature = "openai")]
pub mod openai;
#[cfg(feature = "rig")]
pub mod rig;
