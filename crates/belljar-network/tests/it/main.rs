//! Tests of network access with real servers on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod client;
mod framing;
mod http;
mod limits;
mod rules;
mod scrubbing;
mod secrets;
mod server;
mod smuggling;
mod splits;
mod tls;
mod websocket;
