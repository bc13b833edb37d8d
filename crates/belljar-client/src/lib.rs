//! MCP servers as toolsets for agents.
//!
//! What `pydantic_ai.mcp` is to a Python program, this crate is to one in Rust: it starts or connects to servers of the
//! [Model Context Protocol](https://modelcontextprotocol.io), shows their tools to an agent, calls them, and answers what
//! servers ask in return. It speaks both eras of the protocol, over standard streams, streamable HTTP, and HTTP with
//! server-sent events.
//!
//! ```no_run
//! use belljar_client::{McpServerStdio, RunContext, Toolset};
//! use serde_json::json;
//!
//! # async fn run() -> Result<(), belljar_client::McpError> {
//! let server = McpServerStdio::new("npx").args(["-y", "@modelcontextprotocol/server-everything"]).build();
//! let running = server.connect().await?;
//! let run = RunContext::new();
//! for tool in server.tools(&run).await? {
//!     println!("{}: {}", tool.name, tool.description.unwrap_or_default());
//! }
//! let outcome = server.direct_call_tool("echo", json!({"message": "hello"})).await?;
//! println!("{}", outcome.to_text());
//! running.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Start with [`McpServer`] and its builders [`McpServerStdio`], [`McpServerStreamableHttp`] and [`McpServerSse`]; with
//! [`Toolset`] for what an agent's loop needs; with [`load_mcp_servers`] for configuration files.
//!
//! # Invariants
//!
//! - A server's mistakes and malice are errors, never panics: messages, lists and rounds are bounded, schemas are never
//!   fetched, endpoints and redirects stay on the origin that was connected to.
//! - What a model can mend is [`ToolOutcome::Retry`]; everything else is an [`McpError`].
//! - Handlers see messages in the order in which the server sent them, and those of a call before its result.

#![expect(
    deprecated,
    reason = "the modern era replaces logging, sampling, roots and subscriptions; servers of both eras are spoken to here"
)]

#[cfg(any(feature = "openai", feature = "rig"))]
pub mod adapters;
mod config;
mod error;
mod handlers;
pub mod oauth;
mod output;
mod run;
mod schema;
mod server;
mod toolset;
pub mod transport;

/// The protocol's own types: what servers send, as `rmcp` has them.
pub use rmcp::model as protocol;

pub use config::{load_mcp_servers, parse_mcp_servers};
pub use error::{BoxError, McpError};
pub use handlers::{
    Elicitation, ElicitationHandler, ElicitationResponse, LogHandler, LogLevel, LogMessage, MessageHandler, Model,
    ModelError, ModelPreferences, Progress, ProgressHandler, Root, RootsHandler, SamplingContent, SamplingMessage,
    SamplingRequest, SamplingResponse, SamplingRole, SamplingTool, StopReason, ToolChoice,
};
pub use output::{Binary, ToolOutput};
pub use run::RunContext;
#[expect(deprecated, reason = "the old name is offered to those who know it")]
pub use server::McpServerHttp;
pub use server::{
    AppResult, Argument, CallOptions, CallTool, CustomTransport, McpServer, McpServerSse, McpServerStdio,
    McpServerStreamableHttp, OverHttp, ProcessToolCall, Prompt, PromptContent, PromptMessage, ProtocolEra,
    ReconnectPolicy, ResourceUpdates, Running, ServerBuilder, ToolErrorBehavior,
};
pub use toolset::{
    Approval, ApprovalRequest, Approve, ApprovedToolset, CombinedToolset, Enter, FilteredToolset, PrefixedToolset,
    PreparedToolset, RenamedToolset, Retry, ToolDefinition, ToolOutcome, Toolset, ToolsetExt,
};
