//! Handlers of a server's requests and notifications: sampling, elicitation, roots, logs, progress.

pub(crate) mod elicitation;
mod model_slot;
pub(crate) mod notifications;
mod origin;
pub(crate) mod respond;
pub(crate) mod sampling;

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::ServerNotification;
use serde::{Deserialize, Serialize};

pub use elicitation::{Elicitation, ElicitationHandler, ElicitationResponse};
pub(crate) use model_slot::ModelSlot;
pub use notifications::{LogLevel, LogMessage, Progress};
pub use origin::RequestOrigin;
pub use sampling::{
    Model, ModelError, ModelPreferences, Role, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse,
    SamplingTool, StopReason, ToolChoice,
};

use crate::error::BoxError;

/// A directory that the server may work on.
///
/// ```
/// use belljar_mcp_client::{McpServerStdio, Root};
///
/// let server = McpServerStdio::new("server").roots([Root::new("file:///home/me/project").named("project")]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Root {
    /// The location, a `file://` URI.
    pub uri: String,
    /// A name for display.
    pub name: Option<String>,
}

impl Root {
    /// Creates a root with this URI.
    ///
    /// ```
    /// let root = belljar_mcp_client::Root::new("file:///home/me/project");
    /// assert_eq!(root.name, None);
    /// ```
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), name: None }
    }

    /// Sets the name for display.
    ///
    /// ```
    /// let root = belljar_mcp_client::Root::new("file:///home/me/project").named("project");
    /// assert_eq!(root.name.as_deref(), Some("project"));
    /// ```
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// Provides the directories that a server may work on, each time the server asks for them.
///
/// Closures are handlers as well:
///
/// ```
/// use belljar_mcp_client::{McpServerStdio, Root};
///
/// let server = McpServerStdio::new("server").roots_handler(async || {
///     let here = std::env::current_dir()?;
///     Ok(vec![Root::new(format!("file://{}", here.display()))])
/// });
/// ```
#[async_trait]
pub trait RootsHandler: Send + Sync + 'static {
    /// Returns the directories.
    ///
    /// # Errors
    ///
    /// An error that prevented determining the directories. Its message is sent to the server.
    async fn roots(&self) -> Result<Vec<Root>, BoxError>;

    /// Returns the directories for a server, and for a run if it is known. Defaults to [`roots`](Self::roots).
    ///
    /// # Errors
    ///
    /// The same as [`roots`](Self::roots).
    async fn roots_for(&self, origin: &RequestOrigin) -> Result<Vec<Root>, BoxError> {
        let _ = origin;
        self.roots().await
    }
}

#[async_trait]
impl<F, Answer> RootsHandler for F
where
    F: Fn() -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Vec<Root>, BoxError>> + Send,
{
    async fn roots(&self) -> Result<Vec<Root>, BoxError> {
        self().await
    }
}

/// A handler of a server's log messages, called in order. It runs on the connection's task and must not block.
///
/// ```
/// # use std::sync::Arc;
/// let handler: belljar_mcp_client::LogHandler = Arc::new(|message| eprintln!("{}", message.text()));
/// ```
pub type LogHandler = Arc<dyn Fn(LogMessage) + Send + Sync>;
/// A handler of a call's progress notifications, called in order. It runs on the connection's task and must not block.
///
/// ```
/// # use std::sync::Arc;
/// let handler: belljar_mcp_client::ProgressHandler = Arc::new(|step| eprintln!("{:?}", step.message));
/// ```
pub type ProgressHandler = Arc<dyn Fn(Progress) + Send + Sync>;
/// A handler of all notifications in the protocol's types. It runs on the connection's task and must not block.
///
/// ```
/// # use std::sync::Arc;
/// let handler: belljar_mcp_client::MessageHandler = Arc::new(|notification| eprintln!("{notification:?}"));
/// ```
pub type MessageHandler = Arc<dyn Fn(&ServerNotification) + Send + Sync>;

/// The handlers of a server.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub(crate) model: ModelSlot,
    pub(crate) elicitation: Option<Arc<dyn ElicitationHandler>>,
    pub(crate) roots: Option<Arc<dyn RootsHandler>>,
    pub(crate) log: Option<LogHandler>,
    pub(crate) progress: Option<ProgressHandler>,
    pub(crate) message: Option<MessageHandler>,
    pub(crate) supports_apps: bool,
}
