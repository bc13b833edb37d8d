//! Tests against real servers: npm's reference servers, the Python SDK's of both eras, and faulty servers. Results are
//! compared with those of pydantic-ai.
//!
//! A single binary, so that it is linked once and the servers are installed once: see [`harness`].
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod adapters;
mod agents;
mod apps;
mod builders;
mod combined;
mod configuration;
mod conformance;
mod connections;
mod documentation;
mod everything;
mod faults;
mod handlers;
mod harness;
mod identities;
mod limits;
mod lists;
mod media;
mod modern;
mod oauth;
mod oracle;
mod order;
mod proxies;
mod reconnecting;
mod redirects;
mod runner;
mod search;
mod secrets;
mod servers;
mod settings;
mod spans;
mod sse;
mod stored;
mod tasks;
mod tls;
mod toolsets;
