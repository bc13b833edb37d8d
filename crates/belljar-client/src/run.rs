//! What belongs to one run of an agent: who it is for, and what of it servers get to see.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::error::McpError;
use crate::handlers::{Progress, ProgressHandler};

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
    deps: Option<Arc<dyn Any + Send + Sync>>,
    /// How often the tool that is being called failed before.
    pub retry: u32,
    /// The name of the call, as the model's provider gave it.
    pub tool_call_id: Option<String>,
}

impl RunContext {
    /// A run that adds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header to what is sent over HTTP in this run, in place of a header of the same name that the server was
    /// configured with. Requests of one run do not get the headers of another, though they share a connection.
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if the name or value is none of HTTP, or the name is the protocol's own.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let bad = |what: &str| McpError::Config(format!("the header `{name}` has a {what} that HTTP does not allow"));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        crate::transport::http::check_name(&header)?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        Ok(self)
    }

    /// Sends `Authorization: Bearer …` in this run.
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if the token has characters that HTTP does not allow.
    pub fn bearer_token(self, token: &str) -> Result<Self, McpError> {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Adds to the `_meta` of every call.
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Gets the progress of this run's calls. It must not block.
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// Something of the program's own, for its hooks.
    pub fn deps<T: Any + Send + Sync>(mut self, deps: T) -> Self {
        self.deps = Some(Arc::new(deps));
        self
    }

    /// What [`deps`](Self::deps) was given, if it is of this type.
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
