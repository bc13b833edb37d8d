//! Black-box tests of `belljar-packages` with real wheels from uv's default index, with generated wheels, and with a
//! server on loopback in place of Pyodide's CDN.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bad_wheels;
mod bundle;
mod concurrency;
mod forge;
mod index;
mod old_releases;
mod policy;
mod pyodide;
mod refusals;
mod server;
mod support;
mod unpacking;
