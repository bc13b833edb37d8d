//! `rig`: tools of a toolset for its agents, and its models for servers.

mod model;
mod tools;

pub use model::RigModel;
pub use tools::RigTools;
