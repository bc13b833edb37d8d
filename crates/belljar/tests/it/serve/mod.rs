//! The MCP server, spoken to as clients do: raw messages, and clients that others wrote.

mod answers;
pub(crate) mod clients;
mod faults;
pub(crate) mod http;
mod isolation;
mod limits;
mod notifications;
mod stdio;
pub(crate) mod wire;
