//! The MCP server, used by raw messages and by clients that others wrote.

mod answers;
mod cleanup;
pub(crate) mod clients;
mod code_execution;
mod configurations;
mod conformance;
mod deployment;
mod faults;
mod fetched;
mod flooding;
pub(crate) mod http;
mod inspector;
mod isolation;
mod limits;
mod metrics;
mod notifications;
mod oauth;
mod own_client;
mod packaging;
mod pages;
mod reloading;
mod resuming;
mod service;
mod stdio;
mod tenants;
pub(crate) mod tls;
mod tools;
