//! The options of a single tool call, and of a single request.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{MetaObject, RequestMetaObject};
use serde_json::{Map, Value};

use super::McpServer;
use crate::handlers::{Progress, ProgressHandler};
use crate::run_context::RunContext;
use crate::transport::headers::RunHeaders;

/// The options of a single call.
///
/// ```
/// use std::time::Duration;
/// use belljar_client::CallOptions;
/// use serde_json::json;
///
/// let options = CallOptions::new()
///     .metadata("trace", json!("abc"))
///     .timeout(Duration::from_secs(30))
///     .progress_handler(|step| eprintln!("{:?}", step.message));
/// ```
#[derive(Clone, Default)]
pub struct CallOptions {
    pub(super) metadata: Map<String, Value>,
    headers: Option<RunHeaders>,
    progress: Option<ProgressHandler>,
    timeout: Option<Duration>,
}

impl CallOptions {
    /// Creates options that add nothing.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn from_run(run: &RunContext) -> Self {
        Self {
            metadata: run.metadata.clone(),
            headers: (!run.headers.is_empty()).then(|| RunHeaders(run.headers.clone())),
            progress: run.progress.clone(),
            timeout: None,
        }
    }

    /// Adds an entry to the call's `_meta`.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Sets the handler of the call's progress notifications. It must not block.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().progress_handler(|step| eprintln!("{:?}", step.fraction()));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// Limits the duration of each request of the call, whether or not the server is idle. Unlimited by default.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().timeout(std::time::Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn request_options(&self, server: &McpServer) -> RequestOptions {
        let meta = (!self.metadata.is_empty()).then(|| RequestMetaObject(MetaObject(self.metadata.clone())));
        RequestOptions {
            meta,
            headers: self.headers.clone(),
            progress: self.progress.clone(),
            idle_timeout: server.inner.settings.read_timeout,
            timeout: self.timeout,
        }
    }
}

impl McpServer {
    /// Returns the options of a request that is not a tool call.
    pub(super) fn plain_options(&self) -> RequestOptions {
        RequestOptions { idle_timeout: self.inner.settings.read_timeout, ..Default::default() }
    }
}

/// The options of a request.
#[derive(Clone, Default)]
pub(super) struct RequestOptions {
    pub(super) meta: Option<RequestMetaObject>,
    pub(super) headers: Option<RunHeaders>,
    pub(super) progress: Option<ProgressHandler>,
    pub(super) idle_timeout: Duration,
    pub(super) timeout: Option<Duration>,
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CallOptions")
            .field("metadata", &self.metadata)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
