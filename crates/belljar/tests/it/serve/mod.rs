//! The MCP server, spoken to as clients do: raw messages, and clients that others wrote.

mod answers;
mod clients;
mod faults;
mod http;
mod isolation;
mod limits;
mod notifications;
mod own_client;
mod stdio;
mod wire;
