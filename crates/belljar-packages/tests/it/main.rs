//! Black-box tests of `belljar-packages`: real wheels from the index that uv's defaults name, wheels made for the
//! purpose, and a server on loopback that stands for Pyodide's CDN.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bad_wheels;
mod bundle;
mod concurrency;
mod forge;
mod index;
mod policy;
mod pyodide;
mod server;
mod support;
mod unpacking;
