//! The MCP server: the tool `run_python_code`, the session tools, and the transports.
//!
//! ```text
//!  stdio ─┐                 ┌─ notifications during the call ─▶ client
//!  HTTP  ─┼─▶ Server ─▶ Runner ─▶ pool of guest threads: image, interpreter, code
//!  SSE   ─┘   (rmcp)        └─ outcome ─▶ result: XML, JSON, structured content
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `handler` | the answers to each request of the protocol |
//! | `tool`, `arguments`, `answer` | `run_python_code`: its definition, its arguments, its result |
//! | `report` | the whole result, for clients that are programs |
//! | `refusals` | calls that are refused by a quota or for lack of memory |
//! | `description` | the descriptions of the tools, from the server's settings |
//! | `code_tools`, `decision` | tools of MCP servers that code can call, and decisions about their calls |
//! | `elicitation`, `input_rounds` | questions to clients: during a call, and between two calls in the modern era |
//! | `runner` | the code of `run_python_code` on guest threads, in a fresh interpreter for each call |
//! | `session_tools` | tools that run cells in sessions, and files of sessions as resources |
//! | `code_execution` | the same sessions by otari's code-execution protocol: plain HTTP requests |
//! | `apps` | panels that show results, in clients with MCP Apps |
//! | `file_download` | the download of a session's file, in parts |
//! | `admin`, `console` | operators' view of all sessions, and their operations: the API, and a page that uses it |
//! | `notifier`, `code_output`, `lines` | notifications to a client while code runs; the output of the code |
//! | `stdio`, `http`, `sse`, `service` | the transports, and their interface to the server |
//! | `line_transport`, `sse_transport`, `bodies` | messages on streams, in events, and in requests |
//! | `activity` | the context of calls, for the audit log and for traces |
//! | `arrival` | the order of calls to one session |
//! | `task_transport` | tasks of the protocol version 2025-11-25, which rmcp does not have |
//! | `guard`, `oauth`, `cors` | access control over HTTP |
//! | `cluster` | requests that another replica has to handle |
//! | `connections`, `tls` | HTTP connections, and TLS |
//! | `resumable`, `events` | sessions of streamable HTTP, and streams that can be resumed |
//! | `monty`, `monty_feeds` | Monty's worker protocol over WebSockets; its feeds for operators |
//! | `metrics` | the server's metrics |
//! | `os` | what depends on the operating system |
//!
//! tokio runs the transports only: Python runs on plain threads with their own stacks.

#![expect(deprecated, reason = "logging is deprecated in the protocol's modern era, but most clients use it")]

mod activity;
mod admin;
mod answer;
mod apps;
mod arguments;
mod arrival;
mod bodies;
mod cluster;
mod code_execution;
mod code_output;
mod code_tools;
mod connections;
mod console;
mod cors;
mod decision;
mod description;
mod elicitation;
mod events;
mod file_download;
mod guard;
mod handler;
mod http;
mod input_rounds;
mod line_transport;
mod lines;
mod metrics;
mod monty;
mod monty_feeds;
mod notifier;
mod oauth;
mod os;
mod refusals;
mod report;
mod resumable;
mod runner;
mod service;
mod session_tools;
mod sse;
mod sse_transport;
mod stdio;
mod task_transport;
mod tls;
mod tool;

pub use answer::ReturnMode;
pub use code_tools::CodeTools;
pub use description::{MountDescription, PackageRules, SandboxDescription, SandboxKind};
pub use guard::{AccessPolicy, Operators, Tokens};
pub use handler::{Server, ServerOptions};
pub use http::{HttpOptions, HttpTransport, serve_http};
#[doc(hidden)]
pub use line_transport::parse_message;
pub use metrics::{McpSessionDurations, Refusals, call_statuses};
pub use monty::MontyWorkers;
pub use oauth::{OAuth, OAuthError};
pub use runner::Runner;
pub use service::McpService;
pub use stdio::{serve_stdio, serve_streams};
pub use tls::{Tls, TlsError};
