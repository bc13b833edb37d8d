//! MCP servers as toolsets for agents.
//!
//! A Rust counterpart of Python's `pydantic_ai.mcp`: it starts or connects to servers of the [Model Context
//! Protocol](https://modelcontextprotocol.io), lists their tools for an agent, calls them, and answers the servers' own
//! requests. It supports both eras of the protocol, over standard streams, streamable HTTP, and HTTP with server-sent
//! events.
//!
//! ```no_run
//! use belljar_mcp_client::{McpServerStdio, RunContext, Toolset};
//! use serde_json::json;
//!
//! # async fn run() -> Result<(), belljar_mcp_client::McpError> {
//! let server = McpServerStdio::new("npx").args(["-y", "@modelcontextprotocol/server-everything"]).build();
//! let running = server.connect().await?;
//! let run = RunContext::new();
//! for tool in &server.tools(&run).await? {
//!     println!("{}: {}", tool.name, tool.description.as_deref().unwrap_or_default());
//! }
//! let outcome = server.direct_call_tool("echo", json!({"message": "hello"})).await?;
//! println!("{}", outcome.to_text());
//! running.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Start with [`McpServer`] and its builders [`McpServerStdio`], [`McpServerStreamableHttp`] and [`McpServerSse`]; with
//! [`ToolRunner`] for an agent's loop; with [`adapters`] for the APIs of models; with [`load_mcp_servers`] for
//! configuration files. The [guide](https://github.com/belljar/belljar/blob/main/docs/client.md) has a page for each
//! task.
//!
//! # Features
//!
//! `stdio`, `http`, `sse`, `oauth`, `config` and `validate` are on by default. `openai`, `rig` and `genai` add
//! [`adapters`], and `opentelemetry` sends its current trace context.
//!
//! # Versions
//!
//! The types of `rmcp` 3 are public, as [`protocol`] and in [`transport`]. A new major version of `rmcp`, of `http` or
//! of `reqwest` is a new major version of this crate. Any `rmcp` from 3.9 to before 4 is accepted. The lowest version
//! of Rust is 1.89, with the feature `rig` 1.95.
//!
//! # Invariants
//!
//! - Faulty and malicious servers cause errors, never panics: messages, lists and rounds are bounded, schemas are never
//!   fetched, endpoints and redirects stay on the origin of the configured URL.
//! - A failure that the model can correct is [`ToolOutcome::Retry`]; every other failure is an [`McpError`].
//! - Handlers receive messages in the order in which the server sent them, and the messages of a call before its
//!   result.

#![expect(
    deprecated,
    reason = "the modern era replaces logging, sampling, roots and subscriptions; both eras are supported"
)]

pub mod adapters;
#[cfg(feature = "config")]
mod config;
mod error;
#[cfg(doctest)]
mod guide;
mod handlers;
#[cfg(feature = "oauth")]
pub mod oauth;
#[cfg(all(feature = "http", not(feature = "oauth")))]
#[path = "oauth/disabled.rs"]
mod oauth;
mod os;
mod output;
mod run_context;
mod runner;
mod schema;
mod search;
mod server;
mod toolset;
pub mod transport;

/// The attribute of implementations of this crate's traits.
pub use async_trait::async_trait;

/// The protocol's own types, as defined by `rmcp`.
pub use rmcp::model as protocol;

#[cfg(feature = "config")]
pub use config::{ConfigFile, load_mcp_servers, load_mcp_servers_with, parse_mcp_servers};
pub use error::{BoxError, ConfigError, McpError};
pub use handlers::{
    Elicitation, ElicitationHandler, ElicitationResponse, LogHandler, LogLevel, LogMessage, MessageHandler, Model,
    ModelError, ModelPreferences, Progress, ProgressHandler, RequestOrigin, Role, Root, RootsHandler, SamplingContent,
    SamplingMessage, SamplingRequest, SamplingResponse, SamplingTool, StopReason, ToolChoice,
};
pub use output::{Binary, ToolOutput};
pub use run_context::RunContext;
pub use runner::{
    DeferredAnswer, DeferredAnswers, DeferredCall, DeferredCalls, RetryLimitBehavior, Step, ToolCall, ToolMessage,
    ToolReturn, ToolRunner,
};
pub use search::{ToolIndex, ToolMatch};
#[cfg(feature = "sse")]
#[expect(deprecated, reason = "the old name remains available")]
pub use server::McpServerHttp;
#[cfg(feature = "sse")]
pub use server::McpServerSse;
#[cfg(feature = "stdio")]
pub use server::McpServerStdio;
pub use server::{
    AnyServerBuilder, CallOptions, CallTool, CompletionArgument, ConnectionGuard, McpServer, ProcessToolCall,
    PromptContent, PromptMessage, PromptResult, ProtocolEra, ReconnectPolicy, ResourceUpdates, RestartPolicy,
    ResultMapping, RetryPolicy, ServerBuilder, SharedList, ToolErrorBehavior,
};
#[cfg(feature = "http")]
pub use server::{HttpServerBuilderExt, McpServerStreamableHttp};
pub use toolset::{
    AppResult, Approval, ApprovalRequest, Approve, ApprovedToolset, AsyncFilteredToolset, AsyncPreparedToolset,
    BudgetToolset, CombinedToolset, DeferApproval, Deferral, DeferralKind, ExternalToolset, Failure, FilteredToolset,
    FunctionToolset, NeedsApproval, PrefixedToolset, PreparedToolset, RenamedToolset, ResourceToolset, Retry,
    RetryReason, SearchToolset, ToolDefinition, ToolList, ToolOutcome, ToolResult, Toolset, ToolsetExt, ToolsetGuard,
    ToolsetState, ToolsetStatus,
};
pub use transport::CustomTransport;
