//! The options of a single call, and of a single request.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{MetaObject, RequestMetaObject};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::McpServer;
use crate::error::McpError;
use crate::handlers::{Progress, ProgressHandler};
use crate::run_context::RunContext;
use crate::transport::headers::RunHeaders;

/// The options of a single call.
///
/// ```
/// use std::time::Duration;
/// use belljar_mcp_client::CallOptions;
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
    /// The time at which the timeout ends, once the call has started.
    deadline: Option<Instant>,
    /// The run that makes the call.
    pub(super) run: Option<Arc<RunContext>>,
}

impl CallOptions {
    /// Creates options that add nothing.
    ///
    /// ```
    /// # use belljar_mcp_client::CallOptions;
    /// let options = CallOptions::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates options with the metadata, the headers, the trace and the progress handler of a run. The identity of the
    /// run is a matter of the handle, see [`McpServer::for_run`].
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{CallOptions, McpServer, RunContext};
    /// # async fn run(server: McpServer, run: RunContext) -> Result<(), belljar_mcp_client::McpError> {
    /// let options = CallOptions::from_run(&run);
    /// let notes = server.for_run(&run).read_resource_with("notes://mine", options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_run(run: &RunContext) -> Self {
        let headers = run.all_headers();
        let mut metadata = run.metadata.clone();
        metadata.extend(run.trace.clone());
        Self {
            metadata,
            headers: (!headers.is_empty()).then_some(RunHeaders(headers)),
            progress: run.progress.clone(),
            timeout: None,
            deadline: None,
            run: Some(Arc::new(run.clone())),
        }
    }

    /// Adds an entry to the call's `_meta`.
    ///
    /// ```
    /// # use belljar_mcp_client::CallOptions;
    /// let options = CallOptions::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Sets the handler of the call's progress notifications. It must not block.
    ///
    /// ```
    /// # use belljar_mcp_client::CallOptions;
    /// let options = CallOptions::new().progress_handler(|step| eprintln!("{:?}", step.fraction()));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// Limits the duration of the whole call, with input that the server requires and the task that it becomes, whether
    /// or not the server is idle. Unlimited by default.
    ///
    /// ```
    /// # use belljar_mcp_client::CallOptions;
    /// let options = CallOptions::new().timeout(std::time::Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Starts the time of the call.
    pub(super) fn started(mut self) -> Self {
        if self.deadline.is_none() {
            self.deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        }
        self
    }

    /// Waits for a call until its deadline.
    pub(super) async fn bounded<T>(
        &self,
        server: &McpServer,
        method: &str,
        call: impl Future<Output = Result<T, McpError>>,
    ) -> Result<T, McpError> {
        let (Some(deadline), Some(timeout)) = (self.deadline, self.timeout) else { return call.await };
        tokio::time::timeout_at(deadline, call).await.unwrap_or_else(|_| {
            Err(McpError::Timeout {
                server: server.label(),
                method: method.to_owned(),
                seconds: timeout.as_secs_f64(),
                diagnostics: String::new(),
            })
        })
    }

    pub(super) fn request_options(&self, server: &McpServer) -> RequestOptions {
        let mut options = server.plain_options();
        if !self.metadata.is_empty() {
            options.meta.get_or_insert_default().0.0.extend(self.metadata.clone());
        }
        if let Some(headers) = &self.headers {
            match &mut options.headers {
                Some(own) => own.0.extend(headers.0.clone()),
                none => *none = Some(headers.clone()),
            }
        }
        options.progress = self.progress.clone();
        options.deadline = self.deadline;
        options.run.clone_from(&self.run);
        options
    }
}

impl McpServer {
    /// Returns the options of a request that is not a call: those of the run that the handle is bound to.
    pub(super) fn plain_options(&self) -> RequestOptions {
        let mut options = RequestOptions { idle_timeout: self.inner.settings.read_timeout, ..Default::default() };
        if let Some(binding) = &self.binding {
            options.headers =
                (!binding.request_headers.is_empty()).then(|| RunHeaders(binding.request_headers.clone()));
            options.meta = (!binding.trace.is_empty()).then(|| RequestMetaObject(MetaObject(binding.trace.clone())));
        }
        options
    }
}

/// The options of a request.
#[derive(Clone, Default)]
pub(super) struct RequestOptions {
    pub(super) meta: Option<RequestMetaObject>,
    pub(super) headers: Option<RunHeaders>,
    pub(super) progress: Option<ProgressHandler>,
    pub(super) idle_timeout: Duration,
    /// The time at which the request fails, even if the server is not idle.
    pub(super) deadline: Option<Instant>,
    pub(super) run: Option<Arc<RunContext>>,
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
