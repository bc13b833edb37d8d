//! The MCP server, spoken to as clients do: raw messages, and clients that others wrote.

mod answers;
pub(crate) mod clients;
mod configurations;
mod conformance;
mod faults;
pub(crate) mod fetched;
pub(crate) mod http;
mod inspector;
mod isolation;
pub(crate) mod leavings;
mod limits;
mod notifications;
mod oauth;
mod own_client;
mod packaging;
mod pages;
mod resuming;
mod stdio;
mod tls;
pub(crate) mod wire;
