//! The context of one run of an agent: its credentials, its metadata and its handlers.

use std::any::Any;
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
/// use belljar_client::RunContext;
/// use serde_json::json;
///
/// # fn main() -> Result<(), belljar_client::McpError> {
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
    pub(crate) headers: HeaderMap,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) progress: Option<ProgressHandler>,
    pub(crate) app: Option<AppHandler>,
    deps: Option<Arc<dyn Any + Send + Sync>>,
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
    /// # use belljar_client::RunContext;
    /// let run = RunContext::new();
    /// assert_eq!(run.retry, 0);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header to the HTTP requests of this run, replacing a header of the same name from the server's
    /// configuration. Requests of one run do not get the headers of another, although they share a connection.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let run = RunContext::new().header("x-request-id", "42")?;
    /// assert!(RunContext::new().header("mcp-session-id", "42").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if HTTP does not allow the name or value, or if the name is reserved for the protocol.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let (name, value) = crate::transport::headers::header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends `Authorization: Bearer …` with the HTTP requests of this run.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let run = RunContext::new().bearer_token("the user's token")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if the token has characters that HTTP does not allow.
    pub fn bearer_token(self, token: &str) -> Result<Self, McpError> {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Adds an entry to the `_meta` of every call.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// let run = RunContext::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Sets the handler of this run's progress notifications. It must not block.
    ///
    /// ```
    /// # use belljar_client::RunContext;
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
    /// let run = belljar_client::RunContext::new().app_handler(|app| println!("show {}", app.resource_uri));
    /// ```
    pub fn app_handler(mut self, handler: impl Fn(AppResult) + Send + Sync + 'static) -> Self {
        self.app = Some(Arc::new(handler));
        self
    }

    /// Marks the call as approved: toolsets that need approval do not ask again.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// assert!(RunContext::new().approved(true).is_approved());
    /// ```
    pub fn approved(mut self, approved: bool) -> Self {
        self.approved = approved;
        self
    }

    /// Returns whether the call was approved.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// assert!(!RunContext::new().is_approved());
    /// ```
    pub fn is_approved(&self) -> bool {
        self.approved
    }

    /// Attaches a value of the program for use in its hooks.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// struct User(&'static str);
    ///
    /// let run = RunContext::new().deps(User("Ada"));
    /// assert_eq!(run.get_deps::<User>().unwrap().0, "Ada");
    /// ```
    pub fn deps<T: Any + Send + Sync>(mut self, deps: T) -> Self {
        self.deps = Some(Arc::new(deps));
        self
    }

    /// Returns the value that [`deps`](Self::deps) attached, if it is of type `T`.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// assert_eq!(RunContext::new().deps(1_u8).get_deps::<u16>(), None);
    /// ```
    pub fn get_deps<T: Any>(&self) -> Option<&T> {
        self.deps.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RunContext")
            .field("headers", &self.headers)
            .field("metadata", &self.metadata)
            .field("retry", &self.retry)
            .field("tool_call_id", &self.tool_call_id)
            .finish_non_exhaustive()
    }
}
