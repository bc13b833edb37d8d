//! What belongs to one run of an agent: who it is for, and what of it servers get to see.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Map, Value};

use crate::error::McpError;
use crate::handlers::{Progress, ProgressHandler};
use crate::server::AppResult;

/// Gets the result of each call of a tool that has a page.
pub(crate) type AppHandler = Arc<dyn Fn(AppResult) + Send + Sync>;

/// One run of an agent, as toolsets and hooks see it.
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
    /// How often the tool that is being called failed before.
    pub retry: u32,
    /// The name of the call, as the model's provider gave it.
    pub tool_call_id: Option<String>,
}

impl RunContext {
    /// A run that adds nothing.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// let run = RunContext::new();
    /// assert_eq!(run.retry, 0);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header to what is sent over HTTP in this run, in place of a header of the same name that the server was
    /// configured with. Requests of one run do not get the headers of another, though they share a connection.
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
    /// [`McpError::Config`] if the name or value is none of HTTP, or the name is the protocol's own.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let (name, value) = crate::transport::endpoint::header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends `Authorization: Bearer …` in this run.
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

    /// Adds to the `_meta` of every call.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// let run = RunContext::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Gets the progress of this run's calls. It must not block.
    ///
    /// ```
    /// # use belljar_client::RunContext;
    /// let run = RunContext::new().progress_handler(|step| eprintln!("{:?}", step.message));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// Gets the result of each successful call of a tool that comes with a page for the user
    /// ([MCP Apps](https://modelcontextprotocol.io/extensions/apps/overview)), unless a hook made another result of it. It
    /// must not block.
    ///
    /// ```
    /// let run = belljar_client::RunContext::new().app_handler(|app| println!("show {}", app.resource_uri));
    /// ```
    pub fn app_handler(mut self, handler: impl Fn(AppResult) + Send + Sync + 'static) -> Self {
        self.app = Some(Arc::new(handler));
        self
    }

    /// Something of the program's own, for its hooks.
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

    /// What [`deps`](Self::deps) was given, if it is of this type.
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
