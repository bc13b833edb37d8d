//! What a single call goes out with.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{MetaObject, RequestMetaObject};
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::RequestOptions;
use crate::handlers::{Progress, ProgressHandler};
use crate::run::RunContext;
use crate::transport::endpoint::RunHeaders;

/// What a single call goes out with.
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
    /// A call that adds nothing.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn of_run(run: &RunContext) -> Self {
        Self {
            metadata: run.metadata.clone(),
            headers: (!run.headers.is_empty()).then(|| RunHeaders(run.headers.clone())),
            progress: run.progress.clone(),
            timeout: None,
        }
    }

    /// Adds to the call's `_meta`.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Gets the call's progress. It must not block.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().progress_handler(|step| eprintln!("{:?}", step.fraction()));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// The longest that a request of the call may take, whether the server is silent or not. No bound unless told.
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
            silence: server.inner.settings.read_timeout,
            total: self.timeout,
        }
    }
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
