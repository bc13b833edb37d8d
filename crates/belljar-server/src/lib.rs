//! The MCP server: the tool `run_python_code`, those of stateful sessions, and the transports that agents reach it by.
//!
//! ```text
//!  stdio ─┐                 ┌─ notifications while it runs ─▶ client
//!  HTTP  ─┼─▶ Server ─▶ Runner ─▶ pool of guest threads: image, interpreter, code
//!  SSE   ─┘   (rmcp)        └─ outcome ─▶ answer: XML, JSON, structured
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `handler` | what the server answers to each request of the protocol |
//! | `tool`, `arguments`, `answer` | the tool: what it is, what it is given, what it gives |
//! | `runner` | code run on guest threads, a fresh interpreter each time |
//! | `fresh_kernel` | the same on a backend of sessions, a fresh kernel each time |
//! | `interpreter` | cells run in sessions that keep their variables, and files as resources |
//! | `listener`, `lines` | what a client hears while code runs |
//! | `images` | pictures that code shows |
//! | `stdio`, `http`, `sse`, `served` | the transports, and what they carry |
//! | `guard`, `oauth`, `cors` | who may talk to the server over HTTP |
//! | `connections`, `tls` | connections, and TLS on them |
//! | `resumable`, `events` | sessions of streamable HTTP, and streams that clients come back to |
//! | `metrics` | numbers about the server |
//!
//! tokio runs the edges only: Python runs on plain threads with stacks of their own.

#![expect(deprecated, reason = "logging is deprecated in the protocol's modern era, and what most clients speak")]

mod answer;
mod arguments;
mod connections;
mod cors;
mod events;
mod fresh_kernel;
mod guard;
mod handler;
mod http;
mod images;
mod interpreter;
mod lines;
mod listener;
mod metrics;
mod oauth;
mod resumable;
mod runner;
mod served;
mod sse;
mod stdio;
mod tls;
mod tool;

pub use answer::ReturnMode;
pub use belljar_sessions::{Capacity, Workplace};
pub use guard::{Admission, Tokens};
pub use handler::Server;
pub use http::{HttpOptions, HttpTransport, serve_http};
pub use oauth::{OAuth, OAuthError};
pub use runner::Runner;
pub use served::Served;
pub use stdio::{serve_stdio, serve_streams};
pub use tls::{Tls, TlsError};
