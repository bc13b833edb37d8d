//! The messages of Monty's worker protocol, versions 5 and 6: field numbers and types are those of its schema
//! (package `monty.v1`).
//!
//! Fields that have no meaning here are left out; decoding skips them.

mod events;
mod json;
mod requests;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use events::*;
pub(crate) use requests::*;
pub(crate) use values::*;

/// The oldest version of the protocol that is served.
pub(crate) const MIN_VERSION: u32 = 5;
/// The newest version of the protocol that is served.
pub(crate) const MAX_VERSION: u32 = 6;
