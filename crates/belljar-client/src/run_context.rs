//! The context of one run of an agent: its identity, its metadata and its handlers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Map, Value};

use crate::error::McpError;
use crate::handlers::{Progress, ProgressHandler};
use crate::toolset::outcome::AppResult;

/// A handler of the results of tools that have a page.
pub(crate) type AppHandler = Arc<dyn Fn(AppResult) + Send + Sync>;

/// The context of one run of an agent, passed to toolsets and hooks.
///
/// ```
/// use belljar_mcp_client::RunContext;
/// use serde_json::json;
///
/// # fn main() -> Result<(), belljar_mcp_client::McpError> {
/// let run = RunContext::new()
///     .bearer_token("the user's token")?
///     .header("x-request-id", "42")?
///     .metadata("trace", json!("abc"))
///     .deps(7_u32);
/// assert_eq!(run.get_deps::<u32>(), Some(&7));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct RunContext {
    /// The headers that identify the run, and those of its requests only.
    pub(crate) headers: HeaderMap,
    pub(crate) request_headers: HeaderMap,
    pub(crate) identity: Option<Arc<str>>,
    /// The entries of `_meta` that place the requests of this run in a trace.
    pub(crate) trace: Map<String, Value>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) progress: Option<ProgressHandler>,
    pub(crate) app: Option<AppHandler>,
    /// The values of the program, by type.
    deps: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    approved: bool,
    /// The number of previous failures of the tool that is being called.
    pub retry: u32,
    /// The ID of the call, as assigned by the model's provider.
    pub tool_call_id: Option<String>,
}

impl RunContext {
    /// Creates a context that adds nothing.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// let run = RunContext::new();
    /// assert_eq!(run.retry, 0);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header that identifies this run to all its HTTP requests, replacing a header of the same name from the
    /// server's configuration. Runs with different headers have different sessions: see
    /// [`McpServer::for_run`](crate::McpServer::for_run). Use [`request_header`](Self::request_header) for headers that
    /// differ between the runs of one user.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let run = RunContext::new().header("x-user", "ada")?;
    /// assert!(RunContext::new().header("mcp-session-id", "42").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if HTTP does not allow the name or value, or if the name is reserved for the
    /// protocol.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let (name, value) = crate::transport::headers::header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Adds a header to the HTTP requests of this run that does not identify it, such as an ID for the logs. Runs that
    /// differ only in such headers share a session; the header is not sent with `initialize`.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let run = RunContext::new().bearer_token("the user's token")?.request_header("x-request-id", "42")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`header`](Self::header).
    pub fn request_header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let (name, value) = crate::transport::headers::header(name, value)?;
        self.request_headers.insert(name, value);
        Ok(self)
    }

    /// Names the identity of this run, for example with the ID of its user. Runs of the same name share a session, even
    /// if their headers differ (a token may have been renewed: the session then uses the headers of the latest run);
    /// runs of different names never do. Without a name the identity is derived from the headers.
    ///
    /// On transports without headers only the name separates runs: each name has a child process of its own.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let run = RunContext::new().identity("ada").bearer_token("a token that expires")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn identity(mut self, name: impl Into<Arc<str>>) -> Self {
        self.identity = Some(name.into());
        self
    }

    /// Sends the [W3C trace context](https://www.w3.org/TR/trace-context/) `traceparent` in the `_meta` of the requests
    /// of this run, so that the spans of the server belong to the trace of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// let run = RunContext::new().traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    /// ```
    pub fn traceparent(mut self, value: impl Into<String>) -> Self {
        self.trace.insert("traceparent".to_owned(), Value::String(value.into()));
        self
    }

    /// Sends a `tracestate` along with the [`traceparent`](Self::traceparent).
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// let run = RunContext::new()
    ///     .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    ///     .tracestate("vendor=value");
    /// ```
    pub fn tracestate(mut self, value: impl Into<String>) -> Self {
        self.trace.insert("tracestate".to_owned(), Value::String(value.into()));
        self
    }

    /// Sets the number of previous failures of the tool that is being called.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// assert_eq!(RunContext::new().retry(2).retry, 2);
    /// ```
    pub fn retry(mut self, failures: u32) -> Self {
        self.retry = failures;
        self
    }

    /// Sets the ID of the call, as assigned by the model's provider.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// assert_eq!(RunContext::new().tool_call_id("call_1").tool_call_id.as_deref(), Some("call_1"));
    /// ```
    pub fn tool_call_id(mut self, id: impl Into<String>) -> Self {
        self.tool_call_id = Some(id.into());
        self
    }

    /// Sends `Authorization: Bearer …` with the HTTP requests of this run.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let run = RunContext::new().bearer_token("the user's token")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the token has characters that HTTP does not allow.
    pub fn bearer_token(self, token: &str) -> Result<Self, McpError> {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Adds an entry to the `_meta` of every call.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// let run = RunContext::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Sets the handler of this run's progress notifications. It must not block.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// let run = RunContext::new().progress_handler(|step| eprintln!("{:?}", step.message));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// Sets the handler of the results of successful calls to tools that have a page for the user ([MCP
    /// Apps](https://modelcontextprotocol.io/extensions/apps/overview)). It is not called for a result that a hook
    /// replaced. It must not block.
    ///
    /// ```
    /// let run = belljar_mcp_client::RunContext::new().app_handler(|app| println!("show {}", app.resource_uri));
    /// ```
    pub fn app_handler(mut self, handler: impl Fn(AppResult) + Send + Sync + 'static) -> Self {
        self.app = Some(Arc::new(handler));
        self
    }

    /// Marks the call as approved: toolsets that need approval do not ask again.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// assert!(RunContext::new().approved(true).is_approved());
    /// ```
    pub fn approved(mut self, approved: bool) -> Self {
        self.approved = approved;
        self
    }

    /// Returns whether the call was approved.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// assert!(!RunContext::new().is_approved());
    /// ```
    pub fn is_approved(&self) -> bool {
        self.approved
    }

    /// Attaches a value of the program for use in its hooks, one for each type: a second value of the same type
    /// replaces the first.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// struct User(&'static str);
    /// struct Tenant(u32);
    ///
    /// let run = RunContext::new().deps(User("Ada")).deps(Tenant(7));
    /// assert_eq!(run.get_deps::<User>().unwrap().0, "Ada");
    /// assert_eq!(run.get_deps::<Tenant>().unwrap().0, 7);
    /// ```
    pub fn deps<T: Any + Send + Sync>(mut self, deps: T) -> Self {
        self.deps.insert(TypeId::of::<T>(), Arc::new(deps));
        self
    }

    /// Returns the value of type `T` that [`deps`](Self::deps) attached, if any.
    ///
    /// ```
    /// # use belljar_mcp_client::RunContext;
    /// assert_eq!(RunContext::new().deps(1_u8).get_deps::<u16>(), None);
    /// ```
    pub fn get_deps<T: Any>(&self) -> Option<&T> {
        self.deps.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl RunContext {
    /// Returns the headers of the identity and of the requests.
    pub(crate) fn all_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.extend(self.request_headers.clone());
        headers
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RunContext")
            .field("headers", &self.headers)
            .field("request_headers", &self.request_headers)
            .field("metadata", &self.metadata)
            .field("retry", &self.retry)
            .field("tool_call_id", &self.tool_call_id)
            .finish_non_exhaustive()
    }
}
