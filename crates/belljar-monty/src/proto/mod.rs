//! The messages of Monty's worker protocol, versions 5 and 6: field numbers and types are those of
//! `proto/monty.proto`.
//!
//! They are written by hand and not generated: they are also the JSON of the guest, and a generator would take 27
//! seconds of processor time in each build. A test compares them with the schema. Fields that have no meaning here are
//! left out; decoding skips them.

mod events;
mod json;
mod requests;
#[cfg(test)]
mod schema_tests;
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
